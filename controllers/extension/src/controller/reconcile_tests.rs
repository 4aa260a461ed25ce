//! Complete reconciles against a real API server: cases of docs/design/cases.md that concern extensions.

use std::fs;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use olm_api::ClusterObjectSet;
use olm_api::annotations::BUNDLE_REFERENCE;
use olm_api::conditions::{self, Status, types};
use serde_json::{Value, json};

use super::super::fixture::{DONE, Fixture, Release, installed, line, version};
use super::*;

fn image_of(extension: &ClusterExtension) -> String {
    let installed =
        conditions::find(&extension.status.as_ref().unwrap().conditions, types::INSTALLED).unwrap();
    installed.message.clone()
}

// Cases apply-1, apply-2, apply-4, apply-7, apply-8, apply-9, apply-11, apply-12, apply-13, api-15, api-20, api-21,
// api-22, api-23, api-50
#[tokio::test(flavor = "multi_thread")]
async fn extension_is_installed_edited_and_upgraded() {
    let fixture = Fixture::start().await;
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    first_revision_has_labels_owner_and_content(&fixture).await;
    installed_revision_is_mirrored(&fixture).await;
    edits_patch_the_installed_revision(&fixture).await;
    new_version_rolls_out_beside_the_installed_one(&fixture).await;
    edit_during_rollout_makes_a_revision(&fixture).await;
    for expected in [
        "InstallStarted revision demo-1 installs bundle demo.v1.0.0 version 1.0.0",
        "RolloutSucceeded bundle demo.v1.0.0 version 1.0.0 is installed by revision demo-3",
        "UpgradeStarted revision demo-2 installs bundle demo.v1.1.0 version 1.1.0 in place of bundle demo.v1.0.0 \
         version 1.0.0",
    ] {
        fixture.until_event("demo", expected).await;
    }
}

async fn first_revision_has_labels_owner_and_content(fixture: &Fixture) {
    let made = fixture.create("demo", &json!({}), &json!({})).await;
    assert_eq!(made.metadata.finalizers, None);
    // The first write sets both finalizers, the second the status (case api-15).
    let set = fixture.revision("demo-1").await;
    let first = fixture
        .until_condition("demo", types::PROGRESSING, "True/RollingOut Revision 1.0.0 is rolling out.")
        .await;
    assert_eq!(first.finalizers(), FINALIZERS);
    assert_eq!(
        fixture.condition("demo", types::INSTALLED).await.unwrap(),
        "False/Absent No bundle installed"
    );
    let labels: Vec<(&str, &str)> = set.labels().iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        labels,
        [
            ("olm.operatorframework.io/owner-kind", "ClusterExtension"),
            ("olm.operatorframework.io/owner-name", "demo")
        ]
    );
    let annotation = |key: &str| set.annotations()[&format!("olm.operatorframework.io/{key}")].as_str();
    assert_eq!(
        (annotation("package-name"), annotation("bundle-name"), annotation("bundle-version")),
        ("demo", "demo.v1.0.0", "1.0.0")
    );
    assert!(annotation("bundle-reference").starts_with("registry.invalid/demo@sha256:"));
    let owner = &set.owner_references()[0];
    assert_eq!(
        (&owner.uid, owner.controller, owner.block_owner_deletion),
        (made.metadata.uid.as_ref().unwrap(), Some(true), Some(true))
    );
    let content = fixture.content("demo-1").await;
    assert_eq!(content.len(), 1);
    let secret = fixture.secrets.get(&content[0]).await.unwrap();
    assert_eq!(secret.immutable, Some(true));
    assert_eq!(secret.type_.as_deref(), Some("olm.operatorframework.io/object-data"));
    assert_eq!(secret.owner_references()[0].uid, set.uid().unwrap());
    let objects = set.spec.as_ref().unwrap().phases.iter().flat_map(|phase| &phase.objects);
    assert!(objects.into_iter().all(|object| object.object.is_none() && object.ref_.is_some()));
}

