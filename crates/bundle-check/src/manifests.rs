//! Checks of CRDs and other objects, of their fields and API versions, and of the size of the bundle
//! (docs/design/cli.md#bundle-validation, docs/design/bundles.md#shipped-objects).
//!
//! The renderer checks kinds, unique names and owned CRDs. The install checks test that names fit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::str::FromStr;

use flate2::Compression;
use flate2::write::GzEncoder;
use olm_bundle::pointer::text;
use olm_bundle::{Loss, losses};
use olm_platform::removed_in;
use olm_version::{Version, quote};
use serde_json::Value;

use crate::content::{Content, Object};
use crate::report::{Findings, Location};
use crate::rule;

pub(crate) const CRD_API_VERSION: &str = "apiextensions.k8s.io/v1";

/// Maximum number of losses reported per object.
const LOSSES: usize = 200;

/// Reports two CRDs of the same group and kind.
pub(crate) fn unique_crds(content: &Content<'_>, findings: &mut Findings) {
    let mut names: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for crd in content.crds() {
        let (group, kind) = group_kind(crd);
        let other = *names.entry((group, kind)).or_insert_with(|| crd.name());
        if other != crd.name() {
            let message = format!("{kind} of group {} is already defined by {}", quote(group), quote(other));
            findings.add(&rule::CRD_3, crd.at("spec.names.kind"), message);
        }
    }
}

/// Reports shipped CRDs that the ClusterServiceVersion does not own.
pub(crate) fn unowned_crds(content: &Content<'_>, findings: &mut Findings) {
    let Some(csv) = content.csv() else { return };
    let owned = csv.list("/spec/customresourcedefinitions/owned").iter();
    let owned = owned.map(|api| (text(api, "/name"), text(api, "/kind")));
    let names: BTreeSet<&str> = owned.clone().map(|(name, _)| name).collect();
    let kinds: BTreeSet<(&str, &str)> = owned.map(|(name, kind)| (group_of(name), kind)).collect();
    for crd in content.crds() {
        // Other versions of an owned kind need no entry.
        if !names.contains(crd.name()) && !kinds.contains(&group_kind(crd)) {
            let message = "not in spec.customresourcedefinitions.owned of the ClusterServiceVersion: add it there, or remove the manifest";
            findings.add(&rule::CRD_4, crd.location(), message);
        }
    }
}

/// Group in the name of a CRD.
pub(crate) fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

fn group_kind(crd: &Object) -> (&str, &str) {
    (crd.text("/spec/group"), crd.text("/spec/names/kind"))
}

/// Version names of a CRD. CRDs of v1beta1 may have a single version outside of the list.
fn versions(crd: &Object) -> Vec<&str> {
    let listed = crd.list("/spec/versions").iter().map(|version| text(version, "/name"));
    listed.chain([crd.text("/spec/version")]).filter(|name| !name.is_empty()).collect()
}

/// Compares owned versions and kinds with the shipped CRD.
pub(crate) fn owned_crds(content: &Content<'_>, findings: &mut Findings) {
    let Some(csv) = content.csv() else { return };
    let by_name: BTreeMap<&str, &Object> = content.crds().map(|crd| (crd.name(), crd)).collect();
    for (location, api) in csv.items("spec.customresourcedefinitions.owned") {
        let (name, version, kind) = (text(api, "/name"), text(api, "/version"), text(api, "/kind"));
        if !name.contains('.') {
            let message =
                format!("{}: expected the name of a CustomResourceDefinition, <plural>.<group>", quote(name));
            findings.add(&rule::CRD_2, location.clone().at("name"), message);
        }
        let Some(crd) = by_name.get(name) else { continue };
        let versions = versions(crd);
        if !versions.contains(&version) {
            let message =
                format!("{name} has no version {}; it has: {}", quote(version), versions.join(", "));
            findings.add(&rule::CRD_2, location.clone().at("version"), message);
        }
        let defined = crd.text("/spec/names/kind");
        if kind != defined {
            let message = format!("{name} defines the kind {}, not {}", quote(defined), quote(kind));
            findings.add(&rule::CRD_2, location.at("kind"), message);
        }
    }
}

/// Checks requirements of the API server for every CRD.
pub(crate) fn crd_shape(content: &Content<'_>, findings: &mut Findings) {
    for crd in content.crds().filter(|crd| crd.api_version() == CRD_API_VERSION) {
        let scope = crd.text("/spec/scope");
        if !["Cluster", "Namespaced"].contains(&scope) {
            let message = format!("{}; allowed: Cluster and Namespaced", quote(scope));
            findings.add(&rule::CRD_5, crd.at("spec.scope"), message);
        }
        let versions = crd.list("/spec/versions").iter();
        let stored = versions.filter(|version| version.get("storage") == Some(&Value::Bool(true))).count();
        if stored != 1 {
            let message = format!("{stored} versions have storage: true, expected exactly one");
            findings.add(&rule::CRD_5, crd.at("spec.versions"), message);
        }
        for (location, version) in crd.items("spec.versions") {
            if !version.pointer("/schema/openAPIV3Schema").is_some_and(Value::is_object) {
                findings.add(&rule::CRD_5, location, "every version needs schema.openAPIV3Schema");
            }
        }
    }
}

