//! Notices when what is installed changes (spec 07 A-23). Pure.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use olm_api::{ClusterObjectSet, annotations};
use olm_extension::installs;

/// The annotations that say what a revision installs.
const TOLD_BY: [&str; 6] = [
    annotations::BUNDLE_NAME,
    annotations::PACKAGE_NAME,
    annotations::BUNDLE_VERSION,
    annotations::BUNDLE_RELEASE,
    annotations::PROPERTIES,
    annotations::EXT_CATALOG_PROPERTIES,
];

/// What the revisions have installed, as far as their events told.
#[derive(Debug, Default)]
pub(super) struct Changes {
    installed: HashMap<String, u64>,
    /// What a list that is not complete yet has shown.
    listed: HashMap<String, u64>,
    hasher: RandomState,
}

impl Changes {
    /// Takes notice of one event of the watch on revisions; says whether something else is installed now.
    pub(super) fn notice(&mut self, event: &Event<ClusterObjectSet>) -> bool {
        match event {
            Event::Apply(set) => match self.digest(set) {
                Some(digest) => self.installed.insert(set.name_any(), digest) != Some(digest),
                None => self.installed.remove(&set.name_any()).is_some(),
            },
            Event::Delete(set) => self.installed.remove(&set.name_any()).is_some(),
            Event::Init => {
                self.listed.clear();
                false
            }
            Event::InitApply(set) => {
                let digest = self.digest(set);
                self.listed.extend(digest.map(|digest| (set.name_any(), digest)));
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                std::mem::replace(&mut self.installed, listed) != self.installed
            }
        }
    }

    /// Digest of what the revision has installed, `None` while it has not.
    fn digest(&self, set: &ClusterObjectSet) -> Option<u64> {
        let told = TOLD_BY.map(|key| set.annotations().get(key));
        installs(set).map(|extension| self.hasher.hash_one((extension, told)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{archived, rolling_out, set};
    use super::*;

    // spec 07 A-23
    #[test]
    fn what_changes_what_is_installed_is_noticed() {
        let a = || set("a", 1, &[]);
        let other = || set("a", 1, &[(annotations::PROPERTIES, "[]")]);
        let mut unrelated = set("a", 1, &[("note", "x")]);
        unrelated.metadata.resource_version = Some("7".into());
        let mut changes = Changes::default();
        for (number, (event, expected)) in [
            (Event::Init, false),
            (Event::InitApply(a()), false),
            (Event::InitApply(rolling_out(set("b", 1, &[]))), false),
            (Event::InitDone, true),
            (Event::Apply(a()), false),
            (Event::Apply(unrelated), false),
            (Event::Apply(other()), true),
            (Event::Apply(rolling_out(set("b", 1, &[]))), false),
            (Event::Apply(set("b", 1, &[])), true),
            (Event::Apply(archived(set("b", 1, &[]))), true),
            (Event::Apply(archived(set("b", 1, &[]))), false),
            (Event::Delete(archived(set("b", 1, &[]))), false),
            // A watch that broke and shows the same again.
            (Event::Init, false),
            (Event::InitApply(other()), false),
            (Event::InitDone, false),
            (Event::Delete(other()), true),
            // A list that broke off halfway tells nothing.
            (Event::Init, false),
            (Event::InitApply(a()), false),
            (Event::Init, false),
            (Event::InitDone, false),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(changes.notice(&event), expected, "event {number}");
        }
    }
}
