//! APIs of an installed extension, and custom resources that the console creates.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

use super::rig::Visit;
use crate::changing::fixture::Fixture;

const APIS: &str = "/extensions/pipe/apis";
const PIPE: &str = "/extensions/pipe/apis/pipes%2Eexample%2Ecom";

fn pipes(fixture: &Fixture) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Pipe"));
    Api::namespaced_with(fixture.client(), "pipe-system", &resource)
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resource_is_checked_and_created_as_shown() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    visit.open("/extensions/pipe").await;
    browser.click(".tabs a[href$='/apis']").await;
    visit.until_at(APIS).await;
    let text = browser.texts(".api").await.join("\n");
    assert!(text.contains("pipes.example.com") && text.contains("There is no Pipe."), "{text}");
    visit.assert_accessible("apis").await;
    browser.click(".api .button").await;
    visit.until_at(&format!("{PIPE}/create")).await;
    assert!(
        browser.value("document.querySelector('#text').value").await.as_str().unwrap().contains("kind: Pipe")
    );
    assert!(browser.texts(".fields").await[0].contains("length"));
    visit.assert_accessible("create form").await;

    for (yaml, problem) in [
        ("kind: Secret\napiVersion: v1\nmetadata: {name: a}", "must be a Pipe of group example.com"),
        ("kind: Pipe\napiVersion: example.com/v1\nmetadata: {}", "Enter metadata.name"),
        (
            "kind: Pipe\napiVersion: example.com/v1\nmetadata: {name: a}\nspec: {length: 900}",
            "should be less than or equal to 100",
        ),
        ("{a", "not valid YAML"),
    ] {
        check(&visit, yaml).await;
        browser.until("document.querySelector('.notice.bad')").await;
        let notices = browser.texts(".notice.bad").await.join("\n");
        assert!(notices.contains(problem), "{problem}: {notices}");
        assert!(browser.texts("[data-apply]").await.is_empty(), "{yaml}");
    }
    check(&visit, "kind: Pipe\napiVersion: example.com/v1\nmetadata: {name: long}\nspec: {length: 9}").await;
    browser.until("document.querySelector('[data-apply]')").await;
    assert!(browser.texts("#stored").await[0].contains("namespace: pipe-system"));
    assert!(pipes(&fixture).get_opt("long").await.unwrap().is_none(), "only a check");
    visit.assert_accessible("checked object").await;
    // Another object than the checked one is not written.
    let other = "kind: Pipe\\napiVersion: example.com/v1\\nmetadata: {name: other}\\nspec: {length: 9}";
    browser
        .run(&format!("document.querySelector('[name=text][type=hidden]').value = '{other}'"), json!([]))
        .await;
    browser.click("[data-apply]").await;
    browser.until("document.querySelector('.notice.bad')").await;
    assert!(browser.texts(".notice.bad").await[0].starts_with("The text has changed"));
    check(&visit, "kind: Pipe\napiVersion: example.com/v1\nmetadata: {name: long}\nspec: {length: 9}").await;
    browser.until("document.querySelector('[data-apply]')").await;
    browser.click("[data-apply]").await;
    visit.until_at(PIPE).await;
    assert!(pipes(&fixture).get_opt("long").await.unwrap().is_some());
    assert!(browser.texts("tbody tr").await[0].starts_with("longpipe-system"));
    visit.assert_accessible("api").await;
    visit.open(&format!("{PIPE}/create")).await;
    check(&visit, "kind: Pipe\napiVersion: example.com/v1\nmetadata: {name: long}\nspec: {length: 9}").await;
    assert!(browser.texts(".notice.bad").await.join("\n").contains("exists already"));
    assert!(browser.texts("[data-apply]").await.is_empty());
    visit.open("/extensions/pipe/apis/clusterextensions%2Eolm%2Eoperatorframework%2Eio/create").await;
    assert_eq!(browser.texts("h1").await, ["Not found"], "only APIs of the extension");
    visit.finish(&["status of 409", "status of 404"]).await;
    read_only_console_creates_nothing(&fixture).await;
}

async fn check(visit: &Visit, yaml: &str) {
    visit.browser.run("document.querySelector('#text').value = arguments[0]", json!([yaml])).await;
    visit.browser.run("window.old = true", json!([])).await;
    visit.browser.click("form:has(#text) button").await;
    visit.browser.until("!window.old && document.querySelector('#text')").await;
}

async fn read_only_console_creates_nothing(fixture: &Fixture) {
    let command = fixture.command(&["console", "--no-open", "--read-only"]);
    let Some(visit) = Visit::begin(command).await else { return };
    visit.open(APIS).await;
    assert!(visit.browser.texts(".api .button").await.is_empty());
    visit.open(&format!("{PIPE}/create")).await;
    assert_eq!(visit.browser.texts("h1").await, ["Not found"]);
    visit.finish(&["status of 404"]).await;
}
