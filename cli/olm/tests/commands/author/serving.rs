//! `olm catalog serve` with a TLS client, compared with the handlers of catalogd.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use catalogd::content::Store;
use catalogd::http::graphql::{GraphQl, observer};
use catalogd::http::{CatalogServer, router};
use olm_runtime::metrics::Metrics;
use olm_serving::https::HttpServer;
use olm_serving::issue::{new_ca, new_leaf};
use reqwest::{Certificate, Client, Method};
use serde_json::Value;

use super::fixture::Fixture;

const CATALOG: &str = "schema: olm.package\nname: lamp\ndefaultChannel: stable\n---\nschema: olm.channel\npackage: lamp\nname: stable\n\
                       entries:\n- name: lamp.v1.0.0\n---\nschema: olm.bundle\npackage: lamp\nname: lamp.v1.0.0\nimage: r.example/lamp\n\
                       properties:\n- type: olm.package\n  value: {packageName: lamp, version: 1.0.0}\n";

/// Running `olm catalog serve`.
struct Server {
    process: Child,
    printed: Value,
    log: BufReader<ChildStderr>,
}

impl Server {
    /// Starts the command in the folder of the fixture, and waits until it serves.
    fn start(fixture: &Fixture, words: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_olm"))
            .args(["catalog", "serve", "-o", "json"])
            .args(words)
            .current_dir(fixture.path(""))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let printed =
            serde_json::Deserializer::from_reader(process.stdout.as_mut().unwrap()).into_iter().next();
        let log = BufReader::new(process.stderr.take().unwrap());
        Self { process, printed: printed.unwrap().unwrap(), log }
    }

    fn url(&self, index: usize) -> String {
        self.printed["catalogs"][index]["url"].as_str().unwrap().to_owned()
    }

    fn client(&self, fixture: &Fixture) -> Client {
        client_trusting(&fixture.path(self.printed["caFile"].as_str().unwrap()))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).unwrap();
        line
    }

    /// Interrupts the command. Returns its exit code and the rest of its standard error.
    fn stop(mut self) -> (Option<i32>, String) {
        let killed = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.process.wait().unwrap().code(), rest)
    }
}

fn client_trusting(ca: &Path) -> Client {
    let ca = Certificate::from_pem(&std::fs::read(ca).unwrap()).unwrap();
    Client::builder().tls_certs_only([ca]).build().unwrap()
}

