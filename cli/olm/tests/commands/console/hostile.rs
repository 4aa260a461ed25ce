//! Attacks by the content of a catalog.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::browser::key;
use super::rig::Visit;

pub(super) const SCRIPT: &str = "\"'><script>window.attacked=1</script><img src=x onerror=window.attacked=1>";
const SVG: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"window.attacked=1\"><script>window.attacked=1</script>\
                   <image href=\"https://evil.example/x.png\"/></svg>";

/// Package in which each text is a script.
fn package(name: &str) -> Vec<Value> {
    let bundle = format!("{name}{SCRIPT}.v1");
    let csv = json!({"displayName": SCRIPT, "provider": {"name": SCRIPT}, "keywords": [SCRIPT], "maturity": SCRIPT,
        "description": format!("# {SCRIPT}\n\n{SCRIPT}\n\n[a](javascript:window.attacked=1) ![b](https://evil.example/x)"),
        "links": [{"name": SCRIPT, "url": "javascript:window.attacked=1"}], "maintainers": [{"name": SCRIPT, "email": SCRIPT}],
        "annotations": {"description": SCRIPT, "categories": SCRIPT, "repository": "javascript:window.attacked=1"},
        "customresourcedefinitions": {"owned": [{"name": SCRIPT, "kind": SCRIPT, "version": SCRIPT}]}});
    vec![
        json!({"schema": "olm.package", "name": name, "defaultChannel": SCRIPT, "description": SCRIPT,
            "icon": {"mediatype": "image/svg+xml", "base64data": BASE64_STANDARD.encode(SVG)}}),
        json!({"schema": "olm.channel", "package": name, "name": SCRIPT, "entries": [{"name": bundle, "skips": [SCRIPT]}]}),
        json!({"schema": "olm.bundle", "package": name, "name": bundle, "image": SCRIPT, "properties": [
            {"type": "olm.package", "value": {"packageName": name, "version": "1.0.0"}},
            {"type": "olm.gvk", "value": {"group": SCRIPT, "kind": SCRIPT, "version": SCRIPT}},
            {"type": "olm.csv.metadata", "value": csv}]}),
        json!({"schema": "olm.deprecations", "package": name,
            "entries": [{"reference": {"schema": "olm.package"}, "message": SCRIPT}]}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_hostile_catalog_never_runs() {
    let folder = tempfile::tempdir().unwrap();
    let objects: Vec<Value> = ["evil", "worse"].into_iter().flat_map(package).collect();
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    std::fs::write(folder.path().join("catalog.json"), text).unwrap();
    let Some(visit) = Visit::of_catalog("hostile", folder.path()).await else { return };
    let evil = "/catalogs/hostile/packages/evil";
    let query = "%3Cscript%3Ewindow.attacked%3D1%3C%2Fscript%3E";
    for path in [
        "/".to_owned(),
        format!("/?q={query}&category={query}"),
        evil.to_owned(),
        format!("{evil}?channel={query}"),
        format!("{evil}/graph?installed=1.0.0&version={query}"),
        format!("{evil}/graph?bundle={query}&zoom={query}"),
        format!("{evil}/install?namespace={query}&preview=yes&{query}={query}"),
        format!("{evil}/install?follow=range&range={query}&channel={query}&preview=yes"),
        format!("/extensions?q={query}&state={query}&sort={query}"),
        format!("/{query}"),
    ] {
        visit.open(&path).await;
        assert_unharmed(&visit, &path).await;
    }
    script_shows_hostile_content_as_text(&visit).await;
    // Icons are refused, and some of the addresses lead to nothing.
    visit.finish(&["status of 404", "status of 400"]).await;
}

/// The script of the console puts texts of the catalog into the page, too.
async fn script_shows_hostile_content_as_text(visit: &Visit) {
    let browser = &visit.browser;
    visit.open("/").await;
    browser.click("#q").await;
    browser.keys("worse").await;
    browser.until("document.querySelectorAll('.package').length === 1").await;
    browser.until("document.querySelector('.package .icon.letter')").await;
    assert_unharmed(visit, "search").await;
    browser.keys(key::DOWN).await;
    browser.keys(key::ENTER).await;
    visit.until_at("/catalogs/hostile/packages/worse").await;
    visit.open("/catalogs/hostile/packages/worse/graph").await;
    browser.hover(".row").await;
    browser.until("document.querySelector('#bundle strong')").await;
    assert!(browser.texts("#bundle").await[0].contains(SCRIPT));
    browser.click(".row").await;
    browser.until("location.search.includes('bundle')").await;
    assert_unharmed(visit, "graph").await;
}

pub(super) async fn assert_unharmed(visit: &Visit, page: &str) {
    let state = "[window.attacked ?? null, document.scripts.length, document.querySelectorAll('a[href^=\"javascript:\"]').length]";
    assert_eq!(visit.browser.value(state).await, json!([null, 1, 0]), "{page}");
}
