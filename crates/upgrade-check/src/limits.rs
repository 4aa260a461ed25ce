//! Install modes, and versions of the platform.

use olm_bundle::{BundleContent, InstallMode};
use olm_version::Version;
use serde_json::Value;

use crate::rule::{PLATFORM, SETTINGS};
use crate::{UpgradeFinding, UpgradeHold, finding};

const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";

/// Findings about what the new bundle no longer supports.
pub(crate) fn check(old: &BundleContent, new: &BundleContent) -> Vec<UpgradeFinding> {
    let (before, after) = (old.install_modes(), new.install_modes());
    let lost = before.difference(&after).map(|mode: &InstallMode| {
        let message = format!(
            "install mode {} is no longer supported: extensions that use it stay on the old version",
            mode.name()
        );
        finding(&SETTINGS, "", UpgradeHold::Always, message)
    });
    let mut found: Vec<_> = lost.collect();
    let maximum =
        [old, new].map(|bundle| max_openshift_version(bundle).and_then(|text| minor(&text).zip(Some(text))));
    if let [before, Some((after, text))] = maximum
        && before.is_none_or(|(before, _)| after < before)
    {
        let message =
            format!("{MAX_OPENSHIFT_VERSION} is now {text}: it blocks upgrades of the cluster above it");
        found.push(finding(&PLATFORM, "", UpgradeHold::No, message));
    }
    let minimum =
        [old, new].map(|bundle| bundle.min_kube_version().and_then(|text| Version::parse(text).ok()));
    if let [before, Some(after)] = minimum
        && before.is_none_or(|before| after > before)
    {
        found.push(finding(&PLATFORM, "", UpgradeHold::No, format!("minKubeVersion is now {after}")));
    }
    found
}

/// The property as written, such as `4.18`.
fn max_openshift_version(bundle: &BundleContent) -> Option<String> {
    if let Some(text) = bundle.max_openshift_version() {
        return Some(text.to_owned());
    }
    let properties: Vec<Value> = serde_json::from_str(bundle.properties()?).ok()?;
    let found = properties.iter().find(|property| property["type"] == MAX_OPENSHIFT_VERSION)?;
    found["value"].as_str().map(str::to_owned)
}

fn minor(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next().unwrap_or(Some(0))?))
}
