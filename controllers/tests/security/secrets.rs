//! Credentials and the content of Secrets appear in no log at any verbosity, condition, revision or Event
//! (docs/design/operations.md#hardening).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use olm_api::ClusterCatalog;
use olm_api::conditions::find;
use olm_image::registry::Access;
use olm_servers::{
    Bundle, Catalog, NAMESPACE, Programs, Server, ServerFixture, Workloads, eventually, extension,
};
use serde_json::{Value, json};

const USER: &str = "robot-account";
const PASSWORD: &str = "pa55-of-the-registry";
const CHANGED: &str = "pa55-after-a-change";
const INSIDE: &str = "c0ntent-of-a-secret";
/// Maximum verbosity, including library logs.
const LOUD: &str = "--v=8";
const PULL_SECRET: &str = "--global-pull-secret=olmv1-system/pull";

// docs/design/operations.md#hardening: credential leakage
#[tokio::test(flavor = "multi_thread")]
async fn secrets_appear_in_no_log_condition_revision_or_event() {
    let fixture = ServerFixture::start(Programs::beside(crate::PROGRAM).unwrap()).await.unwrap();
    let _workloads = Workloads::start(fixture.client());
    let versions = ["1.0.0", "1.1.0"].map(|version| fixture.publish(&bundle(version)).unwrap());
    fixture.registry.set_access(Access::Bearer(Some((USER.to_owned(), PASSWORD.to_owned()))));
    write_pull_secret(&fixture, PASSWORD).await;
    let mut catalogd = fixture.launch_catalogd(&[LOUD, PULL_SECRET]).unwrap();
    catalogd.ready().await.unwrap();
    let mut controller = fixture.launch_controller(&[LOUD, PULL_SECRET]).unwrap();
    controller.ready().await.unwrap();

    fixture.serve("packages", &Catalog::default().chain(&versions)).await.unwrap();
    fixture.create_namespace("apps").await.unwrap();
    let body = serde_json::from_value(extension("lamp", "apps", "lamp", Some("1.0.0"))).unwrap();
    fixture.extensions().create(&PostParams::default(), &body).await.unwrap();
    fixture.until_installed("lamp", "1.0.0").await.unwrap();

    // From here on, every pull fails.
    fixture.registry.set_access(Access::Basic(USER.to_owned(), CHANGED.to_owned()));
    let version = json!({"spec": {"source": {"catalog": {"version": "1.1.0"}}}});
    fixture.edit("lamp", version).await.unwrap();
    let refused = |extension: &olm_api::ClusterExtension| {
        let status = extension.status.as_ref();
        let progressing = status.and_then(|status| find(&status.conditions, "Progressing"));
        progressing.is_some_and(|condition| condition.message.contains("unauthorized"))
    };
    fixture.until("lamp", "is rejected by the registry", refused).await.unwrap();
    refused_catalog(&fixture).await;

    // The next pull uses the new password. Resolution would wait for a catalog that cannot be served, so it is
    // deleted.
    let catalogs: Api<ClusterCatalog> = Api::all(fixture.client());
    catalogs.delete("other", &DeleteParams::default()).await.unwrap();
    write_pull_secret(&fixture, CHANGED).await;
    fixture.until_installed("lamp", "1.1.0").await.unwrap();
    for folder in ["catalogd", "operator-controller", "tmp"] {
        assert!(fixture.file(folder).is_dir(), "{folder}");
        for secret in logins() {
            assert_eq!(files_with(&fixture.file(folder), &secret), Vec::<PathBuf>::new(), "{secret:?}");
        }
    }
    for (what, text) in output(&fixture, &[&catalogd, &controller]).await {
        for secret in secrets(&fixture) {
            assert!(!text.contains(&secret), "{secret:?} is in {what}:\n{}", around(&text, &secret));
        }
    }
}

fn bundle(version: &str) -> Bundle {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lamp-key"},
        "data": {"key": BASE64_STANDARD.encode(INSIDE)}});
    Bundle::sample("lamp", version).manifest("secret.yaml", secret)
}

async fn write_pull_secret(fixture: &ServerFixture, password: &str) {
    let auth = BASE64_STANDARD.encode(format!("{USER}:{password}"));
    let config = json!({"auths": {fixture.registry.host(): {"auth": auth}}}).to_string();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": BASE64_STANDARD.encode(config)}});
    let api: Api<Secret> = Api::namespaced(fixture.client(), NAMESPACE);
    api.patch("pull", &PatchParams::apply("test").force(), &Patch::Apply(secret)).await.unwrap();
}

