//! Generation of the next revision of an extension from a rendered bundle (docs/design/apply.md#revision-metadata,
//! docs/design/apply.md#packing-into-secrets).
//!
//! Pure. [`Draft`] is the desired revision, [`decide`] compares it with the newest existing one, [`Draft::number`]
//! creates the ClusterObjectSet and Secrets to write.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use olm_api::cluster_object_set::{
    CollisionProtection, LifecycleState, Phase as SpecPhase, PhaseObject, ProgressionProbe,
};
use olm_api::limits::{ARCHIVED_REVISIONS_KEPT, MAX_PHASES};
use olm_api::{ClusterObjectSet, ClusterObjectSetSpec, annotations, labels, names};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::content::{self, ContentObject, ContentPhase, same_content};
use crate::object::ObjectKey;
use crate::packing::pack;
use crate::phases::{OwnerMetadata, is_aggregated, phases};
use crate::probes::{api_service_probe, default_probes};
use crate::record::{MAX_ANNOTATION_BYTES, size_with};

/// Maximum length of a label value.
pub const MAX_LABEL_VALUE: usize = 63;
/// Maximum size of inline content in bytes. The API server stores no object above 1.5 MiB, including field ownership
/// and additions of other writers.
const MAX_INLINE_BYTES: usize = 512 * 1024;

/// Bundle that a revision installs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleIdentity {
    /// Name of the bundle.
    pub name: String,
    /// Package of the bundle.
    pub package: String,
    /// Version of the bundle.
    pub version: String,
    /// Release of the bundle. `Some("")` if explicitly empty.
    pub release: Option<String>,
    /// Image reference of the bundle.
    pub image: String,
    /// Value of the CSV annotation `olm.properties`. `None` without properties.
    pub properties: Option<String>,
    /// Value of [`annotations::EXT_MAX_OPENSHIFT_VERSION`]. `None` where `properties` contain the same value.
    pub max_openshift_version: Option<String>,
    /// Value of [`annotations::EXT_CATALOG_PROPERTIES`]. `None` where dependencies are not evaluated.
    pub catalog_properties: Option<String>,
}

/// Extension that owns revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Name of the extension.
    pub name: String,
    /// UID of the extension.
    pub uid: String,
    /// `spec.progressDeadlineMinutes`. 0 or less means no deadline.
    pub progress_deadline_minutes: Option<i32>,
}

/// Permanent error: the bundle cannot become a revision of this extension. The name of the revision is too long, or
/// there are too many phases, or an object is too large.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct GenerateError(String);

/// Desired revision without a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    extension: Extension,
    annotations: BTreeMap<String, String>,
    phases: Vec<ContentPhase>,
    /// Message about omitted data, to be logged.
    pub warning: Option<String>,
}

/// Numbered revision, ready to be written: first the Secrets, then the ClusterObjectSet.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedRevision {
    /// ClusterObjectSet of the revision.
    pub set: ClusterObjectSet,
    /// Secrets with its content. They get [`secret_owner`] once the ClusterObjectSet has a UID.
    pub secrets: Vec<Secret>,
}

impl Draft {
    /// Creates the desired revision of `extension` from the rendered `objects` of `bundle`.
    pub fn new(
        extension: Extension,
        bundle: &BundleIdentity,
        objects: Vec<Value>,
    ) -> Result<Self, GenerateError> {
        Self::with_release(extension, bundle, objects, None)
    }

    /// Like [`Draft::new`], but annotates every object with `release`, if given.
    fn with_release(
        extension: Extension,
        bundle: &BundleIdentity,
        objects: Vec<Value>,
        release: Option<&str>,
    ) -> Result<Self, GenerateError> {
        let metadata = OwnerMetadata {
            extension: &extension.name,
            package: &bundle.package,
            version: &bundle.version,
            release,
        };
        let phases = phases(objects, metadata);
        if phases.len() > MAX_PHASES {
            return Err(GenerateError(format!(
                "bundle needs {} phases, but a revision has at most {MAX_PHASES}",
                phases.len()
            )));
        }
        let (annotations, warning) = revision_annotations(bundle);
        Ok(Self { extension, annotations, phases, warning })
    }

