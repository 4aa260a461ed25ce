//! Choice of catalog and bundle, constraints of upgrades, and the resulting conditions.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, PostParams};
use olm_api::ClusterExtension;
use olm_e2e::{Scenario, describe, extension, is_installed};
use olm_image::Image;
use sample_operator::content::Sample;
use serde_json::{Value, json};

/// Adds properties to the named bundles of a catalog.
pub(crate) fn with_properties(text: &str, more: &BTreeMap<String, Vec<Value>>) -> Result<String> {
    let mut out = String::new();
    for line in text.lines() {
        let mut meta: Value = serde_json::from_str(line)?;
        let added = meta["name"].as_str().and_then(|name| more.get(name)).cloned().unwrap_or_default();
        if let Some(properties) = meta["properties"].as_array_mut() {
            properties.extend(added);
        }
        out += &format!("{meta}\n");
    }
    Ok(out)
}

/// Notes of the Events with this reason about the extension.
async fn notes(scenario: &Scenario, extension: &str, reason: &str) -> Result<Vec<String>> {
    let events: Api<Event> = scenario.cluster.within("default");
    let about = ListParams::default().fields(&format!("regarding.name={extension}"));
    let all = events.list(&about).await?;
    Ok(all
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(reason))
        .filter_map(|e| e.note)
        .collect())
}

// Cases resolution-11, resolution-21, resolution-22, additions-a36
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/reconcile_tests.rs::catalogs_resolve_by_priority_and_report_deprecation proves it"]
async fn catalog_priority_decides_and_catalog_changes_are_resolved() -> Result<()> {
    let scenario = Scenario::new("priority", &["1.0.0", "1.1.0"]).await?;
    let (first, second) = (format!("{}-a", scenario.name), format!("{}-b", scenario.name));
    let spec = |priority: i32, reference: &str| json!({"priority": priority, "source": {"type": "Image", "image": {"ref": reference}}});
    let old =
        scenario.push_catalog(&scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0"]))])).await?;
    let new = scenario
        .push_catalog(&scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]))
        .await?;
    for (name, reference) in [(&first, &old), (&second, &new)] {
        scenario.apply_catalog_as(name, spec(0, reference)).await?;
        scenario.wait_served_by(name, reference).await?;
    }
    scenario.install(json!({"channels": ["stable"]})).await?;
    let tie = format!(
        "True/Retrying: found bundles for package \"{}\" in channels [stable] in multiple catalogs with the same priority \
         [{first} {second}]",
        scenario.name
    );
    scenario.wait_condition("Progressing", &tie).await?;
    // From here on only catalogs change.
    scenario.apply_catalog_as(&first, spec(10, &old)).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.apply_catalog_as(&second, spec(20, &new)).await?;
    scenario.wait_installed("1.1.0").await?;
    scenario.finish().await
}

