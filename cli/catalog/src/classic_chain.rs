//! Heads and replaces chains of channels, as classic OLM computes them
//! (docs/design/cli.md#classic-upgrade-graph). v1 uses neither.

use std::collections::{BTreeMap, BTreeSet};

use olm_fbc::Channel;
use olm_version::quote;

/// Names of the entries that no entry of the channel replaces or skips, sorted. A valid channel has one.
pub fn heads(channel: &Channel) -> Vec<&str> {
    olm_fbc::heads(&channel.entries)
}

/// Bundle names that classic OLM may offer in a channel, head first: the replaces chain without skipped entries.
///
/// # Errors
/// The channel has no single chain, which stops classic OLM. The message names the reason.
pub(crate) fn chain(channel: &Channel) -> Result<Vec<&str>, String> {
    let entries: BTreeMap<_, _> = channel.entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let skipped: BTreeSet<_> =
        channel.entries.iter().flat_map(|entry| &entry.skips).map(String::as_str).collect();
    let heads = heads(channel);
    let [head] = heads[..] else {
        let found =
            if heads.is_empty() { "no head".to_owned() } else { format!("the heads {}", heads.join(", ")) };
        let name = quote(&channel.name);
        return Err(format!("channel {name} has {found}: classic OLM needs exactly one"));
    };
    let mut chain = Vec::new();
    let mut visited = BTreeSet::new();
    let mut next = entries.get(head).copied();
    while let Some(entry) = next {
        if !visited.insert(entry.name.as_str()) {
            let name = quote(&channel.name);
            return Err(format!("channel {name} has a cycle of replaces at {}", quote(&entry.name)));
        }
        if !skipped.contains(entry.name.as_str()) {
            chain.push(entry.name.as_str());
        }
        next = entries.get(entry.replaces.as_str()).copied();
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use olm_fbc::ChannelEntry;

    use super::*;

    /// Channel with entries of the form `name<replaced!skipped!skipped`.
    fn channel(entries: &[&str]) -> Channel {
        let entry = |text: &&str| {
            let mut parts = text.split('!');
            let (name, replaces) = parts.next().map(|t| t.split_once('<').unwrap_or((t, ""))).unwrap();
            ChannelEntry {
                name: name.to_owned(),
                replaces: replaces.to_owned(),
                skips: parts.map(str::to_owned).collect(),
                skip_range: String::new(),
            }
        };
        Channel { name: "c".to_owned(), entries: entries.iter().map(entry).collect(), ..Channel::default() }
    }

    #[test]
    fn chain_starts_at_head_and_omits_skipped_entries() {
        for (entries, expected) in [
            (&["a", "b<a", "c<b"][..], Ok(&["c", "b", "a"][..])),
            (&["a", "b<a", "c<b!a"], Ok(&["c", "b"])),
            (&["a", "b<a", "c<a!b"], Ok(&["c", "a"])),
            (&["a<gone"], Ok(&["a"])),
            (&["b", "c!b"], Ok(&["c"])),
            (&["a", "b"], Err("channel \"c\" has the heads a, b: classic OLM needs exactly one")),
            (&["a<b", "b<a"], Err("channel \"c\" has no head: classic OLM needs exactly one")),
            (&["h<m", "m<t", "t<m"], Err("channel \"c\" has a cycle of replaces at \"m\"")),
            (&[], Err("channel \"c\" has no head: classic OLM needs exactly one")),
        ] {
            let channel = channel(entries);
            let expected = expected.map(<[_]>::to_vec).map_err(str::to_owned);
            assert_eq!(chain(&channel), expected, "{entries:?}");
        }
    }
}