    /// Sets an annotation that the first pass over the revision has to obey. `None` sets nothing.
    #[must_use]
    pub fn annotated(mut self, key: &str, value: Option<&str>) -> Self {
        self.annotations.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        self
    }

    /// Sets the namespaces that the extension selects by label. `None` if it selects none.
    #[must_use]
    pub fn watching(self, namespaces: Option<&[String]>) -> Self {
        let list = namespaces.map(|names| names.join(","));
        self.annotated(annotations::EXT_TARGET_NAMESPACES, list.as_deref())
    }

    /// Lets the revision adopt these existing objects, and records the digest of their list. All others keep collision
    /// protection Prevent.
    #[must_use]
    pub fn adopting(mut self, digest: &str, adopted: &[ObjectKey]) -> Self {
        self.annotations.insert(annotations::EXT_ADOPT.to_owned(), digest.to_owned());
        for content in self.phases.iter_mut().flat_map(|phase| &mut phase.objects) {
            if adopted.contains(&ObjectKey::of(&content.object)) {
                content.collision_protection = CollisionProtection::IfNoController;
            }
        }
        self
    }

    /// Creates the desired revision of an `extension` that returns to the existing revision `set` with this content.
    /// `refused` is the value of [`annotations::EXT_REFUSED`].
    pub fn restored(
        extension: Extension,
        set: &ClusterObjectSet,
        mut content: Vec<ContentPhase>,
        refused: String,
    ) -> Self {
        let mut annotations = generated(&set.metadata.annotations);
        annotations.insert(annotations::EXT_REFUSED.to_owned(), refused);
        let recorded = set.metadata.annotations.iter().flatten();
        annotations.extend(recorded.filter(|(key, _)| *key == annotations::EXT_ADOPT).map(cloned));
        for content in content.iter_mut().flat_map(|phase| &mut phase.objects) {
            content.collision_protection = CollisionProtection::Prevent;
        }
        Self { extension, annotations, phases: content, warning: None }
    }

    /// Phases with all objects inline, for checks before any write.
    pub fn phases(&self) -> &[ContentPhase] {
        &self.phases
    }

    /// Creates the revision with this number, its content packed into Secrets of `system_namespace`.
    pub fn number(&self, number: i64, system_namespace: &str) -> Result<NumberedRevision, GenerateError> {
        let name = names::revision_name(&self.extension.name, number);
        if name.len() > MAX_LABEL_VALUE {
            return Err(GenerateError(format!(
                "name of the ClusterExtension is too long: its revision \"{name}\" has {} characters, \
                 at most {MAX_LABEL_VALUE} are allowed",
                name.len()
            )));
        }
        let (phases, secrets) = pack(&name, &self.extension.name, system_namespace, &self.phases)
            .map_err(|problem| GenerateError(format!("packing objects into Secrets: {problem}")))?;
        Ok(NumberedRevision { set: self.set(&name, number, phases), secrets })
    }

    fn set(&self, name: &str, number: i64, phases: Vec<SpecPhase>) -> ClusterObjectSet {
        let mut set = ClusterObjectSet::new(
            name,
            ClusterObjectSetSpec {
                lifecycle_state: LifecycleState::Active,
                revision: number,
                collision_protection: CollisionProtection::Prevent,
                phases,
                progress_deadline_minutes: self.extension.progress_deadline_minutes.filter(|m| *m > 0),
                progression_probes: self.probes(),
            },
        );
        set.metadata = ObjectMeta {
            labels: Some(owner_labels(&self.extension.name)),
            annotations: Some(self.annotations.clone()),
            owner_references: Some(vec![extension_owner(&self.extension.name, &self.extension.uid)]),
            ..set.metadata
        };
        set
    }

