use axum::http::StatusCode;

use crate::tests::Rig;

async fn rig() -> Rig {
    let folder = format!("{}/../olm/tests/data/skipped", env!("CARGO_MANIFEST_DIR"));
    Rig::new(&["--catalog", &folder]).await
}

const GRAPH: &str = "/catalogs/skipped/packages/example/graph";

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_path_and_reason_of_the_state_in_its_address() {
    let rig = rig().await;
    let page = rig.get(&format!("{GRAPH}?installed=1.0.0&bundle=example.v2.0.0&zoom=50")).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    for part in [
        "Upgrade path: example.v1.0.0 → <strong>example.v2.0.0</strong> → <strong>example.v3.0.0</strong>",
        "<dt>Resolver</dt><dd>chose example.v2.0.0: a successor by skipRange in channel stable</dd>",
        "example.v3.0.0&#10;Path: step 2",
        "class=\"row selected\" href=\"/catalogs/skipped/packages/example/graph?installed=1%2E0%2E0&amp;bundle=example%2Ev2%2E0%2E0&amp;zoom=50\" aria-current=\"true\"",
    ] {
        assert!(page.text.contains(part), "no {part} in {}", page.text);
    }
    // The policy of the page forbids styles in the markup.
    assert!(!page.text.contains("<style") && !page.text.contains("style="), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn range_changes_the_choice_and_a_new_installation_has_no_path() {
    let rig = rig().await;
    let new = rig.get(GRAPH).await.text;
    assert!(
        new.contains("The resolver chooses <strong>example.v3.0.0</strong> for a new installation."),
        "{new}"
    );
    let limited = rig.get(&format!("{GRAPH}?version=%3C3.0.0")).await.text;
    assert!(limited.contains("chooses <strong>example.v2.0.0</strong>"), "{limited}");
    assert!(limited.contains("not within version range"), "{limited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_channel_bundle_or_range_is_an_error_with_its_reason() {
    let rig = rig().await;
    for (query, status, text) in [
        ("channel=no", StatusCode::NOT_FOUND, "has no channel"),
        ("installed=9.9.9", StatusCode::NOT_FOUND, "has no bundle or version"),
        ("version=one", StatusCode::OK, "one"),
    ] {
        let answer = rig.get(&format!("{GRAPH}?{query}")).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
        assert!(answer.text.contains(text), "{query}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn markup_in_names_is_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let evil = r#"</title><script>alert(1)</script>\" onload=\"x"#;
    let yaml = format!(
        r#"---
schema: olm.package
name: lamp
defaultChannel: "{evil}"
---
schema: olm.channel
package: lamp
name: "{evil}"
entries:
- name: "lamp{evil}.v1.0.0"
- name: "lamp.v1.1.0"
  replaces: "lamp{evil}.v1.0.0"
  skips: ["{evil}"]
---
schema: olm.bundle
package: lamp
name: "lamp{evil}.v1.0.0"
image: r.example/lamp:v1
properties:
- type: olm.package
  value: {{packageName: lamp, version: 1.0.0}}
---
schema: olm.bundle
package: lamp
name: lamp.v1.1.0
image: r.example/lamp:v1
properties:
- type: olm.package
  value: {{packageName: lamp, version: 1.1.0}}
"#
    );
    let rig = Rig::with_catalog(folder.path(), &yaml).await;
    let page = rig.get("/catalogs/hostile/packages/lamp/graph?bundle=lamp.v1.1.0&installed=1.0.0").await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert!(!page.text.contains("<script>") && !page.text.contains("\" onload=\""), "{}", page.text);
    assert!(page.text.contains("&lt;script&gt;alert(1)"), "{}", page.text);
}
