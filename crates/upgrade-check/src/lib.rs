//! What an upgrade from one bundle to another breaks (docs/design/cli.md#checks-of-upgrades).
//!
//! Compares two bundles as installed with the same settings: `olm catalog verify --upgrades` those of a catalog, `olm diff`
//! that of an installed extension with its successor.
//!
//! ```text
//! objects of both ─┬ crds ────► custom resources, clients, stored and served versions, conversion
//!                  ├ objects ─► immutable fields, contradicting defaults, deleted data
//!                  └ rights ──► gained permissions
//! bundles ────────── limits ──► versions of the platform
//! ```
//!
//! Pure: values in, findings out.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod crds;
mod limits;
mod objects;
mod rights;
mod rule;

use std::collections::BTreeSet;
use std::fmt;

use olm_bundle::BundleContent;
use olm_finding::{Finding, Rule};
use serde::Serialize;
use serde_json::Value;

use rule::{INSTALLED, READABLE, RULES, SETTINGS};

/// What operator-controller does about a finding. Sorts from the mildest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum UpgradeHold {
    /// It upgrades.
    No,
    /// It upgrades only with annotation `replace-immutable: Allow`.
    UnlessReplaced,
    /// It upgrades only with annotation `crd-check`: `Warn`, or `Live` if all custom resources are valid.
    UnlessLive,
    /// It upgrades only with annotation `crd-check`: `Warn`, or `Live` if no custom resources exist.
    UnlessWarn,
    /// It never upgrades so.
    Always,
}

/// Where a finding is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpgradePlace {
    /// Object, such as `CustomResourceDefinition lamps.example.com`. Empty for the bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// Whether the finding holds the upgrade.
    pub hold: UpgradeHold,
}

impl fmt::Display for UpgradePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.object.is_empty() { Ok(()) } else { write!(f, "{}: ", self.object) }
    }
}

/// Something that the upgrade breaks, changes or needs.
pub type UpgradeFinding = Finding<UpgradePlace>;

/// Findings by rule, such as `UPGRADE-2 (3), UPGRADE-13`. Empty without any.
pub fn rule_counts(findings: &[UpgradeFinding]) -> String {
    let counted = rules().filter_map(|rule| {
        let count = findings.iter().filter(|finding| finding.rule.id == rule.id).count();
        match count {
            0 => None,
            1 => Some(rule.id.to_owned()),
            _ => Some(format!("{} ({count})", rule.id)),
        }
    });
    counted.collect::<Vec<_>>().join(", ")
}

/// Reports whether the finding is about the schema of a CRD, or about permissions: reports of changes list both.
pub fn is_listed(finding: &UpgradeFinding) -> bool {
    rule::LISTED.iter().any(|rule| rule.id == finding.rule.id)
}

/// All rules, the most severe first.
pub fn rules() -> impl Iterator<Item = &'static Rule> + Clone {
    RULES.iter().map(|declared| &declared.rule)
}

/// Finding for settings with which the new bundle cannot be rendered, with the message of the renderer.
pub fn refused(message: String) -> UpgradeFinding {
    finding(&SETTINGS, "", UpgradeHold::Always, message)
}

/// Finding for an install mode that the new bundle does not support.
pub fn lost_mode(mode: &str) -> UpgradeFinding {
    refused(format!(
        "install mode {mode} is no longer supported: extensions that use it stay on the old version"
    ))
}

/// Finding for a bundle that cannot be read.
pub fn unreadable(message: String) -> UpgradeFinding {
    finding(&READABLE, "", UpgradeHold::No, message)
}

/// Reports whether the upgrade was not checked, because a bundle cannot be read.
pub fn is_unreadable(finding: &UpgradeFinding) -> bool {
    finding.rule.id == READABLE.id
}

/// Finding for an old bundle that OLM v1 cannot install.
pub fn never_installed(message: String) -> UpgradeFinding {
    finding(&INSTALLED, "", UpgradeHold::No, message)
}

/// Findings about the bundles only, the same for all settings.
pub fn check_bundles(old: &BundleContent, new: &BundleContent) -> Vec<UpgradeFinding> {
    let mut findings = limits::check(old, new);
    sort(&mut findings);
    findings
}

/// Findings about the objects of two bundles for the same settings, in the order of the rules. `old` may be the live ones.
pub fn check_objects(old: &[Value], new: &[Value]) -> Vec<UpgradeFinding> {
    let mut findings = crds::check(old, new);
    findings.extend(objects::check(old, new));
    findings.extend(rights::check(old, new));
    sort(&mut findings);
    findings
}

/// Reasons for which operator-controller holds the upgrade, without repetitions. Empty if it upgrades.
pub fn holds(findings: &[UpgradeFinding]) -> BTreeSet<UpgradeHold> {
    findings.iter().map(|finding| finding.place.hold).filter(|hold| *hold != UpgradeHold::No).collect()
}

/// Sorts by level, rule and place.
pub fn sort(findings: &mut [UpgradeFinding]) {
    let place = |finding: &UpgradeFinding| rules().position(|one| one.id == finding.rule.id);
    findings.sort_by(|a, b| {
        (a.level, place(a), &a.place.object, &a.message).cmp(&(
            b.level,
            place(b),
            &b.place.object,
            &b.message,
        ))
    });
}

fn finding(
    rule: &'static Rule,
    object: impl fmt::Display,
    hold: UpgradeHold,
    message: String,
) -> UpgradeFinding {
    Finding::new(rule, UpgradePlace { object: object.to_string(), hold }, message)
}
