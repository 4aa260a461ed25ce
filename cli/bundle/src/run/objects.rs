//! Objects of a run on the cluster: checks, writes, and the wait for the controllers.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use olm_api::annotations::EXT_CRD_CHECK;
use olm_api::labels::EXT_BUNDLE_RUN;
use olm_api::{ClusterCatalog, ClusterExtension, ObjectMeta};
use olm_cli_catalog::cluster_catalog;
use olm_cli_core::change::{self, Completion, Deadline, FIELD_MANAGER, WriteResult};
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_cli_lifecycle::hardened;
use olm_version::quote;
use serde_json::json;

use super::decide::{self, Leftover, Names, Settings};

/// Run of one package.
pub(super) struct Run {
    pub(super) cluster: ClusterConnection,
    pub(super) names: Names,
    pub(super) namespace: String,
    pub(super) timeout: Duration,
}

/// Published images, as the cluster names them, with digests.
pub(super) struct Published {
    pub(super) bundle: String,
    pub(super) catalog: String,
    /// Start of the digest of the catalog.
    pub(super) label_value: String,
}

/// Kind of an object whose metadata is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Extension,
    Catalog,
    Namespace,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Extension, Self::Catalog, Self::Namespace];

    fn as_str(self) -> &'static str {
        match self {
            Self::Extension => "ClusterExtension",
            Self::Catalog => "ClusterCatalog",
            Self::Namespace => "namespace",
        }
    }
}

impl Run {
    /// Kind and name of an object.
    pub(super) fn what(&self, kind: Kind) -> String {
        format!("{} {}", kind.as_str(), quote(self.name(kind)))
    }

    pub(super) fn name(&self, kind: Kind) -> &str {
        match kind {
            Kind::Extension => &self.names.package,
            Kind::Catalog => &self.names.catalog,
            Kind::Namespace => &self.namespace,
        }
    }

    pub(super) fn catalogs(&self) -> Api<ClusterCatalog> {
        Api::all(self.cluster.client().clone())
    }

