//! Adopts installations that the reference made with Helm. The newest deployed release becomes revision 1 of the
//! extension. The revision controller then makes that revision the owner of all running objects, without changing
//! them (docs/design/apply.md#adoption).
//!
//! Helm Secrets are only read, never written. They are deleted with their ClusterExtension, as in the reference.
//! Installations that the reference made with revisions need no adoption.

mod release;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use olm_api::conditions::{self, Status, reasons, types};
use olm_api::limits::LIST_PAGE;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, labels};
use olm_controller_core::install_error::{InstallError, api_request};
use olm_revision::generate::{Extension, migrated};
use olm_runtime::cluster::{list_all, within_deadline};
use olm_runtime::status::write_status;
use tokio::task::block_in_place;

use crate::revision_writer::{RevisionWriter, invalid};
use release::{Deployed, Release};

/// Message of the `Succeeded` condition of an adopted revision.
const MIGRATED_MESSAGE: &str = "Revision succeeded - migrated from Helm release";
/// Maximum length of a label value. A longer extension name has no release.
const MAX_NAME_LENGTH: usize = 63;
/// Maximum attempts to write a status after a conflict (409).
const ATTEMPTS: usize = 5;

/// Adopts installations made with Helm.
pub(crate) struct Adoption {
    revisions: Api<ClusterObjectSet>,
    secrets: Api<Secret>,
    writer: RevisionWriter,
    system_namespace: String,
}

/// Result of an adoption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdoptionState {
    /// There is nothing to adopt, or the adoption is complete.
    Complete,
    /// Revision 1 exists but is not complete, and no other revision may be created before. Contains the note of an
    /// Event if it was created now.
    Pending(Option<String>),
}

impl Adoption {
    /// `system_namespace` is the namespace of the releases and of revision Secrets.
    pub(crate) fn new(client: Client, system_namespace: &str) -> Self {
        Self {
            revisions: Api::all(client.clone()),
            secrets: Api::namespaced(client.clone(), system_namespace),
            writer: RevisionWriter::new(client, system_namespace),
            system_namespace: system_namespace.to_owned(),
        }
    }

    /// Creates revision 1 if Helm installed the extension. `revisions` are the known ones. If there are any, no
    /// request is sent, unless an earlier attempt failed midway.
    pub(crate) async fn migrate(
        &self,
        extension: &ClusterExtension,
        revisions: &[Arc<ClusterObjectSet>],
    ) -> Result<AdoptionState, InstallError> {
        let migrated = match revisions {
            [] => self.adopt(extension).await,
            known => self.complete(known).await,
        };
        migrated.map_err(|failure| failure.context("migrating storage"))
    }

    async fn adopt(&self, extension: &ClusterExtension) -> Result<AdoptionState, InstallError> {
        let name = extension.name_any();
        let named = extension.annotations().get(annotations::EXT_ADOPT_RELEASE).map(String::as_str);
        let uid = extension.uid().unwrap_or_default();
        let found = self.deployed(&name, &uid, named).await?;
        let Some((index, number)) = found.adopted else {
            // Installing over the objects of a passed-over release could lose more than waiting does.
            return match found.passed_over.join(", ") {
                none if none.is_empty() => Ok(AdoptionState::Complete),
                names => Err(InstallError::retry(not_owned(&names))),
            };
        };
        let existing = self.writer.list(&name).await;
        let existing = existing
            .map_err(|failure| failure.context("listing ClusterObjectSets before attempting migration"))?;
        // An earlier attempt created it, and the cache will show it soon. `list` returns no revisions of other
        // owners.
        if !existing.is_empty() {
            return Ok(AdoptionState::Pending(None));
        }
        let release = self.release(&index, named == Some(&index)).await?;
        let bundle = release.bundle.name.clone();
        let revision = self.make_revision(extension, release).await?;
        self.mark_succeeded(&revision.name_any()).await?;
        let note =
            format!("Helm release {number} (bundle {bundle}) adopted as revision {}", revision.name_any());
        tracing::info!(extension = name, note, "adopted Helm release");
        Ok(AdoptionState::Pending(Some(note)))
    }

    /// Completes the adoption. Revision 1 counts as installed at once, but its successor must wait until revision 1
    /// owns all objects. Before that, they would collide with the successor.
    async fn complete(&self, revisions: &[Arc<ClusterObjectSet>]) -> Result<AdoptionState, InstallError> {
        let Some(first) = revisions.iter().find(|revision| is_migrated(revision)) else {
            return Ok(AdoptionState::Complete);
        };
        if !first.is_true(types::SUCCEEDED) {
            self.mark_succeeded(&first.name_any()).await?;
            return Ok(AdoptionState::Pending(None));
        }
        let is_seen = revisions.len() > 1 || first.condition(types::PROGRESSING).is_some();
        Ok(if is_seen { AdoptionState::Complete } else { AdoptionState::Pending(None) })
    }

