//! Resolver of the model (docs/design/resolution.md#served-catalogs), for the packages of the universe only. Pure.
//! Shares no code with the product.

use std::collections::BTreeSet;

use crate::intent::{Catalog, Intent, Policy, Wish};
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

/// Reports whether the version range of the wish admits this version.
pub(crate) fn admits(wish: &Wish, version: usize) -> bool {
    let Some(range) = &wish.version else { return true };
    RANGES.iter().any(|(text, admitted)| text == range && admitted.contains(&version))
}

/// Returns the chosen version, or the error text of the resolver.
pub(crate) fn resolve(intent: &Intent, wish: &Wish, installed: Option<usize>) -> Result<usize, String> {
    let market = intent.market();
    let candidates: Vec<(char, i32, usize)> = market
        .iter()
        .filter_map(|(letter, catalog)| Some((*letter, catalog.priority, best(catalog, wish, installed)?)))
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
    if let Some(range) = &wish.version {
        text += &format!(" matching version \"{range}\"");
    }
    if !wish.channels.is_empty() {
        text += &format!(" in channels [{}]", wish.channels.join(" "));
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
fn best(catalog: &Catalog, wish: &Wish, installed: Option<usize>) -> Option<usize> {
    let considered = channels(&catalog.offered)
        .into_iter()
        .filter(|(channel, _)| wish.channels.is_empty() || wish.channels.iter().any(|c| c == channel));
    let entries: Vec<_> = considered.flat_map(|(_, entries)| entries).collect();
    let listed: BTreeSet<usize> = entries.iter().map(|entry| entry.version).collect();
    let follows = |version: usize| match installed.filter(|_| wish.policy == Policy::CatalogProvided) {
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
    listed.into_iter().filter(|version| admits(wish, *version) && follows(*version)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(version: Option<&str>, channels: &[&str], policy: Policy) -> Wish {
        let channels = channels.iter().map(|channel| (*channel).to_owned()).collect();
        Wish { version: version.map(str::to_owned), channels, policy, ..Wish::default() }
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
            (wish(None, &[], CatalogProvided), None, Some(4)),
            (wish(None, &["stable"], CatalogProvided), None, Some(3)),
            (wish(None, &[], CatalogProvided), Some(0), Some(1)),
            (wish(None, &[], CatalogProvided), Some(2), Some(4)),
            (wish(None, &["stable"], CatalogProvided), Some(2), Some(3)),
            (wish(None, &[], CatalogProvided), Some(3), Some(4)),
            (wish(Some("1.2.0"), &[], CatalogProvided), Some(0), None),
            (wish(Some("1.2.0"), &[], SelfCertified), Some(0), Some(3)),
            (wish(Some("1.x"), &[], SelfCertified), Some(4), Some(3)),
            (wish(None, &["next"], CatalogProvided), Some(0), None),
            (wish(Some(">=9.0.0"), &[], SelfCertified), None, None),
        ];
        for (wish, installed, expected) in rows {
            assert_eq!(resolve(&all, &wish, installed).ok(), expected, "{wish:?} {installed:?}");
        }
        let any = wish(None, &[], CatalogProvided);
        assert_eq!(
            resolve(&intent(&[0], &[1], 0), &any, None).unwrap_err(),
            "found bundles for package \"m1-package\" in multiple catalogs with the same priority [m1-a m1-b]"
        );
        assert_eq!(resolve(&intent(&[1], &[0], 5), &any, None), Ok(0));
        assert_eq!(resolve(&intent(&[0], &[1], 5), &any, Some(0)), Ok(1));
        assert_eq!(
            resolve(&intent(&[0], &[], 0), &wish(Some("1.1.0"), &["next"], CatalogProvided), Some(0))
                .unwrap_err(),
            "error upgrading from currently installed version \"1.0.0\": no bundles found for package \"m1-package\" \
             matching version \"1.1.0\" in channels [next]"
        );
    }
}