    pub(super) fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.cluster.client().clone())
    }

    /// Metadata of an object, if it exists.
    pub(super) async fn metadata(
        &self,
        kind: Kind,
        session: &Session,
    ) -> Result<Option<ObjectMeta>, CliError> {
        let (name, what) = (self.name(kind), self.what(kind));
        let found = match kind {
            Kind::Extension => {
                self.cluster.find_extension(name, session).await?.map(|found| found.metadata.clone())
            }
            Kind::Catalog => {
                let found = self.cluster.call(&what, self.catalogs().get_opt(name), session).await?;
                found.map(|found| found.metadata)
            }
            Kind::Namespace => {
                let found = self.cluster.call(&what, self.namespaces().get_opt(name), session).await?;
                found.map(|found| found.metadata)
            }
        };
        Ok(found)
    }

    /// Checks that no needed object is owned by another. Writes nothing.
    pub(super) async fn check(&self, session: &Session) -> Result<(), CliError> {
        let extensions = self.cluster.extensions(session).await?;
        decide::check_extensions(&self.names, &self.namespace, &extensions)?;
        for kind in [Kind::Extension, Kind::Catalog] {
            decide::leftover(&self.what(kind), self.metadata(kind, session).await?.as_ref())?;
        }
        let namespace = self.metadata(Kind::Namespace, session).await?;
        if namespace.is_some_and(|found| found.deletion_timestamp.is_some() && !decide::is_own(&found)) {
            let what = self.what(Kind::Namespace);
            return Err(CliError::findings(format!(
                "{what} is being deleted; run the command again afterwards"
            )));
        }
        Ok(())
    }

    /// Writes all objects, the extension last and once its catalog is served.
    ///
    /// # Errors
    /// An object cannot be written, or the catalog is not served. The extension is then as it was.
    pub(super) async fn write(
        &self,
        published: &Published,
        settings: Settings,
        deadline: Deadline,
        session: &Session,
    ) -> Result<change::WrittenObject, CliError> {
        let after = format!("{} was not written", self.what(Kind::Extension));
        self.wait_for_deletions(&after, deadline, session).await?;
        let namespace = ObjectMeta {
            name: Some(self.namespace.clone()),
            labels: Some([(EXT_BUNDLE_RUN.to_owned(), published.label_value.clone())].into()),
            ..ObjectMeta::default()
        };
        if let Some(created) = change::create_namespace(&self.cluster, &namespace, None, session).await? {
            say(&created.to_string());
        }
        let is_new_catalog = self.write_catalog(published, session).await?;
        let poll = async || {
            let found = cluster_catalog::find(&self.cluster, &self.names.catalog, session).await?;
            Ok(cluster_catalog::completion(found.as_ref(), Some(&published.catalog)))
        };
        change::until(&self.what(Kind::Catalog), &after, deadline, poll, session).await?;
        let desired = decide::extension(&self.names, &self.namespace, &published.label_value, settings);
        for granted in hardened::grant(&self.cluster, &desired, None, session).await? {
            say(&granted.to_string());
        }
        let written = self.write_extension(desired, session).await?;
        say(&written.to_string());
        if !is_new_catalog && written.done == WriteResult::Unchanged {
            say(
                "the bundle and its settings have not changed since the former run, so nothing is rolled out; if the image \
                 of the operator is new, give it a new tag",
            );
        }
        Ok(written)
    }

    /// Waits for objects that the removal of a former run is still deleting.
    async fn wait_for_deletions(
        &self,
        after: &str,
        deadline: Deadline,
        session: &Session,
    ) -> Result<(), CliError> {
        for kind in Kind::ALL {
            let what = self.what(kind);
            let poll = async || {
                let found = self.metadata(kind, session).await?;
                let own = found.as_ref().filter(|found| kind != Kind::Namespace || decide::is_own(found));
                Ok(match decide::leftover(&what, own)? {
                    Leftover::Deleting => {
                        Completion::InProgress("being deleted after a former run".to_owned())
                    }
                    Leftover::None | Leftover::Own => Completion::Complete(String::new()),
                })
            };
            change::until(&what, after, deadline, poll, session).await?;
        }
        Ok(())
    }

    /// Writes the catalog. Returns `false` if it was there with the same content.
    async fn write_catalog(&self, published: &Published, session: &Session) -> Result<bool, CliError> {
        let (api, name) = (self.catalogs(), &self.names.catalog);
        let mut desired = decide::catalog(&self.names, &published.catalog, &published.label_value);
        let found = cluster_catalog::find(&self.cluster, name, session).await?;
        let image = found.as_ref().and_then(|found| found.spec.source.image.as_ref());
        let is_same = image.is_some_and(|image| image.ref_ == published.catalog);
        let found = found.as_ref().map(|found| &found.metadata);
        let done = match decide::leftover(&self.what(Kind::Catalog), found)? {
            Leftover::Own if is_same => "unchanged",
            Leftover::None => {
                let object: ClusterCatalog = serde_json::from_value(desired)?;
                let what = format!("create {}", self.what(Kind::Catalog));
                change::call(&what, api.create(&parameters(), &object), session).await?;
                "created"
            }
            Leftover::Own | Leftover::Deleting => {
                // UID precondition: another catalog of the same name must not be changed.
                desired["metadata"]["uid"] = json!(found.and_then(|found| found.uid.as_ref()));
                let patch = Patch::Merge(&desired);
                let parameters =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                let what = format!("change {}", self.what(Kind::Catalog));
                change::call(&what, api.patch(name, &parameters, &patch), session).await?;
                "changed"
            }
        };
        say(&format!("clustercatalog.olm.operatorframework.io/{name} {done}"));
        Ok(done != "unchanged")
    }

    async fn write_extension(
        &self,
        desired: ClusterExtension,
        session: &Session,
    ) -> Result<change::WrittenObject, CliError> {
        let found = self.cluster.find_extension(&self.names.package, session).await?;
        decide::leftover(&self.what(Kind::Extension), found.as_ref().map(|found| &found.metadata))?;
        let Some(found) = found else {
            return change::apply(&self.cluster, None, &desired, None, session).await;
        };
        let mut after = found.clone();
        after.spec.clone_from(&desired.spec);
        after.labels_mut().extend(desired.metadata.labels.unwrap_or_default());
        // An option of the former run does not outlast it.
        let mut annotations = after.metadata.annotations.take().unwrap_or_default();
        annotations.remove(EXT_CRD_CHECK);
        annotations.extend(desired.metadata.annotations.unwrap_or_default());
        after.metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        change::apply(&self.cluster, Some(&found), &after, None, session).await
    }
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}