async fn installed_revision_is_mirrored(fixture: &Fixture) {
    fixture.succeed("demo-1").await;
    let installed = fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    assert!(image_of(&installed).starts_with("Installed bundle registry.invalid/demo@sha256:"));
    let available = fixture.condition("demo", types::AVAILABLE).await.unwrap();
    assert_eq!(available, "True/ProbesSucceeded Objects are available and pass all probes.");
    let status = installed.status.unwrap();
    assert_eq!(serde_json::to_value(&status.active_revisions).unwrap(), json!([{"name": "demo-1"}]));
}

async fn edits_patch_the_installed_revision(fixture: &Fixture) {
    let content = fixture.content("demo-1").await;
    // Without a change nothing is written (cases apply-7, api-50).
    let before = fixture.sets.get("demo-1").await.unwrap();
    let version_before = fixture.edit("demo", &json!({"metadata": {"annotations": {"a": "b"}}})).await;
    fixture.context().parts.catalogs.requeue_extensions();
    fixture.until_reconciled("other").await;
    let same = fixture.extensions.get("demo").await.unwrap();
    assert_eq!(same.resource_version(), version_before.resource_version());
    assert_eq!(fixture.sets.get("demo-1").await.unwrap().resource_version(), before.resource_version());
    // The revision is patched (case apply-8), and no other is created (9).
    fixture.edit("demo", &json!({"spec": {"progressDeadlineMinutes": 20}})).await;
    let edited = fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    assert_eq!(edited.metadata.generation, version_before.metadata.generation.map(|one| one + 1));
    let patched = fixture.sets.get("demo-1").await.unwrap();
    assert_eq!(patched.spec.as_ref().unwrap().progress_deadline_minutes, Some(20));
    assert_eq!(patched.metadata.generation, before.metadata.generation.map(|one| one + 1));
    let strict = json!({"spec": {"progressDeadlineMinutes": null,
        "install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}}});
    fixture.edit("demo", &strict).await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    assert_eq!(fixture.sets.get("demo-1").await.unwrap().spec.unwrap().progress_deadline_minutes, None);
    assert_eq!(fixture.revisions().await, ["demo-1"]);
    assert_eq!(fixture.content("demo-1").await, content);
}

async fn new_version_rolls_out_beside_the_installed_one(fixture: &Fixture) {
    let installed = image_of(&fixture.extensions.get("demo").await.unwrap());
    // A version with the same manifests is another revision (case apply-11). The old one remains installed while
    // the new one fails its probes (12).
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "a")]).await;
    fixture.revision("demo-2").await;
    fixture
        .until_condition("demo", types::PROGRESSING, "True/RollingOut Revision 1.1.0 is rolling out.")
        .await;
    fixture
        .set_conditions(
            "demo-2",
            &[
                (types::PROGRESSING, Status::True, "RollingOut", "Revision 1.1.0 is rolling out."),
                (types::AVAILABLE, Status::False, "ProbeFailure", "Object Deployment.apps/v1 ns/op: no"),
            ],
        )
        .await;
    let shown = |extension: &ClusterExtension| {
        let revisions = &extension.status.as_ref()?.active_revisions;
        let failing = |name: &str| {
            let entry = revisions.iter().find(|entry| entry.name == name)?;
            Some(conditions::find(&entry.conditions, types::AVAILABLE).map(|one| one.reason.clone()))
        };
        (failing("demo-1") == Some(None) && failing("demo-2") == Some(Some("ProbeFailure".to_owned())))
            .then_some(())
    };
    fixture.until("both revisions", "demo", shown).await;
    assert_eq!(
        fixture.condition("demo", types::INSTALLED).await,
        Some(format!("True/Succeeded {installed}"))
    );
    assert!(fixture.condition("demo", types::AVAILABLE).await.unwrap().starts_with("True/ProbesSucceeded"));
}

