//! Reads what the checks before a change need.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use olm_cli_core::access_level::ANY;
use olm_cli_core::access_review::is_allowed;
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use olm_cli_core::progress::say;
use olm_cli_core::source::ImageArgs;
use olm_oci::{ImageLimits, Puller, Reference};
use olm_version::quote;
use serde_json::Value;
use tokio::time::timeout;

use super::manifest::{Manifest, images, version};
use super::record::{self, PART_OF, Record, deployments};

/// Longest wait for a registry.
const REGISTRY: Duration = Duration::from_secs(15);
const NAMESPACE: (&str, &str) = ("v1", "Namespace");

/// Installed servers.
#[derive(Debug, Clone, Default)]
pub(super) struct Installed {
    /// Existing Deployments of the servers.
    pub(super) deployments: Vec<Value>,
    /// Version. Empty if unknown.
    pub(super) version: String,
    /// Record, if `olm system` installed the servers.
    pub(super) record: Option<Record>,
}

/// State of a cluster before an installation.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    /// Version of the API server, such as `v1.36.0`.
    pub(super) kubernetes: String,
    pub(super) is_admin: bool,
    pub(super) installed: Installed,
    /// Namespace of the servers, if it exists.
    pub(super) namespace: Option<Value>,
    /// Deployments of servers in other namespaces.
    pub(super) others: Vec<String>,
    /// Existing CRDs of the install file.
    pub(super) crds: Vec<Value>,
    /// Kinds of the install file that the cluster does not serve.
    pub(super) unserved: Vec<String>,
    /// Images, each with the reason for which it cannot be read from here.
    pub(super) images: Vec<(String, Option<String>)>,
}

/// Reads the installed servers, their version and their record.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn installed(access: &ObjectAccess<'_>) -> Result<Installed, CliError> {
    let namespace = access.cluster().namespace();
    let mut installed = Installed::default();
    for id in deployments(namespace) {
        installed.deployments.extend(access.get(&id).await?);
    }
    installed.version = version(&installed.deployments);
    installed.record = access.get(&record::id(namespace)).await?.as_ref().and_then(Record::of);
    for id in installed.record.iter_mut().flat_map(Record::remove_invalid) {
        say(&format!("warning: ignored in {}: {}", record::id(namespace), quote(&id.to_string())));
    }
    Ok(installed)
}

/// Deployments of servers in other namespaces, as `NAMESPACE/NAME`.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn others(access: &ObjectAccess<'_>) -> Result<Vec<String>, CliError> {
    // Many users may create a Deployment of such a name, but few may label a namespace.
    let labels = format!("{}={}", PART_OF.0, PART_OF.1);
    let mut others = Vec::new();
    for namespace in access.list(NAMESPACE, "", Some(&labels)).await?.iter().map(ObjectId::of) {
        if namespace.name == access.cluster().namespace() {
            continue;
        }
        for id in deployments(&namespace.name) {
            others.extend(access.get(&id).await?.map(|_| format!("{}/{}", id.namespace, id.name)));
        }
    }
    Ok(others)
}

/// Failure for a namespace without servers.
pub(super) fn not_installed(namespace: &str) -> CliError {
    CliError::no_candidate(format!("OLM is not installed in namespace {namespace}; use -n for another one"))
}

/// Reports whether the user may do everything.
///
/// # Errors
/// The API server does not answer.
pub(super) async fn is_admin(access: &ObjectAccess<'_>) -> Result<bool, CliError> {
    let any = || Some(ANY.to_owned());
    let permission = ResourceAttributes { verb: any(), group: any(), resource: any(), ..Default::default() };
    let cluster = access.cluster();
    cluster.call("your permissions", is_allowed(cluster.client(), permission), access.session()).await
}

/// Reads everything but the permissions and the installed servers.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn observe(
    access: &ObjectAccess<'_>,
    manifest: &Manifest,
    registries: &ImageArgs,
) -> Result<Observed, CliError> {
    let (cluster, session) = (access.cluster(), access.session());
    let version = cluster.call("the server's version", cluster.client().apiserver_version(), session).await?;
    let mut observed = Observed { kubernetes: version.git_version, is_admin: true, ..Observed::default() };
    observed.namespace = access.get(&ObjectId::new(NAMESPACE, "", cluster.namespace())).await?;
    observed.others = others(access).await?;
    for crd in manifest.of_kind("CustomResourceDefinition") {
        observed.crds.extend(access.get(&ObjectId::of(crd)).await?);
    }
    let mut kinds: Vec<(String, String)> =
        manifest.ids().into_iter().map(|id| (id.api_version, id.kind)).collect();
    kinds.sort();
    kinds.dedup();
    for (api_version, kind) in kinds {
        if !access.serves(&api_version, &kind).await? {
            observed.unserved.push(format!("{kind} ({api_version})"));
        }
    }
    for image in images(&manifest.objects) {
        let unreachable = session.interruptible(unreachable(&image, registries)).await?;
        observed.images.push((image, unreachable));
    }
    Ok(observed)
}

/// Reason for which an image cannot be read from here, if any.
async fn unreachable(image: &str, registries: &ImageArgs) -> Option<String> {
    let reference: Reference = match image.parse() {
        Ok(reference) => reference,
        Err(error) => return Some(olm_api::text::with_causes(&error)),
    };
    let config = match registries.config(&reference, ImageLimits::BUNDLE) {
        Ok(config) => config,
        Err(error) => return Some(error.to_string()),
    };
    match timeout(REGISTRY, Puller::new(config).manifest(&reference)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no answer within {} s", REGISTRY.as_secs())),
    }
}
