//! Comparison of two bundles in each install mode that the old one supports. Pure.

use std::collections::BTreeSet;

use olm_bundle::{BundleContent, Certificates, InstallMode, RenderOptions, render};
use olm_upgrade_check::{
    UpgradeFinding, UpgradeHold, check_bundles, check_objects, holds, lost_mode, refused, sort,
};
use serde_json::{Value, json};

/// Namespace of the operator, and another one that it watches.
const NAMESPACE: &str = "operator";
const WATCHED: [&str; 2] = ["apps", "tools"];

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct ComparedUpgrade {
    /// Findings. One that occurs only in some install modes names them.
    pub findings: Vec<UpgradeFinding>,
    /// Reasons for which operator-controller holds the upgrade in the install mode that has the fewest.
    pub holds: BTreeSet<UpgradeHold>,
    /// Install modes of the old bundle in which the upgrade is refused, if there are others.
    pub refused_modes: Vec<&'static str>,
}

/// Compares the bundles in each install mode that the old one supports. `ignores` leaves findings out.
///
/// # Errors
/// The old bundle cannot be rendered in any install mode.
pub fn compare(
    old: &BundleContent,
    new: &BundleContent,
    ignores: impl Fn(&UpgradeFinding) -> bool,
) -> Result<ComparedUpgrade, String> {
    let of_bundles = check_bundles(old, new);
    let mut by_mode: Vec<(InstallMode, Vec<UpgradeFinding>)> = Vec::new();
    let mut failure = None;
    for mode in old.install_modes() {
        let config = config(mode);
        let before = match objects(old, &config) {
            Ok(before) => before,
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        let mut findings = match objects(new, &config) {
            Ok(after) => check_objects(&before, &after),
            Err(_) if !new.install_modes().contains(&mode) => vec![lost_mode(mode.name())],
            Err(error) => vec![refused(error)],
        };
        findings.retain(|finding| !ignores(finding));
        by_mode.push((mode, findings));
    }
    if by_mode.is_empty() {
        return Err(failure.unwrap_or_else(|| "it supports no install mode".to_owned()));
    }
    Ok(summary(of_bundles.into_iter().filter(|finding| !ignores(finding)).collect(), by_mode))
}

fn summary(
    mut findings: Vec<UpgradeFinding>,
    by_mode: Vec<(InstallMode, Vec<UpgradeFinding>)>,
) -> ComparedUpgrade {
    let holds_of: Vec<_> = by_mode.iter().map(|(mode, findings)| (mode.name(), holds(findings))).collect();
    let is_refused = |holds: &BTreeSet<UpgradeHold>| holds.contains(&UpgradeHold::Always);
    let mut refused_modes: Vec<_> =
        holds_of.iter().filter(|(_, holds)| is_refused(holds)).map(|(mode, _)| *mode).collect();
    if refused_modes.len() == by_mode.len() {
        refused_modes.clear();
    }
    let fewest = |holds: &BTreeSet<UpgradeHold>| (is_refused(holds), holds.len());
    let holds = holds_of.into_iter().map(|(_, holds)| holds).min_by_key(fewest).unwrap_or_default();
    let count = by_mode.len();
    let mut merged: Vec<(UpgradeFinding, Vec<&str>)> = Vec::new();
    for (mode, found) in by_mode {
        for finding in found {
            match merged.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, modes)) => modes.push(mode.name()),
                None => merged.push((finding, vec![mode.name()])),
            }
        }
    }
    findings.extend(merged.into_iter().map(|(mut finding, modes)| {
        if modes.len() < count {
            finding.message += &format!(" (install mode {})", modes.join(", "));
        }
        finding
    }));
    sort(&mut findings);
    ComparedUpgrade { findings, holds, refused_modes }
}

/// Configuration for an install mode.
fn config(mode: InstallMode) -> Value {
    match mode {
        InstallMode::AllNamespaces => json!({}),
        InstallMode::OwnNamespace => json!({"watchNamespace": NAMESPACE}),
        InstallMode::SingleNamespace => json!({"watchNamespace": WATCHED[0]}),
        InstallMode::MultiNamespace => json!({"watchNamespaces": WATCHED}),
    }
}

/// Objects with the gates on that allow more bundles.
fn objects(bundle: &BundleContent, config: &Value) -> Result<Vec<Value>, String> {
    let options = RenderOptions {
        install_namespace: NAMESPACE,
        config: Some(config),
        certificates: Certificates::Builtin,
        single_own_namespace: true,
        multi_watch_namespaces: true,
        owned_api_services: true,
        ..RenderOptions::default()
    };
    render(bundle, &options).map_err(|error| error.to_string())
}
