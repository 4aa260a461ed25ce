//! What the revisions of an extension say about it (spec 05 §3.3 step 4). Pure.

use std::sync::Arc;

use olm_api::cluster_extension::BundleMetadata;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::{self, types};
use olm_api::{ClusterObjectSet, Condition, annotations};

/// A revision that is in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Revision {
    /// Name of the ClusterObjectSet.
    pub name: String,
    /// Its number.
    pub number: i64,
    /// Bundle that it installs, from its annotations.
    pub bundle: BundleMetadata,
    /// Package of the bundle.
    pub package: String,
    /// Image of the bundle.
    pub image: String,
    /// What it records of the bundle's catalog entry.
    pub catalog_properties: Option<String>,
    /// Conditions of the ClusterObjectSet.
    pub conditions: Vec<Condition>,
}

impl Revision {
    fn of(set: &ClusterObjectSet) -> Self {
        let annotation = |key: &str| set.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        Self {
            name: set.metadata.name.clone().unwrap_or_default(),
            number: number(set),
            bundle: BundleMetadata {
                name: annotation(annotations::BUNDLE_NAME).unwrap_or_default(),
                version: annotation(annotations::BUNDLE_VERSION).unwrap_or_default(),
                release: annotation(annotations::BUNDLE_RELEASE),
            },
            package: annotation(annotations::PACKAGE_NAME).unwrap_or_default(),
            image: annotation(annotations::BUNDLE_REFERENCE).unwrap_or_default(),
            catalog_properties: annotation(annotations::EXT_CATALOG_PROPERTIES),
            conditions: set.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default(),
        }
    }

    /// The revision's condition of this type.
    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(&self.conditions, type_)
    }
}

/// The revisions that count.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RevisionStates {
    /// The highest revision that has rolled out.
    pub installed: Option<Revision>,
    /// Revisions that have not, ascending.
    pub rolling_out: Vec<Revision>,
}

/// Number of a revision; 0 for one without a spec.
pub(crate) fn number(set: &ClusterObjectSet) -> i64 {
    set.spec.as_ref().map_or(0, |spec| spec.revision)
}

/// Whether the revision is archived.
pub(crate) fn is_archived(set: &ClusterObjectSet) -> bool {
    set.spec.as_ref().is_some_and(|spec| spec.lifecycle_state == LifecycleState::Archived)
}

/// Reads the states from all revisions of one extension, in any order. Archived ones do not count.
pub(crate) fn states(sets: &[Arc<ClusterObjectSet>]) -> RevisionStates {
    let mut active: Vec<&Arc<ClusterObjectSet>> = sets.iter().filter(|set| !is_archived(set)).collect();
    active.sort_by_key(|set| number(set));
    let mut states = RevisionStates::default();
    for set in active {
        let revision = Revision::of(set);
        if conditions::is_true(&revision.conditions, types::SUCCEEDED) {
            states.installed = Some(revision);
        } else {
            states.rolling_out.push(revision);
        }
    }
    states
}

#[cfg(test)]
pub(super) mod tests {
    use olm_api::conditions::Status;
    use serde_json::json;

    use super::*;

    /// A revision of the extension `demo`, succeeded or not.
    pub(crate) fn set(number: i64, state: &str, succeeded: bool) -> Arc<ClusterObjectSet> {
        let mut set: ClusterObjectSet = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": format!("demo-{number}"), "annotations": {
                "olm.operatorframework.io/bundle-name": format!("demo.v{number}.0.0"),
                "olm.operatorframework.io/bundle-version": format!("{number}.0.0"),
                "olm.operatorframework.io/package-name": "demo",
                "olm.operatorframework.io/bundle-reference": format!("r.example/demo:v{number}"),
            }},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
            "status": {},
        }))
        .unwrap();
        if succeeded {
            let conditions = &mut set.status.as_mut().unwrap().conditions;
            conditions::set(
                conditions,
                types::SUCCEEDED,
                Status::True,
                "Succeeded",
                "",
                None,
                jiff::Timestamp::UNIX_EPOCH,
            );
        }
        Arc::new(set)
    }

    #[test]
    fn the_highest_succeeded_revision_is_installed() {
        let rows = [
            (vec![], None, vec![]),
            (vec![set(1, "Active", false)], None, vec![1]),
            (vec![set(2, "Active", true), set(1, "Active", true)], Some(2), vec![]),
            (
                vec![set(3, "Active", false), set(2, "Active", false), set(1, "Active", true)],
                Some(1),
                vec![2, 3],
            ),
            (vec![set(1, "Archived", true), set(2, "Active", false)], None, vec![2]),
        ];
        for (sets, installed, rolling_out) in rows {
            let states = states(&sets);
            assert_eq!(states.installed.map(|revision| revision.number), installed);
            assert_eq!(
                states.rolling_out.iter().map(|revision| revision.number).collect::<Vec<_>>(),
                rolling_out
            );
        }
    }

    #[test]
    fn the_release_is_known_only_from_its_annotation() {
        let mut one = set(1, "Active", true);
        assert_eq!(states(std::slice::from_ref(&one)).installed.unwrap().bundle.release, None);
        let annotations = Arc::make_mut(&mut one).metadata.annotations.as_mut().unwrap();
        annotations.insert("olm.operatorframework.io/bundle-release".into(), String::new());
        assert_eq!(states(&[one]).installed.unwrap().bundle.release.as_deref(), Some(""));
    }
}
