//! Removal of the objects of a run, those with its label only.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions};
use olm_api::{ClusterExtension, ObjectMeta};
use olm_cli_core::change::{self, Completion, Deadline};
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_lifecycle::status::observe;

use super::decide;
use super::objects::{Kind, Run};

/// Removes the extension, then its catalog and the namespace, and waits until all are deleted. Removes nothing if the
/// extension is of a former run, and this one has not written it (`is_written`): it may have custom resources.
///
/// # Errors
/// An object cannot be deleted, or is not deleted within the timeout.
pub(super) async fn remove(run: &Run, is_written: bool, session: &Session) -> Result<(), CliError> {
    let found = run.metadata(Kind::Extension, session).await?;
    if !is_written && found.is_some_and(|found| found.deletion_timestamp.is_none()) {
        let (what, name) = (run.what(Kind::Extension), &run.names.package);
        say(&format!(
            "kept {what} of a former run, which this run did not change; run again, or remove it with \
             `olm uninstall {name}`"
        ));
        return Ok(());
    }
    let deadline = Deadline::from(run.timeout);
    let mut removed = Vec::new();
    removed.extend(delete(run, Kind::Extension, session).await?);
    let after = format!(
        "the deletion continues; run `olm status {}` for details, and `olm bundle run` again to remove the rest",
        run.names.package
    );
    let what = format!("removal of {}", run.what(Kind::Extension));
    let poll = async || extension_progress(run, session).await;
    change::until(&what, &after, deadline, poll, session).await?;
    for kind in [Kind::Catalog, Kind::Namespace] {
        removed.extend(delete(run, kind, session).await?);
    }
    for kind in [Kind::Catalog, Kind::Namespace] {
        let what = format!("removal of {}", run.what(kind));
        let poll = async || {
            let found = run.metadata(kind, session).await?;
            // Another namespace than that of the run remains.
            let is_deleting = found.is_some_and(|found| found.deletion_timestamp.is_some());
            Ok(if is_deleting {
                Completion::InProgress("being deleted".to_owned())
            } else {
                Completion::Complete(String::new())
            })
        };
        change::until(&what, &after, deadline, poll, session).await?;
    }
    if !removed.is_empty() {
        say(&format!("removed {}", removed.join(", ")));
    }
    Ok(())
}

/// Progress of the deletion of the extension with its revisions.
async fn extension_progress(run: &Run, session: &Session) -> Result<Completion, CliError> {
    let found = run.cluster.find_extension(&run.names.package, session).await?;
    if let Some(found) = found {
        if !decide::is_own(&found.metadata) {
            return Ok(Completion::Complete(String::new()));
        }
        let message =
            found.condition(olm_api::conditions::types::PROGRESSING).map(|one| one.message.as_str());
        let message = message.filter(|_| found.metadata.deletion_timestamp.is_some()).unwrap_or_default();
        return Ok(Completion::InProgress(format!("being deleted {message}").trim_end().to_owned()));
    }
    let revisions = observe::revisions(&run.cluster, &run.names.package, session).await?;
    Ok(match revisions.first() {
        Some(first) => {
            Completion::InProgress(format!("waiting for deletion of revision {}", first.name_any()))
        }
        None => Completion::Complete(String::new()),
    })
}

/// Deletes an object of the run. Returns its kind and name, or `None` if there is none to delete.
async fn delete(run: &Run, kind: Kind, session: &Session) -> Result<Option<String>, CliError> {
    let found = run.metadata(kind, session).await?.filter(decide::is_own);
    let Some(metadata) = found.filter(|found| found.deletion_timestamp.is_none()) else { return Ok(None) };
    if kind == Kind::Namespace {
        let extensions = run.cluster.extensions(session).await?;
        if !decide::removes_namespace(&run.namespace, &metadata, &extensions, &run.names.package) {
            return Ok(None);
        }
    }
    let (name, parameters) = (run.name(kind), parameters(&metadata));
    let what = format!("delete {}", run.what(kind));
    match kind {
        Kind::Extension => {
            let api: Api<ClusterExtension> = Api::all(run.cluster.client().clone());
            change::call(&what, deleted(api.delete(name, &parameters)), session).await?;
        }
        Kind::Catalog => {
            change::call(&what, deleted(run.catalogs().delete(name, &parameters)), session).await?;
        }
        Kind::Namespace => {
            change::call(&what, deleted(run.namespaces().delete(name, &parameters)), session).await?;
        }
    }
    Ok(Some(run.what(kind)))
}

/// UID precondition: another object of the same name must not be deleted.
fn parameters(metadata: &ObjectMeta) -> DeleteParams {
    let preconditions = Preconditions { uid: metadata.uid.clone(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() }
}

/// Result of a deletion. 404: the object is deleted already.
async fn deleted<T>(deletion: impl Future<Output = Result<T, kube::Error>>) -> Result<(), kube::Error> {
    match deletion.await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop),
    }
}
