//! Complete difference that the next revision of an extension makes on a cluster, for commands that judge it.

use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::source::Access;
use olm_plan::objects::changes;
use olm_revision::content::content_digest;
use olm_revision::generate::BundleIdentity;
use olm_revision::phases::{OwnerMetadata, phases};
use serde_json::Value;

use super::cluster::{self, ComparedExtension, Installed};
use super::report::{ComparedBundle, Diff};
use super::served;
use crate::rendering::{self, RenderSettings, Rendered};

/// Bundle that would become the next revision.
pub(crate) struct PlannedBundle {
    pub(crate) diff: Diff,
    /// Digest of the plan.
    pub(crate) digest: String,
    /// Digest of the content of the revision.
    pub(crate) content: String,
    /// Rendered objects.
    pub(crate) objects: Vec<Value>,
    /// `true` if operator-controller lets operators report whether they may be replaced.
    pub(crate) operator_conditions: bool,
}

impl ComparedExtension<'_> {
    /// Difference that installing the bundle in `image` with the settings of the extension makes.
    ///
    /// # Errors
    /// The image or the cluster cannot be read, or the bundle cannot be installed this way
    /// ([`Code::Findings`](olm_cli_core::error::Code::Findings)).
    pub(crate) async fn with_image(
        &self,
        image: &str,
        controller: &ControllerArgs,
        access: &Access,
    ) -> Result<Diff, CliError> {
        self.planned(image, controller, access).await.map(|planned| planned.diff)
    }

    /// Difference that installing the bundle of `files` makes. Without `compare`, as for a namespace that does not
    /// exist, the objects that it would create, without dry runs.
    ///
    /// # Errors
    /// The cluster cannot be read, or the bundle cannot be installed this way.
    pub async fn with_files(
        &self,
        files: &BundleFiles,
        controller: &ControllerArgs,
        compare: bool,
    ) -> Result<Diff, CliError> {
        match compare {
            true => self.planned_files(files, controller).await.map(|planned| planned.diff),
            false => self.rendered_files(files, controller).await,
        }
    }

    /// Objects that the bundle in `image` would create, without dry runs: the namespace need not exist.
    ///
    /// # Errors
    /// Errors of [`Self::with_image`].
    pub(crate) async fn rendered(
        &self,
        image: &str,
        controller: &ControllerArgs,
        access: &Access,
    ) -> Result<Diff, CliError> {
        let files = bundle_source::read_image(image, &access.images, self.session).await?;
        self.rendered_files(&files, controller).await
    }

    async fn rendered_files(
        &self,
        files: &BundleFiles,
        controller: &ControllerArgs,
    ) -> Result<Diff, CliError> {
        let settings = RenderSettings::as_configured(self.extension, &controller.gates)?;
        let settings = settings.on(self.cluster, self.session).await?;
        let Rendered { bundle, objects } = rendering::objects(files, &settings)?;
        let mut diff = Diff::new(&[], &objects, &[], changes(&[], &objects));
        diff.collisions = self.collisions(&objects).await?;
        diff.new = super::compared_bundle(files, &bundle);
        Ok(diff)
    }

    /// Plan of installing the bundle in `image` with the settings of the extension.
    ///
    /// # Errors
    /// Errors of [`Self::with_image`].
    pub(crate) async fn planned(
        &self,
        image: &str,
        controller: &ControllerArgs,
        access: &Access,
    ) -> Result<PlannedBundle, CliError> {
        let files = bundle_source::read_image(image, &access.images, self.session).await?;
        self.planned_files(&files, controller).await
    }

    async fn planned_files(
        &self,
        files: &BundleFiles,
        controller: &ControllerArgs,
    ) -> Result<PlannedBundle, CliError> {
        let settings = RenderSettings::as_configured(self.extension, &controller.gates)?;
        let operator_conditions = settings.operator_condition;
        let mut settings = settings.on(self.cluster, self.session).await?;
        let installed = self.installed().await?;
        settings.certificates = cluster::certificates(&installed.objects);
        let Rendered { bundle, objects } = rendering::objects(files, &settings)?;
        let image_digest = files.digest.as_deref().unwrap_or_default();
        let digest = olm_plan::digest(&bundle, &settings.options(), &objects, image_digest)
            .map_err(|error| CliError::findings(format!("{}: {error}", files.origin)))?;
        let new = super::compared_bundle(files, &bundle);
        let identity = cluster::identity(&bundle);
        let extension = self.extension.metadata.name.as_deref().unwrap_or_default();
        let (package, version) = (identity.package.as_str(), identity.version.as_str());
        let metadata = OwnerMetadata { extension, package, version, release: None };
        let content = content_digest(&phases(olm_bundle::distinct(objects.clone()), metadata));
        let diff = self.next(installed, &identity, new, objects.clone()).await?;
        Ok(PlannedBundle { diff, digest, content, objects, operator_conditions })
    }

    /// Difference that the bundle of `files` makes.
    ///
    /// # Errors
    /// The cluster cannot be read, or the bundle cannot be installed this way.
    pub(super) async fn with_bundle(
        &self,
        installed: Installed,
        files: &BundleFiles,
        settings: &RenderSettings,
    ) -> Result<Diff, CliError> {
        let Rendered { bundle, objects } = rendering::objects(files, settings)?;
        let new = super::compared_bundle(files, &bundle);
        self.next(installed, &cluster::identity(&bundle), new, objects).await
    }

    /// Difference that `objects` from the revision `origin` make.
    ///
    /// # Errors
    /// The cluster cannot be read.
    pub(crate) async fn with_objects(
        &self,
        identity: &BundleIdentity,
        origin: &str,
        objects: Vec<Value>,
    ) -> Result<Diff, CliError> {
        let installed = self.installed().await?;
        let new = ComparedBundle {
            origin: format!("stored objects of revision {origin}"),
            bundle: identity.name.clone(),
            version: identity.version.clone(),
            digest: None,
        };
        self.next(installed, identity, new, objects).await
    }

    async fn next(
        &self,
        installed: Installed,
        identity: &BundleIdentity,
        new: ComparedBundle,
        objects: Vec<Value>,
    ) -> Result<Diff, CliError> {
        let found = self.compare(&installed, identity, objects.clone()).await?;
        // Live CRDs show the stored versions and manual changes.
        let mut diff = Diff::new(&installed.objects, &objects, &found.crds, found.changes);
        diff.warnings.extend(found.warnings);
        diff.warnings.extend(served::count_writers(&mut diff.crds, &found.crds, self).await?);
        diff.collisions = found.collisions;
        diff.old = installed.bundle;
        diff.new = new;
        Ok(diff)
    }
}
