//! Complete reconciles against a real API server: the acceptance cases of this controller in docs/design/cases.md
//! (case api).

use std::fs;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use olm_api::ClusterObjectSet;
use olm_api::conditions::{self, Status, types};
use serde_json::{Value, json};

use super::super::world::{DONE, Release, World, installed, line, version};
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
    let world = World::start().await;
    world.publish("main", &[version("1.0.0", "a")]).await;
    let made = world.create("demo", &json!({}), &json!({})).await;
    assert_eq!(made.metadata.finalizers, None);

    // The first write sets both finalizers, the second the status (case api-15).
    let set = world.revision("demo-1").await;
    let first =
        world.expect("demo", types::PROGRESSING, "True/RollingOut Revision 1.0.0 is rolling out.").await;
    assert_eq!(first.finalizers(), FINALIZERS);
    assert_eq!(world.condition("demo", types::INSTALLED).await.unwrap(), "False/Absent No bundle installed");
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
    let content = world.content("demo-1").await;
    assert_eq!(content.len(), 1);
    let secret = world.secrets.get(&content[0]).await.unwrap();
    assert_eq!(secret.immutable, Some(true));
    assert_eq!(secret.type_.as_deref(), Some("olm.operatorframework.io/object-data"));
    assert_eq!(secret.owner_references()[0].uid, set.uid().unwrap());
    let objects = set.spec.as_ref().unwrap().phases.iter().flat_map(|phase| &phase.objects);
    assert!(objects.into_iter().all(|object| object.object.is_none() && object.ref_.is_some()));

    world.succeed("demo-1").await;
    let installed = world.expect("demo", types::PROGRESSING, DONE).await;
    assert!(image_of(&installed).starts_with("Installed bundle registry.invalid/demo@sha256:"));
    let available = world.condition("demo", types::AVAILABLE).await.unwrap();
    assert_eq!(available, "True/ProbesSucceeded Objects are available and pass all probes.");
    let status = installed.status.unwrap();
    assert_eq!(serde_json::to_value(&status.active_revisions).unwrap(), json!([{"name": "demo-1"}]));

    // Without a change nothing is written (cases apply-7, api-50).
    let before = world.sets.get("demo-1").await.unwrap();
    let version_before = world.edit("demo", &json!({"metadata": {"annotations": {"a": "b"}}})).await;
    world.context().parts.catalogs.announce();
    world.settle("other").await;
    let same = world.extensions.get("demo").await.unwrap();
    assert_eq!(same.resource_version(), version_before.resource_version());
    assert_eq!(world.sets.get("demo-1").await.unwrap().resource_version(), before.resource_version());
    // The revision is patched (case apply-8), and no other is created (9).
    world.edit("demo", &json!({"spec": {"progressDeadlineMinutes": 20}})).await;
    let edited = world.expect("demo", types::PROGRESSING, DONE).await;
    assert_eq!(edited.metadata.generation, version_before.metadata.generation.map(|one| one + 1));
    let patched = world.sets.get("demo-1").await.unwrap();
    assert_eq!(patched.spec.as_ref().unwrap().progress_deadline_minutes, Some(20));
    assert_eq!(patched.metadata.generation, before.metadata.generation.map(|one| one + 1));
    let strict = json!({"spec": {"progressDeadlineMinutes": null,
        "install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}}});
    world.edit("demo", &strict).await;
    world.expect("demo", types::PROGRESSING, DONE).await;
    assert_eq!(world.sets.get("demo-1").await.unwrap().spec.unwrap().progress_deadline_minutes, None);
    assert_eq!(world.revisions().await, ["demo-1"]);
    assert_eq!(world.content("demo-1").await, content);

    // A version with the same manifests is another revision (case apply-11). The old one remains installed while
    // the new one fails its probes (12).
    world.publish("main", &[version("1.0.0", "a"), version("1.1.0", "a")]).await;
    world.revision("demo-2").await;
    world.expect("demo", types::PROGRESSING, "True/RollingOut Revision 1.1.0 is rolling out.").await;
    world
        .say(
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
    world.until("both revisions", "demo", shown).await;
    assert_eq!(
        world.condition("demo", types::INSTALLED).await,
        Some(image_of(&edited)).map(|message| format!("True/Succeeded {message}"))
    );
    assert!(world.condition("demo", types::AVAILABLE).await.unwrap().starts_with("True/ProbesSucceeded"));

    // An edit during a rollout takes effect (cases apply-13, api-22).
    world.edit("demo", &json!({"spec": {"source": {"catalog": {"version": "1.0.0"}}}})).await;
    let third = world.revision("demo-3").await;
    assert_eq!(third.annotations()["olm.operatorframework.io/bundle-version"], "1.0.0");
    world.succeed("demo-3").await;
    for old in ["demo-1", "demo-2"] {
        world.archive(old).await;
    }
    let only = |extension: &ClusterExtension| {
        let names: Vec<_> = extension.status.as_ref()?.active_revisions.iter().map(|one| &one.name).collect();
        (names == ["demo-3"]).then_some(())
    };
    world.until("only the third revision", "demo", only).await;
    world.expect("demo", types::PROGRESSING, DONE).await;
    world
        .expect_event("demo", "InstallStarted revision demo-1 installs bundle demo.v1.0.0 version 1.0.0")
        .await;
    world
        .expect_event(
            "demo",
            "RolloutSucceeded bundle demo.v1.0.0 version 1.0.0 is installed by revision demo-3",
        )
        .await;
    let expected = "UpgradeStarted revision demo-2 brings bundle demo.v1.1.0 version 1.1.0 in place of bundle \
                    demo.v1.0.0 version 1.0.0";
    world.expect_event("demo", expected).await;
}

// Cases apply-20, apply-21, apply-22, apply-23, apply-67, api-27, api-28
#[tokio::test(flavor = "multi_thread")]
async fn installed_extension_survives_lost_catalog_and_secrets() {
    let world = World::start().await;
    installed(&world, &json!({"version": ">=1.0.0"})).await;
    let before = world.sets.get("demo-1").await.unwrap();
    let [secret] = <[String; 1]>::try_from(world.content("demo-1").await).unwrap();
    let lose = async || {
        let lost = world.secrets.get(&secret).await.unwrap();
        world.secrets.delete(&secret, &DeleteParams::default()).await.unwrap();
        let restored =
            world.eventually("the Secret", async || world.secrets.get_opt(&secret).await.unwrap()).await;
        assert_eq!((restored.data, restored.immutable), (lost.data, lost.immutable));
        assert_eq!(restored.metadata.owner_references, lost.metadata.owner_references);
        assert_ne!(restored.metadata.uid, lost.metadata.uid);
    };
    lose().await;

    world.withdraw("main").await;
    let unchecked = json!({"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}});
    world.edit("demo", &json!({"spec": unchecked})).await;
    world.expect("demo", types::PROGRESSING, DONE).await;
    let unknown = "Unknown/DeprecationStatusUnknown deprecation status unknown: catalog data unavailable";
    for type_ in
        [types::DEPRECATED, types::PACKAGE_DEPRECATED, types::CHANNEL_DEPRECATED, types::BUNDLE_DEPRECATED]
    {
        world.expect("demo", type_, unknown).await;
    }
    lose().await;

    // The active content is repaired even if no bundle can be chosen.
    world.edit("demo", &json!({"spec": {"source": {"catalog": {"version": "9.9.9"}}}})).await;
    let refused = "True/Retrying error upgrading from currently installed version \"1.0.0\": no bundles found for package \
                   \"demo\" matching version \"9.9.9\"";
    let refused = world.expect("demo", types::PROGRESSING, refused).await;
    assert!(image_of(&refused).starts_with("Installed bundle"));
    lose().await;
    let after = world.sets.get("demo-1").await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());
    assert_eq!(world.revisions().await, ["demo-1"]);
}

// docs/design/apply.md#missing-bundle-content; case apply-20: an edit that cannot be applied is reported until it
// is applied
#[tokio::test(flavor = "multi_thread")]
async fn edit_without_bundle_content_stays_pending() {
    let mut world = World::start().await;
    installed(&world, &json!({})).await;
    let told = [
        "InstallStarted revision demo-1 installs bundle demo.v1.0.0 version 1.0.0",
        "Resolved chose bundle demo.v1.0.0 version 1.0.0 from catalog main",
        "RolloutSucceeded bundle demo.v1.0.0 version 1.0.0 is installed by revision demo-1",
    ];
    for event in told {
        world.expect_event("demo", event).await;
    }
    world.halt().await;
    fs::remove_dir_all(world.cache().join("unpack")).unwrap();
    world.resume();
    world.settle("first").await;
    // After a restart no Event is repeated (docs/design/additions.md#events), and the status is unchanged.
    assert_eq!(world.condition("demo", types::PROGRESSING).await.unwrap(), DONE);
    assert_eq!(world.events("demo").await, told);

    world.edit("demo", &json!({"spec": {"progressDeadlineMinutes": 20}})).await;
    let pending = |extension: &ClusterExtension| {
        let progressing = conditions::find(&extension.status.as_ref()?.conditions, types::PROGRESSING)?;
        let is_current = progressing.observed_generation == extension.metadata.generation;
        let start = "error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": error copying image";
        (is_current && progressing.reason == "Retrying" && progressing.message.starts_with(start))
            .then_some(())
    };
    world.until("the pending edit", "demo", pending).await;
    world.halt().await;
    world.resume();
    world.settle("second").await;
    world.until("the pending edit", "demo", pending).await;
    assert_eq!(world.sets.get("demo-1").await.unwrap().spec.unwrap().progress_deadline_minutes, None);
    assert!(world.condition("demo", types::INSTALLED).await.unwrap().starts_with("True/Succeeded"));
    // The content is available again.
    world.publish("main", &[version("1.0.0", "a")]).await;
    world.expect("demo", types::PROGRESSING, DONE).await;
    assert_eq!(world.sets.get("demo-1").await.unwrap().spec.unwrap().progress_deadline_minutes, Some(20));
}

// Cases apply-55, apply-56, apply-57, api-29, api-53, api-57, E9c, E13
#[tokio::test(flavor = "multi_thread")]
async fn failed_installs_are_reported_and_recover() {
    let world = World::start().await;
    let broken = Release { image: Some("NOT:an:image".to_owned()), ..version("1.0.0", "a") };
    world.publish("main", &[broken]).await;
    world.create("demo", &json!({}), &json!({"serviceAccount": {"name": "old"}})).await;
    let blocked = |extension: &ClusterExtension| {
        let progressing = conditions::find(&extension.status.as_ref()?.conditions, types::PROGRESSING)?;
        (progressing.reason == "Blocked").then(|| line(progressing))
    };
    let text = world.until("the blocked extension", "demo", blocked).await;
    let start = "False/Blocked error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": error parsing image reference";
    assert!(text.starts_with(start), "{text}");
    world.publish("main", &[version("1.0.0", "a")]).await;
    world.revision("demo-1").await;

    // A revision that cannot roll out means that nothing is installed, with reason `Failed`.
    let collision = "revision object collisions in phase 0";
    world.say("demo-1", &[(types::PROGRESSING, Status::True, "Retrying", collision)]).await;
    world.expect("demo", types::PROGRESSING, &format!("True/Retrying {collision}")).await;
    world.expect("demo", types::INSTALLED, "False/Failed No bundle installed").await;
    world.succeed("demo-1").await;
    world.expect("demo", types::PROGRESSING, DONE).await;

    let config = |value: Value| json!({"spec": {"config": {"configType": "Inline", "inline": value}}});
    world.edit("demo", &config(json!({"nonsense": 1}))).await;
    let invalid = |extension: &ClusterExtension| {
        let progressing = conditions::find(&extension.status.as_ref()?.conditions, types::PROGRESSING)?;
        (progressing.reason == "InvalidConfiguration").then(|| line(progressing))
    };
    let text = world.until("the invalid configuration", "demo", invalid).await;
    let start = "False/InvalidConfiguration error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": invalid \
                 ClusterExtension configuration: ";
    assert!(text.starts_with(start), "{text}");
    assert!(world.condition("demo", types::INSTALLED).await.unwrap().starts_with("True/Succeeded"));
    world.edit("demo", &json!({"spec": {"config": null}})).await;
    world.expect("demo", types::PROGRESSING, DONE).await;
    let stalled = text.strip_prefix("False/InvalidConfiguration ").unwrap();
    world.expect_event("demo", &format!("RolloutStalled InvalidConfiguration: {stalled}")).await;

    let bare: ClusterExtension = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "bare"}}))
    .unwrap();
    world.extensions.create(&PostParams::default(), &bare).await.unwrap();
    let text = world.until("the extension without spec", "bare", blocked).await;
    assert_eq!(text, "False/Blocked spec.source.catalog: Required value: says which package to install");

    let (long, longer) = ("a".repeat(60), "b".repeat(70));
    world.create(&long, &json!({}), &json!({})).await;
    world.create(&longer, &json!({}), &json!({})).await;
    world.revision(&format!("{long}-1")).await;
    let text = world.until("the long name", &longer, blocked).await;
    assert!(text.contains("metadata.name is too long: 70 characters, at most 61 are allowed"), "{text}");
}

