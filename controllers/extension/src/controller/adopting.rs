//! Adoption of existing objects by a new revision (docs/design/migration.md#adoption): annotation `adopt` of the
//! extension has the digest of their list. All other objects collide, as without the annotation.

use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use olm_api::annotations;
use olm_controller_core::install_error::InstallError;
use olm_controller_core::service_account;
use olm_plan::objects::ObjectName;
use olm_plan::{AdoptedObject, adoption_digest};
use olm_revision::content::objects;
use olm_revision::generate::Draft;
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;
use olm_revision::plan::controller;
use serde_json::Value;

use super::install::Installer;
use super::observed::ObservedExtension;
use super::revisions::RevisionInputs;
use crate::revision_writer::RevisionPlan;

/// Maximum number of concurrent reads.
const CONCURRENT_CALLS: usize = 8;
/// Maximum number of objects in a message.
const NAMED: usize = 50;

/// Object of the draft that exists.
#[derive(Clone, Debug, PartialEq)]
struct ExistingObject {
    /// Identity in the draft.
    key: ObjectKey,
    /// Identity in the cluster.
    identity: AdoptedObject,
    has_controller: bool,
}

impl ExistingObject {
    fn of(key: ObjectKey, live: &Value) -> Self {
        let (group, kind) = (key.gvk.group.clone(), key.gvk.kind.clone());
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let identity = AdoptedObject { object: ObjectName { group, kind, ..ObjectName::of(live) }, uid };
        Self { key, identity, has_controller: controller(live).is_some() }
    }
}

impl ObservedExtension<'_> {
    /// Reports whether a new revision adopts the objects of the annotation. A digest that a revision has recorded adopts
    /// nothing again.
    pub(super) fn adopts(&self) -> bool {
        let is_recorded = |digest| {
            self.revisions
                .iter()
                .any(|revision| revision.annotations().get(annotations::EXT_ADOPT) == Some(digest))
        };
        self.rules.adopt.as_ref().is_some_and(|digest| !is_recorded(digest))
    }
}

impl Installer<'_> {
    /// The draft of a new revision with permission to adopt the objects of the annotation, and their names.
    ///
    /// # Errors
    /// An object cannot be read, or the digest is that of other objects.
    pub(super) async fn adopting(
        &self,
        observed: &ObservedExtension<'_>,
        inputs: &RevisionInputs,
        draft: Draft,
        plan: &RevisionPlan,
    ) -> Result<(Draft, Vec<String>), InstallError> {
        if !plan.makes_revision() {
            return Ok((draft, Vec::new()));
        }
        let recorded: Vec<&String> = plan
            .existing()
            .iter()
            .filter_map(|revision| revision.annotations().get(annotations::EXT_ADOPT))
            .collect();
        let Some(digest) = observed.rules.adopt.as_ref().filter(|digest| !recorded.contains(digest)) else {
            return Ok(match recorded.last() {
                Some(digest) => (draft.adopting(digest, &[]), Vec::new()),
                None => (draft, Vec::new()),
            });
        };
        let user = service_account::user(inputs.account.as_ref(), self.system_namespace);
        let cluster = KubeCluster::new(self.client.clone());
        let cluster = match user.map_err(InstallError::blocked)? {
            Some(user) => cluster.acting_as(user),
            None => cluster,
        };
        let adopted = adopted(digest, existing(&cluster, &draft).await?)?;
        let names: Vec<String> = adopted.iter().map(|one| one.identity.object.to_string()).collect();
        tracing::info!(extension = observed.name, revision = plan.number(), digest, objects = ?names, "adopting objects");
        let keys: Vec<ObjectKey> = adopted.into_iter().map(|object| object.key).collect();
        Ok((draft.adopting(digest, &keys), names))
    }
}