// Case resolution-26
#[tokio::test(flavor = "multi_thread")]
async fn unserved_catalog_blocks_resolution_until_it_is_disabled() -> Result<()> {
    let scenario = Scenario::new("unserved", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let broken = format!("{}-broken", scenario.name);
    let missing = format!("{}/e2e/{}:none", scenario.cluster.registry, broken);
    let spec = |mode: &str| json!({"availabilityMode": mode, "source": {"type": "Image", "image": {"ref": missing}}});
    scenario.apply_catalog_as(&broken, spec("Available")).await?;
    scenario.install(json!({})).await?;
    let fault = format!(
        "True/Retrying: error walking catalogs: error getting package \"{0}\" from catalog \"{broken}\": catalog \
         \"{broken}\" is not being served",
        scenario.name
    );
    scenario.wait_condition("Progressing", &fault).await?;
    scenario.apply_catalog_as(&broken, spec("Unavailable")).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}

// Case resolution-44: package, channel and bundle, in this order.
#[tokio::test(flavor = "multi_thread")]
async fn deprecations_are_reported_for_package_channel_and_bundle() -> Result<()> {
    let scenario = Scenario::new("old", &["1.0.0"]).await?;
    let channels = [("stable", scenario.chain(&["1.0.0"])), ("fast", scenario.chain(&["1.0.0"]))];
    let bundle = scenario.sample.bundle_name("1.0.0");
    let about =
        |entries: Value| json!({"schema": "olm.deprecations", "package": scenario.name, "entries": entries});
    let package = json!({"reference": {"schema": "olm.package"}, "message": "the package is old"});
    let channel =
        json!({"reference": {"schema": "olm.channel", "name": "stable"}, "message": "so is the channel"});
    let chosen = json!({"reference": {"schema": "olm.bundle", "name": bundle}, "message": "and the bundle"});
    let text = |entries: Value| format!("{}{}\n", scenario.catalog_text(&channels), about(entries));
    scenario.push_catalog(&text(json!([chosen, channel, package]))).await?;
    scenario.apply_catalog(json!({"ref": scenario.catalog_tag(), "pollIntervalMinutes": 1})).await?;
    scenario.install(json!({"channels": ["stable"]})).await?;
    scenario.wait_installed("1.0.0").await?;
    let all = "True/Deprecated: the package is old\nso is the channel\nand the bundle";
    scenario.wait_condition("Deprecated", all).await?;
    scenario.wait_condition("PackageDeprecated", "True/Deprecated: the package is old").await?;
    scenario.wait_condition("ChannelDeprecated", "True/Deprecated: so is the channel").await?;
    scenario.wait_condition("BundleDeprecated", "True/Deprecated: and the bundle").await?;
    // The deprecated channel is no longer in the spec.
    scenario.edit(json!({"channels": ["fast"]})).await?;
    scenario.wait_condition("ChannelDeprecated", "False/NotDeprecated: channel not deprecated").await?;
    scenario.wait_condition("Deprecated", "True/Deprecated: the package is old\nand the bundle").await?;
    scenario.finish().await
}

// docs/design/additions.md#upgrade-scope, docs/design/additions.md#annotations; cases additions-a13, additions-e09
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_scope_minor_holds_a_major_upgrade_and_a_wrong_scope_is_reported() -> Result<()> {
    let mut scenario = Scenario::new("scope", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    // A wrong value counts as the safest one and is reported once.
    scenario.annotate(json!({"upgrade-scope": "sideways"})).await?;
    let note = scenario.wait_event("InvalidAnnotation").await?;
    ensure!(note.contains("sideways") && note.contains("patch"), "{note}");
    let now = scenario.condition_now("UpgradeAvailable").await?;
    ensure!(now.starts_with("False/UpToDate"), "a wrong value has an effect: {now}");
    scenario.annotate(json!({"upgrade-scope": "minor"})).await?;
    scenario.wait_condition("UpgradeAvailable", "False/UpToDate").await?;
    scenario.push_bundle("2.0.0", |_| ()).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "2.0.0"]))]).await?;
    let held = scenario.wait_condition("UpgradeAvailable", "True/OutsideScope").await?;
    let message = describe(&held, "UpgradeAvailable");
    ensure!(message.contains(&scenario.sample.bundle_name("2.0.0")), "the bundle is missing: {message}");
    scenario.wait_installed("1.0.0").await?;
    scenario.annotate(json!({"upgrade-scope": null})).await?;
    scenario.wait_installed("2.0.0").await?;
    scenario.wait_condition("UpgradeAvailable", "False/UpToDate").await?;
    scenario.finish().await
}

