//! Upgrade edges of the ClusterServiceVersion: `spec.replaces`, `spec.skips` and `olm.skipRange`
//! (docs/design/cli.md#bundle-validation).

use olm_version::{Range, Version, quote};

use crate::content::Object;
use crate::csv::SKIP_RANGE;
use crate::report::{Findings, Location};
use crate::rule;

/// Compares the names of earlier bundles with the name and version of this one.
pub(crate) fn earlier_bundles(csv: &Object, findings: &mut Findings) {
    let replaces = csv.text("/spec/replaces");
    earlier(csv, replaces, csv.at("spec.replaces"), findings);
    for (location, skipped) in csv.items("spec.skips") {
        earlier(csv, skipped.as_str().unwrap_or_default(), location, findings);
    }
    let skips = csv.list("/spec/skips");
    if let Some(index) = skips.iter().position(|skipped| *skipped == csv.name() && !csv.name().is_empty()) {
        let message = "the bundle skips itself: remove the entry";
        findings.add(&rule::CSV_17, csv.at(&format!("spec.skips.{index}")), message);
    }
}

fn earlier(csv: &Object, name: &str, location: Location, findings: &mut Findings) {
    let Some(fault) = name_fault(csv.name(), csv.text("/spec/version"), name) else { return };
    findings.add(&rule::CSV_17, location, fault);
}

/// Reason for which `earlier` cannot be the name of an earlier bundle of the one with this name and version.
pub fn name_fault(name: &str, version: &str, earlier: &str) -> Option<String> {
    if earlier.is_empty() || earlier == name {
        return None;
    }
    if Version::parse(earlier.strip_prefix('v').unwrap_or(earlier)).is_ok() {
        let number = earlier.strip_prefix('v').unwrap_or(earlier);
        let like = match name.split_once(version).filter(|_| !version.is_empty()) {
            Some((before, after)) => format!("{before}{number}{after}"),
            None => format!("PACKAGE.v{number}"),
        };
        return Some(format!(
            "{} is a version: write the name of the bundle, such as {like}",
            quote(earlier)
        ));
    }
    let own = Version::parse(version).ok()?;
    let (before, after) = name.split_once(version)?;
    let other = earlier.strip_prefix(before)?.strip_suffix(after)?;
    let other = Version::parse(other).ok()?;
    (other > own).then(|| {
        format!(
            "{} has a higher version than this bundle, so that the upgrade would be a downgrade",
            quote(earlier)
        )
    })
}

/// Reports a range of versions that is not a range of earlier versions.
pub(crate) fn skip_range(csv: &Object, findings: &mut Findings) {
    let Some(range) = csv.annotation(SKIP_RANGE) else { return };
    let (Ok(parsed), Ok(version)) = (Range::parse(range), Version::parse(csv.text("/spec/version"))) else {
        return;
    };
    if let Some(fault) = range_fault(&parsed, &version) {
        findings.add(&rule::CSV_18, csv.at_annotation(SKIP_RANGE), format!("{}: {fault}", quote(range)));
    }
}

/// Reason for which a range is not one of earlier versions than `own`.
pub fn range_fault(range: &Range, own: &Version) -> Option<String> {
    if range.reaches_above(own) {
        Some(format!(
            "the range has higher versions than {own}, from which the upgrade would be a downgrade: end it with <{own}"
        ))
    } else if !range.reaches_below(own) {
        Some(format!("the range has no version lower than {own}, so that it has no effect"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_bundle_has_the_name_of_a_lower_version() {
        const NAME: &str = "lamp.v1.2.0";
        for (earlier, expected) in [
            ("", None),
            (NAME, None),
            ("lamp.v1.1.0", None),
            ("lamp-old.v9.0.0", None),
            ("lamp.v1.2.0-rc.1", None),
            ("1.1.0", Some("\"1.1.0\" is a version: write the name of the bundle, such as lamp.v1.1.0")),
            ("v1.1.0", Some("\"v1.1.0\" is a version: write the name of the bundle, such as lamp.v1.1.0")),
            (
                "lamp.v1.10.0",
                Some(
                    "\"lamp.v1.10.0\" has a higher version than this bundle, so that the upgrade would be a downgrade",
                ),
            ),
        ] {
            assert_eq!(name_fault(NAME, "1.2.0", earlier).as_deref(), expected, "{earlier}");
        }
        assert!(name_fault("other", "1.2.0", "0.1.0").unwrap().ends_with("such as PACKAGE.v0.1.0"));
        assert_eq!(name_fault("other", "1.2.0", "other"), None);
    }
}