    fn probes(&self) -> Vec<ProgressionProbe> {
        let mut probes = default_probes();
        // Only where it is needed: all other revisions have the probes of the reference.
        if content::objects(&self.phases).any(is_aggregated) {
            probes.push(api_service_probe());
        }
        probes
    }

    /// Copy of `current` with all mutable members of the draft, as body of a forced server-side apply by
    /// [`names::EXTENSION_CONTROLLER_MANAGER`]. `None` if nothing differs. Content is not compared.
    fn patched(&self, current: &ClusterObjectSet) -> Option<ClusterObjectSet> {
        let spec = current.spec.as_ref()?;
        let mut wanted = self.set(
            current.metadata.name.as_deref().unwrap_or_default(),
            spec.revision,
            spec.phases.clone(),
        );
        let wanted_spec = wanted.spec.as_mut()?;
        wanted_spec.collision_protection = spec.collision_protection.clone();
        let retained = current.metadata.annotations.iter().flatten();
        let retained = retained.filter(|(key, _)| RETAINED_ANNOTATIONS.contains(&key.as_str()));
        wanted.metadata.annotations.get_or_insert_default().extend(retained.map(cloned));
        let owner = extension_owner(&self.extension.name, &self.extension.uid);
        let has_labels = owner_labels(&self.extension.name)
            .iter()
            .all(|(key, value)| current.metadata.labels.as_ref().and_then(|map| map.get(key)) == Some(value));
        let is_same = generated(&current.metadata.annotations) == self.annotations
            && has_labels
            && current.metadata.owner_references.iter().flatten().any(|reference| *reference == owner)
            && spec == wanted_spec;
        (!is_same).then_some(wanted)
    }
}

/// Annotations that a draft sets.
const REVISION_ANNOTATIONS: [&str; 12] = [
    annotations::BUNDLE_NAME,
    annotations::PACKAGE_NAME,
    annotations::BUNDLE_VERSION,
    annotations::BUNDLE_REFERENCE,
    annotations::BUNDLE_RELEASE,
    annotations::PROPERTIES,
    annotations::EXT_MAX_OPENSHIFT_VERSION,
    annotations::EXT_CATALOG_PROPERTIES,
    annotations::EXT_SERVICE_ACCOUNT,
    annotations::EXT_TARGET_NAMESPACES,
    annotations::EXT_UNINSTALL_POLICY,
    annotations::EXT_REPLACE_IMMUTABLE,
];

/// Annotations that describe how a revision was created. They never change.
const RETAINED_ANNOTATIONS: [&str; 2] = [annotations::EXT_REFUSED, annotations::EXT_ADOPT];

