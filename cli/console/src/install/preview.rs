//! Checks of an installation, as `olm install` makes them, and the write.

use std::sync::Arc;

use kube::ResourceExt;
use kube::core::ObjectMeta;
use olm_api::ClusterExtension;
use olm_cli_core::change;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_cli_lifecycle::diff::{ComparedExtension, Diff, Prediction, collision_error};
use olm_cli_lifecycle::hardened;
use olm_cli_lifecycle::install::{check_namespace, find_existing, find_twin, require_same, twin_error};
use olm_cli_lifecycle::resolve::choose_as;

use super::bundle::BundleCache;

/// Predicted installation.
pub(super) struct Preview {
    /// Name of the chosen bundle.
    pub(super) bundle: String,
    /// Choice of the resolver, as text.
    pub(super) choice: String,
    pub(super) warnings: Vec<String>,
    /// `None` if this machine cannot read the bundle. The cluster may be able to.
    pub(super) diff: Option<Diff>,
    pub(super) has_namespace: bool,
}

/// Place of an installation.
pub(super) struct Target<'a> {
    pub(super) cluster: &'a Arc<ClusterConnection>,
    pub(super) access: &'a Access,
    pub(super) bundles: &'a BundleCache,
    pub(super) session: &'a Session,
    /// Catalog source, such as `cluster/NAME`.
    pub(super) source: String,
    pub(super) create_namespace: bool,
    /// Namespace that is created.
    pub(super) namespace: ObjectMeta,
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
        let controller = ControllerArgs::read(cluster, session).await?;
        let choice =
            choose_as(&controller, desired, std::slice::from_ref(&self.source), access, session).await?;
        let namespace = desired.spec.as_ref().map(|spec| spec.namespace.as_str()).unwrap_or_default();
        let has_namespace = check_namespace(cluster, namespace, self.create_namespace, session).await?;
        let mut warnings = choice.warnings;
        let diff = match self.diff(desired, &choice.image, &controller, has_namespace).await {
            Ok(diff) => Some(diff),
            Err(CliError::Message(Code::Operational | Code::Usage, why)) => {
                warnings.push(format!("cannot predict the changes of the bundle: {why}"));
                None
            }
            Err(error) => return Err(error),
        };
        if let Some(error) = diff.as_ref().and_then(|diff| collision_error(&diff.collisions)) {
            return Err(error);
        }
        change::dry_create(cluster, desired, session).await?;
        warnings.extend(diff.iter().flat_map(|diff| Prediction::of(diff).problems));
        Ok(Preview { bundle: choice.bundle, choice: choice.text, warnings, diff, has_namespace })
    }

    /// Difference to the cluster. The image is text of a catalog, which only [`BundleCache`] may resolve.
    async fn diff(
        &self,
        desired: &ClusterExtension,
        image: &str,
        controller: &ControllerArgs,
        compare: bool,
    ) -> Result<Diff, CliError> {
        let Self { cluster, access, bundles, session, .. } = self;
        let files = bundles.read(image, access, session).await?;
        let compared = ComparedExtension { cluster, extension: desired, session };
        compared.with_files(&files, controller, compare).await
    }

    /// Creates the extension after the same checks, and returns its name.
    ///
    /// # Errors
    /// Errors of [`Self::preview`], another bundle than `bundle` would be chosen, or the API server refuses a write.
    /// The message names what was written before.
    pub(super) async fn apply(&self, desired: &ClusterExtension, bundle: &str) -> Result<String, CliError> {
        let preview = self.preview(desired).await?;
        if preview.bundle != bundle {
            return Err(CliError::findings(format!(
                "the resolver now chooses {}, not {bundle}, which the preview showed: preview again",
                preview.bundle
            )));
        }
        let namespace = desired.spec.as_ref().map(|spec| spec.namespace.as_str()).unwrap_or_default();
        let created = match preview.has_namespace {
            true => None,
            false => change::create_namespace(self.cluster, &self.namespace, None, self.session).await?,
        };
        hardened::grant(self.cluster, desired, None, self.session).await?;
        match change::apply(self.cluster, None, desired, None, self.session).await {
            Ok(_) => Ok(desired.name_any()),
            Err(CliError::Message(code, why)) if created.is_some() => {
                let why = format!("{why}; namespace {namespace} was created before and remains");
                Err(CliError::Message(code, why))
            }
            Err(error) => Err(error),
        }
    }
}
