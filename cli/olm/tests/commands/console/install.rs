//! Installation on a cluster.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::json;

use super::rig::Visit;
use crate::changing::fixture::Fixture;

const PIPE: &str = "/catalogs/hub/packages/pipe";

#[tokio::test(flavor = "multi_thread")]
async fn install_form_previews_and_creates_the_extension() {
    let fixture = Fixture::start(&[]).await;
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    visit.open(PIPE).await;
    permissions_are_shown(&visit).await;
    visit.open(PIPE).await;
    browser.click(".actions a.button").await;
    browser.until("document.querySelector('form.install')").await;
    invalid_namespace_is_marked(&visit).await;

    browser.run("document.querySelector('#namespace').value = ''", json!([])).await;
    browser.click("#namespace").await;
    browser.keys("pipe-system").await;
    browser.click("form.install button").await;
    browser.until("document.querySelector('[data-apply]')").await;
    assert!(browser.texts("#manifest").await[0].contains("namespace: pipe-system"));
    let objects = browser.texts("#objects li").await;
    assert!(objects.iter().any(|object| object.contains("CustomResourceDefinition")), "{objects:?}");
    assert_eq!(
        fixture.extensions().list(&Default::default()).await.unwrap().items.len(),
        0,
        "only a preview"
    );
    visit.assert_accessible("preview").await;
    browser.value("document.querySelector('#manifest').scrollIntoView()").await;
    visit.picture("install").await;

    forged_form_is_refused(&fixture, &visit).await;
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/pipe").await;
    let spec = fixture.extension("pipe").await.spec.unwrap();
    assert_eq!(spec.namespace, "pipe-system");
    installed_package_is_shown_in_the_list(&visit).await;
    visit.finish(&["status of 403"]).await;
    read_only_console_previews_only(&fixture).await;
}

async fn permissions_are_shown(visit: &Visit) {
    let browser = &visit.browser;
    browser.click("a[href*='/permissions?version=']").await;
    browser.until("document.querySelector('h1').textContent === 'Permissions of pipe'").await;
    let text = browser.texts("main").await.remove(0);
    assert!(text.contains("ServiceAccount pipe/pipe-manager") && text.contains("pipes"), "{text}");
    visit.assert_accessible("permissions").await;
}

async fn invalid_namespace_is_marked(visit: &Visit) {
    let browser = &visit.browser;
    browser.click("#namespace").await;
    browser.keys("N_S").await;
    browser.click("form.install button").await;
    browser.until("document.querySelector('#namespace[aria-invalid=true]')").await;
    let described = "document.querySelector('#namespace').getAttribute('aria-describedby').split(' ')
        .map(id => document.getElementById(id)).every(element => element !== null)";
    assert_eq!(browser.value(described).await, true, "the field names its error");
    assert_eq!(browser.value("document.querySelector('[data-apply]')").await, json!(null));
}

/// Sends the form of the write with another token, and returns to the preview.
async fn forged_form_is_refused(fixture: &Fixture, visit: &Visit) {
    let browser = &visit.browser;
    let preview = browser.value("location.href").await;
    browser.run("document.querySelector('[name=csrf]').value = 'forged'", json!([])).await;
    browser.click("[data-apply]").await;
    browser.until("document.querySelector('h1')?.textContent === 'Refused'").await;
    assert!(fixture.extensions().get_opt("pipe").await.unwrap().is_none());
    browser.open(preview.as_str().unwrap()).await;
    browser.until("document.querySelector('[data-apply]')").await;
}

async fn installed_package_is_shown_in_the_list(visit: &Visit) {
    let browser = &visit.browser;
    visit.open("/").await;
    browser.click("[name=installed]").await;
    visit.until_at("/?installed=yes").await;
    browser.until("document.querySelectorAll('.package').length === 1").await;
    assert_eq!(browser.texts(".package .badge").await, ["Installed"]);
}

async fn read_only_console_previews_only(fixture: &Fixture) {
    let command = fixture.command(&["console", "--no-open", "--read-only"]);
    let Some(visit) = Visit::begin(command).await else { return };
    let query = "namespace=lamp&create_namespace=yes&preview=yes";
    visit.open(&format!("/catalogs/hub/packages/lamp/install?{query}")).await;
    visit.browser.until("document.querySelector('#manifest')").await;
    assert_eq!(visit.browser.value("document.querySelector('[data-apply]')").await, json!(null));
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    assert!(namespaces.get_opt("lamp").await.unwrap().is_none());
    visit.finish(&[]).await;
}
