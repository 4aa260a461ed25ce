//! Resolver of the model (docs/design/resolution.md#served-catalogs), for the packages of the universe only. Pure.
//! Shares no code with the product.

use std::collections::BTreeSet;

use crate::intent::{Catalog, DesiredSpec, Intent, Policy};
use crate::universe::{VERSIONS, channels, package};

/// Version ranges of extensions, with the indexes of the versions that they admit.
pub(crate) const RANGES: [(&str, &[usize]); 8] = [
    ("1.0.0", &[0]),
    ("1.0.1", &[1]),
    ("1.1.0", &[2]),
    ("1.2.0", &[3]),
    ("2.0.0", &[4]),
    (">=1.0.0, <1.2.0", &[0, 1, 2]),
    ("1.x", &[0, 1, 2, 3]),
    (">=9.0.0", &[]),
];

/// Reports whether the version range of the desired spec admits this version.
pub(crate) fn admits(desired_spec: &DesiredSpec, version: usize) -> bool {
    let Some(range) = &desired_spec.version else { return true };
    RANGES.iter().any(|(text, admitted)| text == range && admitted.contains(&version))
}

/// Returns the chosen version, or the error text of the resolver.
pub(crate) fn resolve(
    intent: &Intent,
    desired_spec: &DesiredSpec,
    installed: Option<usize>,
) -> Result<usize, String> {
    let served_catalogs = intent.served_catalogs();
    let candidates: Vec<(char, i32, usize)> = served_catalogs
        .iter()
        .filter_map(|(letter, catalog)| {
            Some((*letter, catalog.priority, best(catalog, desired_spec, installed)?))
        })
        .collect();
    let top = candidates.iter().map(|(_, priority, _)| *priority).max();
    let first: Vec<_> = candidates.iter().filter(|(_, priority, _)| Some(*priority) == top).collect();
    if let [(_, _, version)] = first[..] {
        return Ok(*version);
    }
    let mut text = String::new();
    if let Some(installed) = installed {
        let version = VERSIONS[installed].text;
        text += &format!("error upgrading from currently installed version \"{version}\": ");
    }
    let found = if first.is_empty() { "no bundles found" } else { "found bundles" };
    text += &format!("{found} for package \"{}\"", package(&intent.name));
    if let Some(range) = &desired_spec.version {
        text += &format!(" matching version \"{range}\"");
    }
    if !desired_spec.channels.is_empty() {
        text += &format!(" in channels [{}]", desired_spec.channels.join(" "));
    }
    if !first.is_empty() {
        let names: Vec<String> =
            candidates.iter().map(|(letter, ..)| catalog_name(&intent.name, *letter)).collect();
        text += &format!(" in multiple catalogs with the same priority [{}]", names.join(" "));
    }
    Err(text)
}

/// Name of a ClusterCatalog.
pub(crate) fn catalog_name(extension: &str, letter: char) -> String {
    format!("{extension}-{letter}")
}

/// Highest version of the catalog that channels, range and upgrade edges permit.
fn best(catalog: &Catalog, desired_spec: &DesiredSpec, installed: Option<usize>) -> Option<usize> {
    let considered = channels(&catalog.offered).into_iter().filter(|(channel, _)| {
        desired_spec.channels.is_empty() || desired_spec.channels.iter().any(|c| c == channel)
    });
    let entries: Vec<_> = considered.flat_map(|(_, entries)| entries).collect();
    let listed: BTreeSet<usize> = entries.iter().map(|entry| entry.version).collect();
    let follows = |version: usize| match installed.filter(|_| desired_spec.policy == Policy::CatalogProvided)
    {
        None => true,
        Some(installed) => {
            version == installed
                || entries.iter().any(|entry| {
                    entry.version == version
                        && (entry.replaces == Some(installed) || entry.skips.contains(&installed))
                })
        }
    };
    // Without channels, a bundle outside of all channels qualifies. In this universe all are in one.
    listed.into_iter().filter(|version| admits(desired_spec, *version) && follows(*version)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired_spec(version: Option<&str>, channels: &[&str], policy: Policy) -> DesiredSpec {
        let channels = channels.iter().map(|channel| (*channel).to_owned()).collect();
        DesiredSpec { version: version.map(str::to_owned), channels, policy, ..DesiredSpec::default() }
    }

    fn intent(a: &[usize], b: &[usize], priority: i32) -> Intent {
        let mut intent = Intent::new("m1");
        for (letter, offered) in [('a', a), ('b', b)] {
            let catalog = intent.catalogs.get_mut(&letter).unwrap();
            catalog.exists = !offered.is_empty();
            catalog.offered = offered.iter().copied().collect();
        }
        intent.catalogs.get_mut(&'b').unwrap().priority = priority;
        intent
    }

    #[test]
    fn resolver_respects_edges_ranges_channels_and_priorities() {
        use Policy::{CatalogProvided, SelfCertified};
        let all = intent(&[0, 1, 2, 3, 4], &[], 0);
        let rows = [
            (desired_spec(None, &[], CatalogProvided), None, Some(4)),
            (desired_spec(None, &["stable"], CatalogProvided), None, Some(3)),
            (desired_spec(None, &[], CatalogProvided), Some(0), Some(1)),
            (desired_spec(None, &[], CatalogProvided), Some(2), Some(4)),
            (desired_spec(None, &["stable"], CatalogProvided), Some(2), Some(3)),
            (desired_spec(None, &[], CatalogProvided), Some(3), Some(4)),
            (desired_spec(Some("1.2.0"), &[], CatalogProvided), Some(0), None),
            (desired_spec(Some("1.2.0"), &[], SelfCertified), Some(0), Some(3)),
            (desired_spec(Some("1.x"), &[], SelfCertified), Some(4), Some(3)),
            (desired_spec(None, &["next"], CatalogProvided), Some(0), None),
            (desired_spec(Some(">=9.0.0"), &[], SelfCertified), None, None),
        ];
        for (desired_spec, installed, expected) in rows {
            assert_eq!(
                resolve(&all, &desired_spec, installed).ok(),
                expected,
                "{desired_spec:?} {installed:?}"
            );
        }
        let any = desired_spec(None, &[], CatalogProvided);
        assert_eq!(
            resolve(&intent(&[0], &[1], 0), &any, None).unwrap_err(),
            "found bundles for package \"m1-package\" in multiple catalogs with the same priority [m1-a m1-b]"
        );
        assert_eq!(resolve(&intent(&[1], &[0], 5), &any, None), Ok(0));
        assert_eq!(resolve(&intent(&[0], &[1], 5), &any, Some(0)), Ok(1));
        assert_eq!(
            resolve(&intent(&[0], &[], 0), &desired_spec(Some("1.1.0"), &["next"], CatalogProvided), Some(0))
                .unwrap_err(),
            "error upgrading from currently installed version \"1.0.0\": no bundles found for package \"m1-package\" \
             matching version \"1.1.0\" in channels [next]"
        );
    }
}
