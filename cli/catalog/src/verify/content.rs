//! Comparison of a bundle image with its object in the catalog, and install checks. Pure.

use std::collections::BTreeSet;

use olm_bundle_check::{BundleFinding, is_refused_by_default, prevents_installation};
use olm_fbc::{Bundle, PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA};
use olm_finding::Rule;
use olm_version::{VersionRelease, quote};
use serde_json::Value;

use super::finding::{DECLARED, DEFAULTS, IDENTITY, INSTALLABLE};
use crate::author::CatalogBundle;
use crate::package::CatalogPackage;

/// Property with package and version, which [`IDENTITY`] compares.
const PACKAGE: &str = "olm.package";

/// Differences between a bundle of the catalog and the content of its image.
pub(super) fn compare(
    package: &CatalogPackage,
    bundle: &Bundle,
    actual: &CatalogBundle,
) -> Vec<(&'static Rule, String)> {
    let mut found = Vec::new();
    let declared = package.version(&bundle.name).unwrap_or_default();
    let shown = VersionRelease::parse(&actual.version, None);
    let actual_version = shown.map_or_else(|_| actual.version.clone(), |version| version.shown(false).0);
    let identity = [
        ("package", package.name.as_str(), actual.package.as_str()),
        ("name", &bundle.name, &actual.name),
        ("version", &declared, &actual_version),
    ];
    let unlike: Vec<_> = identity
        .iter()
        .filter(|(_, catalog, image)| catalog != image)
        .map(|(what, catalog, image)| format!("{what} {} is {} in the image", quote(catalog), quote(image)))
        .collect();
    if !unlike.is_empty() {
        found.push((&IDENTITY.rule, unlike.join(", ")));
    }
    let (catalog, image) = (properties_of(bundle), properties_in(&actual.object));
    let only = |one: &BTreeSet<(String, String)>, other: &BTreeSet<(String, String)>, place: &str| {
        let only: Vec<_> = one.difference(other).map(|(kind, value)| format!("{kind} {value}")).collect();
        (!only.is_empty()).then(|| format!("only in the {place}: {}", only.join(", ")))
    };
    let unlike = [only(&catalog, &image, "catalog"), only(&image, &catalog, "image")];
    let unlike: Vec<_> = unlike.into_iter().flatten().collect();
    if !unlike.is_empty() {
        found.push((&DECLARED.rule, unlike.join("; ")));
    }
    found
}

/// Highest number of lint findings in one message.
const NAMED_FINDINGS: usize = 5;

/// Lint findings of a bundle that prevent its installation, one message for each rule of the catalog.
pub(super) fn install_checks(findings: &[BundleFinding]) -> Vec<(&'static Rule, String)> {
    let message = |found: Vec<&BundleFinding>| {
        let more = found.len().saturating_sub(NAMED_FINDINGS);
        let named = found.iter().take(NAMED_FINDINGS);
        let text: Vec<_> = named.map(|one| format!("{}: {}", one.rule.id, one.message)).collect();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        (!text.is_empty()).then(|| text.join("; ") + &more)
    };
    let installable = message(findings.iter().filter(|finding| prevents_installation(finding)).collect())
        .map(|text| (&INSTALLABLE.rule, text));
    let defaults = message(findings.iter().filter(|finding| is_refused_by_default(finding)).collect())
        .map(|text| (&DEFAULTS.rule, text));
    installable.into_iter().chain(defaults).collect()
}

/// Type and canonical value of a property. The manifests and their metadata are not compared.
fn property(kind: &str, value: &Value) -> Option<(String, String)> {
    let skipped = [PACKAGE, PROPERTY_CSV_METADATA, PROPERTY_BUNDLE_OBJECT].contains(&kind);
    (!skipped).then(|| (kind.to_owned(), value.to_string()))
}

fn properties_of(bundle: &Bundle) -> BTreeSet<(String, String)> {
    let parsed = bundle.properties.iter().map(|one| (&one.kind, one.parse().unwrap_or(Value::Null)));
    parsed.filter_map(|(kind, value)| property(kind, &value)).collect()
}

fn properties_in(object: &Value) -> BTreeSet<(String, String)> {
    let list = object["properties"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(|one| property(one["type"].as_str()?, &one["value"])).collect()
}
