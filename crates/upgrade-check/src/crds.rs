//! CustomResourceDefinitions.

use olm_crd_safety::{
    CrdFinding, Impact, LiveCheck, check as crd_findings, is_crd, vanished_versions, without_consequences,
};
use olm_finding::Rule;
use olm_plan::objects::{ObjectName, by_name};
use serde_json::{Value, json};

use crate::rule::{
    CLIENTS, CONVERSION, DATA, HARMLESS, IMMUTABLE, SETTINGS, STORED_OBJECTS, STORED_VERSIONS, UNSERVED,
};
use crate::{UpgradeFinding, UpgradeHold, finding};

/// Findings about each CRD of `old`.
pub(crate) fn check(old: &[Value], new: &[Value]) -> Vec<UpgradeFinding> {
    let (old, new) = (by_name(old), by_name(new));
    let crds = old.iter().filter(|(name, _)| name.is_crd());
    crds.flat_map(|(name, before)| match new.get(name) {
        // No supported cluster has a CRD of v1beta1.
        _ if !is_crd(before) => Vec::new(),
        Some(after) if !is_crd(after) => {
            let message = "apiextensions.k8s.io/v1beta1 is not served since Kubernetes 1.22";
            vec![finding(&SETTINGS, name, UpgradeHold::Always, message.to_owned())]
        }
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
    let live = if breaking.is_empty() { None } else { LiveCheck::new(old, new).ok() };
    // Without a version that can be listed, nothing is judged.
    let live = live.filter(|live| live.versions().next().is_some());
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
    found.extend(renamed(name, old, new));
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

/// A new version of which only a webhook can convert custom resources.
fn conversion(name: &ObjectName, old: &Value, new: &Value) -> Option<UpgradeFinding> {
    if new["spec"]["conversion"]["strategy"] != "Webhook" {
        return None;
    }
    let (before, after) = (storage_version(old)?, storage_version(new)?);
    let served: Vec<String> =
        served(new).filter(|version| !self::served(old).any(|one| one == *version)).collect();
    let message = match (before == after, served.as_slice()) {
        (false, _) => {
            format!(
                "the storage version changes from {before} to {after}, and a webhook of the operator converts"
            )
        }
        (true, []) => return None,
        (true, served) => {
            format!("a webhook of the operator converts to the new version {}", served.join(", "))
        }
    };
    Some(finding(&CONVERSION, name, UpgradeHold::No, message))
}

fn served(crd: &Value) -> impl Iterator<Item = String> {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true);
    served.filter_map(|version| version["name"].as_str().map(str::to_owned))
}

/// Names that the API server never changes once the CRD is established.
fn renamed(name: &ObjectName, old: &Value, new: &Value) -> Option<UpgradeFinding> {
    let field = ["kind", "listKind", "plural", "singular"].into_iter().find(|field| {
        let [before, after] = [old, new].map(|crd| &crd["spec"]["names"][field]);
        before != after && !before.is_null() && !after.is_null()
    })?;
    let message =
        format!("spec.names.{field} cannot be changed: the API server does not accept the new name");
    Some(finding(&IMMUTABLE, name, UpgradeHold::Always, message))
}
