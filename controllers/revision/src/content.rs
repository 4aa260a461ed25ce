//! Loads the inputs of a pass over a revision: its Secrets, siblings and probes (docs/design/apply.md#revision-pass).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use olm_api::cluster_object_set::{ObservedPhase, Phase};
use olm_api::{ClusterObjectSet, annotations, labels};
use olm_controller_core::content::target_namespaces;
use olm_revision::content::{
    ContentError, ContentPhase, SecretKey, digests, objects, resolve, resolve_as_is, secrets,
};
use olm_revision::digest::changed_content;
use olm_revision::engine::Revision;
use olm_revision::generate::selected_namespaces;
use olm_revision::object::ObjectKey;
use olm_revision::observed_versions::Stamp;
use olm_revision::plan::Owner;
use olm_revision::probes::Probes;
use olm_revision::record::recorded;
use olm_runtime::cluster::{describe, within_deadline};

use super::Context;
use super::removal::may_outlive;

/// Inputs of a pass.
pub(super) struct PassInputs {
    /// Revision as the engine expects it.
    pub(super) revision: Revision,
    /// Phase digests that are not in the status yet.
    pub(super) to_record: Option<Vec<ObservedPhase>>,
}

/// Sources from which the content of a revision was read: enough to detect a change, without the content.
pub(super) struct ContentOrigin {
    generation: Option<i64>,
    extension: Option<String>,
    may_outlive: bool,
    secrets: Vec<Source>,
}

/// Secret from which content was read.
struct Source {
    key: SecretKey,
    stamp: Stamp,
    /// `true` if the Secret is covered by a watch.
    watched: bool,
}

/// Reason why a revision's content cannot be used.
pub(super) enum UnusableContent {
    /// A user has to fix the revision or its Secrets.
    Blocked(String),
    /// The content is missing or malformed.
    Broken(String),
    /// The request for it failed and is retried.
    Unreachable(String),
}

impl UnusableContent {
    /// Wraps the cause into an error that says that the content of `revision` is unknown.
    pub(super) fn of(self, revision: &str) -> Self {
        let text = |why| format!("objects of revision {revision} are unknown: {why}");
        match self {
            Self::Unreachable(why) => Self::Unreachable(text(why)),
            Self::Blocked(why) | Self::Broken(why) => Self::Broken(text(why)),
        }
    }

    pub(super) fn why(self) -> String {
        match self {
            Self::Blocked(why) | Self::Broken(why) | Self::Unreachable(why) => why,
        }
    }
}

impl Context {
    /// Returns the content to apply, from immutable Secrets and with the digests that were first observed.
    pub(super) async fn content(&self, set: &ClusterObjectSet) -> Result<PassInputs, UnusableContent> {
        let uid = set.uid().unwrap_or_default();
        self.origins.lock().remove(&uid);
        let broken = |error: &dyn std::fmt::Display| UnusableContent::Broken(error.to_string());
        let Some(spec) = &set.spec else {
            return Err(UnusableContent::Blocked(
                "spec: Required value: the revision has no spec".to_owned(),
            ));
        };
        let found = self.secrets(set).await?;
        let phases = tokio::task::block_in_place(|| resolve(spec, &self.system_namespace, &found));
        let phases = phases.map_err(|error| match error {
            ContentError::Mutable(_) => UnusableContent::Blocked(error.to_string()),
            other => broken(&other),
        })?;
        let probes = Probes::new(&spec.progression_probes).map_err(|error| broken(&error))?;
        let current = tokio::task::block_in_place(|| digests(&phases));
        let recorded =
            set.status.as_ref().map(|status| status.observed_phases.as_slice()).unwrap_or_default();
        let to_record = match recorded {
            [] => Some(current).filter(|current| !current.is_empty()),
            recorded => match changed_content(recorded, &current) {
                Some(message) => return Err(UnusableContent::Blocked(message)),
                None => None,
            },
        };
        if let Some(origin) = self.origin(set, &found) {
            self.origins.lock().insert(uid, Arc::new(origin));
        }
        Ok(PassInputs { revision: Revision { probes, ..self.revision(set, phases) }, to_record })
    }

