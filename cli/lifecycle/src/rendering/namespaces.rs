//! Namespaces that a configuration selects by label (docs/design/namespaces.md#selector).

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_request::{NamespaceSelector, SelectedNamespaces};
use olm_revision::generate::{newest, selected_namespaces};

use super::RenderSettings;
use crate::status::observe;

impl RenderSettings {
    /// The same options, with the namespace of OLM, and those that the configuration selects. Without access to a cluster the
    /// selection remains open, which the renderer reports.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn with_namespaces(
        mut self,
        access: &Access,
        session: &Session,
    ) -> Result<Self, CliError> {
        access.cluster.namespace().clone_into(&mut self.system_namespace);
        if self.selector().is_none() {
            return Ok(self);
        }
        match access.cluster.connect().await {
            Ok(cluster) => self.with_namespaces_of(&cluster, session).await,
            Err(_) => Ok(self),
        }
    }

    /// The same options, with the namespaces of the cluster that the configuration selects. The list of the newest
    /// revision remains if operator-controller keeps it.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn with_namespaces_of(
        mut self,
        cluster: &ClusterConnection,
        session: &Session,
    ) -> Result<Self, CliError> {
        let Some(selector) = self.selector() else { return Ok(self) };
        let api: Api<Namespace> = Api::all(cluster.client().clone());
        let all = cluster.call("the namespaces", api.list_metadata(&ListParams::default()), session).await?;
        let mut found = SelectedNamespaces::default();
        for namespace in &all.items {
            let is_deleting = namespace.metadata.deletion_timestamp.is_some();
            found.add(&selector, &namespace.name_any(), namespace.labels(), is_deleting);
        }
        let revisions = match &self.extension {
            Some(extension) => observe::revisions(cluster, extension, session).await?,
            None => Vec::new(),
        };
        let current =
            newest(&revisions).and_then(selected_namespaces).filter(|current| !found.differ(current));
        self.namespaces = Some(current.unwrap_or_else(|| found.names()));
        Ok(self)
    }

    fn selector(&self) -> Option<NamespaceSelector> {
        NamespaceSelector::of_config(self.config.as_ref()?.as_object()?)
    }
}
