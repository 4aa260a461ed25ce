//! Use of the console by keyboard only.

use super::browser::key;
use super::rig::Visit;

/// Presses Tab until the focus is on an element that matches the selector. The focus must be visible on the way.
pub(super) async fn tab_to(visit: &Visit, selector: &str) {
    let is_there = format!("document.activeElement.matches({selector:?})");
    let is_visible = "(one => [getComputedStyle(one), getComputedStyle(one, '::after')]
            .some(style => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0)
        || getComputedStyle(one.querySelector('.hit') ?? one).stroke !== 'none')(document.activeElement)";
    for _ in 0..100 {
        visit.browser.keys(key::TAB).await;
        let focus = visit.browser.value("document.activeElement.outerHTML").await;
        assert_eq!(visit.browser.value(is_visible).await, true, "no visible focus on {focus}");
        if visit.browser.value(&is_there).await == true {
            return;
        }
    }
    panic!("Tab does not lead to {selector}");
}

#[tokio::test(flavor = "multi_thread")]
async fn console_keyboard_navigation_reaches_bundle_in_upgrade_graph() {
    let Some(visit) = Visit::of_demo().await else { return };
    let browser = &visit.browser;
    tab_to(&visit, ".skip").await;
    browser.keys(key::ENTER).await;
    browser.until("document.activeElement.id === 'main'").await;
    browser.keys("/").await;
    browser.until("document.activeElement.id === 'q'").await;
    browser.keys("tide").await;
    browser.until("document.querySelectorAll('.package').length === 1").await;
    browser.keys(key::DOWN).await;
    browser.until("document.activeElement.closest('[data-item]')").await;
    browser.keys(key::UP).await;
    browser.until("document.activeElement.id === 'q'").await;
    browser.keys(key::DOWN).await;
    browser.keys(key::ENTER).await;
    visit.until_at("/catalogs/demo/packages/tide%2Ddatabase").await;
    tab_to(&visit, ".actions a.quiet").await;
    browser.keys(key::ENTER).await;
    browser.until("document.querySelector('.upgrade-graph')").await;
    tab_to(&visit, ".upgrade-graph .row").await;
    let first = browser.texts("#bundle strong").await;
    browser.keys(key::DOWN).await;
    browser.until("document.activeElement.matches('.row')").await;
    let second = browser.texts("#bundle strong").await;
    assert_ne!(first, second);
    browser.keys(key::ENTER).await;
    browser.until("document.querySelector('.row.selected') === document.activeElement").await;
    let bundle = browser.value("new URL(location).searchParams.get('bundle')").await;
    assert_eq!(bundle, second[0]);
    browser.keys("+").await;
    browser.until("new URL(location).searchParams.get('zoom') === '125'").await;
    browser.keys("0").await;
    browser.until("new URL(location).searchParams.get('zoom') === '100'").await;
    visit.finish(&[]).await;
}