// docs/design/additions.md#update-notifications
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/notification_tests.rs::newer_version_is_reported_only_with_the_gate_and_without_needless_writes proves it"]
async fn pinned_extension_reports_newer_version_until_pin_is_lifted() -> Result<()> {
    let mut scenario = Scenario::new("notify", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.wait_condition("UpgradeAvailable", "False/UpToDate").await?;
    scenario.push_bundle("1.1.0", |_| ()).await?;
    scenario.push_bundle("2.0.0", |_| ()).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0", "2.0.0"]))]).await?;
    let waiting = scenario.wait_condition("UpgradeAvailable", "True/OutsideVersionRange").await?;
    let message = describe(&waiting, "UpgradeAvailable");
    let bundle = scenario.sample.bundle_name("1.1.0");
    ensure!(message.contains(&format!("bundle {bundle} version 1.1.0 ")), "another bundle: {message}");
    ensure!(message.ends_with("further upgrades lead to 2.0.0"), "no last version: {message}");
    let available =
        |found: &ClusterExtension| found.status.as_ref().and_then(|status| status.available_version.clone());
    ensure!(available(&waiting).as_deref() == Some("1.1.0"), "{:?}", available(&waiting));
    // Other content with the same answer causes no write.
    let before = scenario.extensions().get(&scenario.name).await?.metadata.resource_version;
    let (stable, other) = (scenario.chain(&["1.0.0", "1.1.0", "2.0.0"]), scenario.chain(&["1.0.0"]));
    scenario.serve(&[("stable", stable), ("other", other)]).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = scenario.extensions().get(&scenario.name).await?.metadata.resource_version;
    ensure!(before == after, "the status was written without a change");
    scenario.edit(json!({"version": null})).await?;
    scenario.wait_installed("2.0.0").await?;
    let done = scenario.wait_condition("UpgradeAvailable", "False/UpToDate").await?;
    ensure!(available(&done).is_none(), "{:?}", available(&done));
    let revisions = done.status.into_iter().flat_map(|status| status.active_revisions);
    let mut copied = revisions.flat_map(|revision| revision.conditions);
    ensure!(copied.all(|one| one.type_ != "UpgradeAvailable"), "copied to a revision");
    scenario.finish().await
}

// docs/design/additions.md#skipped-versions; case additions-a16
#[tokio::test(flavor = "multi_thread")]
async fn skipped_version_is_excluded_only_with_the_annotation() -> Result<()> {
    let scenario = Scenario::new("skipped", &["1.0.0", "2.0.0", "3.0.0"]).await?;
    let skipped = scenario.sample.bundle_name("2.0.0");
    let stable = |range: Value| {
        vec![
            scenario.entry("1.0.0", json!({})),
            scenario.entry("2.0.0", range),
            scenario.entry("3.0.0", json!({"skips": [skipped]})),
        ]
    };
    scenario.serve(&[("stable", stable(json!({"skipRange": ">=1.0.0 <2.0.0"})))]).await?;
    // The range of 2.0.0 passes over 1.0.0: the annotation would prevent its installation, but keeps it installed.
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.annotate(json!({"exclude-skipped": "true"})).await?;
    scenario.edit(json!({"version": null})).await?;
    let held = scenario.wait_condition("UpgradeAvailable", "True/").await?;
    let message = describe(&held, "UpgradeAvailable");
    ensure!(message.contains(&skipped), "the bundle is missing: {message}");
    scenario.wait_installed("1.0.0").await?;
    scenario.annotate(json!({"exclude-skipped": null})).await?;
    // Case seeds-s0-1: one upgrade edge at a time, 2.0.0 and then 3.0.0.
    scenario.wait_installed("3.0.0").await?;
    let warned = notes(&scenario, &scenario.name, "Resolved").await?;
    ensure!(
        warned.iter().any(|note| note.contains(&skipped)),
        "no Event contains the skipped version: {warned:?}"
    );
    scenario.finish().await
}

// Cases additions-a21, additions-a22, additions-a23, additions-e20
#[tokio::test(flavor = "multi_thread")]
async fn missing_dependency_is_rejected_or_awaited_by_mode() -> Result<()> {
    let scenario = Scenario::new("needs", &["1.0.0"]).await?;
    let base = Sample::idle(&format!("{}-base", scenario.name), &scenario.cluster.operator_image);
    let pushed = scenario
        .cluster
        .push(&format!("e2e/{}", base.package), "v1.0.0", &Image::bundle(&base.bundle("1.0.0"))?)
        .await?;
    let needs = json!({"type": "olm.package.required", "value": {"packageName": base.package, "versionRange": ">=1.0.0"}});
    let name = scenario.sample.bundle_name("1.0.0");
    let own = scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0"]))]);
    let own = with_properties(&own, &BTreeMap::from([(name.clone(), vec![needs])]))?;
    let other =
        base.catalog(&[("stable", vec![json!({"name": base.bundle_name("1.0.0")})])], &[("1.0.0", pushed)]);
    let digest = scenario.push_catalog(&format!("{own}{other}")).await?;
    scenario.apply_catalog(json!({"ref": digest})).await?;
    scenario.install(json!({})).await?;
    let refused = format!(
        "True/Retrying: validating bundle \"{name}\": bundle \"{name}\" has a dependency declared via property \
         \"olm.package.required\" which is currently not supported"
    );
    scenario.wait_condition("Progressing", &refused).await?;
    scenario.annotate(json!({"dependency-mode": "Check"})).await?;
    let waits = format!("True/Retrying: dependencies not satisfied: bundle {name} requires ");
    let waiting = scenario.wait_condition("Progressing", &waits).await?;
    let message = describe(&waiting, "Progressing");
    ensure!(message.contains(&base.package), "the package is missing: {message}");

    let provider = extension(
        &base.package,
        &scenario.name,
        &base.package,
        json!({"selector": {"matchLabels": {"e2e": scenario.name}}}),
    );
    scenario.extensions().create(&PostParams::default(), &provider).await?;
    scenario
        .cluster
        .wait(&scenario.extensions(), &base.package, "the provider installed", is_installed("1.0.0"))
        .await?;
    // The waiting extension itself is not changed.
    scenario.wait_installed("1.0.0").await?;
    scenario.wait_condition("DependenciesSatisfied", "True/AllSatisfied").await?;

    // The deletion of the provider waits for its dependent.
    scenario.cluster.delete(&scenario.extensions(), &base.package).await?;
    let dependent = scenario.name.clone();
    let stays = move |found: Option<&ClusterExtension>| {
        found.is_some_and(|found| {
            found.metadata.deletion_timestamp.is_some() && describe(found, "Progressing").contains(&dependent)
        })
    };
    scenario.cluster.wait(&scenario.extensions(), &base.package, "dependent in the condition", stays).await?;
    scenario.annotate(json!({"dependency-mode": null})).await?;
    scenario.cluster.wait_gone(&scenario.extensions(), &base.package).await?;
    scenario.wait_without("DependenciesSatisfied").await?;
    scenario.finish().await
}