// Cases apply-13, api-22
async fn edit_during_rollout_makes_a_revision(fixture: &Fixture) {
    fixture.edit("demo", &json!({"spec": {"source": {"catalog": {"version": "1.0.0"}}}})).await;
    let third = fixture.revision("demo-3").await;
    assert_eq!(third.annotations()["olm.operatorframework.io/bundle-version"], "1.0.0");
    fixture.succeed("demo-3").await;
    for old in ["demo-1", "demo-2"] {
        fixture.archive(old).await;
    }
    let only = |extension: &ClusterExtension| {
        let names: Vec<_> = extension.status.as_ref()?.active_revisions.iter().map(|one| &one.name).collect();
        (names == ["demo-3"]).then_some(())
    };
    fixture.until("only the third revision", "demo", only).await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
}

// Cases apply-20, apply-21, apply-22, apply-23, apply-67, api-27, api-28
#[tokio::test(flavor = "multi_thread")]
async fn installed_extension_survives_lost_catalog_and_secrets() {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({"version": ">=1.0.0"})).await;
    let before = fixture.sets.get("demo-1").await.unwrap();
    let [secret] = <[String; 1]>::try_from(fixture.content("demo-1").await).unwrap();
    let lose = async || {
        let lost = fixture.secrets.get(&secret).await.unwrap();
        fixture.secrets.delete(&secret, &DeleteParams::default()).await.unwrap();
        let restored =
            fixture.eventually("the Secret", async || fixture.secrets.get_opt(&secret).await.unwrap()).await;
        assert_eq!((restored.data, restored.immutable), (lost.data, lost.immutable));
        assert_eq!(restored.metadata.owner_references, lost.metadata.owner_references);
        assert_ne!(restored.metadata.uid, lost.metadata.uid);
    };
    lose().await;

    fixture.delete_catalog("main").await;
    let unchecked = json!({"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}});
    fixture.edit("demo", &json!({"spec": unchecked})).await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    let unknown = "Unknown/DeprecationStatusUnknown deprecation status unknown: catalog data unavailable";
    for type_ in
        [types::DEPRECATED, types::PACKAGE_DEPRECATED, types::CHANNEL_DEPRECATED, types::BUNDLE_DEPRECATED]
    {
        fixture.until_condition("demo", type_, unknown).await;
    }
    lose().await;

    // The active content is repaired even if no bundle can be chosen.
    fixture.edit("demo", &json!({"spec": {"source": {"catalog": {"version": "9.9.9"}}}})).await;
    let refused = "True/Retrying error upgrading from currently installed version \"1.0.0\": no bundles found for package \
                   \"demo\" matching version \"9.9.9\"";
    let refused = fixture.until_condition("demo", types::PROGRESSING, refused).await;
    assert!(image_of(&refused).starts_with("Installed bundle"));
    lose().await;
    let after = fixture.sets.get("demo-1").await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());
    assert_eq!(fixture.revisions().await, ["demo-1"]);
}

// docs/design/apply.md#missing-bundle-content: content that cannot be restored delays no other revision
#[tokio::test(flavor = "multi_thread")]
async fn content_of_newest_revision_is_restored_without_that_of_the_installed_one() {
    let mut fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "a")]).await;
    fixture.revision("demo-2").await;
    let rolling = "True/RollingOut Revision 1.1.0 is rolling out.";
    fixture.until_condition("demo", types::PROGRESSING, rolling).await;
    fixture.stop_controller().await;
    let image = fixture.sets.get("demo-1").await.unwrap().annotations()[BUNDLE_REFERENCE].clone();
    let digest = image.split_once('@').unwrap().1.replace(':', "-");
    fs::remove_file(fixture.cache().join("unpack/images").join(digest)).unwrap();
    let mut lost = Vec::new();
    for revision in ["demo-1", "demo-2"] {
        for secret in fixture.content(revision).await {
            fixture.secrets.delete(&secret, &DeleteParams::default()).await.unwrap();
            lost.push(secret);
        }
    }
    fixture.start_controller();
    let restored = async || fixture.secrets.get_opt(&lost[1]).await.unwrap();
    fixture.eventually("the Secret of demo-2", restored).await;
    assert!(fixture.secrets.get_opt(&lost[0]).await.unwrap().is_none());
}

