//! Checks of an installation, as `olm install` makes them, and the write.

use std::sync::Arc;

use kube::ResourceExt;
use olm_api::ClusterExtension;

use crate::change;
use crate::controller::Controller;
use crate::diff::{ComparedExtension, Diff, Prediction, collision_error};
use crate::error::CliError;
use crate::install::{check_namespace, find_existing, find_twin, require_same, twin_error};
use crate::resolve::choose_as;
use crate::session::Session;
use crate::source::{Access, Cluster};

/// Predicted installation.
pub(super) struct Preview {
    /// Choice of the resolver, as text.
    pub(super) choice: String,
    pub(super) warnings: Vec<String>,
    pub(super) diff: Diff,
    pub(super) has_namespace: bool,
}

/// Place of an installation.
pub(super) struct Target<'a> {
    pub(super) cluster: &'a Arc<Cluster>,
    pub(super) access: &'a Access,
    pub(super) session: &'a Session,
    /// Catalog source, such as `cluster/NAME`.
    pub(super) source: String,
    pub(super) create_namespace: bool,
}

impl Target<'_> {
    /// Resolves, compares with the cluster, and makes a dry run on the API server.
    ///
    /// # Errors
    /// Nothing can be chosen, or the installation would be refused.
    pub(super) async fn preview(&self, desired: &ClusterExtension) -> Result<Preview, CliError> {
        let Self { cluster, access, session, .. } = self;
        let extensions = cluster.extensions(session).await?;
        match find_existing(&extensions, desired)? {
            Some(existing) => {
                require_same(existing, desired)?;
                let name = existing.name_any();
                return Err(CliError::findings(format!(
                    "ClusterExtension {name:?} exists with these settings"
                )));
            }
            None => {
                if let Some(twin) = find_twin(&extensions, desired) {
                    let crds = cluster.crds_of(&twin.name_any(), session).await.unwrap_or_default();
                    return Err(twin_error(twin, &crds));
                }
            }
        }
        let controller = Controller::read(cluster, session).await?;
        let choice =
            choose_as(&controller, desired, std::slice::from_ref(&self.source), access, session).await?;
        let namespace = desired.spec.as_ref().map(|spec| spec.namespace.as_str()).unwrap_or_default();
        let has_namespace = check_namespace(cluster, namespace, self.create_namespace, session).await?;
        let compared = ComparedExtension { cluster, extension: desired, session };
        let diff = match has_namespace {
            true => compared.with_image(&choice.image, &controller, access).await?,
            false => compared.rendered(&choice.image, &controller, access).await?,
        };
        if let Some(error) = collision_error(&diff.collisions) {
            return Err(error);
        }
        change::dry_create(cluster, desired, session).await?;
        let mut warnings = choice.warnings;
        warnings.extend(Prediction::of(&diff).problems);
        Ok(Preview { choice: choice.text, warnings, diff, has_namespace })
    }

    /// Creates the extension after the same checks, and returns the lines of the written objects.
    ///
    /// # Errors
    /// Errors of [`Self::preview`], or the API server refuses a write.
    pub(super) async fn apply(&self, desired: &ClusterExtension) -> Result<Vec<String>, CliError> {
        let preview = self.preview(desired).await?;
        let namespace = desired.spec.as_ref().map(|spec| spec.namespace.as_str()).unwrap_or_default();
        let mut written = Vec::new();
        if !preview.has_namespace {
            let created =
                change::create_namespace(self.cluster, namespace, [].into(), None, self.session).await?;
            written.extend(created.map(|one| one.to_string()));
        }
        written.push(change::apply(self.cluster, None, desired, None, self.session).await?.to_string());
        Ok(written)
    }
}