    async fn deployed(
        &self,
        extension: &str,
        uid: &str,
        named: Option<&str>,
    ) -> Result<Deployed, InstallError> {
        if extension.len() > MAX_NAME_LENGTH {
            return Ok(Deployed::default());
        }
        let (labels, fields) = release::selectors(extension);
        let selectors = ListParams::default().labels(&labels).fields(&fields);
        let list = async |page| api_request(self.secrets.list_metadata(&page), "listing Helm releases").await;
        let indices = list_all(selectors.limit(LIST_PAGE), list).await?;
        Ok(release::deployed(&indices, uid, named))
    }

    /// Reads a release. `named` means that an administrator vouches for it, so the owners of its pieces are not
    /// checked.
    async fn release(&self, index: &str, named: bool) -> Result<Release, InstallError> {
        let mut pieces = vec![self.piece(index, 1).await?];
        let further = release::further_pieces(&pieces[0]).map_err(InstallError::retry)?;
        for (position, name) in further.iter().enumerate() {
            pieces.push(self.piece(name, position + 2).await?);
        }
        if !named {
            release::check_owners(&pieces).map_err(InstallError::retry)?;
        }
        block_in_place(|| release::read(&pieces)).map_err(InstallError::retry)
    }

    async fn piece(&self, name: &str, number: usize) -> Result<Secret, InstallError> {
        let secret = within_deadline(self.secrets.get(name)).await;
        let context = || format!("failed to get chunk {number} secret {name:?}");
        secret.map_err(|error| InstallError::api(&error).context(context()))
    }

    async fn make_revision(
        &self,
        extension: &ClusterExtension,
        release: Release,
    ) -> Result<ClusterObjectSet, InstallError> {
        let owner = Extension {
            name: extension.name_any(),
            uid: extension.uid().unwrap_or_default(),
            progress_deadline_minutes: extension.spec.as_ref().and_then(|one| one.progress_deadline_minutes),
        };
        let Release { bundle, objects } = release;
        let objects = olm_bundle::distinct(objects);
        let made = block_in_place(|| migrated(owner, &bundle, objects, &self.system_namespace));
        let mut revision = made.map_err(invalid)?;
        // The first pass over the revision obeys them.
        for key in [annotations::EXT_PAUSED, annotations::EXT_UNINSTALL_POLICY] {
            let value = extension.annotations().get(key).map(|value| (key.to_owned(), value.clone()));
            revision.set.metadata.annotations.get_or_insert_default().extend(value);
        }
        self.writer.write(&revision).await
    }

    /// Sets `Succeeded` on the revision: it represents a working installation, and only a succeeded revision counts
    /// as installed.
    async fn mark_succeeded(&self, name: &str) -> Result<(), InstallError> {
        let mut attempt = 1;
        loop {
            let revision = within_deadline(self.revisions.get(name)).await;
            let revision = revision.map_err(|error| {
                InstallError::api(&error).context("getting existing revision for status check")
            })?;
            if revision.is_true(types::SUCCEEDED) {
                return Ok(());
            }
            let mut status = revision.status.clone().unwrap_or_default();
            conditions::set(
                &mut status.conditions,
                types::SUCCEEDED,
                Status::True,
                reasons::SUCCEEDED,
                MIGRATED_MESSAGE,
                revision.metadata.generation,
                Timestamp::now(),
            );
            match write_status(&self.revisions, &revision, &status).await {
                // The revision controller has started to write the status as well.
                Err(kube::Error::Api(answer)) if answer.is_conflict() && attempt < ATTEMPTS => attempt += 1,
                written => {
                    let context = "updating migrated revision status";
                    return written.map(drop).map_err(|error| InstallError::api(&error).context(context));
                }
            }
        }
    }
}

fn not_owned(names: &str) -> String {
    format!(
        "Helm release {names} is not adopted: the ClusterExtension does not own its Secret; if the release belongs to \
         this extension, as after a restore, set annotation {}=<name of the Secret>; otherwise delete the Secret",
        annotations::EXT_ADOPT_RELEASE
    )
}

/// Reports whether the revision was made from a Helm release. No other revision is set to succeeded here.
fn is_migrated(revision: &ClusterObjectSet) -> bool {
    let is_marked = revision.labels().get(labels::MIGRATED_FROM_HELM).is_some_and(|value| value == "true");
    is_marked && revision.number() == 1
}

#[cfg(test)]
pub(crate) mod tests;