/// Reports service accounts that deployments use: they are generated.
pub(crate) fn service_accounts(content: &Content<'_>, findings: &mut Findings) {
    let Some(csv) = content.csv() else { return };
    let deployments = csv.list("/spec/install/spec/deployments").iter();
    let accounts = deployments.map(|deployment| text(deployment, "/spec/template/spec/serviceAccountName"));
    let accounts: BTreeSet<&str> = accounts.filter(|account| !account.is_empty()).collect();
    for account in content.of_kind("ServiceAccount").filter(|account| accounts.contains(account.name())) {
        let message = format!(
            "a deployment of the ClusterServiceVersion uses service account {}, which is generated from its permissions: remove this \
             manifest or rename one of the two",
            quote(account.name())
        );
        findings.add(&rule::OBJ_2, account.at("metadata.name"), message);
    }
}

/// Reports objects whose namespace rendering does not set, and those whose namespace it replaces.
pub(crate) fn namespaces(content: &Content<'_>, findings: &mut Findings) {
    for object in &content.objects {
        let namespace = object.text("/metadata/namespace");
        match object.kind() {
            "VerticalPodAutoscaler" if namespace.is_empty() => {
                let message = "the namespace is not set for this kind: set the namespace of the operator";
                findings.add(&rule::OBJ_3, object.at("metadata"), message);
            }
            kind if is_placed(kind) && !namespace.is_empty() => {
                let message = format!(
                    "{} is replaced by the namespace of the installation: let the operator create objects of other \
                     namespaces, or omit the namespace",
                    quote(namespace)
                );
                findings.add(&rule::OBJ_4, object.at("metadata.namespace"), message);
            }
            _ => {}
        }
    }
}

/// Reports whether rendering sets the namespace of objects of this kind.
fn is_placed(kind: &str) -> bool {
    let is_cluster_scoped = ["Cluster", "Console"].iter().any(|prefix| kind.starts_with(prefix));
    let others = ["PriorityClass", "VerticalPodAutoscaler"];
    olm_bundle::is_supported_kind(kind) && !is_cluster_scoped && !others.contains(&kind)
}

/// Reports bindings to service accounts of the bundle in a fixed namespace.
pub(crate) fn subjects(content: &Content<'_>, findings: &mut Findings) {
    let csv = content.csv();
    let permissions = ["permissions", "clusterPermissions"].into_iter().flat_map(|list| {
        csv.into_iter().flat_map(move |csv| csv.list(&format!("/spec/install/spec/{list}")))
    });
    let generated = permissions.map(|permission| text(permission, "/serviceAccountName"));
    let accounts: BTreeSet<&str> =
        generated.chain(content.of_kind("ServiceAccount").map(Object::name)).collect();
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        for binding in content.of_kind(kind) {
            for (location, subject) in binding.items("subjects") {
                let (name, namespace) = (text(subject, "/name"), text(subject, "/namespace"));
                if text(subject, "/kind") == "ServiceAccount"
                    && !namespace.is_empty()
                    && accounts.contains(name)
                {
                    let message = format!(
                        "service account {} is installed into the namespace of the installation, which may not be {}: \
                         write its permissions into the ClusterServiceVersion instead",
                        quote(name),
                        quote(namespace)
                    );
                    findings.add(&rule::OBJ_5, location.at("namespace"), message);
                }
            }
        }
    }
}

/// Reports fields of the ClusterServiceVersion and of CRDs that are not installed as written
/// (docs/design/bundles.md#typed-conversion, docs/design/bundles.md#author-checks).
pub(crate) fn fields(content: &Content<'_>, findings: &mut Findings) {
    // CRDs of v1beta1 have other fields and are refused as a whole.
    let is_v1beta1 = |object: &&Object| {
        object.kind() == "CustomResourceDefinition" && object.api_version() != CRD_API_VERSION
    };
    for object in content.objects.iter().filter(|object| !is_v1beta1(object)) {
        for loss in losses(&object.value, LOSSES) {
            let (rule, path, message) = match loss {
                Loss::Unknown(path) if is_release(object, &path) => continue,
                Loss::Unknown(path) => (
                    &rule::FIELD_1,
                    path,
                    "unknown field, dropped when the bundle is installed: check its spelling and its indentation",
                ),
                Loss::Wrapped(path) => (
                    &rule::FIELD_2,
                    path,
                    "the number is too large for this field: allowed: -2147483648 to 2147483647",
                ),
            };
            let location = path.iter().fold(object.location(), |location, key| location.key(key));
            findings.add(rule, location, message);
        }
    }
}

