//! Complete difference that the next revision of an extension makes on a cluster, for commands that judge it.

use olm_api::ClusterExtension;
use olm_revision::generate::BundleIdentity;
use serde_json::Value;

use super::cluster::{self, Installed};
use super::report::{ComparedBundle, Diff};
use crate::bundle_source;
use crate::controller::Controller;
use crate::error::CliError;
use crate::rendering::{self, RenderSettings, Rendered};
use crate::session::Session;
use crate::source::{Access, Cluster};

/// Difference that installing the bundle in `image` with the settings of `extension` makes.
///
/// # Errors
/// The image or the cluster cannot be read, or the bundle cannot be installed this way
/// ([`Code::Findings`](crate::error::Code::Findings)).
pub(crate) async fn with_image(
    cluster: &Cluster,
    extension: &ClusterExtension,
    image: &str,
    controller: &Controller,
    access: &Access,
    session: &Session,
) -> Result<Diff, CliError> {
    let mut settings = RenderSettings::as_configured(extension, &controller.gates)?;
    let files = bundle_source::read(image, &access.images, session).await?;
    let installed = cluster::installed(cluster, extension, session).await?;
    settings.certificates = cluster::certificates(&installed.objects);
    let Rendered { bundle, objects } = rendering::objects(&files, &settings)?;
    let new = super::compared_bundle(&files, &bundle);
    next(cluster, extension, installed, (&cluster::identity(&bundle), new), objects, session).await
}

/// Difference that `objects` from the revision `origin` make.
///
/// # Errors
/// The cluster cannot be read.
pub(crate) async fn with_objects(
    cluster: &Cluster,
    extension: &ClusterExtension,
    identity: &BundleIdentity,
    origin: &str,
    objects: Vec<Value>,
    session: &Session,
) -> Result<Diff, CliError> {
    let installed = cluster::installed(cluster, extension, session).await?;
    let new = ComparedBundle {
        origin: format!("as revision {origin} has kept it"),
        bundle: identity.name.clone(),
        version: identity.version.clone(),
        digest: None,
    };
    next(cluster, extension, installed, (identity, new), objects, session).await
}

async fn next(
    cluster: &Cluster,
    extension: &ClusterExtension,
    installed: Installed,
    (identity, new): (&BundleIdentity, ComparedBundle),
    objects: Vec<Value>,
    session: &Session,
) -> Result<Diff, CliError> {
    let found = cluster::compare(cluster, extension, &installed, identity, objects.clone(), session).await?;
    let mut diff = Diff::new(&installed.objects, &objects, &found.definitions, found.changes);
    diff.warnings.extend(found.warnings);
    diff.old = installed.bundle;
    diff.new = new;
    Ok(diff)
}
