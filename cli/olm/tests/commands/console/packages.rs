//! List of packages, and the page of a package.

use serde_json::json;

use super::browser::{Screen, key};
use super::rig::Visit;

const ITEMS: &str = "document.querySelectorAll('.package').length";
const TIDE: &str = "/catalogs/demo/packages/tide-database";

#[tokio::test(flavor = "multi_thread")]
async fn search_filters_while_typing_and_address_keeps_it() {
    let Some(visit) = Visit::of_demo().await else { return };
    let browser = &visit.browser;
    assert_eq!(browser.value(ITEMS).await, 6);
    browser.click("#q").await;
    browser.keys("backup").await;
    browser.until(&format!("{ITEMS} === 2")).await;
    visit.until_at("/?q=backup").await;
    assert_eq!(browser.texts(".package h2").await[0], "Orchard Backup");
    assert_eq!(browser.texts("[data-status]").await, ["2 packages"], "screen readers hear the number");
    browser.click(".package h2 a").await;
    visit.until_at("/catalogs/demo/packages/orchard%2Dbackup").await;
    browser.back().await;
    visit.until_at("/?q=backup").await;
    assert_eq!(browser.value(ITEMS).await, 2);
    assert_eq!(browser.value("document.querySelector('#q').value").await, "backup");
    browser.click("#q").await;
    browser.keys("zzz").await;
    browser.until("document.querySelector('.empty')").await;
    browser.click(".empty a").await;
    visit.until_at("/").await;
    visit.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_combine_and_are_cleared_together() {
    let Some(visit) = Visit::of_demo().await else { return };
    let browser = &visit.browser;
    browser.choose("#deprecated", "Only").await;
    visit.until_at("/?deprecated=only").await;
    browser.until(&format!("{ITEMS} === 1")).await;
    assert_eq!(browser.texts(".package .badge").await, ["Deprecated"]);
    browser.choose("#deprecated", "Hide").await;
    browser.until(&format!("{ITEMS} === 5")).await;
    browser.choose("#category", "Database").await;
    visit.until_at("/?category=Database&deprecated=hide").await;
    browser.until(&format!("{ITEMS} < 5")).await;
    let found = browser.texts(".package h2").await;
    assert!(found.contains(&"Tide Database".to_owned()), "{found:?}");
    browser.choose("#provider", "Tidewater").await;
    browser.until(&format!("{ITEMS} === 1")).await;
    assert_eq!(browser.texts("#results .count").await, ["1 package"]);
    browser.click(".reset").await;
    visit.until_at("/").await;
    assert_eq!(browser.value(ITEMS).await, 6);
    visit.picture("packages").await;
    browser.screen(Screen::Narrow).await;
    browser.media("screen", "dark").await;
    visit.open("/").await;
    visit.picture("narrow").await;
    visit.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn package_page_follows_channel_and_version() {
    let Some(visit) = Visit::of_demo().await else { return };
    let browser = &visit.browser;
    visit.open(TIDE).await;
    assert_eq!(browser.texts("h1").await, ["Tide Database"]);
    let icon = "document.querySelector('.hero img')";
    browser.until(&format!("{icon}.complete && {icon}.naturalWidth > 0")).await;
    assert!(browser.texts(".prose h4").await.contains(&"Features".to_owned()));
    visit.picture("package").await;
    browser.click("#channel option[value='candidate']").await;
    browser.click("form:has(#channel) button").await;
    visit.until_at(&format!("{}?channel=candidate", TIDE.replace("tide-", "tide%2D"))).await;
    browser.until("document.title.startsWith('Tide Database 3.0.0-rc.1')").await;
    browser.click("#version option[value='tide-database.v2.4.1']").await;
    browser.click("form:has(#version) button").await;
    browser.until("document.title.startsWith('Tide Database 2.4.1')").await;
    browser.click(".actions a.quiet").await;
    browser.until("document.querySelector('.upgrade-graph')").await;
    visit.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn theme_follows_preference_until_the_user_chooses() {
    let Some(visit) = Visit::of_demo().await else { return };
    let browser = &visit.browser;
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.value(ground).await;
    browser.media("screen", "dark").await;
    let dark = browser.value(ground).await;
    assert_ne!(light, dark);
    browser.until("document.querySelector('[data-theme-toggle]').textContent === 'Light theme'").await;
    browser.click("[data-theme-toggle]").await;
    assert_eq!(browser.value(ground).await, light);
    visit.open(TIDE).await;
    assert_eq!(browser.value(ground).await, light, "the choice lasts on the next page");
    browser.media("screen", "light").await;
    browser.click("[data-theme-toggle]").await;
    assert_eq!(browser.value(ground).await, dark);
    assert_eq!(browser.value("document.documentElement.dataset.theme").await, json!("dark"));
    browser.keys(key::ESCAPE).await;
    visit.finish(&[]).await;
}