/// Files below `folder` that contain `text`. The servers may remove files meanwhile.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    fn existing<T>(result: io::Result<T>) -> Option<T> {
        result.map_err(|error| assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}")).ok()
    }
    let mut found = Vec::new();
    for entry in existing(fs::read_dir(folder)).into_iter().flatten() {
        let Some(path) = existing(entry).map(|entry| entry.path()) else { continue };
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if let Some(bytes) = existing(fs::read(&path))
            && bytes.windows(text.len()).any(|window| window == text.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

/// Creates a catalog that cannot be pulled, and waits until its condition reports that.
async fn refused_catalog(fixture: &ServerFixture) {
    let reference = format!("{}/catalogs/other:latest", fixture.registry.host());
    let catalog: ClusterCatalog = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
        "metadata": {"name": "other", "labels": {"olm.operatorframework.io/metadata.name": "other"}},
        "spec": {"source": {"type": "Image", "image": {"ref": reference}}},
    }))
    .unwrap();
    let api: Api<ClusterCatalog> = Api::all(fixture.client());
    api.create(&PostParams::default(), &catalog).await.unwrap();
    let refused = async || {
        let status = api.get("other").await.unwrap().status?;
        find(&status.conditions, "Progressing").filter(|one| one.reason == "Retrying").map(drop)
    };
    eventually("the pull of the catalog is rejected", refused).await;
}

/// Values that must not appear anywhere: plain, encoded, and as byte lists of either.
fn secrets(fixture: &ServerFixture) -> Vec<String> {
    let key = fs::read_to_string(fixture.file("tls.key")).unwrap();
    let key = key.lines().nth(1).unwrap().to_owned();
    let access: Value =
        serde_json::from_str(&fs::read_to_string(fixture.plane.kubeconfig()).unwrap()).unwrap();
    let token = access.pointer("/users/0/user/token").and_then(Value::as_str).unwrap().to_owned();
    let others = vec![
        token,
        "token-of-the-test-registry".to_owned(),
        INSIDE.to_owned(),
        BASE64_STANDARD.encode(INSIDE),
        key,
    ];
    let texts = [logins(), others].concat();
    let in_lists = texts.iter().map(|text| bytes_of(text)).collect();
    [texts, in_lists].concat()
}

/// Byte list as `Debug` prints it.
fn bytes_of(text: &str) -> String {
    format!("{:?}", text.as_bytes()).trim_matches(['[', ']']).to_owned()
}

/// Credentials of the pull Secret, plain and encoded.
fn logins() -> Vec<String> {
    let forms = |password: &str| {
        let encoded =
            [password.to_owned(), format!("{USER}:{password}")].map(|text| BASE64_STANDARD.encode(text));
        [vec![password.to_owned()], encoded.to_vec()].concat()
    };
    [PASSWORD, CHANGED].into_iter().flat_map(forms).collect()
}

/// All texts visible to users, by source.
async fn output(fixture: &ServerFixture, servers: &[&Server]) -> Vec<(String, String)> {
    let client = fixture.client();
    let mut output: Vec<(String, String)> =
        servers.iter().map(|server| (format!("a log of process {}", server.pid()), server.log())).collect();
    let all = ListParams::default();
    let mut add = |what: &str, objects: Value| output.push((what.to_owned(), objects.to_string()));
    let catalogs: Api<ClusterCatalog> = Api::all(client.clone());
    add("ClusterCatalogs", json!(catalogs.list(&all).await.unwrap().items));
    add("ClusterExtensions", json!(fixture.extensions().list(&all).await.unwrap().items));
    add("ClusterObjectSets", json!(fixture.revisions().list(&all).await.unwrap().items));
    let events: Api<Event> = Api::all(client);
    add("Events", json!(events.list(&all).await.unwrap().items));
    for (what, text) in &output {
        assert!(text.len() > 100, "{what} is empty");
    }
    output
}

/// Part of the line that surrounds the secret.
fn around(text: &str, secret: &str) -> String {
    let line = text.lines().find(|line| line.contains(secret)).unwrap_or_default();
    let at = line.find(secret).unwrap_or_default();
    let from = line.char_indices().map(|(index, _)| index).find(|index| index + 300 > at).unwrap_or_default();
    line.chars().skip(line[..from].chars().count()).take(800).collect()
}
