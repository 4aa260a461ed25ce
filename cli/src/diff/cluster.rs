//! Comparison with a cluster: the objects of an extension, and the result of applying others. Only reads and dry
//! runs.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_bundle::{BUILTIN_CA_ANNOTATION, Bundle, Certificates, distinct};
use olm_revision::canonical::Numbers;
use olm_revision::cluster::{Cluster as _, ClusterError, Reason};
use olm_revision::content::{ContentObject, resolve_as_is, secrets};
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;
use olm_revision::plan::{Owner, Plan, check_body, desired, plan};
use serde_json::Value;

use super::fields::applied;
use super::objects::{self, ChangeKind, ObjectChange, ObjectName};
use super::report::ComparedBundle;
use crate::error::CliError;
use crate::session::Session;
use crate::source::Cluster;
use crate::status::observe::is_active;

/// Concurrent reads and dry runs.
const CONCURRENT_CALLS: usize = 8;

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
    pub(super) definitions: Vec<Value>,
    pub(super) warnings: Vec<String>,
}

/// `spec.config.inline` of an extension.
pub(super) fn config(extension: &ClusterExtension) -> Option<Value> {
    let config = extension.spec.as_ref()?.config.as_ref()?;
    config.inline.clone().map(Value::Object)
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

/// Reads the active revisions of an extension and their objects.
///
/// # Errors
/// The API server does not return them.
pub(super) async fn installed(
    cluster: &Cluster,
    extension: &ClusterExtension,
    session: &Session,
) -> Result<Installed, CliError> {
    let name = extension.name_any();
    let mut sets = cluster.object_sets(session).await?;
    sets.retain(|set| olm_request::owner(set) == Some(&name) && is_active(set));
    sets.sort_by_key(number);
    let mut held = Vec::new();
    for set in &sets {
        held.extend(content(cluster, set, session).await?);
    }
    let mut siblings: Vec<String> = sets.iter().filter_map(ResourceExt::uid).collect();
    siblings.pop();
    let newest = sets.last();
    let owner = newest.map(|set| Owner {
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
        number: number(set),
        extension: name.clone(),
    });
    let bundle = newest.map_or_else(
        || ComparedBundle { origin: "nothing is installed".to_owned(), ..ComparedBundle::default() },
        |set| {
            let annotation = |key: &str| set.annotations().get(key).cloned().unwrap_or_default();
            ComparedBundle {
                origin: format!("revision {} on the cluster", set.name_any()),
                bundle: annotation(annotations::BUNDLE_NAME),
                version: annotation(annotations::BUNDLE_VERSION),
                digest: None,
            }
        },
    );
    Ok(Installed { owner, siblings, objects: held, bundle })
}

fn number(set: &ClusterObjectSet) -> i64 {
    set.spec.as_ref().map_or(0, |spec| spec.revision)
}

/// Objects of a revision.
async fn content(
    cluster: &Cluster,
    set: &ClusterObjectSet,
    session: &Session,
) -> Result<Vec<Value>, CliError> {
    let Some(spec) = &set.spec else { return Ok(Vec::new()) };
    let mut found = BTreeMap::new();
    for key in secrets(spec, cluster.namespace()) {
        let api: Api<Secret> = Api::namespaced(cluster.client().clone(), &key.namespace);
        let what = format!("Secret {key}, which holds objects of revision {}", set.name_any());
        if let Some(secret) = cluster.call(&what, api.get_opt(&key.name), session).await? {
            found.insert(key, secret);
        }
    }
    let phases = resolve_as_is(spec, cluster.namespace(), &found)
        .map_err(|error| CliError::operational(format!("revision {}: {error}", set.name_any())))?;
    Ok(phases.into_iter().flat_map(|phase| phase.objects).map(|content| content.object).collect())
}

/// Bundle identity as recorded in a revision.
pub(super) fn identity(bundle: &Bundle) -> BundleIdentity {
    BundleIdentity {
        name: bundle.name().to_owned(),
        package: bundle.package_name().to_owned(),
        version: bundle.version().unwrap_or_default().to_owned(),
        ..BundleIdentity::default()
    }
}

/// Predicts the changes if `rendered` became the next revision of the extension.
///
/// # Errors
/// The API server does not answer.
pub(super) async fn compare(
    cluster: &Cluster,
    extension: &ClusterExtension,
    installed: &Installed,
    identity: &BundleIdentity,
    rendered: Vec<Value>,
    session: &Session,
) -> Result<ClusterChanges, CliError> {
    let _step = session.progress.step("comparing with dry runs on the API server");
    let owner = Extension {
        name: extension.name_any(),
        uid: extension.uid().unwrap_or_default(),
        progress_deadline_minutes: None,
    };
    let draft = Draft::new(owner, identity, distinct(rendered))
        .map_err(|error| CliError::operational(error.to_string()))?;
    let wanted: Vec<Value> = draft.phases().iter().flat_map(|phase| phase.objects.clone()).collect();
    let comparison = Comparison { cluster: KubeCluster::new(cluster.client().clone()), installed };
    session.unless_interrupted(comparison.all(&wanted)).await
}

/// Running comparison.
struct Comparison<'a> {
    cluster: KubeCluster,
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
    async fn all(&self, wanted: &[Value]) -> Result<ClusterChanges, CliError> {
        let before = objects::by_name(&self.installed.objects);
        let after = objects::by_name(wanted);
        let gone = before.iter().filter(|(name, _)| !after.contains_key(name));
        let mut steps: Vec<_> = gone.map(|(name, object)| (name, *object, None)).collect();
        steps.extend(after.iter().map(|(name, object)| (name, *object, Some(before.get(name).copied()))));
        let calls: Vec<_> = steps
            .into_iter()
            .map(|(name, object, becomes)| async move {
                let seen = match becomes {
                    Some(old) => self.compare_applied(name, old, object).await,
                    None => self.compare_removed(name, object).await,
                };
                (name, seen)
            })
            .collect();
        let all: Vec<_> = stream::iter(calls).buffered(CONCURRENT_CALLS).collect().await;
        let mut found = ClusterChanges::default();
        for (name, seen) in all {
            match seen? {
                Observation::Object(live, change) => {
                    let is_definition = name.kind == "CustomResourceDefinition";
                    found.definitions.extend(live.filter(|_| is_definition));
                    found.changes.extend(change);
                }
                Observation::Unreadable(why) => found.warnings.push(format!("{name} cannot be read: {why}")),
            }
        }
        objects::sort(&mut found.changes);
        found.warnings.sort();
        Ok(found)
    }

    /// Live object. `None` if its kind is not served.
    async fn live(&self, object: &Value) -> Result<Result<Option<Value>, String>, CliError> {
        match self.cluster.get(&ObjectKey::of(object)).await {
            Ok(live) => Ok(Ok(live)),
            Err(error) if error.reason == Reason::UnknownKind => Ok(Ok(None)),
            Err(error) if error.reason == Reason::Rejected => Ok(Err(error.message)),
            Err(error) => Err(CliError::operational(format!("{}: {error}", ObjectName::of(object)))),
        }
    }

    /// Owner for which the engine would act. Without a revision, no object is owned.
    fn owner(&self) -> Owner {
        let none = || Owner { name: String::new(), uid: String::new(), number: 1, extension: String::new() };
        self.installed.owner.clone().unwrap_or_else(none)
    }

    fn plan(&self, live: Option<&Value>) -> Plan {
        plan(live, &self.owner(), &self.installed.siblings, &CollisionProtection::Prevent)
    }

    /// Observes an object that the new bundle no longer contains.
    async fn compare_removed(&self, name: &ObjectName, old: &Value) -> Result<Observation, CliError> {
        let live = match self.live(old).await? {
            Ok(live) => live,
            Err(why) => return Ok(Observation::Unreadable(why)),
        };
        let is_ours = |live: &Value| self.plan(Some(live)) != Plan::Collide;
        let goes = live.as_ref().is_some_and(is_ours);
        let change = goes.then(|| objects::whole(ChangeKind::Deleted, name.clone()));
        Ok(Observation::Object(live, change))
    }

    /// Observes an object of the new bundle. `old` is the same object of the installed bundle.
    async fn compare_applied(
        &self,
        name: &ObjectName,
        old: Option<&Value>,
        wanted: &Value,
    ) -> Result<Observation, CliError> {
        let live = match self.live(wanted).await? {
            Ok(live) => live,
            Err(why) => return Ok(Observation::Unreadable(why)),
        };
        let owner = self.owner();
        let desired = match &self.installed.owner {
            Some(owner) => desired(&content_of(wanted), owner),
            None => wanted.clone(),
        };
        let created = || objects::whole(ChangeKind::Created, name.clone());
        let with_note = |change: ObjectChange, note: String| ObjectChange { notes: vec![note], ..change };
        let change = match (self.plan(live.as_ref()), &live) {
            (_, None) => Some(match self.cluster.apply(&desired, true).await {
                // The bundle itself may define the kind.
                Err(error) if error.reason != Reason::UnknownKind && error.reason != Reason::NoDryRun => {
                    with_note(created(), refused(&error))
                }
                _ => created(),
            }),
            (Plan::Collide, Some(_)) => {
                let note =
                    "it exists and does not belong to the extension, which would not touch it".to_owned();
                Some(with_note(objects::whole(ChangeKind::Changed, name.clone()), note))
            }
            (Plan::AwaitDeletion, Some(_)) => {
                Some(with_note(created(), "it is being deleted, and made again then".to_owned()))
            }
            (_, Some(live)) => match self.cluster.apply(&check_body(&desired, live, &owner), true).await {
                Ok(outcome) => objects::changed(name, live, &outcome),
                Err(error) => {
                    let old = old.unwrap_or(&Value::Null);
                    let change = objects::changed(name, live, &applied(live, old, &desired));
                    change.map(|change| {
                        with_note(
                            change,
                            format!("only what the bundle sets is compared: {}", refused(&error)),
                        )
                    })
                }
            },
        };
        Ok(Observation::Object(live, change))
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
    format!("the API server's answer to a dry run: {error}")
}
