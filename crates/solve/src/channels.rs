//! Ranks of bundles in the channels of their package.

use std::collections::{BTreeMap, HashMap};

use olm_resolve::{Offer, PackageIndex, UpgradeOrigin};

/// Best rank of each bundle, in the order of the package's offers: channel and distance from the head.
///
/// The default channel precedes the others, which are sorted by name. In a channel, a bundle follows all of its
/// possible successors. Among bundles without a remaining successor, the higher version is first.
pub(crate) fn ranks(package: &PackageIndex) -> Vec<Option<(&str, usize)>> {
    let offers: Vec<&Offer> = package.offers().collect();
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, offer) in offers.iter().enumerate() {
        for channel in offer.channels() {
            members.entry(channel).or_default().push(index);
        }
    }
    let origins: Vec<_> = offers.iter().map(|offer| origin(offer)).collect();
    let followers = followers(&offers, &origins);
    let mut best: Vec<Option<(&str, usize)>> = vec![None; offers.len()];
    let mut channels: Vec<_> = members.into_iter().collect();
    channels.sort_by_key(|(channel, _)| (*channel != package.default_channel(), *channel));
    for (channel, mut left) in channels {
        left.dedup();
        let mut waits = vec![false; offers.len()];
        left.iter().for_each(|index| waits[*index] = true);
        for position in 0..left.len() {
            let is_free = |index: &usize| {
                let above = followers.get(&(channel, *index));
                above.is_none_or(|above| !above.iter().any(|follower| waits[*follower]))
            };
            // In a cycle of edges, the highest version is next.
            let at = left.iter().position(is_free).unwrap_or(0);
            let index = left.remove(at);
            waits[index] = false;
            if best[index].is_none() {
                best[index] = Some((channel, position));
            }
        }
    }
    best
}

fn origin(offer: &Offer) -> Option<UpgradeOrigin<'_>> {
    Some(UpgradeOrigin { name: offer.name(), version: offer.version().ok()?.clone() })
}

/// Possible successors of each bundle, by channel and bundle.
fn followers<'a>(
    offers: &[&'a Offer],
    origins: &'a [Option<UpgradeOrigin<'a>>],
) -> HashMap<(&'a str, usize), Vec<usize>> {
    let mut followers: HashMap<_, Vec<usize>> = HashMap::new();
    for (index, origin) in origins.iter().enumerate() {
        let Some(origin) = origin else { continue };
        for (follower, next) in offers.iter().enumerate().filter(|(follower, _)| *follower != index) {
            for edge in next.edges_from(origin, &[]) {
                followers.entry((edge.channel, index)).or_default().push(follower);
            }
        }
    }
    followers
}
