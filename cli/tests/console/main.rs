//! `olm console` in a real browser. Skipped, visibly, without chromium and its driver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod browser;
mod rig;

use std::time::Duration;

use serde_json::json;
use thirtyfour::{By, Key};

use crate::browser::{Browser, Screen};
use crate::rig::{Console, data};

const NOW: Duration = Duration::from_secs(20);

/// Browser with a signed-in session of a console with this catalog, or `None` if there is no browser.
async fn opened(screen: Screen, catalog: &str) -> Option<(Console, Browser)> {
    let browser = Browser::start(screen).await?;
    let console = Console::start(&["--catalog", &format!("demo={}", data(catalog).display())]);
    browser.driver.goto(&console.login).await.unwrap();
    browser.wait_for("h1", NOW).await;
    Some((console, browser))
}

#[tokio::test(flavor = "multi_thread")]
async fn search_and_keyboard_lead_to_package() {
    let Some((_console, browser)) = opened(Screen::Wide, "tests/console/catalog").await else { return };
    assert_eq!(browser.texts(".package h2").await.len(), 6);
    browser.keys("/").await;
    browser.keys("backup").await;
    browser.wait_until("document.querySelectorAll('.package').length === 2", NOW).await;
    browser.wait_until("location.search === '?q=backup'", NOW).await;
    assert_eq!(browser.texts(".package h2").await[0], "Orchard Backup");
    browser.keys(Key::Down + "").await;
    browser.wait_until("document.activeElement.closest('[data-item]') !== null", NOW).await;
    browser.keys(Key::Enter + "").await;
    browser.wait_until("location.pathname.endsWith('/orchard%2Dbackup')", NOW).await;
    browser.driver.back().await.unwrap();
    browser.wait_until("location.search === '?q=backup'", NOW).await;
    assert_eq!(browser.texts(".package h2").await.len(), 2, "the address has the state");
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn package_page_follows_channel_and_version() {
    let Some((console, browser)) = opened(Screen::Wide, "tests/console/catalog").await else { return };
    browser.driver.goto(&console.url("/catalogs/demo/packages/tide-database")).await.unwrap();
    browser.wait_for("h1", NOW).await;
    assert_eq!(browser.texts("h1").await, ["Tide Database"]);
    assert!(browser.driver.title().await.unwrap().starts_with("Tide Database"));
    let icon = "document.querySelector('.hero img').naturalWidth > 0";
    browser.wait_until(icon, NOW).await;
    assert!(browser.texts(".prose h4").await.contains(&"Features".to_owned()));
    let channel = browser.driver.find(By::Css("#channel option[value='candidate']")).await.unwrap();
    channel.click().await.unwrap();
    browser.driver.find(By::Css("form:has(#channel) button")).await.unwrap().click().await.unwrap();
    browser.wait_until("location.search === '?channel=candidate'", NOW).await;
    browser.wait_until("document.title.startsWith('Tide Database 3.0.0-rc.1')", NOW).await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_accessible_in_both_themes_and_narrow() {
    for (screen, name) in [(Screen::Wide, "wide"), (Screen::Narrow, "narrow")] {
        let Some((console, browser)) = opened(screen, "tests/console/catalog").await else { return };
        let axe = rig::axe();
        for (path, page) in [
            ("/", "packages"),
            ("/?q=nothing", "no-packages"),
            ("/catalogs/demo/packages/tide-database", "package"),
            ("/catalogs/demo/packages/relay-queue", "deprecated"),
            ("/catalogs/demo/packages/none", "missing"),
        ] {
            browser.driver.goto(&console.url(path)).await.unwrap();
            browser.wait_for("h1", NOW).await;
            for theme in ["light", "dark"] {
                browser.theme(theme).await;
                let found = browser.serious_issues(&axe).await;
                assert_eq!(found, json!([]), "{page} {name} {theme}");
                browser.screenshot(&format!("{page}-{name}-{theme}")).await;
            }
            let overflow = "return document.documentElement.scrollWidth - innerWidth";
            let overflow = browser.driver.execute(overflow, vec![]).await.unwrap();
            assert!(overflow.json().as_i64().unwrap() <= 0, "{page} {name} scrolls sideways");
        }
        browser.quit().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn theme_toggle_is_kept_on_next_page() {
    let Some((console, browser)) = opened(Screen::Wide, "tests/console/catalog").await else { return };
    let theme =
        || async { browser.driver.execute("return document.documentElement.dataset.theme", vec![]).await };
    assert!(theme().await.unwrap().json().is_null());
    browser.driver.find(By::Css("[data-theme-toggle]")).await.unwrap().click().await.unwrap();
    let chosen = theme().await.unwrap().json().clone();
    assert_eq!(chosen, json!("dark"));
    browser.driver.goto(&console.url("/catalogs/demo/packages/quill-mail")).await.unwrap();
    assert_eq!(*theme().await.unwrap().json(), chosen);
    browser.quit().await;
}