    /// Returns the sources of the content, or `None` if a Secret has no UID or resourceVersion to compare.
    fn origin(&self, set: &ClusterObjectSet, found: &BTreeMap<SecretKey, Secret>) -> Option<ContentOrigin> {
        let observed_versions = self.engine.observed_versions();
        let stamped = |(key, secret): (&SecretKey, &Secret)| {
            let version = secret.metadata.resource_version.as_deref()?;
            let stamp =
                observed_versions.stamp_of(&secret_kind(), secret.metadata.uid.as_deref()?, version)?;
            Some(Source {
                key: key.clone(),
                stamp,
                watched: secret.labels().contains_key(labels::OWNER_NAME),
            })
        };
        Some(ContentOrigin {
            generation: set.metadata.generation,
            extension: set.labels().get(labels::OWNER_NAME).cloned(),
            may_outlive: may_outlive(set),
            secrets: found.iter().map(stamped).collect::<Option<_>>()?,
        })
    }

    /// Returns `true` if the content is known to equal what was last read and recorded. Watched Secrets cost no
    /// request. For other Secrets, only the metadata is read.
    pub(super) async fn is_content_unchanged(&self, set: &ClusterObjectSet) -> bool {
        let origin = self.origins.lock().get(&set.uid().unwrap_or_default()).cloned();
        let recorded = set.status.as_ref().is_some_and(|status| !status.observed_phases.is_empty());
        let Some(origin) = origin.filter(|_| recorded) else { return false };
        if origin.generation != set.metadata.generation
            || origin.extension.as_ref() != set.labels().get(labels::OWNER_NAME)
            || origin.may_outlive != may_outlive(set)
        {
            return false;
        }
        let observed_versions = self.engine.observed_versions();
        for Source { key, stamp, watched } in &origin.secrets {
            let SecretKey { namespace, name } = key.clone();
            if *watched
                && observed_versions.is_current(&ObjectKey { gvk: secret_kind(), namespace, name }, stamp)
            {
                continue;
            }
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
            let Ok(Some(now)) = within_deadline(api.get_metadata_opt(&key.name)).await else { return false };
            let ObjectMeta { uid, resource_version, .. } = now.metadata;
            if !stamp.is(&uid.unwrap_or_default(), &resource_version.unwrap_or_default()) {
                return false;
            }
        }
        true
    }

    /// Returns the objects that the revision lists, for a removal: from the record, else from its Secrets, even
    /// mutable ones. A removal touches only objects that the revision controls.
    pub(super) async fn listed(&self, set: &ClusterObjectSet) -> Result<Revision, UnusableContent> {
        if let Some(phases) = recorded(set) {
            return Ok(self.revision(set, phases));
        }
        let found = self.secrets(set).await?;
        let Some(spec) = &set.spec else { return Ok(self.revision(set, Vec::new())) };
        let phases = resolve_as_is(spec, &self.system_namespace, &found).map_err(UnusableContent::Broken)?;
        let observed = set.status.iter().map(|status| &status.observed_phases).find(|all| !all.is_empty());
        let changed = observed.and_then(|observed| {
            changed_content(observed, &tokio::task::block_in_place(|| digests(&phases)))
        });
        match changed {
            None => Ok(self.revision(set, phases)),
            Some(why) => Err(UnusableContent::Broken(why)),
        }
    }

    /// Returns the revision with these phases and no probes.
    pub(super) fn revision(&self, set: &ClusterObjectSet, phases: Vec<ContentPhase>) -> Revision {
        let watched_namespaces = watched_namespaces(&phases, selected_namespaces(set).is_some());
        Revision {
            owner: owner(set),
            siblings: self.sibling_uids(set),
            // Later revisions pass the annotation on.
            is_migrated: set.annotations().contains_key(annotations::EXT_ADOPT),
            phases,
            probes: Probes::default(),
            selected_namespaces: selected_namespaces(set).into_iter().flatten().collect(),
            watched_namespaces,
            replaces_immutable: set.annotation(annotations::EXT_REPLACE_IMMUTABLE) == Some("Allow"),
            creation_delay: if self.is_newest(set) { Duration::ZERO } else { self.pace.recreation },
        }
    }