/// Namespaces that the extension selected by label when the revision was created. `None` without a selector.
pub fn selected_namespaces(set: &ClusterObjectSet) -> Option<Vec<String>> {
    let list = set.annotation(annotations::EXT_TARGET_NAMESPACES)?;
    Some(list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Annotations that a draft sets, as a revision has them.
fn generated(all: &Option<BTreeMap<String, String>>) -> BTreeMap<String, String> {
    all.iter().flatten().filter(|(key, _)| REVISION_ANNOTATIONS.contains(&key.as_str())).map(cloned).collect()
}

fn cloned((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

fn revision_annotations(bundle: &BundleIdentity) -> (BTreeMap<String, String>, Option<String>) {
    let identity = [
        (annotations::BUNDLE_NAME, Some(&bundle.name)),
        (annotations::PACKAGE_NAME, Some(&bundle.package)),
        (annotations::BUNDLE_VERSION, Some(&bundle.version)),
        (annotations::BUNDLE_REFERENCE, Some(&bundle.image)),
        (annotations::BUNDLE_RELEASE, bundle.release.as_ref()),
    ];
    let present = identity.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.clone())));
    let mut map: BTreeMap<String, String> = present.collect();
    let mut left_out = Vec::new();
    // In this order: annotations of the reference have priority on the space.
    for (key, value) in [
        (annotations::PROPERTIES, &bundle.properties),
        (annotations::EXT_MAX_OPENSHIFT_VERSION, &bundle.max_openshift_version),
        (annotations::EXT_CATALOG_PROPERTIES, &bundle.catalog_properties),
    ] {
        let Some(value) = value else { continue };
        let size = |value: &str| size_with(&map, key, value);
        if size(value) <= MAX_ANNOTATION_BYTES {
            map.insert(key.to_owned(), value.clone());
            continue;
        }
        let short = Some(value).filter(|_| key == annotations::PROPERTIES).and_then(|value| essential(value));
        let short = short.filter(|short| size(short) <= MAX_ANNOTATION_BYTES);
        left_out.push(format!(
            "annotation {key} of bundle \"{}\" is {}: annotations would have {} bytes, \
             at most {MAX_ANNOTATION_BYTES} are allowed",
            bundle.name,
            if short.is_some() { "shortened" } else { "left out" },
            size(value)
        ));
        map.extend(short.map(|short| (key.to_owned(), short)));
    }
    (map, (!left_out.is_empty()).then(|| left_out.join("; ")))
}

/// Properties with the supported platform versions and the package of the bundle
/// (docs/design/operations.md#properties-annotation). Without them, a cluster update would not be blocked. `None` if
/// there are none.
fn essential(properties: &str) -> Option<String> {
    const TYPES: [&str; 3] =
        ["olm.maxOpenShiftVersion", "ext.olm.operatorframework.io/maxKubernetesVersion", "olm.package"];
    let all: Vec<&RawValue> = serde_json::from_str(properties).ok()?;
    let is_essential = |one: &&RawValue| {
        let one: Value = serde_json::from_str(one.get()).unwrap_or_default();
        one["type"].as_str().is_some_and(|kind| TYPES.contains(&kind))
    };
    let kept: Vec<&str> = all.into_iter().filter(is_essential).map(RawValue::get).collect();
    (!kept.is_empty()).then(|| format!("[{}]", kept.join(",")))
}

fn owner_labels(extension: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (labels::OWNER_KIND.to_owned(), labels::OWNER_KIND_EXTENSION.to_owned()),
        (labels::OWNER_NAME.to_owned(), extension.to_owned()),
    ])
}

/// Owner reference to the extension with this name and UID, for its revisions.
pub fn extension_owner(name: &str, uid: &str) -> OwnerReference {
    controller_reference(labels::OWNER_KIND_EXTENSION, name, uid)
}

/// Owner reference to an existing revision, for its Secrets. `None` while it has no UID.
pub fn secret_owner(set: &ClusterObjectSet) -> Option<OwnerReference> {
    let (name, uid) = (set.metadata.name.as_deref()?, set.metadata.uid.as_deref()?);
    Some(controller_reference("ClusterObjectSet", name, uid))
}