// Cases api-16, api-17, api-18, api-32, api-34
#[tokio::test(flavor = "multi_thread")]
async fn catalogs_resolve_by_priority_and_report_deprecation() {
    let world = World::start().await;
    let entry = |schema: &str, name: Option<&str>, message: &str| {
        let mut reference = json!({"schema": schema});
        if let Some(name) = name {
            reference["name"] = json!(name);
        }
        json!({"reference": reference, "message": message})
    };
    let deprecations = json!({"schema": "olm.deprecations", "package": "demo", "entries": [
        entry("olm.package", None, "use y"), entry("olm.channel", Some("stable"), "old channel")]});
    world.publish_with("cat-a", &[version("1.0.0", "a")], &[deprecations]).await;
    let nothing = json!({"packageName": "x"});
    let unknown = "Unknown/DeprecationStatusUnknown deprecation status unknown: catalog data unavailable";
    world.create("none", &nothing, &json!({})).await;
    world.expect("none", types::PROGRESSING, "True/Retrying no bundles found for package \"x\"").await;
    world.expect("none", types::INSTALLED, "False/Failed No bundle installed").await;
    world.expect("none", types::BUNDLE_DEPRECATED, "Unknown/Absent no bundle installed yet").await;
    for type_ in [types::DEPRECATED, types::PACKAGE_DEPRECATED, types::CHANNEL_DEPRECATED] {
        world.expect("none", type_, unknown).await;
    }
    let narrowed = json!({"version": "9.9.9", "channels": ["a", "b"]});
    world.edit("none", &json!({"spec": {"source": {"catalog": narrowed}}})).await;
    let text =
        "True/Retrying no bundles found for package \"x\" matching version \"9.9.9\" in channels [a b]";
    world.expect("none", types::PROGRESSING, text).await;

    world.create("old", &json!({}), &json!({})).await;
    world.expect("old", types::DEPRECATED, "True/Deprecated use y\nold channel").await;
    world.expect("old", types::PACKAGE_DEPRECATED, "True/Deprecated use y").await;
    world.expect("old", types::CHANNEL_DEPRECATED, "True/Deprecated old channel").await;
    world.expect("old", types::BUNDLE_DEPRECATED, "Unknown/Absent no bundle installed yet").await;

    world.publish("cat-b", &[version("1.0.0", "a")]).await;
    world.create("torn", &json!({}), &json!({})).await;
    let torn = "True/Retrying found bundles for package \"demo\" in multiple catalogs with the same priority [cat-a cat-b]";
    world.expect("torn", types::PROGRESSING, torn).await;
    let api: Api<olm_api::ClusterCatalog> = Api::all(world.plane.client());
    let raised = Patch::Merge(json!({"spec": {"priority": 1}}));
    api.patch("cat-b", &PatchParams::default(), &raised).await.unwrap();
    world.revision("torn-1").await;
    world.expect("torn", types::PACKAGE_DEPRECATED, "False/NotDeprecated package not deprecated").await;
}

