//! Comparison with a cluster: the objects of an extension, and the result of applying others. Only reads and dry
//! runs.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::{BUILTIN_CA_ANNOTATION, BundleContent, Certificates, distinct};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_plan::fields::applied;
use olm_plan::objects::{self, ChangeKind, ObjectChange, ObjectName};
use olm_revision::canonical::Numbers;
use olm_revision::cluster::{ApiErrorReason, Cluster as _, ClusterError};
use olm_revision::content::{ContentObject, resolve_as_is, secrets};
use olm_revision::fields::blocking;
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;
use olm_revision::plan::{ObjectPlan, Owner, check_body, desired, plan};
use serde_json::Value;

use super::ownership::Collision;
use super::report::ComparedBundle;
use crate::status::observe::owner;
use crate::status::tree::RevisionState;

/// Concurrent reads and dry runs.
const CONCURRENT_CALLS: usize = 8;

/// Extension of a cluster, which is compared with a new bundle.
pub struct ComparedExtension<'a> {
    /// Cluster with the extension.
    pub cluster: &'a ClusterConnection,
    /// The extension as read.
    pub extension: &'a ClusterExtension,
    /// Run of the program.
    pub session: &'a Session,
}

/// Installed state of an extension.
#[derive(Debug)]
pub(super) struct Installed {
    /// Newest revision, if any.
    owner: Option<Owner>,
    /// UIDs of the other active revisions.
    siblings: Vec<String>,
    /// Objects of the active revisions, those of the newest last.
    pub(super) objects: Vec<Value>,
    /// Description of the newest revision.
    pub(super) bundle: ComparedBundle,
}

/// Predicted changes on the cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterChanges {
    pub(super) changes: Vec<ObjectChange>,
    /// Live CustomResourceDefinitions.
    pub(super) crds: Vec<Value>,
    pub(super) collisions: Vec<Collision>,
    pub(super) warnings: Vec<String>,
}

/// Certificate provider of the webhooks among these objects. `None` without webhooks.
pub(super) fn certificates(objects: &[Value]) -> Option<Certificates> {
    let has = |key: &str| {
        let annotated = |object: &Value| object["metadata"]["annotations"].get(key).is_some();
        objects.iter().any(annotated)
    };
    [
        ("cert-manager.io/inject-ca-from", Certificates::CertManager),
        ("service.beta.openshift.io/inject-cabundle", Certificates::OpenshiftServiceCa),
        (BUILTIN_CA_ANNOTATION, Certificates::Builtin),
    ]
    .into_iter()
    .find_map(|(key, provider)| has(key).then_some(provider))
}

impl ComparedExtension<'_> {
    /// Reads the active revisions and their objects.
    ///
    /// # Errors
    /// The API server does not return them.
    pub(super) async fn installed(&self) -> Result<Installed, CliError> {
        let name = self.extension.name_any();
        let mut revisions = self.cluster.object_sets(self.session).await?;
        revisions.retain(|revision| olm_request::owner(revision) == Some(&name) && revision.is_active());
        revisions.sort_by_key(ClusterObjectSet::number);
        let mut objects = Vec::new();
        for revision in &revisions {
            objects.extend(self.content(revision).await?);
        }
        let mut siblings: Vec<String> = revisions.iter().filter_map(ResourceExt::uid).collect();
        siblings.pop();
        let bundle = revisions.last().map_or_else(
            || ComparedBundle { origin: "nothing is installed".to_owned(), ..ComparedBundle::default() },
            |revision| {
                let RevisionState { name, bundle, version, .. } = RevisionState::alone(revision);
                let origin = format!("revision {name} on the cluster");
                ComparedBundle { origin, bundle, version, digest: None }
            },
        );
        Ok(Installed { owner: revisions.last().map(owner), siblings, objects, bundle })
    }

    /// Objects of a revision.
    async fn content(&self, revision: &ClusterObjectSet) -> Result<Vec<Value>, CliError> {
        let Some(spec) = &revision.spec else { return Ok(Vec::new()) };
        let (cluster, name) = (self.cluster, revision.name_any());
        let mut found = BTreeMap::new();
        for key in secrets(spec, cluster.namespace()) {
            let api: Api<Secret> = Api::namespaced(cluster.client().clone(), &key.namespace);
            let what = format!("Secret {key} with objects of revision {name}");
            if let Some(secret) = cluster.call(&what, api.get_opt(&key.name), self.session).await? {
                found.insert(key, secret);
            }
        }
        let phases = resolve_as_is(spec, cluster.namespace(), &found)
            .map_err(|error| CliError::operational(format!("revision {name}: {error}")))?;
        Ok(phases.into_iter().flat_map(|phase| phase.objects).map(|content| content.object).collect())
    }

    /// Predicts the changes if `rendered` became the next revision.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn compare(
        &self,
        installed: &Installed,
        identity: &BundleIdentity,
        rendered: Vec<Value>,
    ) -> Result<ClusterChanges, CliError> {
        let _step = self.session.progress.step("comparing with dry runs on the API server");
        let owner = Extension {
            name: self.extension.name_any(),
            uid: self.extension.uid().unwrap_or_default(),
            progress_deadline_minutes: None,
        };
        let draft = Draft::new(owner, identity, distinct(rendered))
            .map_err(|error| CliError::operational(error.to_string()))?;
        let after = draft.phases().iter().flat_map(|phase| &phase.objects);
        let after: Vec<Value> = after.map(|content| content.object.clone()).collect();
        self.session.unless_interrupted(self.comparison(installed).all(&after)).await
    }

    /// Collisions of `rendered` if it became the first revision. Makes no dry runs, so that the namespace of the
    /// extension and the kinds need not exist.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn collisions(&self, rendered: &[Value]) -> Result<Vec<Collision>, CliError> {
        let _step = self.session.progress.step("looking for existing objects");
        let installed = self.installed().await?;
        self.session.unless_interrupted(self.comparison(&installed).collisions(rendered)).await
    }

    fn comparison<'b>(&'b self, installed: &'b Installed) -> Comparison<'b> {
        let cluster = KubeCluster::new(self.cluster.client().clone());
        Comparison {
            cluster,
            extension: self.extension.metadata.name.as_deref().unwrap_or_default(),
            installed,
        }
    }
}