pub(crate) fn controller_reference(kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: format!("{}/{}", names::GROUP, names::VERSION),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Change that the extension's newest revision needs (docs/design/apply.md#keep-patch-or-create).
#[derive(Clone, Debug, PartialEq)]
pub enum RevisionDecision {
    /// No change: the newest revision is the desired one.
    Keep,
    /// Forced server-side apply of this ClusterObjectSet: metadata, deadline or probes differ.
    Patch(Box<ClusterObjectSet>),
    /// New revision with this number.
    New {
        /// Number of the revision.
        number: i64,
    },
}

/// Compares the draft with the existing revisions of its extension, in any order. `content` is the resolved content
/// of the newest. It is `None` if the content cannot be resolved. Then the refs decide whether it is the desired one:
/// if they are ours, [`Draft::number`] recreates the lost Secrets under their old names
/// (docs/design/apply.md#repair-of-content-secrets).
pub fn decide(
    draft: &Draft,
    existing: &[ClusterObjectSet],
    content: Option<&[ContentPhase]>,
    system_namespace: &str,
) -> Result<RevisionDecision, GenerateError> {
    let Some((current, spec)) = newest(existing).and_then(|set| Some((set, set.spec.as_ref()?))) else {
        return Ok(RevisionDecision::New { number: 1 });
    };
    let next = RevisionDecision::New { number: spec.revision + 1 };
    // A revision that is being deleted hands its objects over to the next one.
    if current.metadata.deletion_timestamp.is_some()
        || spec.lifecycle_state != LifecycleState::Active
        || spec.collision_protection != CollisionProtection::Prevent
    {
        return Ok(next);
    }
    let is_same = match content {
        Some(content) => same_content(&draft.phases, content),
        None => {
            let same_refs = draft.number(spec.revision, system_namespace)?;
            same_refs.set.spec.is_some_and(|wanted| wanted.phases == unprotected(&spec.phases))
        }
    };
    if !is_same {
        return Ok(next);
    }
    Ok(draft.patched(current).map_or(RevisionDecision::Keep, |set| RevisionDecision::Patch(Box::new(set))))
}

/// Phases without the collision protection of their objects, which only the adoption of objects sets.
fn unprotected(phases: &[SpecPhase]) -> Vec<SpecPhase> {
    let mut phases = phases.to_vec();
    for object in phases.iter_mut().flat_map(|phase| &mut phase.objects) {
        object.collision_protection = None;
    }
    phases
}

/// Revision with the highest number.
pub fn newest<S: Borrow<ClusterObjectSet>>(revisions: &[S]) -> Option<&ClusterObjectSet> {
    revisions.iter().map(Borrow::borrow).max_by_key(|set| set.number())
}

/// Archived revisions to delete before a new one is created: all but the newest five of `existing`
/// (docs/design/apply.md#numbering-and-history). Active ones are retained.
pub fn outdated(existing: &[ClusterObjectSet]) -> Vec<&ClusterObjectSet> {
    let mut sorted: Vec<&ClusterObjectSet> = existing.iter().collect();
    sorted.sort_by_key(|set| set.number());
    let surplus = sorted.len().saturating_sub(ARCHIVED_REVISIONS_KEPT);
    sorted.into_iter().take(surplus).filter(|set| set.is_archived()).collect()
}

/// Revision 1 of an extension migrated from a Helm release. It adopts all existing objects
/// (docs/design/apply.md#migration-to-revision-1). Its content is inline as in the reference, or in Secrets if it
/// exceeds the size of one API object.
pub fn migrated(
    extension: Extension,
    bundle: &BundleIdentity,
    objects: Vec<Value>,
    system_namespace: &str,
) -> Result<NumberedRevision, GenerateError> {
    let draft = Draft::with_release(extension, bundle, objects, bundle.release.as_deref())?;
    let objects = draft.phases.iter().flat_map(|phase| &phase.objects);
    let size: usize = objects.map(|content| content.object.to_string().len()).sum();
    let mut revision = if size > MAX_INLINE_BYTES {
        draft.number(1, system_namespace)?
    } else {
        let name = names::revision_name(&draft.extension.name, 1);
        let phases = draft.phases.iter().map(inline).collect();
        NumberedRevision { set: draft.set(&name, 1, phases), secrets: Vec::new() }
    };
    if let Some(spec) = &mut revision.set.spec {
        spec.collision_protection = CollisionProtection::None;
    }
    let migrated = (labels::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
    revision.set.metadata.labels.get_or_insert_default().extend([migrated]);
    Ok(revision)
}

fn inline(phase: &ContentPhase) -> SpecPhase {
    let object = |content: &ContentObject| PhaseObject {
        object: content.object.as_object().cloned(),
        ..PhaseObject::default()
    };
    SpecPhase {
        name: phase.name.clone(),
        objects: phase.objects.iter().map(object).collect(),
        collision_protection: None,
    }
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
