//! The console in a browser without JavaScript.

use serde_json::json;

use super::rig::Visit;

#[tokio::test(flavor = "multi_thread")]
async fn pages_work_without_script() {
    let Some(visit) = Visit::of_demo().await else { return };
    let browser = &visit.browser;
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    visit.open("/").await;
    assert_eq!(browser.value("document.documentElement.className").await, "", "no script ran");
    assert_eq!(browser.value("document.querySelector('[data-theme-toggle]').checkVisibility()").await, false);
    browser.click("#q").await;
    browser.keys("backup").await;
    browser.click(".filters button").await;
    browser.until("new URL(location).searchParams.get('q') === 'backup'").await;
    assert_eq!(browser.texts(".package h2").await.len(), 2);
    browser.click(".package h2 a").await;
    visit.until_at("/catalogs/demo/packages/orchard%2Dbackup").await;

    browser.click(".actions a.quiet").await;
    browser.until("document.querySelector('.upgrade-graph')").await;
    browser.click(".upgrade-graph .row").await;
    browser.until("document.querySelector('.row.selected')").await;
    assert_eq!(browser.texts("#bundle strong").await.len(), 1, "the selected bundle is described");
    browser.click("[data-zoom='in']").await;
    browser.until("new URL(location).searchParams.get('zoom') === '200'").await;

    visit.open("/catalogs/demo/packages/orchard-backup/install").await;
    browser.click("#namespace").await;
    browser.keys("backup").await;
    browser.click("form.install button").await;
    browser.until("document.querySelector('#manifest')").await;
    let manifest = browser.texts("#manifest").await;
    assert!(manifest[0].contains("namespace: backup"), "{manifest:?}");
    visit.finish(&[]).await;
}