/// Objects of the draft that exist, in its order.
async fn existing(cluster: &KubeCluster, draft: &Draft) -> Result<Vec<ExistingObject>, InstallError> {
    // Create the futures before the stream, so that the result is `Send`.
    let reads: Vec<_> =
        objects(draft.phases())
            .map(|object| {
                let key = ObjectKey::of(object);
                async move {
                    match cluster.metadata(&key).await {
                        Ok(live) => Ok(live.map(|live| ExistingObject::of(key, &live))),
                        Err(error) => Err(InstallError::retry(error)
                            .context(format!("reading {key}, which may be adopted"))),
                    }
                }
            })
            .collect();
    let found: Vec<Option<ExistingObject>> =
        stream::iter(reads).buffered(CONCURRENT_CALLS).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// Objects without controller, if the digest is that of their list. A controlled object belongs to a revision of the
/// extension, or collides.
///
/// # Errors
/// The digest is that of another list.
fn adopted(digest: &str, existing: Vec<ExistingObject>) -> Result<Vec<ExistingObject>, InstallError> {
    let mut free = existing;
    free.retain(|object| !object.has_controller);
    let list: Vec<AdoptedObject> = free.iter().map(|object| object.identity.clone()).collect();
    if adoption_digest(&list) == digest {
        return Ok(free);
    }
    let mut present: Vec<String> = list.iter().take(NAMED).map(|one| one.object.to_string()).collect();
    if list.is_empty() {
        present.push("none".to_owned());
    }
    let more = match list.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(InstallError::blocked(format!(
        "the existing objects without a controller do not match annotation {}: found {}{more}; run `olm migrate plan` \
         again, and set the digest of its list, or remove the annotation to adopt nothing",
        annotations::EXT_ADOPT,
        present.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_request::ExtensionRules;
    use serde_json::json;

    use super::super::decide::tests::{extension, observed};
    use super::super::revisions::tests::set;
    use super::*;
    use olm_controller_core::install_error::InstallErrorClass;

    /// Object with its metadata as PartialObjectMetadata.
    fn object(kind: &str, name: &str, uid: &str, owners: &Value) -> ExistingObject {
        let metadata = json!({"namespace": "ns", "name": name});
        let rendered = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        let metadata = json!({"namespace": "ns", "name": name, "uid": uid, "ownerReferences": owners});
        let live =
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        ExistingObject::of(ObjectKey::of(&rendered), &live)
    }

    fn digest(list: &[(&str, &str, &str)]) -> String {
        let line = |(kind, name, uid): &(&str, &str, &str)| object(kind, name, uid, &json!([])).identity;
        adoption_digest(&list.iter().map(line).collect::<Vec<_>>())
    }

    #[test]
    fn recorded_digest_adopts_nothing_again() {
        let extension = extension();
        let mut recorded = set(1, "Archived", true);
        let all = Arc::make_mut(&mut recorded).metadata.annotations.as_mut().unwrap();
        all.insert(annotations::EXT_ADOPT.to_owned(), "old".to_owned());
        let sets = [recorded, set(2, "Active", true)];
        for (digest, sets, adopts) in [
            (None, &sets[..0], false),
            (Some("new"), &sets[..0], true),
            (Some("new"), &sets, true),
            (Some("old"), &sets, false),
            (Some("old"), &sets[1..], true),
        ] {
            let rules = ExtensionRules { adopt: digest.map(str::to_owned), ..ExtensionRules::default() };
            assert_eq!(observed(&extension, rules, sets).adopts(), adopts, "{digest:?}, {} sets", sets.len());
        }
    }

    #[test]
    fn only_exactly_the_listed_objects_are_adopted() {
        let owner = |controller: bool| json!([{"kind": "ClusterServiceVersion", "uid": "c", "controller": controller}]);
        let free = object("ServiceAccount", "a", "1", &json!([]));
        let owned = object("Service", "b", "2", &owner(false));
        let controlled = object("Secret", "c", "3", &owner(true));
        let existing = [free.clone(), owned.clone(), controlled];
        let both = [("ServiceAccount", "a", "1"), ("Service", "b", "2")];
        assert_eq!(adopted(&digest(&both), existing.to_vec()), Ok(vec![free, owned]));
        let found = "ServiceAccount ns/a, Service ns/b";
        for (case, listed, existing, found) in [
            ("wrong UID", vec![both[0], ("Service", "b", "9")], &existing[..], found),
            ("object appeared", both[..1].to_vec(), &existing, found),
            ("object disappeared", both.to_vec(), &existing[..1], "ServiceAccount ns/a"),
            ("controlled object", [&both[..], &[("Secret", "c", "3")]].concat(), &existing, found),
            ("no object", both.to_vec(), &existing[2..], "none"),
            ("empty list", vec![], &existing, found),
        ] {
            let failure = adopted(&digest(&listed), existing.to_vec()).unwrap_err();
            let message = format!(
                "the existing objects without a controller do not match annotation ext.olm.operatorframework.io/adopt: \
                 found {found}; run `olm migrate plan` again, and set the digest of its list, or remove the annotation \
                 to adopt nothing"
            );
            assert_eq!((failure.class, failure.message), (InstallErrorClass::Blocked, message), "{case}");
        }
        assert_eq!(adopted(&digest(&[]), existing[2..].to_vec()), Ok(vec![]));
        let many: Vec<_> = (0..60).map(|n| object("Secret", &n.to_string(), "", &json!([]))).collect();
        let failure = adopted("all", many).unwrap_err();
        assert!(failure.message.contains(", Secret ns/49 and 10 more; run "), "{failure}");
    }
}
