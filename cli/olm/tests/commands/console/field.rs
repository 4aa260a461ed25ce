//! Pages of the real catalog of `OLM_FIELD_DATA`.

use serde_json::json;

use super::browser::Screen;
use super::rig::Visit;

const PACKAGES: &str = "/catalogs/hub/packages";

async fn visit() -> Option<Visit> {
    let root = olm_require::field_data()?;
    Visit::of_catalog("hub", &root.join("catalogs/community-v4.20").canonicalize().unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn package_is_found_by_its_api_and_shows_its_default_channel() {
    let Some(visit) = visit().await else { return };
    let browser = &visit.browser;
    for (query, package) in [
        ("networking.istio.io", "Sail Operator"),
        ("wasmplugin", "Sail Operator"),
        ("pgbouncers.alloydbomni.dbadmin.goog", "AlloyDB Omni Operator"),
    ] {
        visit.open(&format!("/?q={query}")).await;
        assert_eq!(browser.texts(".package h2").await, [package], "{query}");
    }
    // The channel of nightly builds has a higher version.
    for (package, version) in [("sailoperator", "1.30.3"), ("konflux-operator", "0.2.1")] {
        visit.open(&format!("{PACKAGES}/{package}")).await;
        let title = browser.value("document.title").await;
        assert!(title.as_str().unwrap().contains(version), "{title}");
        assert_eq!(browser.texts(".notice").await, [""; 0], "{package}");
        let link = browser.value("document.querySelector('.actions a.button').getAttribute('href')").await;
        assert_eq!(
            link,
            format!("{PACKAGES}/{}/install", package.replace('-', "%2D")),
            "follows the default channel"
        );
    }
    visit.open(&format!("{PACKAGES}/alloydb-omni-operator")).await;
    let apis = browser.texts("#apis ~ .table tbody tr").await;
    assert!(apis.iter().any(|row| row.contains("Schema for the BackupPlan API")), "{apis:?}");
    assert_eq!(browser.texts(".actions a").await, ["Upgrade graph"], "it cannot be installed");
    let text = browser.texts("main").await.remove(0);
    assert!(text.contains("Cannot be installed") && !text.contains("declares no dependency"), "{text}");
    visit.assert_accessible("package with a dependency").await;
    visit.open(&format!("{PACKAGES}/project-quay")).await;
    let channels = browser.texts("#channel option").await;
    assert_eq!(channels[..4], ["All channels", "stable-3.17 (default)", "stable-3.16", "stable-3.15"]);
    visit.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_follows_the_chosen_channel_and_marks_a_pre_release() {
    let Some(visit) = visit().await else { return };
    let browser = &visit.browser;
    visit.open(&format!("{PACKAGES}/sailoperator?channel=1.31-nightly")).await;
    let notices = browser.texts(".notice").await.join("\n");
    assert!(notices.contains("Pre-release") && notices.contains("recommends channel stable"), "{notices}");
    browser.click(".actions a.button").await;
    browser.until("document.querySelector('form.install')").await;
    assert_eq!(browser.value("document.querySelector('#channel').value").await, json!("1.31-nightly"));
    assert_eq!(browser.texts(".result .badge").await, ["pre-release", "not in the default channel"]);
    browser.click("form.install > button").await;
    browser.until("document.querySelector('#manifest')").await;
    let manifest = browser.texts("#manifest").await.remove(0);
    assert!(manifest.contains("- 1.31-nightly") && !manifest.contains("version:"), "{manifest}");
    let upgrades = browser.texts("#upgrades").await;
    assert_eq!(
        upgrades,
        ["The extension follows channel 1.31-nightly: OLM upgrades it to each new version."]
    );

    visit.open(&format!("{PACKAGES}/sailoperator?version=1.29.2")).await;
    browser.click(".actions a.button").await;
    browser.until("document.querySelector('#follow-version:checked')").await;
    assert_eq!(browser.value("document.querySelector('#version').value").await, json!("1.29.2"));
    visit.assert_accessible("install form of an old version").await;
    browser.click("#follow-range").await;
    browser.click("form.install > button").await;
    browser.until("document.querySelector('#range-errors li')").await;
    browser.click("#range").await;
    browser.keys("1.29.x").await;
    browser.click("form.install > button").await;
    browser.until("document.querySelector('#manifest')").await;
    assert!(browser.texts("#manifest").await[0].contains("version: 1.29.x"));
    assert!(
        browser.texts("#upgrades").await[0]
            .starts_with("The extension stays within 1.29.x of channel stable")
    );
    visit.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_whole_words_and_the_path_on_any_screen() {
    let Some(visit) = visit().await else { return };
    let browser = &visit.browser;
    let cut = "[...document.querySelectorAll('.about')].filter(one => one.scrollHeight > one.clientHeight + 1).length";
    assert_eq!(browser.value(cut).await, 0, "descriptions are not cut by the style");
    visit.open(&format!("{PACKAGES}/project-quay/graph?installed=3.10.0&channel=")).await;
    assert!(browser.value("document.querySelector('.graph .scroll').scrollTop").await.as_u64() > Some(0));
    let titles = browser.texts(".row title").await;
    assert!(titles.iter().any(|title| title.contains("Path: step 2")), "{titles:?}");
    let both = |title: &&String| title.contains("Path: step") && title.contains("passed over");
    assert_eq!(titles.iter().find(both), None);

    browser.screen(Screen::Narrow).await;
    visit.open("/").await;
    let top = browser.value("document.querySelector('.package').getBoundingClientRect().top").await;
    assert!(top.as_f64().unwrap() < 300.0, "the first package is at {top}");
    visit.open(&format!("{PACKAGES}/sailoperator")).await;
    let top = "document.querySelector('.actions a.button').getBoundingClientRect().top";
    assert!(browser.value(top).await.as_f64().unwrap() < 780.0);
    let prose = "document.querySelector('.readme .prose').getBoundingClientRect().height";
    let closed = browser.value(prose).await.as_f64().unwrap();
    browser.click(".readme summary").await;
    assert!(browser.value(prose).await.as_f64().unwrap() > closed + 100.0);
    browser.screen(Screen::Wide).await;
    visit.open(&format!("{PACKAGES}/alloydb-omni-operator")).await;
    visit.assert_accessible("package").await;
    visit.finish(&[]).await;
}
