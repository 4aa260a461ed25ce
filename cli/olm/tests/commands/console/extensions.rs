//! Pages of extensions whose status, Events and logs the test writes.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use olm_api::{ClusterExtension, ClusterUpgradeStatus};
use serde_json::{Value, json};

use super::browser::key;
use super::hostile::{SCRIPT, assert_unharmed};
use super::keyboard::tab_to;
use super::rig::Visit;
use crate::changing::fixture::{Fixture, condition};

const PAGE: &str = "/extensions/pipe";
const DONE: [&str; 4] = ["Progressing", "True", "Succeeded", "Revision 1.0.0 has rolled out."];

async fn add_event(fixture: &Fixture, namespace: &str, kind: &str, name: &str, texts: [&str; 2]) {
    let [reason, message] = texts;
    let event: Event = serde_json::from_value(json!({"metadata": {"generateName": "e-"}, "type": "Warning",
        "involvedObject": {"kind": kind, "name": name, "namespace": namespace}, "reason": reason, "message": message,
        "lastTimestamp": "2026-01-02T03:04:05Z"}))
    .unwrap();
    let api: Api<Event> = Api::namespaced(fixture.client(), namespace);
    api.create(&PostParams::default(), &event).await.unwrap();
}

/// Pod of the Deployment, whose container waits with this message.
async fn add_pod(fixture: &Fixture, name: &str, message: &str) {
    let api: Api<Pod> = Api::namespaced(fixture.client(), "pipe-system");
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": "pipe"}},
        "spec": {"serviceAccountName": "pipe-manager", "containers": [{"name": "manager", "image": "r.example/pipe"}]}}))
    .unwrap();
    api.create(&PostParams::default(), &pod).await.unwrap();
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
    let status = json!({"status": {"containerStatuses": [{"name": "manager", "image": "r.example/pipe", "imageID": "",
        "ready": false, "restartCount": 3, "state": waiting}]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn set_upgradeable(fixture: &Fixture, message: &str) {
    let api: Api<ClusterUpgradeStatus> = Api::all(fixture.client());
    let object = serde_json::from_value(json!({"metadata": {"name": "cluster"}})).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let verdict = condition("Upgradeable", "False", "IncompatibleOperatorsInstalled", message, 1);
    let row = json!({"name": "pipe", "bundle": "pipe.v1.0.0", "version": "1.0.0", "result": "Blocking", "upgradeTo": "1.1.0"});
    let status = json!({"status": {"conditions": [verdict], "extensions": [row]}});
    api.patch_status("cluster", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Extension with a failing pod, and an upgrade that waits for its approval.
async fn fixture() -> (Fixture, ClusterExtension) {
    let fixture = Fixture::start(&[]).await;
    let extension = fixture.install_pipe().await;
    let waits = "bundle pipe.v1.1.0 version 1.1.0 is available; plan sha256:0: 1 object; x";
    let approval = ["UpgradeAvailable", "True", "ApprovalRequired", waits];
    fixture.say(&extension, Some(("pipe.v1.0.0", "1.0.0")), &[DONE, approval]).await;
    add_pod(&fixture, "pipe-manager-a", "back-off 5m0s").await;
    fixture.set_log("pipe-manager-a", "one\npanic: no pressure\n");
    add_event(&fixture, "pipe-system", "Pod", "pipe-manager-a", ["BackOff", "restarting failed container"])
        .await;
    add_event(&fixture, "default", "ClusterExtension", "pipe", ["Waits", "waits for its approval"]).await;
    add_event(&fixture, "default", "ClusterExtension", "other", ["Other", "of another extension"]).await;
    set_upgradeable(&fixture, "1 extension blocks the next version").await;
    (fixture, extension)
}

#[tokio::test(flavor = "multi_thread")]
async fn extension_shows_state_activity_and_reasons() {
    let (fixture, extension) = fixture().await;
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    browser.click("nav a[href='/extensions']").await;
    visit.until_at("/extensions").await;
    let row = browser.texts("tbody tr").await.join("\n");
    assert!(row.contains("1.0.0") && row.contains("Waits for your approval"), "{row}");
    assert!(browser.texts("main p").await.join("\n").contains("1 extension blocks the next version"));
    visit.assert_accessible("extensions").await;
    tab_to(&visit, "[data-item] a").await;
    browser.keys(key::ENTER).await;
    visit.until_at(PAGE).await;

    assert!(browser.texts(".probe").await[0].contains("missing .status.conditions"));
    let side = browser.texts("aside").await.join("\n");
    for part in ["blocked", "An upgrade to 1.1.0 would not block it"] {
        assert!(side.contains(part), "{part}: {side}");
    }
    let held = browser.texts(".held").await.join("\n");
    for part in ["Waits for your approval. OLM applies the change when you approve it.", "bundle pipe.v1.1.0"]
    {
        assert!(held.contains(part), "{held}");
    }
    let cause = browser.texts(".cause").await.remove(0);
    for part in
        ["Deployment pipe-system/pipe", "its pods crash", "panic: no pressure", "Read the whole log: kubectl"]
    {
        assert!(cause.contains(part), "{part}: {cause}");
    }
    let events = browser.texts("#events-table tbody tr").await.join("\n");
    for part in ["Pod pipe-system/pipe-manager-a", "BackOff", "waits for its approval"] {
        assert!(events.contains(part), "{part}: {events}");
    }
    assert!(!events.contains("of another extension"), "{events}");
    visit.assert_accessible("extension").await;
    tabs_show_objects_logs_and_history(&visit).await;

    visit.open(PAGE).await;
    hostile_text_is_escaped_and_cut(&fixture, &extension, &visit).await;
    visit.open(PAGE).await;
    browser.click(".actions a[href$='/why']").await;
    visit.until_at(&format!("{PAGE}/why")).await;
    let reasons = browser.texts("pre").await.remove(0);
    assert!(reasons.contains("pipe.v1.0.0"), "{reasons}");
    visit.assert_accessible("reasons").await;
    visit.finish(&[]).await;
    rest_is_shown_without_rights_to_events_and_logs(&fixture).await;
}

async fn tabs_show_objects_logs_and_history(visit: &Visit) {
    let browser = &visit.browser;
    browser.click(".tabs a[href$='/logs']").await;
    visit.until_at(&format!("{PAGE}/logs")).await;
    assert_eq!(browser.texts(".log").await, ["one\npanic: no pressure"]);
    assert!(
        browser.texts("#log-pipe-manager-a-manager summary").await[0].contains("back-off 5m0s, 3 restarts")
    );
    visit.assert_accessible("logs").await;
    browser.click(".tabs a[href$='/history']").await;
    visit.until_at(&format!("{PAGE}/history")).await;
    assert_eq!(browser.texts("#history-table tbody tr").await.len(), 1);
    visit.assert_accessible("history").await;
    browser.click(".tabs a[href$='/objects']").await;
    visit.until_at(&format!("{PAGE}/objects")).await;
    visit.assert_accessible("objects").await;
    browser.click("a.plain[href*='ConfigMap']").await;
    browser.until("document.querySelector('#object')").await;
    let object = browser.texts("#object").await.remove(0);
    assert!(object.contains("None: the object has all values of the revision."), "{object}");
    assert!(browser.texts("#object-yaml").await[0].contains("kind: ConfigMap"));
    visit.assert_accessible("object").await;
    browser.click(".tabs a[href$='/events']").await;
    visit.until_at(&format!("{PAGE}/events")).await;
    visit.assert_accessible("events").await;
}

/// Texts of the cluster change while the page is open.
async fn hostile_text_is_escaped_and_cut(fixture: &Fixture, extension: &ClusterExtension, visit: &Visit) {
    let browser = &visit.browser;
    browser.value("getSelection().selectAllChildren(document.querySelector('.probe'))").await;
    let hostile = format!("{SCRIPT}\u{1b}[31m\u{202e}red");
    let long = format!("{hostile}{}end", "x".repeat(5000));
    add_event(fixture, "pipe-system", "Pod", "pipe-manager-a", [&hostile, &long]).await;
    add_pod(fixture, "pipe-manager-b", &long).await;
    fixture.set_log("pipe-manager-a", &format!("{hostile}\r\n{long}\n"));
    let annotations = json!({"metadata": {"annotations": {"olm.operatorframework.io/bundle-name": hostile}}});
    fixture.sets().patch("pipe-1", &PatchParams::default(), &Patch::Merge(annotations)).await.unwrap();
    let waits = ["UpgradeAvailable", "True", "ApprovalRequired", &hostile];
    fixture
        .say(extension, Some(("pipe.v1.0.0", "1.0.0")), &[["Progressing", "False", "Blocked", &long], waits])
        .await;

    let waits =
        "document.querySelector('[data-follow-status]').textContent.includes('while text is selected')";
    browser.until(waits).await;
    assert_eq!(browser.value("getSelection().toString().includes('missing')").await, true);
    browser.value("getSelection().removeAllRanges()").await;
    browser.until("document.querySelector('.revision summary').textContent.includes('attacked')").await;
    browser.until("document.querySelector('#conditions-table').textContent.includes('attacked')").await;
    assert_unharmed(visit, "extension").await;
    assert_eq!(browser.value("document.querySelectorAll('img').length").await, 0);
    let text = browser.texts("main").await.remove(0);
    assert!(text.contains("\\u{1b}[31m\\u{202e}red") && !text.contains(['\u{1b}', '\u{202e}']), "{text}");
    visit.open(&format!("{PAGE}/logs")).await;
    browser.until("document.querySelector('#log-pipe-manager-b-manager')").await;
    assert_unharmed(visit, "logs").await;
    visit.open(&format!("{PAGE}/events")).await;
    assert_unharmed(visit, "events").await;
    let events = browser.texts("#events-table tbody tr").await.join("\n");
    assert!(events.contains("xxx…") && !events.contains("xend"), "{events}");
    visit.assert_accessible("hostile extension").await;
    let odd = format!("{PAGE}?fragment=1&seen=%3Cscript%3E.%0d%0aX:%20y");
    visit.open(PAGE).await;
    let status = format!("fetch({odd:?}).then(answer => window.answer = answer.status)");
    browser.run(&status, json!([])).await;
    browser.until("window.answer === 200").await;
}

/// Grants `viewer` to read extensions, their content and pods, but neither Events nor logs.
async fn add_viewer(fixture: &Fixture) {
    let rules = json!([
        {"apiGroups": ["olm.operatorframework.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    ]);
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": "viewer"}, "rules": rules});
    let binding = json!({"metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "viewer"}]});
    for (kind, mut object) in [("ClusterRole", role), ("ClusterRoleBinding", binding)] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let api: Api<DynamicObject> = Api::all_with(fixture.client(), &resource);
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

async fn rest_is_shown_without_rights_to_events_and_logs(fixture: &Fixture) {
    add_viewer(fixture).await;
    let kubeconfig = std::fs::read_to_string(fixture.path("kubeconfig")).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    kubeconfig["users"][0]["user"]["as"] = json!("viewer");
    std::fs::write(fixture.path("viewer"), kubeconfig.to_string()).unwrap();
    let mut command = fixture.command(&["console", "--no-open"]);
    command.env("KUBECONFIG", fixture.path("viewer"));
    let Some(visit) = Visit::begin(command).await else { return };
    let browser = &visit.browser;
    visit.open(PAGE).await;
    let mut text = browser.texts("main").await.remove(0);
    visit.open(&format!("{PAGE}/logs")).await;
    text += &browser.texts("main").await.remove(0);
    visit.open(PAGE).await;
    for part in [
        "The Events of namespace default cannot be read: ",
        "User \"viewer\" cannot list resource \"events\"",
        "The log cannot be read: ",
        "cannot get resource \"pods/log\"",
        "It is not known whether the cluster may be upgraded",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("None.") && !text.contains("no recent Events"), "{text}");
    assert!(browser.texts(".probe").await.join("\n").contains("missing .status.conditions"), "{text}");
    visit.assert_accessible("extension without rights").await;
    visit.finish(&[]).await;
}