// Cases apply-55, apply-56, apply-57, api-29, api-53, api-57
#[tokio::test(flavor = "multi_thread")]
async fn failed_installs_are_reported_and_recover() {
    let fixture = Fixture::start().await;
    let broken = Release { image: Some("NOT:an:image".to_owned()), ..version("1.0.0", "a") };
    fixture.publish("main", &[broken]).await;
    fixture.create("demo", &json!({}), &json!({"serviceAccount": {"name": "old"}})).await;
    let blocked = |extension: &ClusterExtension| {
        let progressing = conditions::find(&extension.status.as_ref()?.conditions, types::PROGRESSING)?;
        (progressing.reason == "Blocked").then(|| line(progressing))
    };
    let text = fixture.until("the blocked extension", "demo", blocked).await;
    let start = "False/Blocked error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": error parsing image reference";
    assert!(text.starts_with(start), "{text}");
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    fixture.revision("demo-1").await;

    // A revision that cannot roll out means that nothing is installed, with reason `Failed`.
    let collision = "revision object collisions in phase 0";
    fixture.set_conditions("demo-1", &[(types::PROGRESSING, Status::True, "Retrying", collision)]).await;
    fixture.until_condition("demo", types::PROGRESSING, &format!("True/Retrying {collision}")).await;
    fixture.until_condition("demo", types::INSTALLED, "False/Failed No bundle installed").await;
    fixture.succeed("demo-1").await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;

    let config = |value: Value| json!({"spec": {"config": {"configType": "Inline", "inline": value}}});
    fixture.edit("demo", &config(json!({"nonsense": 1}))).await;
    let invalid = |extension: &ClusterExtension| {
        let progressing = conditions::find(&extension.status.as_ref()?.conditions, types::PROGRESSING)?;
        (progressing.reason == "InvalidConfiguration").then(|| line(progressing))
    };
    let text = fixture.until("the invalid configuration", "demo", invalid).await;
    let start = "False/InvalidConfiguration error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": invalid \
                 ClusterExtension configuration: ";
    assert!(text.starts_with(start), "{text}");
    assert!(fixture.condition("demo", types::INSTALLED).await.unwrap().starts_with("True/Succeeded"));
    fixture.edit("demo", &json!({"spec": {"config": null}})).await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    let stalled = text.strip_prefix("False/InvalidConfiguration ").unwrap();
    fixture.until_event("demo", &format!("RolloutStalled InvalidConfiguration: {stalled}")).await;

    let bare: ClusterExtension = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "bare"}}))
    .unwrap();
    fixture.extensions.create(&PostParams::default(), &bare).await.unwrap();
    let text = fixture.until("the extension without spec", "bare", blocked).await;
    assert_eq!(text, "False/Blocked spec.source.catalog: Required value: names the package to install");

    let (long, longer) = ("a".repeat(60), "b".repeat(70));
    fixture.create(&long, &json!({}), &json!({})).await;
    fixture.create(&longer, &json!({}), &json!({})).await;
    fixture.revision(&format!("{long}-1")).await;
    let text = fixture.until("the long name", &longer, blocked).await;
    assert!(text.contains("metadata.name is too long: 70 characters, at most 61 are allowed"), "{text}");
}

