//! Installed extensions of a cluster, and the kinds that it serves (docs/design/additions.md#dependency-modes).

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::api::Api;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_request::{CrdFields, ServedApis};
use olm_resolve::Gvk;
use olm_runtime::cluster::list_all;
use olm_version::quote;

use super::cluster::ClusterConnection;
use super::kinds::{PAGE, of_extensions};
use crate::error::CliError;
use crate::session::Session;

impl ClusterConnection {
    /// The ClusterExtension `name`.
    ///
    /// # Errors
    /// It does not exist, or the API server does not return it.
    pub async fn extension(&self, name: &str, session: &Session) -> Result<ClusterExtension, CliError> {
        let found = self.find_extension(name, session).await?;
        found.ok_or_else(|| CliError::no_candidate(format!("there is no ClusterExtension {}", quote(name))))
    }

    /// The ClusterExtension `name`, or `None` if it does not exist.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn find_extension(
        &self,
        name: &str,
        session: &Session,
    ) -> Result<Option<ClusterExtension>, CliError> {
        let api: Api<ClusterExtension> = Api::all(self.client().clone());
        self.call(&format!("ClusterExtension {}", quote(name)), api.get_opt(name), session).await
    }

    /// All ClusterExtensions, by name.
    ///
    /// # Errors
    /// The API server does not return them.
    pub async fn extensions(&self, session: &Session) -> Result<Vec<ClusterExtension>, CliError> {
        let _step = session.progress.step("listing the cluster's extensions");
        self.list(session).await
    }

    /// All revisions, by name.
    ///
    /// # Errors
    /// The API server does not return them.
    pub async fn object_sets(&self, session: &Session) -> Result<Vec<ClusterObjectSet>, CliError> {
        let _step = session.progress.step("listing revisions");
        self.list(session).await
    }

    /// Kinds that the API server serves, and those of them that extensions define.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn kinds(&self, session: &Session) -> Result<ServedApis, CliError> {
        let _step = session.progress.step("discovering the kinds that the cluster serves");
        let what = "the kinds that the cluster serves";
        let client = self.client();
        let core = self.call(what, client.list_core_api_versions_aggregated(), session).await?;
        let groups = self.call(what, client.list_api_groups_aggregated(), session).await?;
        let version = self.call("the version of the cluster", client.apiserver_version(), session).await?;
        let gvks = [core, groups].into_iter().flat_map(kinds).collect();
        Ok(ServedApis { gvks, owned: self.owned(session).await?, kubernetes: version.git_version })
    }

    /// Names of the CRDs of the extension `name`.
    ///
    /// # Errors
    /// The API server does not return them.
    pub async fn crds_of(&self, name: &str, session: &Session) -> Result<Vec<String>, CliError> {
        let what = format!("CRDs of {}", quote(name));
        let (api, page) = (self.crds::<CrdFields>(), of_extensions(Some(name)));
        let found = self.call(&what, api.list_metadata(&page), session).await?;
        Ok(found.into_iter().map(|crd| crd.name_any()).collect())
    }

    /// Kinds that extensions define, by name of the extension.
    async fn owned(&self, session: &Session) -> Result<BTreeMap<String, BTreeSet<Gvk>>, CliError> {
        let api = &self.crds::<CrdFields>();
        let list = |page| async move {
            self.call("the kinds that extensions define", api.list(&page), session).await
        };
        let all = list_all(of_extensions(None).limit(PAGE), list).await?;
        Ok(olm_request::owned(all.iter().map(|crd| (&crd.metadata, &crd.spec))))
    }
}

fn kinds(list: APIGroupDiscoveryList) -> Vec<Gvk> {
    let mut kinds = Vec::new();
    for group in list.items {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for version in group.versions {
            let number = version.version.unwrap_or_default();
            let named = version.resources.into_iter().filter_map(|resource| resource.response_kind?.kind);
            kinds.extend(named.map(|kind| Gvk { group: name.clone(), version: number.clone(), kind }));
        }
    }
    kinds
}
