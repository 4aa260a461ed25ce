//! CustomResourceDefinitions.

use olm_crd_safety::{
    CrdFinding, Impact, LiveCheck, check as crd_findings, vanished_versions, without_consequences,
};
use olm_finding::Rule;
use olm_plan::objects::{ObjectName, by_name};
use serde_json::{Value, json};

use crate::rule::{CLIENTS, CONVERSION, DATA, HARMLESS, STORED_OBJECTS, STORED_VERSIONS, UNSERVED};
use crate::{UpgradeFinding, UpgradeHold, finding};

/// Findings about each CRD of `old`.
pub(crate) fn check(old: &[Value], new: &[Value]) -> Vec<UpgradeFinding> {
    let (old, new) = (by_name(old), by_name(new));
    let crds = old.iter().filter(|(name, _)| name.is_crd());
    crds.flat_map(|(name, before)| match new.get(name) {
        Some(after) => compare(name, &stored(before), after),
        None => vec![finding(
            &DATA,
            name,
            UpgradeHold::No,
            "the new bundle does not have it: it is deleted with the old revision unless custom resources exist".to_owned(),
        )],
    })
    .collect()
}

/// CRD with the stored versions that it has at least on each cluster.
fn stored(crd: &Value) -> Value {
    let mut crd = crd.clone();
    if crd["status"]["storedVersions"].is_null() {
        crd["status"] = json!({"storedVersions": storage_version(&crd).into_iter().collect::<Vec<_>>()});
    }
    crd
}

fn storage_version(crd: &Value) -> Option<String> {
    let versions = crd["spec"]["versions"].as_array()?;
    versions.iter().find(|version| version["storage"] == true)?["name"].as_str().map(str::to_owned)
}

fn compare(name: &ObjectName, old: &Value, new: &Value) -> Vec<UpgradeFinding> {
    let breaking = match crd_findings(Some(old), new) {
        Ok(breaking) => without_consequences(breaking),
        Err(error) => return vec![finding(&STORED_OBJECTS, name, UpgradeHold::Always, error.to_string())],
    };
    let live = LiveCheck::new(old, new).ok();
    let judged = |one: &CrdFinding| live.as_ref().is_some_and(|live| live.judges(one));
    let mut found: Vec<_> = breaking
        .iter()
        .map(|one| finding(rule(one), name, hold(one, judged(one)), one.to_string()))
        .collect();
    let vanished = vanished_versions(old, new).unwrap_or_default();
    found.extend(vanished.into_iter().map(|version| {
        let message = format!("{version} is no longer served: clients that use it fail");
        finding(&UNSERVED, name, UpgradeHold::No, message)
    }));
    found.extend(conversion(name, old, new));
    found
}

fn rule(one: &CrdFinding) -> &'static Rule {
    match (one.check, one.impact) {
        ("storedVersionRemoval", _) => &STORED_VERSIONS,
        (_, Impact::StoredObjects) => &STORED_OBJECTS,
        (_, Impact::Clients) => &CLIENTS,
        (_, Impact::Nothing) => &HARMLESS,
    }
}

fn hold(one: &CrdFinding, is_judged: bool) -> UpgradeHold {
    match is_judged {
        _ if one.is_absolute() => UpgradeHold::Always,
        true => UpgradeHold::UnlessLive,
        false => UpgradeHold::UnlessWarn,
    }
}

/// A new storage version whose objects only a webhook can convert.
fn conversion(name: &ObjectName, old: &Value, new: &Value) -> Option<UpgradeFinding> {
    let (before, after) = (storage_version(old)?, storage_version(new)?);
    let is_converted = new["spec"]["conversion"]["strategy"] == "Webhook" && before != after;
    is_converted.then(|| {
        let message = format!(
            "the storage version changes from {before} to {after}, and a webhook of the operator converts"
        );
        finding(&CONVERSION, name, UpgradeHold::No, message)
    })
}