// Cases api-16, api-17, api-18, api-32, api-34
#[tokio::test(flavor = "multi_thread")]
async fn catalogs_resolve_by_priority_and_report_deprecation() {
    let fixture = Fixture::start().await;
    let entry = |schema: &str, name: Option<&str>, message: &str| {
        let mut reference = json!({"schema": schema});
        if let Some(name) = name {
            reference["name"] = json!(name);
        }
        json!({"reference": reference, "message": message})
    };
    let deprecations = json!({"schema": "olm.deprecations", "package": "demo", "entries": [
        entry("olm.package", None, "use y"), entry("olm.channel", Some("stable"), "old channel")]});
    fixture.publish_with("cat-a", &[version("1.0.0", "a")], &[deprecations]).await;
    let nothing = json!({"packageName": "x"});
    let unknown = "Unknown/DeprecationStatusUnknown deprecation status unknown: catalog data unavailable";
    fixture.create("none", &nothing, &json!({})).await;
    fixture
        .until_condition("none", types::PROGRESSING, "True/Retrying no bundles found for package \"x\"")
        .await;
    fixture.until_condition("none", types::INSTALLED, "False/Failed No bundle installed").await;
    fixture.until_condition("none", types::BUNDLE_DEPRECATED, "Unknown/Absent no bundle installed yet").await;
    for type_ in [types::DEPRECATED, types::PACKAGE_DEPRECATED, types::CHANNEL_DEPRECATED] {
        fixture.until_condition("none", type_, unknown).await;
    }
    let narrowed = json!({"version": "9.9.9", "channels": ["a", "b"]});
    fixture.edit("none", &json!({"spec": {"source": {"catalog": narrowed}}})).await;
    let text =
        "True/Retrying no bundles found for package \"x\" matching version \"9.9.9\" in channels [a b]";
    fixture.until_condition("none", types::PROGRESSING, text).await;

    fixture.create("old", &json!({}), &json!({})).await;
    fixture.until_condition("old", types::DEPRECATED, "True/Deprecated use y\nold channel").await;
    fixture.until_condition("old", types::PACKAGE_DEPRECATED, "True/Deprecated use y").await;
    fixture.until_condition("old", types::CHANNEL_DEPRECATED, "True/Deprecated old channel").await;
    fixture.until_condition("old", types::BUNDLE_DEPRECATED, "Unknown/Absent no bundle installed yet").await;

    fixture.publish("cat-b", &[version("1.0.0", "a")]).await;
    fixture.create("torn", &json!({}), &json!({})).await;
    let torn = "True/Retrying found bundles for package \"demo\" in multiple catalogs with the same priority [cat-a cat-b]";
    fixture.until_condition("torn", types::PROGRESSING, torn).await;
    let api: Api<olm_api::ClusterCatalog> = Api::all(fixture.plane.client());
    let raised = Patch::Merge(json!({"spec": {"priority": 1}}));
    api.patch("cat-b", &PatchParams::default(), &raised).await.unwrap();
    fixture.revision("torn-1").await;
    fixture
        .until_condition("torn", types::PACKAGE_DEPRECATED, "False/NotDeprecated package not deprecated")
        .await;
}

// docs/design/additions.md#pause: no apply, no upgrade, but a current status
#[tokio::test(flavor = "multi_thread")]
async fn paused_extension_applies_nothing_until_resumed() {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    let paused =
        |set: &ClusterObjectSet| set.annotations().get("ext.olm.operatorframework.io/paused").cloned();
    fixture.annotate("demo", &[("paused", Some("true"))]).await;
    let start = "True/Paused annotation ext.olm.operatorframework.io/paused: nothing is applied or upgraded";
    fixture.until_condition("demo", types::PAUSED, start).await;
    fixture.eventually("the annotation", async || paused(&fixture.sets.get("demo-1").await.unwrap())).await;
    fixture.until_event("demo", "Paused nothing is applied or upgraded").await;
    assert_eq!(fixture.condition("demo", types::PROGRESSING).await.unwrap(), DONE);

    let edited = fixture.edit("demo", &json!({"spec": {"progressDeadlineMinutes": 20}})).await;
    let waits = |extension: &ClusterExtension| {
        let found = conditions::find(&extension.status.as_ref()?.conditions, types::PAUSED)?;
        (found.message.ends_with("; the change of spec waits")).then_some(extension.clone())
    };
    let waiting = fixture.until("the edit", "demo", waits).await;
    let progressing =
        conditions::find(&waiting.status.as_ref().unwrap().conditions, types::PROGRESSING).unwrap();
    assert!(
        progressing.observed_generation < edited.metadata.generation,
        "a pending edit must not be reported as applied"
    );
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "b")]).await;
    let waits = |extension: &ClusterExtension| {
        let found = conditions::find(&extension.status.as_ref()?.conditions, types::PAUSED)?;
        (found.message.ends_with("; bundle demo.v1.1.0 version 1.1.0 waits")).then_some(())
    };
    fixture.until("the upgrade", "demo", waits).await;
    // The status still follows the objects.
    fixture.set_conditions("demo-1", &[(types::AVAILABLE, Status::False, "ProbeFailure", "no")]).await;
    let failing = |extension: &ClusterExtension| {
        let found = conditions::find(&extension.status.as_ref()?.conditions, types::AVAILABLE)?;
        (line(found) == "False/ProbeFailure no").then_some(())
    };
    fixture.until("the failing probe", "demo", failing).await;
    let set = fixture.sets.get("demo-1").await.unwrap();
    assert_eq!(set.spec.unwrap().progress_deadline_minutes, None);
    assert_eq!(fixture.revisions().await, ["demo-1"]);

    fixture.annotate("demo", &[("paused", None)]).await;
    let second = fixture.revision("demo-2").await;
    assert_eq!((paused(&second), second.spec.unwrap().progress_deadline_minutes), (None, Some(20)));
    fixture
        .until_condition("demo", types::PROGRESSING, "True/RollingOut Revision 1.1.0 is rolling out.")
        .await;
    assert_eq!(fixture.condition("demo", types::PAUSED).await, None);
    assert_eq!(paused(&fixture.sets.get("demo-1").await.unwrap()), None);
    fixture.until_event("demo", "Resumed changes are applied again").await;
}