// docs/design/additions.md#pause: no apply, no upgrade, but a current status
#[tokio::test(flavor = "multi_thread")]
async fn paused_extension_applies_nothing_until_resumed() {
    let world = World::start().await;
    installed(&world, &json!({})).await;
    let paused =
        |set: &ClusterObjectSet| set.annotations().get("ext.olm.operatorframework.io/paused").cloned();
    world.annotate("demo", &[("paused", Some("true"))]).await;
    let start = "True/Paused annotation ext.olm.operatorframework.io/paused: nothing is applied or upgraded";
    world.expect("demo", types::PAUSED, start).await;
    world.eventually("the annotation", async || paused(&world.sets.get("demo-1").await.unwrap())).await;
    world.expect_event("demo", "Paused nothing is applied or upgraded").await;
    assert_eq!(world.condition("demo", types::PROGRESSING).await.unwrap(), DONE);

    let edited = world.edit("demo", &json!({"spec": {"progressDeadlineMinutes": 20}})).await;
    let waits = |extension: &ClusterExtension| {
        let found = conditions::find(&extension.status.as_ref()?.conditions, types::PAUSED)?;
        (found.message.ends_with("; what was changed in spec waits")).then_some(extension.clone())
    };
    let waiting = world.until("the edit", "demo", waits).await;
    let progressing =
        conditions::find(&waiting.status.as_ref().unwrap().conditions, types::PROGRESSING).unwrap();
    assert!(
        progressing.observed_generation < edited.metadata.generation,
        "a pending edit must not be reported as applied"
    );
    world.publish("main", &[version("1.0.0", "a"), version("1.1.0", "b")]).await;
    let waits = |extension: &ClusterExtension| {
        let found = conditions::find(&extension.status.as_ref()?.conditions, types::PAUSED)?;
        (found.message.ends_with("; bundle demo.v1.1.0 version 1.1.0 waits")).then_some(())
    };
    world.until("the upgrade", "demo", waits).await;
    // The status still follows the objects.
    world.say("demo-1", &[(types::AVAILABLE, Status::False, "ProbeFailure", "no")]).await;
    let failing = |extension: &ClusterExtension| {
        let found = conditions::find(&extension.status.as_ref()?.conditions, types::AVAILABLE)?;
        (line(found) == "False/ProbeFailure no").then_some(())
    };
    world.until("the failing probe", "demo", failing).await;
    let set = world.sets.get("demo-1").await.unwrap();
    assert_eq!(set.spec.unwrap().progress_deadline_minutes, None);
    assert_eq!(world.revisions().await, ["demo-1"]);

    world.annotate("demo", &[("paused", None)]).await;
    let second = world.revision("demo-2").await;
    assert_eq!((paused(&second), second.spec.unwrap().progress_deadline_minutes), (None, Some(20)));
    world.expect("demo", types::PROGRESSING, "True/RollingOut Revision 1.1.0 is rolling out.").await;
    assert_eq!(world.condition("demo", types::PAUSED).await, None);
    assert_eq!(paused(&world.sets.get("demo-1").await.unwrap()), None);
    world.expect_event("demo", "Resumed changes are applied again").await;
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
    let world = World::start().await;
    world.publish("main", &[version("1.0.0", "a")]).await;
    let foreign: ClusterObjectSet = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {"name": "demo-1", "labels": {"whose": "mine"}},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"}}))
    .unwrap();
    let foreign = world.sets.create(&PostParams::default(), &foreign).await.unwrap();
    world.create("demo", &json!({}), &json!({})).await;
    let text = "True/Retrying error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": creating new Revision: \
                ClusterObjectSet \"demo-1\" exists and is not of this extension: its label \
                olm.operatorframework.io/owner-name is \"\"";
    world.expect("demo", types::PROGRESSING, text).await;
    let same = world.sets.get("demo-1").await.unwrap();
    assert_eq!((same.uid(), same.resource_version()), (foreign.uid(), foreign.resource_version()));
    assert_eq!(world.content("demo-1").await, [""; 0]);
    world.sets.delete("demo-1", &DeleteParams::default()).await.unwrap();
    world.succeed("demo-1").await;
    world.expect("demo", types::PROGRESSING, DONE).await;

    let kept = world.content("demo-1").await;
    // The revision refers to this Secret, so its owner is restored.
    let disowned = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    world.secrets.patch(&kept[0], &PatchParams::default(), &disowned).await.unwrap();
    for (name, revision) in [("demo-1-0", "demo-1"), ("demo-2-0", "demo-2")] {
        world.secrets.create(&PostParams::default(), &left_behind(name, revision)).await.unwrap();
    }
    let gone = Secret { type_: None, ..left_behind("demo-2-1", "demo-2") };
    world.secrets.create(&PostParams::default(), &gone).await.unwrap();
    let left = async || {
        let (first, second) = (world.content("demo-1").await, world.content("demo-2").await);
        (first == kept && second == ["demo-2-1"]).then_some(())
    };
    let swept = async || {
        world.context().ref_secrets.sweep("demo").await.unwrap();
        left().await
    };
    world.eventually("only referenced Secrets and Secrets of another type", swept).await;
}