/// Status, headers that do not depend on time or image, and body.
async fn answer(
    client: &Client,
    url: &str,
    request: &(Method, &str, &str, &str),
) -> (u16, Vec<String>, Vec<u8>) {
    let (method, path, encoding, body) = request;
    let request = client.request(method.clone(), format!("{url}{path}")).header("accept-encoding", *encoding);
    let response = request.body((*body).to_owned()).send().await.unwrap();
    let status = response.status().as_u16();
    let varying = ["date", "last-modified", "etag", "olm-catalog-digest"];
    // A compressed copy has a length once it is complete.
    let timed = ["content-length", "transfer-encoding"];
    let mut headers: Vec<String> = response
        .headers()
        .iter()
        .filter(|(name, _)| encoding.is_empty() || !timed.contains(&name.as_str()))
        .map(|(name, value)| {
            let value = if varying.contains(&name.as_str()) { "" } else { value.to_str().unwrap() };
            format!("{name}: {value}")
        })
        .collect();
    headers.sort();
    (status, headers, response.bytes().await.unwrap().to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_equal_those_of_catalogd_byte_for_byte() {
    let fixture = Fixture::open().await;
    // Long enough to be compressed.
    let many: String =
        (0..100).map(|n| format!("---\nschema: custom\npackage: lamp\nname: n{n}\n")).collect();
    fixture.write("catalog/lamp.yaml", &format!("{CATALOG}{many}"));
    let cache = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(Store::open(cache.path()).unwrap().observed_by(observer));
    store
        .replace("catalog", &fixture.path("catalog"), format!("r.example/c@sha256:{}", "1".repeat(64)))
        .unwrap();
    let reference = CatalogServer {
        store,
        is_expected: Box::new(|_| false),
        metas: true,
        graphql: Some(GraphQl::default()),
    };
    let reference =
        HttpServer::start((Ipv4Addr::LOCALHOST, 0).into(), None, router(reference, &Metrics::new())).unwrap();
    let reference_url = format!("http://{}/catalogs/catalog/api/v1", reference.address);
    let server = Server::start(&fixture, &["catalog"]);
    let client = server.client(&fixture);
    let query = r#"{"query":"{ olmpackages { name } }"}"#;
    for request in [
        (Method::GET, "/all", "", ""),
        (Method::HEAD, "/all", "", ""),
        (Method::GET, "/all", "gzip", ""),
        (Method::GET, "/all", "zstd", ""),
        (Method::GET, "/metas?schema=olm.bundle", "", ""),
        (Method::GET, "/metas?package=lamp", "gzip", ""),
        (Method::GET, "/metas?version=1", "", ""),
        (Method::POST, "/graphql", "", query),
        (Method::POST, "/graphql", "", "{}"),
        (Method::POST, "/all", "", ""),
        (Method::GET, "/other", "", ""),
        (Method::GET, "/../../../other/api/v1/all", "", ""),
    ] {
        let served = answer(&client, &server.url(0), &request).await;
        assert_eq!(served, answer(&Client::new(), &reference_url, &request).await, "{request:?}");
    }
    let all = answer(&client, &server.url(0), &(Method::GET, "/all", "", "")).await;
    assert_eq!(all.2.iter().filter(|byte| **byte == b'\n').count(), 103);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(log.starts_with("GET /catalogs/catalog/api/v1/all 200\nHEAD "), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_directory_is_read_again_and_a_broken_one_is_not_served() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp.yaml", CATALOG);
    fixture.write("other/x.yaml", "schema: x\n");
    let mut server = Server::start(&fixture, &["catalog", "two=other", "--ca-file", "ca.crt"]);
    let client = server.client(&fixture);
    assert_eq!(server.printed["caFile"], "ca.crt");
    let metas = format!("{}/metas?schema=olm.package", server.url(0));
    let get = async || {
        let response = client.get(&metas).send().await.unwrap();
        let tag = response.headers()["etag"].to_str().unwrap().to_owned();
        (tag, response.text().await.unwrap())
    };
    let first = get().await;
    assert_eq!(server.line(), "GET /catalogs/catalog/api/v1/metas?schema=olm.package 200\n");
    fixture.write("catalog/lamp.yaml", &CATALOG.replace("defaultChannel: stable", "defaultChannel: fast"));
    let second = get().await;
    assert!(second.1.contains("\"defaultChannel\":\"fast\""), "{}", second.1);
    assert_ne!(first.0, second.0);
    assert_eq!(server.line(), "catalog catalog was read again\n");
    server.line();
    fixture.write("catalog/lamp.yaml", "schema: [");
    assert_eq!(get().await, second);
    let line = server.line();
    assert!(
        line.starts_with("catalog catalog: lamp.yaml:1: ")
            && line.ends_with("; the earlier content is served\n"),
        "{line}"
    );
    let other = client.get(format!("{}/all", server.url(1))).send().await.unwrap().text().await.unwrap();
    assert_eq!(other, "{\"schema\":\"x\"}\n");
    assert_eq!(server.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_is_served_and_an_invalid_source_or_name_is_refused() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp.yaml", CATALOG);
    let image = fixture.reference("team/lamps:v1");
    fixture.works(&format!("push catalog {image} --ca-dir cas")).await;
    let server = Server::start(&fixture, &[&image, "--ca-dir", "cas"]);
    assert!(server.url(0).ends_with("/catalogs/lamps/api/v1"), "{}", server.url(0));
    let all = server.client(&fixture).get(format!("{}/all", server.url(0))).send().await.unwrap();
    assert_eq!(all.text().await.unwrap().lines().count(), 3);
    assert_eq!(server.stop().0, Some(0));
    // With a certificate of the user, for all addresses.
    let now = k8s_openapi::jiff::Timestamp::now();
    let ca = new_ca("test", now).unwrap();
    let pair = new_leaf(&ca, "test", &["localhost".to_owned()], now).unwrap();
    for (name, pem) in [("ca.pem", ca.certificate), ("tls.pem", pair.certificate), ("key.pem", pair.key)] {
        fixture.write(name, std::str::from_utf8(&pem).unwrap());
    }
    let words = ["catalog", "--tls-cert", "tls.pem", "--tls-key", "key.pem", "--listen", "0.0.0.0:0"];
    let server = Server::start(&fixture, &words);
    assert_eq!(server.printed["caFile"], Value::Null);
    let client = client_trusting(&fixture.path("ca.pem"));
    let all = client.get(format!("{}/all", server.url(0))).send().await.unwrap();
    assert_eq!(all.status(), 200);
    assert_eq!(server.stop().0, Some(0));
    fixture.write("broken/a.yaml", "schema: [");
    for (words, code, error) in [
        ("serve broken", 1, "broken: a.yaml:1: "),
        ("serve catalog catalog", 2, "two catalogs have the name catalog: specify NAME=catalog"),
        (
            "serve Bad!=catalog",
            2,
            "specify NAME=catalog: the name \"Bad!\" of the catalog a lowercase RFC 1123",
        ),
        ("serve cluster", 2, "catalogd serves the catalogs of a cluster"),
        ("serve catalog --tls-cert a.crt", 2, "--tls-key"),
        ("serve catalog --tls-cert a.crt --tls-key a.key", 1, "a.crt"),
        ("serve catalog --listen 192.0.2.1:1", 1, "cannot start the server: listen on 192.0.2.1:1: "),
    ] {
        let ran = fixture.olm(words).await;
        assert_eq!(ran.code, code, "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(error), "{words}: {}", ran.stderr);
    }
}