fn left_behind(name: &str, revision: &str) -> Secret {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {
        "olm.operatorframework.io/owner-name": "demo", "olm.operatorframework.io/revision-name": revision}},
        "type": "olm.operatorframework.io/object-data", "immutable": true}))
    .unwrap()
}

// docs/design/apply.md#writing-a-revision, docs/design/apply.md#repair-of-content-secrets,
// docs/design/apply.md#revision-membership; case apply-66
#[tokio::test(flavor = "multi_thread")]
async fn foreign_revision_is_kept_and_abandoned_secrets_are_deleted() {
    let fixture = Fixture::start().await;
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    let foreign: ClusterObjectSet = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {"name": "demo-1", "labels": {"whose": "mine"}},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"}}))
    .unwrap();
    let foreign = fixture.sets.create(&PostParams::default(), &foreign).await.unwrap();
    fixture.create("demo", &json!({}), &json!({})).await;
    let text = "True/Retrying error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": creating new Revision: \
                ClusterObjectSet \"demo-1\" already exists and does not belong to this extension: its label \
                olm.operatorframework.io/owner-name is \"\"";
    fixture.until_condition("demo", types::PROGRESSING, text).await;
    let same = fixture.sets.get("demo-1").await.unwrap();
    assert_eq!((same.uid(), same.resource_version()), (foreign.uid(), foreign.resource_version()));
    assert_eq!(fixture.content("demo-1").await, [""; 0]);
    fixture.sets.delete("demo-1", &DeleteParams::default()).await.unwrap();
    fixture.succeed("demo-1").await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;

    let kept = fixture.content("demo-1").await;
    // The revision refers to this Secret, so its owner is restored.
    let disowned = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    fixture.secrets.patch(&kept[0], &PatchParams::default(), &disowned).await.unwrap();
    for (name, revision) in [("demo-1-0", "demo-1"), ("demo-2-0", "demo-2")] {
        fixture.secrets.create(&PostParams::default(), &left_behind(name, revision)).await.unwrap();
    }
    let gone = Secret { type_: None, ..left_behind("demo-2-1", "demo-2") };
    fixture.secrets.create(&PostParams::default(), &gone).await.unwrap();
    let left = async || {
        let (first, second) = (fixture.content("demo-1").await, fixture.content("demo-2").await);
        (first == kept && second == ["demo-2-0", "demo-2-1"]).then_some(())
    };
    let swept = async || {
        let known = fixture.context().parts.cache.labeled("demo");
        fixture.context().ref_secrets.sweep("demo", &known).await.unwrap();
        left().await
    };
    fixture.eventually("only Secrets that are not superseded, and those of another type", swept).await;
}
