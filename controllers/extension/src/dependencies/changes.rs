//! Detects changes of the installed bundles.

use std::hash::{BuildHasher, RandomState};

use futures::{Stream, StreamExt};
use kube::ResourceExt;
use olm_api::{ClusterObjectSet, annotations};
use olm_controller_core::RevisionCache;
use olm_request::installs;

/// Annotations that describe the bundle of a revision.
const BUNDLE_ANNOTATIONS: [&str; 6] = [
    annotations::BUNDLE_NAME,
    annotations::PACKAGE_NAME,
    annotations::BUNDLE_VERSION,
    annotations::BUNDLE_RELEASE,
    annotations::PROPERTIES,
    annotations::EXT_CATALOG_PROPERTIES,
];

/// Stream of changes of the installed bundles.
pub(super) fn changes(revisions: &RevisionCache) -> impl Stream<Item = ()> {
    // Properties are large, so only a digest is kept.
    let hasher = RandomState::new();
    let digest = move |revision: &ClusterObjectSet| {
        let apis = BUNDLE_ANNOTATIONS.map(|key| revision.annotations().get(key));
        installs(revision).map(|extension| hasher.hash_one((extension, apis)))
    };
    revisions.project(digest).map(drop)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;
    use kube::runtime::watcher::Event;

    use super::super::fixture::{archived, rolling_out, set};
    use super::*;

    #[test]
    fn installed_bundle_change_notifies_dependency_checks() {
        let a = || set("a", 1, &[]);
        let other = || set("a", 1, &[(annotations::PROPERTIES, "[]")]);
        let mut unrelated = set("a", 1, &[("note", "x")]);
        unrelated.metadata.resource_version = Some("7".into());
        let revisions = RevisionCache::new();
        let mut changes = pin!(changes(&revisions));
        for (number, (event, expected)) in [
            (Event::Apply(a()), true),
            (Event::Apply(rolling_out(set("b", 1, &[]))), false),
            (Event::Apply(a()), false),
            (Event::Apply(unrelated), false),
            (Event::Apply(other()), true),
            (Event::Apply(rolling_out(set("b", 1, &[]))), false),
            (Event::Apply(set("b", 1, &[])), true),
            (Event::Apply(archived(set("b", 1, &[]))), true),
            (Event::Apply(archived(set("b", 1, &[]))), false),
            (Event::Delete(archived(set("b", 1, &[]))), false),
            (Event::Delete(other()), true),
        ]
        .into_iter()
        .enumerate()
        {
            revisions.inject(event);
            assert_eq!(changes.next().now_or_never().is_some(), expected, "event {number}");
        }
    }
}
