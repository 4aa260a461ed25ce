//! Notices when what is installed changes (spec 07 A-23). Pure.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use kube::ResourceExt;
use olm_api::{ClusterObjectSet, annotations};
use olm_extension::installs;

use crate::revision_cache::Change;

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
    hasher: RandomState,
}

impl Changes {
    /// Takes in one change of a revision; says whether something else is installed now.
    pub(super) fn notice(&mut self, change: &Change) -> bool {
        let digest = match change {
            Change::Applied(set) => self.digest(set),
            Change::Deleted(_) => None,
        };
        let name = change.set().name_any();
        match digest {
            Some(digest) => self.installed.insert(name, digest) != Some(digest),
            None => self.installed.remove(&name).is_some(),
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
    use std::sync::Arc;

    use super::super::fixture::{archived, rolling_out, set};
    use super::*;

    #[test]
    fn change_of_installed_bundle_is_noticed() {
        let a = || set("a", 1, &[]);
        let other = || set("a", 1, &[(annotations::PROPERTIES, "[]")]);
        let mut unrelated = set("a", 1, &[("note", "x")]);
        unrelated.metadata.resource_version = Some("7".into());
        let mut changes = Changes::default();
        for (number, (event, expected)) in [
            (Change::Applied(Arc::new(a())), true),
            (Change::Applied(Arc::new(rolling_out(set("b", 1, &[])))), false),
            (Change::Applied(Arc::new(a())), false),
            (Change::Applied(Arc::new(unrelated)), false),
            (Change::Applied(Arc::new(other())), true),
            (Change::Applied(Arc::new(rolling_out(set("b", 1, &[])))), false),
            (Change::Applied(Arc::new(set("b", 1, &[]))), true),
            (Change::Applied(Arc::new(archived(set("b", 1, &[])))), true),
            (Change::Applied(Arc::new(archived(set("b", 1, &[])))), false),
            (Change::Deleted(Arc::new(archived(set("b", 1, &[])))), false),
            (Change::Deleted(Arc::new(other())), true),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(changes.notice(&event), expected, "event {number}");
        }
    }
}