/// Bundle identity as recorded in a revision.
pub(super) fn identity(bundle: &BundleContent) -> BundleIdentity {
    BundleIdentity {
        name: bundle.name().to_owned(),
        package: bundle.package_name().to_owned(),
        version: bundle.version().unwrap_or_default().to_owned(),
        ..BundleIdentity::default()
    }
}

/// Running comparison.
struct Comparison<'a> {
    cluster: KubeCluster,
    extension: &'a str,
    installed: &'a Installed,
}

/// Observation of one object.
enum Observation {
    /// Live object, and its predicted change.
    Object(Option<Value>, Option<ObjectChange>),
    /// Reason for which the object cannot be read.
    Unreadable(String),
}

impl Comparison<'_> {
    async fn all(&self, new: &[Value]) -> Result<ClusterChanges, CliError> {
        let before = objects::by_name(&self.installed.objects);
        let after = objects::by_name(new);
        let removed = before.keys().filter(|name| !after.contains_key(name));
        let calls: Vec<_> = removed
            .chain(after.keys())
            .map(|name| {
                let (old, new) = (before.get(name).copied(), after.get(name).copied());
                async move { (name, self.observe(name, old, new).await) }
            })
            .collect();
        let all: Vec<_> = stream::iter(calls).buffered(CONCURRENT_CALLS).collect().await;
        let mut found = ClusterChanges::default();
        for (name, seen) in all {
            match seen? {
                Observation::Object(live, change) => {
                    let planned = live.as_ref().filter(|_| after.contains_key(name));
                    found.collisions.extend(planned.and_then(|live| self.collision(name, live)));
                    let is_crd = name.kind == "CustomResourceDefinition";
                    found.crds.extend(live.filter(|_| is_crd));
                    found.changes.extend(change);
                }
                Observation::Unreadable(why) => found.warnings.push(format!("{name} cannot be read: {why}")),
            }
        }
        objects::sort(&mut found.changes);
        found.warnings.sort();
        Ok(found)
    }

    /// Observes an object: `old` in the installed bundle, `new` in the new one.
    async fn observe(
        &self,
        name: &ObjectName,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<Observation, CliError> {
        let live = match self.live(name, new.or(old).unwrap_or(&Value::Null)).await? {
            Ok(live) => live,
            Err(why) => return Ok(Observation::Unreadable(why)),
        };
        let change = match new {
            Some(new) => self.change(name, live.as_ref(), old, new).await,
            None => {
                let ours = live.as_ref().filter(|live| self.plan(Some(live)) != ObjectPlan::Collide);
                ours.map(|_| objects::whole(ChangeKind::Deleted, name.clone()))
            }
        };
        Ok(Observation::Object(live, change))
    }

    /// Live object. The inner error is the reason for which it cannot be read.
    async fn live(
        &self,
        name: &ObjectName,
        object: &Value,
    ) -> Result<Result<Option<Value>, String>, CliError> {
        match self.cluster.get(&ObjectKey::of(object)).await {
            Ok(live) => Ok(Ok(live)),
            Err(error) if error.reason == ApiErrorReason::UnknownKind => Ok(Ok(None)),
            Err(error) if error.reason == ApiErrorReason::Rejected => Ok(Err(error.message)),
            Err(error) => Err(CliError::operational(format!("{name}: {error}"))),
        }
    }

    /// Collisions with live objects. Skips objects that cannot be read.
    async fn collisions(&self, rendered: &[Value]) -> Result<Vec<Collision>, CliError> {
        let objects = objects::by_name(rendered);
        let calls: Vec<_> = objects
            .iter()
            .map(|(name, object)| async move { (name, self.live(name, object).await) })
            .collect();
        let all: Vec<_> = stream::iter(calls).buffered(CONCURRENT_CALLS).collect().await;
        let mut found = Vec::new();
        for (name, live) in all {
            found.extend(live?.ok().flatten().and_then(|live| self.collision(name, &live)));
        }
        Ok(found)
    }

    /// Collision with a live object that another extension owns.
    fn collision(&self, name: &ObjectName, live: &Value) -> Option<Collision> {
        let collides = self.plan(Some(live)) == ObjectPlan::Collide;
        Collision::of(name, live, self.extension).filter(|_| collides)
    }

    /// Owner for which the engine would act. Without a revision, no object is owned.
    fn owner(&self) -> Owner {
        let none = || Owner { name: String::new(), uid: String::new(), number: 1, extension: String::new() };
        self.installed.owner.clone().unwrap_or_else(none)
    }

    fn plan(&self, live: Option<&Value>) -> ObjectPlan {
        plan(live, &self.owner(), &self.installed.siblings, &CollisionProtection::Prevent)
    }

    /// Change to a live object when `new` of the new bundle replaces `old`.
    async fn change(
        &self,
        name: &ObjectName,
        live: Option<&Value>,
        old: Option<&Value>,
        new: &Value,
    ) -> Option<ObjectChange> {
        let owner = self.owner();
        let desired = match &self.installed.owner {
            Some(owner) => desired(&content_of(new), owner),
            None => olm_revision::fields::applied(new),
        };
        let created = || objects::whole(ChangeKind::Created, name.clone());
        let with_note = |mut change: ObjectChange, note: String| {
            change.notes.push(note);
            change
        };
        match (self.plan(live), live) {
            (_, None) => Some(match self.cluster.apply(&desired, true).await {
                // The bundle itself may define the kind.
                Err(error)
                    if error.reason != ApiErrorReason::UnknownKind
                        && error.reason != ApiErrorReason::NoDryRun =>
                {
                    with_note(created(), refused(&error))
                }
                _ => created(),
            }),
            (ObjectPlan::Collide, Some(live)) => {
                let note = match self.collision(name, live) {
                    Some(collision) => format!("collision: {collision}"),
                    None => {
                        "the object exists and does not belong to the extension, so the extension would not change it".to_owned()
                    }
                };
                Some(with_note(objects::whole(ChangeKind::Changed, name.clone()), note))
            }
            (ObjectPlan::AwaitDeletion, Some(_)) => {
                Some(with_note(created(), "it is being deleted and will be recreated".to_owned()))
            }
            (_, Some(live)) => match self.cluster.apply(&check_body(&desired, live, &owner), true).await {
                Ok(outcome) => objects::changed(name, live, &outcome),
                Err(error) => {
                    let old = old.unwrap_or(&Value::Null);
                    let change = objects::changed(name, live, &applied(live, old, &desired))?;
                    let blocking = blocking(&desired, live, &error.fields);
                    if blocking.is_removable() {
                        return Some(change);
                    }
                    let remedy = blocking.remedy().map_or_else(String::new, |remedy| format!("; {remedy}"));
                    let refused = refused(&error);
                    let note = format!(
                        "only fields that the bundle sets are compared, because of this error: {refused}{remedy}"
                    );
                    Some(with_note(change, note))
                }
            },
        }
    }
}

fn content_of(object: &Value) -> ContentObject {
    ContentObject {
        object: object.clone(),
        numbers: Numbers::Exact,
        collision_protection: CollisionProtection::Prevent,
    }
}

fn refused(error: &ClusterError) -> String {
    format!("dry run on the API server: {error}")
}
