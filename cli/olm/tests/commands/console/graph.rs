//! Page of the upgrade graph.

use serde_json::json;

use super::rig::Visit;
use crate::fixture::tests;

const GRAPH: &str = "/catalogs/skipped/packages/example/graph";

#[tokio::test(flavor = "multi_thread")]
async fn graph_shows_path_reasons_and_zoom_and_its_address_keeps_them() {
    let Some(visit) = Visit::of_catalog("skipped", &tests("data/skipped")).await else { return };
    let browser = &visit.browser;
    visit.open(&format!("{GRAPH}?installed=1.0.0")).await;
    let path = browser.texts(".result").await;
    assert_eq!(path, ["Upgrade path: example.v1.0.0 → example.v2.0.0 → example.v3.0.0"]);
    assert!(
        browser.value("document.querySelectorAll('.upgrade-graph .path').length").await.as_u64() > Some(0)
    );

    browser.hover(".row[href*='example%2Ev3%2E0%2E0']").await;
    browser.until("document.querySelector('#bundle strong')?.textContent === 'example.v3.0.0'").await;
    let reasons = browser.texts("#bundle dd").await.join("\n");
    assert!(reasons.contains("step 2") && !reasons.contains("passed over"), "{reasons}");

    browser.click(".row[href*='example%2Ev2%2E0%2E0']").await;
    browser.until("document.querySelector('.row.selected')").await;
    let width = "document.querySelector('.upgrade-graph').getBoundingClientRect().width";
    let before = browser.value(width).await.as_f64().unwrap();
    browser.click("[data-zoom='in']").await;
    browser.until("new URL(location).searchParams.get('zoom') === '125'").await;
    let larger = browser.value(width).await.as_f64().unwrap();
    assert!((larger / before - 1.25).abs() < 0.02, "{before} {larger}");

    let address = browser.value("location.href").await;
    visit.open("/").await;
    browser.open(address.as_str().unwrap()).await;
    browser.until("document.querySelector('.row.selected[aria-current]')").await;
    assert_eq!(browser.texts("#bundle strong").await, ["example.v2.0.0"]);
    assert!((browser.value(width).await.as_f64().unwrap() - larger).abs() < 2.0);
    graph_fits_and_prints(&visit).await;
    visit.finish(&[]).await;
}

async fn graph_fits_and_prints(visit: &Visit) {
    let browser = &visit.browser;
    browser.click("[data-zoom='fit']").await;
    let overflow =
        "(scroll => scroll.scrollWidth - scroll.clientWidth)(document.querySelector('.graph .scroll'))";
    assert!(browser.value(overflow).await.as_i64() <= Some(0), "the drawing fits");
    browser.media("print", "light").await;
    let shown = "['.top', '.choice', '.graph .zoom', '#bundle'].filter(part => document.querySelector(part).checkVisibility())";
    assert_eq!(browser.value(shown).await, json!([]), "only the drawing is printed");
    let printed = browser.devtools("Page.printToPDF", json!({})).await;
    assert!(printed["data"].as_str().unwrap().len() > 1000);
    browser.media("screen", "light").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_graph_chooses_channel_and_installed_bundle() {
    let Some(visit) = Visit::of_demo().await else { return };
    let browser = &visit.browser;
    visit.open("/catalogs/demo/packages/orchard-backup/graph").await;
    browser.click("#installed option[value='orchard-backup.v1.8.0']").await;
    browser.click("form.choice button").await;
    browser.until("document.querySelector('.result')?.textContent.startsWith('Upgrade path')").await;
    browser.hover(".row").await;
    browser.until("document.querySelector('#bundle dl')").await;
    visit.picture("graph").await;
    browser.click("#channel option[value='stable-1']").await;
    browser.click("form.choice button").await;
    browser.until("new URL(location).searchParams.get('channel') === 'stable-1'").await;
    let rows = browser.texts(".row .version").await;
    assert!(!rows.is_empty() && rows.iter().all(|version| version.starts_with("1.")), "{rows:?}");
    visit.finish(&[]).await;
}
