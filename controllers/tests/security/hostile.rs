//! Malicious content: messages about it are short and escaped, and other extensions are unaffected
//! (docs/design/operations.md#hardening).

use std::collections::BTreeMap;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, PostParams};
use olm_api::ClusterCatalog;
use olm_api::conditions::{MAX_MESSAGE_BYTES, find};
use olm_api::text::is_hidden;
use olm_image::Image;
use olm_servers::{Bundle, Catalog, Programs, Server, ServerFixture, Workloads, eventually, extension};
use serde_json::{Value, json};

/// Terminal sequence that clears the screen.
const CLEAR: &str = "\u{1b}[2J";
/// Two sequences that clear the screen, and a right-to-left override.
const ESCAPE: &str = "\u{1b}[2J\u{9b}2J\u{202e}";
/// Maximum length of a log line.
const MAX_LINE: usize = 64 << 10;
/// Maximum length of a message about one catalog: it quotes only the start of a text.
const MAX_MESSAGE: usize = 4 << 10;

// docs/design/operations.md#hardening: malicious catalog content, malicious bundle image; case operations-a54
#[tokio::test(flavor = "multi_thread")]
async fn hostile_content_is_reported_briefly_and_affects_no_other_extension() {
    let fixture = ServerFixture::start(Programs::beside(crate::PROGRAM).unwrap()).await.unwrap();
    let _workloads = Workloads::start(fixture.client());
    let mut catalogd = fixture.start_catalogd().await.unwrap();
    let mut controller = fixture.start_controller().await.unwrap();
    fixture.create_namespace("apps").await.unwrap();
    let good = fixture.publish(&Bundle::sample("lamp", "1.0.0")).unwrap();
    let evil = fixture.publish(&Bundle::new(&format!("evil{CLEAR}"), "1.0.0")).unwrap();
    let long = fixture.publish(&Bundle::new("long", "1.0.0").config_map(&"x".repeat(1 << 20), &[])).unwrap();

    hostile_catalogs(&fixture).await;
    fixture
        .serve("packages", &Catalog::default().chain(&[good]).chain(&[evil]).chain(&[long]))
        .await
        .unwrap();
    for package in ["lamp".to_owned(), format!("evil{CLEAR}"), "long".to_owned()] {
        let mut name = package.clone();
        name.retain(|c| c.is_ascii_lowercase());
        let mut body = extension(&name, "apps", &package, None);
        // A catalog that is not served blocks the installation of every package that it could contain.
        body["spec"]["source"]["catalog"]["selector"] =
            json!({"matchLabels": {"olm.operatorframework.io/metadata.name": "packages"}});
        let made = serde_json::from_value(body).unwrap();
        if let Err(error) = fixture.extensions().create(&PostParams::default(), &made).await {
            // The API server validates package names.
            assert!(package.contains(CLEAR), "{error}");
        }
    }
    fixture.until_installed("lamp", "1.0.0").await.unwrap();
    let reported = |extension: &olm_api::ClusterExtension| {
        let status = extension.status.as_ref();
        status.is_some_and(|status| find(&status.conditions, "Progressing").is_some())
    };
    fixture.until("long", "has the condition Progressing", reported).await.unwrap();
    messages_are_short_and_escaped(&fixture, &[&catalogd, &controller]).await;
    catalogd.check().unwrap();
    controller.check().unwrap();
}

/// Creates malicious catalogs and waits until each has a condition.
async fn hostile_catalogs(fixture: &ServerFixture) {
    let long = "n".repeat(1 << 20);
    let package = |name: &str| json!({"schema": "olm.package", "name": name});
    let twice = |name: &str| format!("{}\n{}\n", package(name), package(name));
    let bundle = json!({"schema": "olm.bundle", "package": "a", "name": format!("a{ESCAPE}"), "image": "r/i@x",
        "properties": [{"type": "olm.package", "value": {"packageName": "a", "version": format!("{ESCAPE}1")}}]});
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for (name, text) in [
        ("twice", twice(&format!("evil{ESCAPE}"))),
        ("long", twice(&long)),
        ("bundle", format!("{}\n{bundle}\n", package("a"))),
        ("deep", format!("{{\"schema\": \"olm.package\", \"name\": \"a\", \"x\": {deep}}}")),
        ("text", format!("{ESCAPE}{long}")),
        ("anchor", format!("schema: *{long}")),
        ("keys", format!("{{\"schema\": \"a\", \"{ESCAPE}{long}k\": 1, \"{ESCAPE}{long}K\": 2}}")),
    ] {
        let files = BTreeMap::from([(format!("{ESCAPE}.yaml"), text.into_bytes())]);
        let image = Image::catalog(&files).unwrap();
        let digest = fixture.registry.add_image(&format!("hostile/{name}"), "latest", &image);
        let reference = format!("{}/hostile/{name}@{digest}", fixture.registry.host());
        let catalog: ClusterCatalog = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name, "labels": {"olm.operatorframework.io/metadata.name": name}},
            "spec": {"source": {"type": "Image", "image": {"ref": reference}}},
        }))
        .unwrap();
        let api: Api<ClusterCatalog> = Api::all(fixture.client());
        api.create(&PostParams::default(), &catalog).await.unwrap();
        let reported = async || {
            let status = api.get(name).await.unwrap().status?;
            find(&status.conditions, "Progressing").map(drop)
        };
        eventually(&format!("conditions of catalog {name}"), reported).await;
    }
}

async fn messages_are_short_and_escaped(fixture: &ServerFixture, servers: &[&Server]) {
    let catalogs: Api<ClusterCatalog> = Api::all(fixture.client());
    let mut statuses: Vec<(String, usize, Value)> = Vec::new();
    for catalog in catalogs.list(&ListParams::default()).await.unwrap() {
        statuses.push((catalog.metadata.name.unwrap(), MAX_MESSAGE, json!(catalog.status)));
    }
    for extension in fixture.extensions().list(&ListParams::default()).await.unwrap() {
        let name = extension.metadata.name.unwrap();
        statuses.push((name, MAX_MESSAGE_BYTES, json!(extension.status)));
    }
    for (name, limit, status) in statuses {
        for condition in status["conditions"].as_array().unwrap() {
            let message = condition["message"].as_str().unwrap();
            let start = message.chars().take(500).collect::<String>();
            assert!(!message.contains(is_hidden), "{name}: {start:?}");
            assert!(message.len() <= limit, "{name}: {} bytes: {start:?}", message.len());
        }
    }
    let events: Api<Event> = Api::all(fixture.client());
    for event in events.list(&ListParams::default()).await.unwrap() {
        assert!(!event.note.as_deref().unwrap_or_default().contains(is_hidden), "{:?}", event.note);
    }
    for server in servers {
        for line in server.log().lines() {
            let start = line.chars().take(300).collect::<String>();
            assert!(line.len() <= MAX_LINE, "{} bytes: {start}", line.len());
            assert!(!line.contains(is_hidden), "{start:?}");
        }
    }
}
