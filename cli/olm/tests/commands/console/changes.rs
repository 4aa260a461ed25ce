//! Upgrade, rollback and uninstallation.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::{ExtensionPlan, labels, names};
use serde_json::{Value, json};

use super::rig::Visit;
use crate::changing::fixture::Fixture;
use crate::revisions::fixture::Fixture as Plain;

#[tokio::test(flavor = "multi_thread")]
async fn extension_is_upgraded_rolled_back_and_uninstalled_as_shown() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    visit.open("/extensions/none/upgrade").await;
    assert_eq!(visit.browser.texts("h1").await, ["Not found"]);
    refused_upgrade_has_no_button(&fixture, &visit).await;
    upgrade_is_written_as_shown(&fixture, &visit).await;
    rollback_follows_the_link_of_the_history(&fixture, &visit).await;
    read_only_console_shows_the_command_only(&fixture).await;
    uninstallation_shows_what_is_deleted(&fixture, &visit).await;
    visit.finish(&["status of 404", "status of 409", "status of 422"]).await;
}

async fn catalog(fixture: &Fixture) -> Value {
    let extension = fixture.extension("pipe").await;
    serde_json::to_value(extension).unwrap()["spec"]["source"]["catalog"].clone()
}

async fn patch(fixture: &Fixture, patch: Value) {
    fixture.extensions().patch("pipe", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn buttons(visit: &Visit) -> Vec<String> {
    visit.browser.texts("[data-apply]").await
}

/// The new CRD breaks custom resources.
async fn refused_upgrade_has_no_button(fixture: &Fixture, visit: &Visit) {
    visit.open("/extensions/pipe").await;
    visit.browser.click(".actions a[href$='/upgrade']").await;
    visit.until_at("/extensions/pipe/upgrade").await;
    let refusal = visit.browser.texts(".notice.bad").await;
    assert!(refusal[0].starts_with("the controller would refuse the upgrade:"), "{refusal:?}");
    assert_eq!(buttons(visit).await, [""; 0]);
    let live = json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/crd-check": "Live"}}});
    patch(fixture, live).await;
}

async fn upgrade_is_written_as_shown(fixture: &Fixture, visit: &Visit) {
    let browser = &visit.browser;
    visit.open("/extensions/pipe/upgrade").await;
    let options = browser.texts("#to option").await;
    assert_eq!(options, ["As the extension requests now", "Newest, now and later", "1.1.0", "1.0.0"]);
    assert_eq!(browser.value("document.querySelector('#to').value").await, json!("1.1.0"));
    assert_eq!(browser.texts("#command").await, ["olm upgrade pipe --version 1.1.0"]);
    let facts = browser.texts("main > p").await;
    assert!(facts.iter().any(|fact| fact.contains("stays at version 1.0.0")), "{facts:?}");
    let shown = browser.texts("#plan, #diff").await;
    assert!(shown[0].contains("upgrade to pipe.v1.1.0") && shown[1].contains("CRDs"), "{shown:?}");
    let ran = fixture.olm(&["upgrade", "pipe", "--version", "1.1.0", "--dry-run=server"]).await;
    let first = ran.stdout.lines().next().unwrap();
    assert!(shown[0].starts_with(first), "{first} {shown:?}");
    visit.assert_accessible("upgrade").await;

    // Another user changes the extension.
    patch(fixture, json!({"spec": {"source": {"catalog": {"channels": ["stable"]}}}})).await;
    browser.click("[data-apply]").await;
    browser.until("document.querySelector('.notice.bad')").await;
    let notices = browser.texts(".notice.bad").await;
    assert!(notices[0].starts_with("The plan has changed since it was shown"), "{notices:?}");
    assert_eq!(catalog(fixture).await["version"], "1.0.0");
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/pipe").await;
    let expected = json!({"packageName": "pipe", "version": "1.1.0", "channels": ["stable"],
        "upgradeConstraintPolicy": "CatalogProvided"});
    assert_eq!(catalog(fixture).await, expected);
}

async fn rollback_follows_the_link_of_the_history(fixture: &Fixture, visit: &Visit) {
    let browser = &visit.browser;
    let extension = fixture.extension("pipe").await;
    fixture.settle(&extension, 2, "pipe.v1.1.0").await;
    visit.open("/extensions/pipe/history").await;
    browser.until("document.querySelector('a[href$=\"rollback?to=1\"]')").await;
    browser.click("a[href$='rollback?to=1']").await;
    visit.until_at("/extensions/pipe/rollback?to=1").await;
    let plan = browser.texts("#plan").await;
    assert!(plan[0].contains("pipe.v1.0.0, version 1.0.0 (revision 1)"), "{plan:?}");
    assert_eq!(browser.texts("#command").await, ["olm rollback pipe --to 1"]);
    visit.assert_accessible("rollback").await;
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/pipe").await;
    let written = catalog(fixture).await;
    assert_eq!(
        (&written["version"], &written["upgradeConstraintPolicy"]),
        (&json!("1.0.0"), &json!("SelfCertified"))
    );
}

async fn read_only_console_shows_the_command_only(fixture: &Fixture) {
    let command = fixture.command(&["console", "--no-open", "--read-only"]);
    let Some(visit) = Visit::begin(command).await else { return };
    for action in ["upgrade?to=1.1.0", "uninstall"] {
        visit.open(&format!("/extensions/pipe/{action}")).await;
        visit.browser.until("document.querySelector('#command')").await;
        assert_eq!(buttons(&visit).await, [""; 0], "{action}");
    }
    visit.finish(&[]).await;
}

async fn uninstallation_shows_what_is_deleted(fixture: &Fixture, visit: &Visit) {
    let browser = &visit.browser;
    visit.open("/extensions/pipe/uninstall").await;
    let shown = browser.texts("#plan, #command").await;
    assert!(shown[0].contains("pipes.example.com: no custom resources"), "{shown:?}");
    browser.click("[name=keep_crds]").await;
    browser.click("form.choice button").await;
    visit.until_at("/extensions/pipe/uninstall?keep_crds=yes").await;
    assert_eq!(browser.texts("#command").await, ["olm uninstall pipe --keep-crds"]);
    visit.assert_accessible("uninstall").await;
    custom_resources_are_deleted_only_after_the_name_is_typed(fixture, visit).await;
    visit.open("/extensions/pipe/uninstall").await;
    browser.click("#confirm").await;
    browser.keys("pipe").await;
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/pipe/uninstalled").await;
    assert_eq!(browser.texts("h1").await, ["pipe is not installed"]);
    visit.assert_accessible("uninstalled").await;
    visit.open("/extensions/pipe/uninstalled?keep_crds=yes").await;
    assert!(browser.texts("main").await[0].contains("all custom resources are kept"));
    assert!(fixture.extensions().get_opt("pipe").await.unwrap().is_none());
}

async fn custom_resources_are_deleted_only_after_the_name_is_typed(fixture: &Fixture, visit: &Visit) {
    let browser = &visit.browser;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Pipe"));
    let api: Api<DynamicObject> = Api::namespaced_with(fixture.client(), "pipe-system", &resource);
    let pipe =
        json!({"apiVersion": "example.com/v1", "kind": "Pipe", "metadata": {"name": "long"}, "spec": {}});
    api.create(&PostParams::default(), &serde_json::from_value(pipe).unwrap()).await.unwrap();
    visit.open("/extensions/pipe/uninstall").await;
    let attention = browser.texts("#attention").await.join("\n");
    assert!(attention.contains("Deletes all custom resources of pipes.example.com"), "{attention}");
    visit.assert_accessible("uninstall with data").await;
    browser.click("#confirm").await;
    browser.keys("pip").await;
    browser.run("document.querySelector('#confirm').removeAttribute('pattern')", json!([])).await;
    browser.click("[data-apply]").await;
    browser
        .until("document.querySelector('.notice.bad')?.textContent.startsWith('Nothing was written')")
        .await;
    assert!(fixture.extensions().get_opt("pipe").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_is_changed_as_shown() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    visit.open("/extensions/pipe/configuration").await;
    assert_eq!(browser.value("document.querySelector('#range').value").await, json!("1.0.0"));
    visit.assert_accessible("configuration").await;
    browser.run("document.querySelector('#range').value = '1.0.x'", json!([])).await;
    browser.click("#channels").await;
    browser.keys("stable").await;
    browser.click("form.install button").await;
    browser.until("document.querySelector('[data-apply]')").await;
    let facts = browser.texts("main > p").await.join("\n");
    assert!(facts.contains("within the range \"1.0.x\""), "{facts}");
    assert!(browser.texts("#command").await[0].contains("\"channels\":[\"stable\"]"));
    assert_eq!(catalog(&fixture).await["version"], "1.0.0", "only a plan");
    visit.assert_accessible("plan of a configuration").await;
    browser.run("document.querySelector('[name=range][type=hidden]').value = '*'", json!([])).await;
    browser.click("[data-apply]").await;
    browser.until("document.querySelector('.notice.bad')").await;
    assert_eq!(catalog(&fixture).await["version"], "1.0.0", "not what the plan showed");
    let plan = format!("/extensions/pipe/configure?generation={}", generation(&fixture).await);
    visit.open(&format!("{plan}&range=1.0.x&channels=stable")).await;
    let text = browser.texts("#plan").await.join("\n");
    assert!(text.starts_with("Channels: all → stable\nVersion range: 1.0.0 → 1.0.x\n"), "{text}");
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/pipe").await;
    let written = catalog(&fixture).await;
    assert_eq!((&written["version"], &written["channels"]), (&json!("1.0.x"), &json!(["stable"])));
    settings_of_several_lines_are_written(&fixture, &visit).await;
    impossible_configuration_is_shown_in_its_form(&fixture, &visit).await;
    visit.open(&format!("{plan}&range=1.0.x")).await;
    let notices = browser.texts(".notice.bad").await;
    assert!(notices[0].starts_with("The extension has changed since this form was opened"), "{notices:?}");
    assert_eq!(buttons(&visit).await, [""; 0]);
    visit.open("/extensions/pipe/configure").await;
    visit.until_at("/extensions/pipe/configuration").await;
    visit.finish(&["status of 409", "status of 422"]).await;
}

async fn generation(fixture: &Fixture) -> i64 {
    fixture.extension("pipe").await.metadata.generation.unwrap()
}

async fn settings_of_several_lines_are_written(fixture: &Fixture, visit: &Visit) {
    fixture.set_controller(&["--feature-gates=DeploymentConfig=true"]).await;
    let browser = &visit.browser;
    let without_script = async |is_set: bool| {
        browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": is_set})).await
    };
    without_script(true).await;
    visit.open("/extensions/pipe/configuration").await;
    let settings = "deploymentConfig:\n  nodeSelector:\n    disk: ssd\n";
    browser.run("document.querySelector('#settings').value = arguments[0]", json!([settings])).await;
    browser.click("form.install button").await;
    browser.until("document.querySelector('[data-apply]')").await;
    let text = browser.texts("#plan").await.join("\n");
    assert!(text.contains("Setting deploymentConfig: not set → {"), "{text}");
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/pipe").await;
    let written = serde_json::to_value(fixture.extension("pipe").await).unwrap();
    let expected = json!({"deploymentConfig": {"nodeSelector": {"disk": "ssd"}}});
    assert_eq!(written["spec"]["config"]["inline"], expected);
    without_script(false).await;
}

async fn impossible_configuration_is_shown_in_its_form(fixture: &Fixture, visit: &Visit) {
    let plan = format!("/extensions/pipe/configure?generation={}", generation(fixture).await);
    for (query, problem) in [
        ("settings=%5Ba%5D", "the settings must be a YAML mapping"),
        ("settings=%7Ba", ""),
        ("range=1.*.x%20y", ""),
        ("channels=none", ""),
    ] {
        visit.open(&format!("{plan}&{query}")).await;
        assert_eq!(visit.browser.texts("h1").await, ["Configure pipe"], "{query}");
        let notices = visit.browser.texts(".notice.bad").await;
        assert!(notices[0].contains(problem), "{query}: {notices:?}");
        assert_eq!(visit.browser.texts("form.install #settings").await.len(), 1, "{query}");
        assert_eq!(buttons(visit).await, [""; 0], "{query}");
    }
    visit.assert_accessible("impossible configuration").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_plan_is_approved_as_shown() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    let rules = json!({"ext.olm.operatorframework.io/approval": "ManualUpgrades",
        "ext.olm.operatorframework.io/crd-check": "Live"});
    let spec = json!({"source": {"catalog": {"version": null}}});
    patch(&fixture, json!({"metadata": {"annotations": rules}, "spec": spec})).await;
    let plan: Value =
        serde_json::from_str(&fixture.olm(&["plan", "pipe", "-o", "json"]).await.stdout).unwrap();
    let digest = plan["digest"].as_str().unwrap();
    let waits = format!("bundle pipe.v1.1.0 version 1.1.0 is available; plan {digest}: 1 object; x");
    let progressing = ["Progressing", "True", "Succeeded", "Revision 1.0.0 has rolled out."];
    let extension = fixture.extension("pipe").await;
    let held = ["UpgradeAvailable", "True", "ApprovalRequired", &waits];
    fixture.say(&extension, Some(("pipe.v1.0.0", "1.0.0")), &[progressing, held]).await;
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    visit.open("/extensions/pipe/upgrade").await;
    let facts = browser.texts("main > p").await.join("\n");
    assert!(facts.contains("Upgrades wait at present"), "{facts}");
    visit.open("/extensions").await;
    assert_eq!(browser.texts("#waiting").await, ["Waiting for you"]);
    browser.click(".held a").await;
    visit.until_at("/extensions/pipe/approve").await;
    assert!(browser.texts("#plan").await[0].contains(digest));
    visit.assert_accessible("approve").await;
    // Another plan is not approved.
    browser.run("document.querySelector('[name=previewed]').value = 'sha256:0'", json!([])).await;
    browser.click("[data-apply]").await;
    browser.until("document.querySelector('.notice.bad')").await;
    assert!(browser.texts(".notice.bad").await[0].starts_with("The plan has changed"));
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/pipe").await;
    let approved = fixture.extension("pipe").await.metadata.annotations.unwrap();
    assert_eq!(approved["ext.olm.operatorframework.io/approved"], digest);
    visit.finish(&["status of 409"]).await;
}

/// Plan of revision 2 that deletes a CRD, as operator-controller records it.
async fn recorded_plan(fixture: &Fixture) -> ExtensionPlan {
    let digest = format!("sha256:{}", "a".repeat(64));
    let uid = fixture.extension("pipe").await.metadata.uid;
    let owner = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "pipe",
        "uid": uid, "controller": true});
    let metadata = json!({"name": names::plan_name("pipe", 2, &digest), "ownerReferences": [owner],
        "labels": {labels::OWNER_NAME: "pipe"}});
    let bundle = json!({"name": "pipe.v1.1.0", "version": "1.1.0", "image": "r.example/pipe", "imageDigest": "sha256:0"});
    let crd = json!({"change": "Deleted", "group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition",
        "name": "pipes.example.com"});
    let plan = json!({"extension": "pipe", "revision": 2, "digest": digest, "summary": "1 object deleted", "bundle": bundle,
        "objects": [crd], "permissionsGained": ["ServiceAccount ns/pipe: get on secrets cluster-wide"], "truncated": true});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"plan": plan}})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_plan_shows_what_may_do_harm_before_its_approval() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    let rules = json!({"ext.olm.operatorframework.io/approval": "ManualUpgrades",
        "ext.olm.operatorframework.io/uninstall-policy": "Delete"});
    patch(&fixture, json!({"metadata": {"annotations": rules}})).await;
    let plans: Api<ExtensionPlan> = Api::all(fixture.client());
    let plan = plans.create(&PostParams::default(), &recorded_plan(&fixture).await).await.unwrap();
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    visit.open("/extensions/pipe/approve").await;
    let attention = browser.texts("#attention li").await;
    for (shown, part) in attention.iter().zip([
        "Deletes all custom resources of pipes.example.com, and the data they manage.",
        "Deletes 1 object of kind CustomResourceDefinition.",
        "get on secrets cluster-wide",
        "The recorded plan is not complete",
    ]) {
        assert!(shown.contains(part), "{part}: {attention:?}");
    }
    assert_eq!(attention.len(), 4, "{attention:?}");
    visit.assert_accessible("recorded plan").await;
    browser.click("#confirm").await;
    browser.keys("pipe").await;
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/pipe").await;
    assert!(plans.get(&plan.name_any()).await.unwrap().spec.approved);
    visit.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_the_right_sees_the_refusal_of_the_api_server() {
    let fixture = Plain::start().await;
    fixture.create_extension("pipe", "1.x").await;
    fixture.allow("viewer", &["*/*"]).await;
    let command = fixture.command_as("viewer", &["console", "--no-open", "--catalog", "catalog"]);
    let Some(visit) = Visit::begin(command).await else { return };
    visit.open("/extensions/pipe/uninstall").await;
    let refusal = visit.browser.texts(".notice.bad").await;
    assert!(refusal[0].contains("User \"viewer\" cannot delete resource"), "{refusal:?}");
    assert_eq!(buttons(&visit).await, [""; 0]);
    assert!(visit.browser.texts("#plan").await[0].contains("pipe"));
    visit.open("/extensions/pipe/rollback").await;
    assert_eq!(visit.browser.texts("h1").await, ["Not found"]);
    let message = visit.browser.texts(".message").await;
    assert!(message[0].starts_with("pipe has no revision to roll back to"), "{message:?}");
    visit.finish(&["status of 404"]).await;
}