/// Reports whether this is `spec.release`, which catalogs read although it is not installed.
fn is_release(object: &Object, path: &[String]) -> bool {
    object.kind() == "ClusterServiceVersion" && path.iter().eq(["spec", "release"])
}

/// Oldest Kubernetes version of a supported cluster.
const OLDEST: KubernetesMinor = KubernetesMinor { major: 1, minor: 30 };

/// Kubernetes minor version, such as 1.31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesMinor {
    major: u64,
    minor: u64,
}

impl FromStr for KubernetesMinor {
    type Err = String;

    /// Parses `1.31`, `v1.31` or a full version. The patch level is ignored.
    fn from_str(text: &str) -> Result<Self, String> {
        match Version::parse_tolerant(text) {
            Ok(version) if text.contains('.') => Ok(Self { major: version.major(), minor: version.minor() }),
            _ => Err(format!("{}: expected a Kubernetes version such as 1.31", quote(text))),
        }
    }
}

impl fmt::Display for KubernetesMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Kubernetes minor that removed an object's API, and the API that replaces it: version `v1` of the group for all kinds
/// that a bundle may contain. `None` if it is still served, for other kinds, and for CRDs, which the install checks of
/// rendering report.
pub(crate) fn removal(object: &Object) -> Option<(KubernetesMinor, String)> {
    let removed = removed_in(object.api_version(), object.kind())?;
    if !olm_bundle::is_supported_kind(object.kind()) {
        return None;
    }
    let successor = match object.api_version().split_once('/') {
        Some(("apiextensions.k8s.io", _)) | None => return None,
        Some(("extensions", _)) => "networking.k8s.io/v1".to_owned(),
        Some((group, _)) => format!("{group}/v1"),
    };
    Some((KubernetesMinor { major: removed.major, minor: removed.minor }, successor))
}

/// Reports API versions that Kubernetes has removed.
pub(crate) fn removed_apis(content: &Content<'_>, findings: &mut Findings) {
    let target = content.kubernetes.unwrap_or(OLDEST);
    for object in &content.objects {
        if let Some((removed, successor)) = removal(object)
            && target >= removed
        {
            let version = object.api_version();
            let message = format!("Kubernetes {removed} and later do not serve {version}: use {successor}");
            findings.add(&rule::KUBE_1, object.at("apiVersion"), message);
        }
    }
}

/// Compares `spec.minKubeVersion` with the target version.
pub(crate) fn target_kubernetes(content: &Content<'_>, findings: &mut Findings) {
    let (Some(csv), Some(target)) = (content.csv(), content.kubernetes) else { return };
    let Ok(needed) = csv.text("/spec/minKubeVersion").parse::<KubernetesMinor>() else { return };
    if needed > target {
        let message = format!("the operator needs Kubernetes {needed}, the bundle targets {target}");
        findings.add(&rule::KUBE_2, csv.at("spec.minKubeVersion"), message);
    }
}

/// Maximum size of a bundle in bytes.
const SIZE_LIMIT: usize = 1 << 20;
const SIZE_WARNING: usize = SIZE_LIMIT * 85 / 100;

/// Checks the size of the bundle as OLM v0 installers measure it: all files in one ConfigMap, each compressed and
/// base64-encoded.
pub(crate) fn size(content: &Content<'_>, findings: &mut Findings) {
    let is_read = |path: &str| path.starts_with("manifests/") || path.starts_with("metadata/");
    let known = content.files.iter().filter(|(path, _)| is_read(path));
    let mut sizes: Vec<(usize, &str)> = known.map(|(path, bytes)| (encoded(bytes), path.as_str())).collect();
    let total: usize = sizes.iter().map(|(size, _)| size).sum();
    if total <= SIZE_WARNING {
        return;
    }
    let rule = if total > SIZE_LIMIT { &rule::SIZE_2 } else { &rule::SIZE_1 };
    sizes.sort_by(|a, b| b.cmp(a));
    let largest = sizes.iter().take(3).map(|(size, path)| format!("{path} ({size})"));
    let largest = largest.collect::<Vec<_>>().join(", ");
    let message =
        format!("the files have {total} bytes compressed, the limit is {SIZE_LIMIT}; the largest: {largest}");
    findings.add(rule, Location::bundle(), message);
}

/// Size of `content` in bytes, compressed and base64-encoded.
fn encoded(content: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.map_or(content.len(), |bytes| bytes.len()).div_ceil(3) * 4
}
