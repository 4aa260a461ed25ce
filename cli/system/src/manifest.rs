//! Install files: those in the program, or of a release. Pure, except for [`read`].

use std::collections::BTreeSet;
use std::path::Path;

use olm_cli_core::error::CliError;
use olm_cli_core::object_access::ObjectId;
use olm_cli_core::session::Session;
use olm_cli_lifecycle::hardened::AGGREGATION_LABEL;
use olm_cli_lifecycle::install_files::Variant;
use olm_version::Version;
use serde_json::Value;

use super::record::Record;
use crate::doctor::server_version;

/// Largest install file.
const MAX_FILE: u64 = 16 << 20;
/// Namespace in the install files.
const NAMESPACE: &str = "olmv1-system";
/// Registry in the install files of a checkout, which `hack/release` replaces.
const UNRELEASED: &str = "olm.example/";

/// Install file.
#[derive(Debug, Clone, Default)]
pub(super) struct Manifest {
    /// Version, such as `v0.1.0`. Empty if unknown.
    pub(super) version: String,
    /// Name of the variant. Empty for another file.
    pub(super) variant: String,
    /// Objects in the order in which they are applied.
    pub(super) objects: Vec<Value>,
}

/// Install file of the program for a namespace.
///
/// # Errors
/// The program was built with an invalid file.
pub(super) fn embedded(variant: Variant, namespace: &str) -> Result<Manifest, CliError> {
    Manifest::parse(&variant.text()?, variant.name(), namespace, &variant.origin())
}

/// Install file at `path`, or that of the variant in the folder `path`.
///
/// # Errors
/// The file cannot be read, is too large, or is not an install file.
pub(super) async fn read(
    path: &Path,
    variant: Variant,
    namespace: &str,
    session: &Session,
) -> Result<Manifest, CliError> {
    let file = if path.is_dir() { path.join(format!("{}.yaml", variant.name())) } else { path.to_owned() };
    let text = olm_cli_core::manifest::text(&file.to_string_lossy(), MAX_FILE, session).await?;
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = Variant::by_name(stem).map_or("", Variant::name);
    Manifest::parse(&text, name, namespace, &file.display().to_string())
}

impl Manifest {
    pub(super) fn parse(text: &str, variant: &str, namespace: &str, path: &str) -> Result<Self, CliError> {
        let replaced = text.replace(NAMESPACE, namespace);
        let objects = olm_yaml::all_from_slice(replaced.as_bytes());
        let mut objects = objects.map_err(|error| CliError::at(path, error))?;
        let is_object = |object: &Value| {
            let ObjectId { api_version, kind, name, .. } = ObjectId::of(object);
            [api_version, kind, name].iter().all(|part| !part.is_empty())
        };
        let has_servers = objects.iter().filter(|object| object["kind"] == "Deployment").count() == 2;
        if !has_servers || !objects.iter().all(is_object) {
            let why = "not an install file of OLM: expected Kubernetes objects with the Deployments of both servers";
            return Err(CliError::at(path, why));
        }
        objects.sort_by_key(order);
        Ok(Self { version: version(&objects), variant: variant.to_owned(), objects })
    }

    /// Adds a record to the objects, directly after the Namespace.
    ///
    /// # Errors
    /// The record cannot be encoded.
    pub(super) fn add(&mut self, record: &Record, namespace: &str) -> Result<(), CliError> {
        let position = self.of_kind("Namespace").count();
        self.objects.insert(position, record.to_object(namespace)?);
        Ok(())
    }

    /// Adds RoleBindings, before roles that take wider rights away.
    pub(super) fn grant(&mut self, bindings: Vec<Value>) {
        self.objects.extend(bindings);
        self.objects.sort_by_key(order);
    }

    /// Reports whether no registry has the images.
    pub(super) fn is_unreleased(&self) -> bool {
        images(&self.objects).iter().any(|image| image.starts_with(UNRELEASED))
    }

    /// Objects of a kind.
    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Identities of all objects.
    pub(super) fn ids(&self) -> Vec<ObjectId> {
        self.objects.iter().map(ObjectId::of).collect()
    }
}

/// Position of a kind in the order of application: what others refer to comes first, webhooks come last.
pub(super) fn rank(kind: &str) -> u8 {
    match kind {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        "ServiceAccount" => 2,
        "ClusterRole" | "Role" => 3,
        "ClusterRoleBinding" | "RoleBinding" => 4,
        "Deployment" => 6,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => 7,
        _ => 5,
    }
}

/// Position of an object. RBAC that may take rights of an earlier installation away follows the other RBAC.
pub(super) fn order(object: &Value) -> u8 {
    let narrows = object["metadata"]["labels"].get(AGGREGATION_LABEL).is_some()
        || object["subjects"].as_array().is_some_and(Vec::is_empty);
    if narrows { rank("") } else { rank(object["kind"].as_str().unwrap_or_default()) }
}

/// Newest version of the Deployments, which differ after an interrupted upgrade. Empty if none has a version.
pub(super) fn version(objects: &[Value]) -> String {
    let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
    let versions = deployments.filter_map(server_version);
    let versions = versions.filter_map(|text| Some((Version::parse_tolerant(text).ok()?, text)));
    versions.max().map(|(_, text)| text.to_owned()).unwrap_or_default()
}

/// Images of all Deployments, each once.
pub(super) fn images(objects: &[Value]) -> Vec<String> {
    let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
    let containers = deployments.filter_map(|one| one.pointer("/spec/template/spec/containers")?.as_array());
    let images = containers.flatten().filter_map(|container| container["image"].as_str());
    let images: BTreeSet<&str> = images.collect();
    images.into_iter().map(str::to_owned).collect()
}

/// Objects of an earlier record that the install file does not have. CRDs and Namespaces stay, because their deletion
/// deletes other objects with them.
pub(super) fn dropped(before: &[ObjectId], after: &[ObjectId]) -> Vec<ObjectId> {
    let is_kept = |id: &&ObjectId| rank(&id.kind) < 2 || after.iter().any(|other| is_same(id, other));
    let mut dropped: Vec<ObjectId> = before.iter().filter(|id| !is_kept(id)).cloned().collect();
    dropped.sort_by_key(|id| std::cmp::Reverse(rank(&id.kind)));
    dropped
}

/// Reports whether two identities are the same object. The API version may differ, its group may not.
pub(super) fn is_same(one: &ObjectId, other: &ObjectId) -> bool {
    let group = |id: &ObjectId| id.api_version.split_once('/').map(|(group, _)| group.to_owned());
    (group(one), &one.kind, &one.namespace, &one.name)
        == (group(other), &other.kind, &other.namespace, &other.name)
}
