//! Reads the platform: the served APIs and OpenShift's objects (docs/design/operations.md#platform-detection).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use olm_api::names;
use olm_platform::{Facts, MinorVersion, cluster_version};
use olm_runtime::cluster::{present, within_deadline};

use super::flags::PlatformSettings;
use super::triggers::WatchedObject;

const CONFIG: &str = "config.openshift.io";
const OPERATOR: &str = "operator.openshift.io";
/// Name of OpenShift's only ClusterVersion.
const CLUSTER_VERSION: &str = "version";
/// Name of OpenShift's other singletons.
const SINGLETON: &str = "cluster";

/// CRDs whose creation or deletion changes the outlet.
pub(crate) const CRDS: [&str; 5] = [
    "clusteroperators.config.openshift.io",
    "clusterupgradestatuses.ext.olm.operatorframework.io",
    "clusterversions.config.openshift.io",
    "featuregates.config.openshift.io",
    "olms.operator.openshift.io",
];

/// Resource of ClusterOperators.
pub(crate) fn cluster_operators() -> ApiResource {
    resource(CONFIG, "ClusterOperator", "clusteroperators")
}

/// Resource of OLM objects.
pub(crate) fn olms() -> ApiResource {
    resource(OPERATOR, "OLM", "olms")
}

fn cluster_versions() -> ApiResource {
    resource(CONFIG, "ClusterVersion", "clusterversions")
}

fn feature_gates() -> ApiResource {
    resource(CONFIG, "FeatureGate", "featuregates")
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
}

/// Names `<plural>.<group>` of the served APIs, of the groups that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServedApis(BTreeSet<String>);

impl ServedApis {
    /// Reads discovery.
    ///
    /// # Errors
    /// The API server does not answer.
    async fn read(client: &Client) -> Result<Self, kube::Error> {
        let mut served = BTreeSet::new();
        for (group, version) in [(CONFIG, "v1"), (OPERATOR, "v1"), (names::EXT_GROUP, names::EXT_VERSION)] {
            let group_version = format!("{group}/{version}");
            let list = present(within_deadline(client.list_api_group_resources(&group_version)).await)?;
            let resources = list.into_iter().flat_map(|list| list.resources);
            served.extend(resources.map(|resource| format!("{}.{group}", resource.name)));
        }
        Ok(Self(served))
    }

    /// Returns `true` if the API server serves the resource.
    pub(crate) fn has(&self, resource: &ApiResource) -> bool {
        self.0.contains(&format!("{}.{}", resource.plural, resource.group))
    }

    /// Returns the objects to watch.
    pub(crate) fn targets(&self, cluster_operator: &str) -> Vec<WatchedObject> {
        let all = [
            (cluster_versions(), CLUSTER_VERSION),
            (cluster_operators(), cluster_operator),
            (feature_gates(), SINGLETON),
            (olms(), SINGLETON),
            (upgrade_statuses(), names::CLUSTER_UPGRADE_STATUS_NAME),
        ];
        let served = all.into_iter().filter(|(resource, _)| self.has(resource));
        served.map(|(resource, name)| WatchedObject { resource, name: name.to_owned() }).collect()
    }
}

/// Resource of ClusterUpgradeStatuses.
pub(crate) fn upgrade_statuses() -> ApiResource {
    ApiResource::erase::<olm_api::ClusterUpgradeStatus>(&())
}

/// Reads an object that may not exist.
async fn get(
    client: &Client,
    resource: &ApiResource,
    name: &str,
) -> Result<Option<DynamicObject>, kube::Error> {
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    present(within_deadline(api.get(name)).await)
}

/// Observed state of the platform.
pub(crate) struct ObservedPlatform {
    /// Inputs of the verdict.
    pub facts: Facts,
    /// Served APIs.
    pub served: ServedApis,
    /// OpenShift's ClusterVersion.
    pub cluster_version: Option<DynamicObject>,
}

/// Reads the inputs of the verdict.
///
/// # Errors
/// The API server does not answer.
pub(crate) async fn observe(
    client: &Client,
    settings: &PlatformSettings,
) -> Result<ObservedPlatform, kube::Error> {
    let served = ServedApis::read(client).await?;
    let has_versions = served.has(&cluster_versions());
    let object = match has_versions {
        true => get_if_allowed(client, &cluster_versions(), CLUSTER_VERSION).await?,
        false => None,
    };
    let server = within_deadline(client.apiserver_version()).await?;
    let facts = Facts {
        named: settings.platform.clone(),
        openshift_apis: has_versions && served.has(&cluster_operators()),
        flag: settings.version,
        cluster_version: object.as_ref().and_then(|object| cluster_version(&object.data)),
        environment: settings.environment,
        kubernetes: server.git_version.parse::<MinorVersion>().ok(),
        openshift_map: settings.openshift_map,
    };
    Ok(ObservedPlatform { facts, served, cluster_version: object })
}

/// Same as [`get`], but maps 403 to `None` as well: for objects whose absence never lets an update pass.
async fn get_if_allowed(
    client: &Client,
    resource: &ApiResource,
    name: &str,
) -> Result<Option<DynamicObject>, kube::Error> {
    match get(client, resource, name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            tracing::warn!(error = status.message, "not permitted to read the platform's object");
            Ok(None)
        }
        answer => answer,
    }
}

/// Reads OpenShift's OLM object and its feature gates, if they exist.
pub(crate) async fn olm_and_gates(
    client: &Client,
    served: &ServedApis,
) -> Result<(Option<DynamicObject>, Option<DynamicObject>), kube::Error> {
    if !served.has(&olms()) {
        return Ok((None, None));
    }
    let olm = get(client, &olms(), SINGLETON).await?;
    let gates = match served.has(&feature_gates()) && olm.is_some() {
        true => get_if_allowed(client, &feature_gates(), SINGLETON).await?,
        false => None,
    };
    Ok((olm, gates))
}

/// Returns a reference to an object, for Events.
pub(crate) fn reference(resource: &ApiResource, object: &DynamicObject) -> ObjectReference {
    ObjectReference {
        api_version: Some(resource.api_version.clone()),
        kind: Some(resource.kind.clone()),
        name: Some(object.name_any()),
        uid: object.uid(),
        ..ObjectReference::default()
    }
}
