//! Versions of the platform.

use olm_bundle::BundleContent;
use olm_platform::MinorVersion;
use olm_version::Version;
use serde_json::Value;

use crate::rule::PLATFORM;
use crate::{UpgradeFinding, UpgradeHold, finding};

const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";

/// Findings about what the new bundle no longer supports.
pub(crate) fn check(old: &BundleContent, new: &BundleContent) -> Vec<UpgradeFinding> {
    let mut found = Vec::new();
    let maximum = [old, new].map(|bundle| {
        max_openshift_version(bundle).and_then(|text| text.parse::<MinorVersion>().ok().zip(Some(text)))
    });
    if let [before, Some((after, text))] = maximum
        && before.is_none_or(|(before, _)| after < before)
    {
        let message =
            format!("{MAX_OPENSHIFT_VERSION} is now {text}: it blocks upgrades of the cluster above it");
        found.push(finding(&PLATFORM, "", UpgradeHold::No, message));
    }
    let minimum = [old, new]
        .map(|bundle| bundle.min_kube_version().and_then(|text| Version::parse_tolerant(text).ok()));
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
    Some(found["value"].as_str().map_or_else(|| found["value"].to_string(), str::to_owned))
}