    /// Returns the existing Secrets of the revision.
    async fn secrets(&self, set: &ClusterObjectSet) -> Result<BTreeMap<SecretKey, Secret>, UnusableContent> {
        let Some(spec) = &set.spec else { return Ok(BTreeMap::new()) };
        let mut found = BTreeMap::new();
        for key in secrets(spec, &self.system_namespace) {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
            match within_deadline(api.get_opt(&key.name)).await {
                Ok(Some(secret)) => drop(found.insert(key, secret)),
                Ok(None) => {}
                Err(error) => {
                    let refers = |phase: &&Phase| {
                        phase.objects.iter().any(|o| o.ref_.as_ref().is_some_and(|r| r.name == key.name))
                    };
                    let phase = spec.phases.iter().find(refers).map_or("", |phase| phase.name.as_str());
                    let cause = describe(&error);
                    let message = format!("resolving ref in phase {phase:?}: getting Secret {key}: {cause}");
                    return Err(UnusableContent::Unreachable(message));
                }
            }
        }
        Ok(found)
    }

    /// Returns the other revisions of the same extension that are neither archived nor being deleted, by number.
    pub(super) fn siblings(&self, set: &ClusterObjectSet) -> Vec<Arc<ClusterObjectSet>> {
        let Some(extension) = set.labels().get(labels::OWNER_NAME) else {
            return Vec::new();
        };
        let counts = |other: &Arc<ClusterObjectSet>| {
            other.metadata.uid != set.metadata.uid && other.is_active() && has_same_extension(set, other)
        };
        let mut siblings = self.cache.labeled(extension);
        siblings.retain(counts);
        siblings.sort_by_key(|sibling| sibling.number());
        siblings
    }

    /// Returns the UIDs of [`Self::siblings`].
    pub(super) fn sibling_uids(&self, set: &ClusterObjectSet) -> Vec<String> {
        self.siblings(set).iter().filter_map(|sibling| sibling.uid()).collect()
    }
}

/// Returns `true` unless the controllers prove that the revisions belong to different extensions. A label alone would
/// admit foreign revisions (docs/design/apply.md#revision-membership), and orphaned revisions have no controller. A
/// recreated extension is the same one: objects that it lists must not be deleted with its earlier revisions
/// (docs/design/apply.md#recreated-extensions).
pub(super) fn has_same_extension(set: &ClusterObjectSet, other: &ClusterObjectSet) -> bool {
    controller(set).zip(controller(other)).is_none_or(|(ours, theirs)| ours == theirs)
}

/// Returns group, kind and name of the controller owner.
fn controller(set: &ClusterObjectSet) -> Option<(&str, &str, &str)> {
    let owner = set.controller()?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    Some((group, &owner.kind, &owner.name))
}

/// Returns the kind of the Secrets that hold content.
pub(super) fn secret_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("", "v1", "Secret")
}

/// Returns the revision as owner of objects.
pub(super) fn owner(set: &ClusterObjectSet) -> Owner {
    Owner {
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
        number: set.number(),
        extension: set.labels().get(labels::OWNER_NAME).cloned().unwrap_or_default(),
    }
}

/// Namespaces that the operator watches beside its own. Empty if it watches all, or a single one that no label selects.
fn watched_namespaces(phases: &[ContentPhase], is_selected: bool) -> BTreeSet<String> {
    let watched = target_namespaces(objects(phases));
    let is_list = is_selected || watched.len() > 1;
    let is_own = |name: &String| {
        let mut deployments = objects(phases).filter(|object| object["kind"] == "Deployment");
        deployments.any(|deployment| deployment["metadata"]["namespace"] == name.as_str())
    };
    watched.into_iter().filter(|name| is_list && !is_own(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn watched_namespaces_are_those_of_a_list_without_its_own() {
        for (targets, is_selected, expected) in [
            ("", false, &[][..]),
            ("a", false, &[]),
            ("a", true, &["a"]),
            ("own", true, &[]),
            ("a,b,own", false, &["a", "b"]),
        ] {
            let annotations = json!({(annotations::TARGET_NAMESPACES): targets});
            let object = json!({"kind": "Deployment", "metadata": {"namespace": "own"},
                "spec": {"template": {"metadata": {"annotations": annotations}}}});
            let found = watched_namespaces(&[ContentPhase::inline("deploy", vec![object])], is_selected);
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{targets}");
        }
    }
}
