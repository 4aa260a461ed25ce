//! Platform of a cluster, as far as a verdict on its next version needs it, and optional kinds that it serves.

use kube::Resource;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use olm_api::{ClusterUpgradeStatus, OperatorCondition, names, operator_condition};
use olm_oci::KubernetesVersion;
use olm_platform::{Facts, cluster_version};
use olm_runtime::cluster::present;
use olm_version::quote;

use super::ClusterConnection;
use crate::error::CliError;
use crate::session::Session;

const CONFIG: &str = "config.openshift.io/v1";
/// Plurals of the kinds that identify OpenShift.
const OPENSHIFT_KINDS: [&str; 2] = ["clusterversions", "clusteroperators"];

impl ClusterConnection {
    /// Platform facts of the cluster. Values that an administrator may set with flags are not filled in.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn platform(&self, session: &Session) -> Result<Facts, CliError> {
        let _step = session.progress.step("reading the platform version");
        let served = self.served_plurals(CONFIG, session).await?;
        let openshift_apis = OPENSHIFT_KINDS.iter().all(|plural| served.iter().any(|one| one == plural));
        let object = match openshift_apis {
            true => self.cluster_version(session).await?,
            false => None,
        };
        let server = self.call("the server's version", self.client().apiserver_version(), session).await?;
        Ok(Facts {
            openshift_apis,
            cluster_version: object.as_ref().and_then(|object| cluster_version(&object.data)),
            kubernetes: server.git_version.parse().ok(),
            ..Facts::default()
        })
    }

    /// Kubernetes version of the API server.
    ///
    /// # Errors
    /// The API server does not answer, or reports a version that cannot be parsed.
    pub async fn kubernetes_version(&self, session: &Session) -> Result<KubernetesVersion, CliError> {
        let server = self.call("the server's version", self.client().apiserver_version(), session).await?;
        KubernetesVersion::of_git_version(&server.git_version).map_err(|error| {
            let version = quote(&server.git_version);
            CliError::operational(format!("the server's version {version}: {error}; specify --kube"))
        })
    }

    /// Reports whether the API server serves OperatorConditions.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn serves_operator_conditions(&self, session: &Session) -> Result<bool, CliError> {
        let version = OperatorCondition::api_version(&());
        let served = self.served_plurals(&version, session).await?;
        Ok(served.iter().any(|plural| plural == operator_condition::PLURAL))
    }

    /// Plurals of the kinds that the API server serves in this version of an API group.
    async fn served_plurals(&self, version: &str, session: &Session) -> Result<Vec<String>, CliError> {
        let list = async { present(self.client().list_api_group_resources(version).await) };
        let list = self.call(version, list, session).await?;
        Ok(list.into_iter().flat_map(|list| list.resources).map(|resource| resource.name).collect())
    }

    async fn cluster_version(&self, session: &Session) -> Result<Option<DynamicObject>, CliError> {
        let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterVersion");
        let resource = ApiResource::from_gvk_with_plural(&kind, OPENSHIFT_KINDS[0]);
        let api: Api<DynamicObject> = Api::all_with(self.client().clone(), &resource);
        self.call("ClusterVersion \"version\"", api.get_opt("version"), session).await
    }

    /// ClusterUpgradeStatus `cluster`. `None` if it does not exist or the kind is not served.
    ///
    /// # Errors
    /// The API server does not return it.
    pub async fn upgrade_status(&self, session: &Session) -> Result<Option<ClusterUpgradeStatus>, CliError> {
        let api: Api<ClusterUpgradeStatus> = Api::all(self.client().clone());
        self.call(
            "ClusterUpgradeStatus \"cluster\"",
            api.get_opt(names::CLUSTER_UPGRADE_STATUS_NAME),
            session,
        )
        .await
    }
}
