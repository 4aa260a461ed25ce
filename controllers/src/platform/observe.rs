//! Reads the platform: the served APIs and OpenShift's objects (docs/design/operations.md#platform-detection).

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use olm_api::{cluster_upgrade_status, names};
use olm_platform::{Facts, MinorVersion, cluster_version};
use olm_runtime::cluster::within_deadline;

use super::flags::Settings;
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

/// Served APIs among those that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServedApis {
    pub cluster_versions: bool,
    pub cluster_operators: bool,
    pub feature_gates: bool,
    pub olms: bool,
    pub upgrade_statuses: bool,
}

impl ServedApis {
    /// Reads discovery.
    ///
    /// # Errors
    /// The API server does not answer.
    async fn read(client: &Client) -> Result<Self, kube::Error> {
        let config = plurals(client, &format!("{CONFIG}/v1")).await?;
        let operator = plurals(client, &format!("{OPERATOR}/v1")).await?;
        let ext = plurals(client, &format!("{}/{}", names::EXT_GROUP, names::EXT_VERSION)).await?;
        let has = |plurals: &[String], plural: &str| plurals.iter().any(|one| one == plural);
        Ok(Self {
            cluster_versions: has(&config, "clusterversions"),
            cluster_operators: has(&config, "clusteroperators"),
            feature_gates: has(&config, "featuregates"),
            olms: has(&operator, "olms"),
            upgrade_statuses: has(&ext, cluster_upgrade_status::PLURAL),
        })
    }

    /// Returns the objects to watch.
    pub(crate) fn targets(self, cluster_operator: &str) -> Vec<WatchedObject> {
        let status = resource_of_upgrade_status();
        let all = [
            (self.cluster_versions, cluster_versions(), CLUSTER_VERSION),
            (self.cluster_operators, cluster_operators(), cluster_operator),
            (self.feature_gates, feature_gates(), SINGLETON),
            (self.olms, olms(), SINGLETON),
            (self.upgrade_statuses, status, names::CLUSTER_UPGRADE_STATUS_NAME),
        ];
        let served = all.into_iter().filter(|(served, ..)| *served);
        served.map(|(_, resource, name)| WatchedObject { resource, name: name.to_owned() }).collect()
    }
}

fn resource_of_upgrade_status() -> ApiResource {
    ApiResource::erase::<olm_api::ClusterUpgradeStatus>(&())
}

/// Returns the plurals of a group's kinds, empty if the group is not served.
async fn plurals(client: &Client, group_version: &str) -> Result<Vec<String>, kube::Error> {
    let list = present(within_deadline(client.list_api_group_resources(group_version)).await)?;
    Ok(list.map(|list| list.resources.into_iter().map(|one| one.name).collect()).unwrap_or_default())
}

/// Maps 404 to `None`. A 403 remains an error: the object may exist.
fn present<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => answer.map(Some),
    }
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
pub(crate) struct Observed {
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
pub(crate) async fn observe(client: &Client, settings: &Settings) -> Result<Observed, kube::Error> {
    let served = ServedApis::read(client).await?;
    let object = match served.cluster_versions {
        true => get_if_allowed(client, &cluster_versions(), CLUSTER_VERSION).await?,
        false => None,
    };
    let server = within_deadline(client.apiserver_version()).await?;
    let facts = Facts {
        named: settings.platform.clone(),
        openshift_apis: served.cluster_versions && served.cluster_operators,
        flag: settings.version,
        cluster_version: object.as_ref().and_then(|object| cluster_version(&object.data)),
        environment: settings.environment,
        kubernetes: server.git_version.parse::<MinorVersion>().ok(),
        openshift_map: settings.openshift_map,
    };
    Ok(Observed { facts, served, cluster_version: object })
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
    served: ServedApis,
) -> Result<(Option<DynamicObject>, Option<DynamicObject>), kube::Error> {
    if !served.olms {
        return Ok((None, None));
    }
    let olm = get(client, &olms(), SINGLETON).await?;
    let gates = match served.feature_gates && olm.is_some() {
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

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    /// A forbidden object may exist: an OpenShift without rights for us is not plain Kubernetes.
    #[test]
    fn only_not_found_counts_as_absent() {
        let refused = |reason: &str, code| -> Result<(), kube::Error> {
            Err(kube::Error::Api(Box::new(Status::failure("m", reason).with_code(code))))
        };
        assert!(present(Ok(())).unwrap().is_some());
        assert!(present(refused("NotFound", 404)).unwrap().is_none());
        for (reason, code) in [("Forbidden", 403), ("Unauthorized", 401), ("ServiceUnavailable", 503)] {
            assert!(present(refused(reason, code)).is_err(), "{reason}");
        }
    }
}
