//! Finalizes a deleted extension: removes its caches, then its finalizers
//! (docs/design/apply.md#recreated-extensions). Waits while an installed extension whose dependencies are checked
//! needs it (docs/design/additions.md#dependency-modes), or, with the policy `BlockIfInUse`, while custom resources
//! of its CRDs exist (docs/design/additions.md#uninstall-policy).

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::{Api, Client, ResourceExt};
use olm_api::conditions::messages::UNINSTALL_WAITS;
use olm_api::conditions::{reasons, types};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, finalizers};
use olm_controller_core::RevisionCache;
use olm_controller_core::install_error::InstallError;
use olm_request::{UninstallPolicy, unmet};
use olm_resolve::{AvailableProviders, DependencyMode, Dependent};
use olm_runtime::cluster::within_deadline;
use olm_runtime::reconcile::ReconcileError;
use serde_json::json;

use super::delays::{CONFLICT_RETRY, REQUEUE_DELAY};
use super::events::{self, ExtensionEvent};
use super::in_use::in_use;
use super::memory::Memories;
use super::mirroring::mirror;
use super::reporter::Reporter;
use crate::bundles::Bundles;
use crate::catalogs::Catalogs;
use crate::dependencies::Dependencies;
use crate::preflight::Preflight;
use crate::revision_writer::RevisionWriter;

/// Finalizers that the controller sets on every extension.
pub(super) const FINALIZERS: [&str; 2] =
    [finalizers::CLEANUP_UNPACK_CACHE, finalizers::CLEANUP_CONTENTMANAGER_CACHE];

/// Finalizes deleted extensions.
pub(super) struct Remover<'a> {
    pub client: &'a Client,
    pub extensions: &'a Api<ClusterExtension>,
    pub extensions_in_store: &'a Store<ClusterExtension>,
    pub revisions: &'a Api<ClusterObjectSet>,
    pub writer: &'a RevisionWriter,
    pub cache: &'a RevisionCache,
    pub catalogs: &'a Catalogs,
    pub bundles: &'a Bundles,
    pub dependencies: &'a Dependencies,
    pub preflight: &'a Preflight,
    pub memories: &'a Memories,
    pub reporter: Reporter<'a>,
}

impl Remover<'_> {
    /// Finalizes an extension that is being deleted. The garbage collector deletes its revisions, and each revision
    /// deletes its objects in order.
    pub(super) async fn finalize(&self, extension: &ClusterExtension) -> Result<Action, ReconcileError> {
        let name = extension.name_any();
        let is_ours = |name: &&String| FINALIZERS.contains(&name.as_str());
        let rest: Vec<String> =
            extension.finalizers().iter().filter(|name| !is_ours(name)).cloned().collect();
        if rest.len() == extension.finalizers().len() {
            self.forget(&name);
            // With foreground deletion, or a foreign finalizer, the extension remains while its revisions are removed.
            let revisions = self.cache.of_extension(&name);
            match self.pass_on(extension, revisions.iter().map(Arc::as_ref)).await {
                Ok(None) => {}
                Ok(Some(_)) => return Err(ReconcileError::pending(CONFLICT_RETRY)),
                Err(failure) => return self.reporter.fail(extension, failure).await,
            }
            if let Some(waits) = revisions.iter().find_map(|revision| waits_of(revision)) {
                self.reporter.report_failure(extension, waits).await?;
            }
            return Ok(Action::await_change());
        }
        match self.held(extension).await {
            Ok(None) => {}
            Ok(Some(held)) => {
                self.reporter.report_failure(extension, held).await?;
                return Ok(Action::requeue(REQUEUE_DELAY));
            }
            Err(failure) => return self.reporter.fail(extension, failure).await,
        }
        self.forget(&name);
        if let Err(error) = self.bundles.remove(&name).await {
            let failed = finalizers::CLEANUP_UNPACK_CACHE;
            let failure = InstallError::retry(format!("finalizer {failed:?} failed: {error}"));
            self.reporter.report_failure(extension, failure.clone()).await?;
            // The work of the other finalizer is done.
            let is_left = |name: &&String| name.as_str() == failed || !is_ours(name);
            let left: Vec<String> = extension.finalizers().iter().filter(is_left).cloned().collect();
            if left.len() < extension.finalizers().len() {
                // A status write before this causes a conflict, and the next attempt removes the finalizer.
                let dropped = self.set_finalizers(extension, &left).await;
                dropped.unwrap_or_else(|error| {
                    tracing::debug!(name, error = error.message, "deferred finalizer removal")
                });
            }
            return Err(ReconcileError::retry(failure));
        }
        self.set_finalizers(extension, &rest).await?;
        if self.reporter.features.rules(extension).settings.dependencies == DependencyMode::Check {
            // Other extensions may have waited for this deletion.
            self.catalogs.requeue_extensions();
        }
        Ok(Action::await_change())
    }

    /// Reason that the extension cannot be deleted yet.
    async fn held(&self, extension: &ClusterExtension) -> Result<Option<InstallError>, InstallError> {
        if let Some(needed) = self.needed(extension).await? {
            return Ok(Some(InstallError::retry(needed)));
        }
        let (name, rules) = (extension.name_any(), self.reporter.features.rules(extension));
        // List from the API server: the deletion also covers revisions that the cache does not hold yet.
        let revisions = self.writer.list(&name).await?;
        if rules.uninstall_policy == Some(UninstallPolicy::BlockIfInUse)
            && let Some(in_use) = in_use(self.client, extension, &revisions).await?
        {
            return Ok(Some(InstallError::blocked(in_use)));
        }
        // The revisions must carry the current policy before they are deleted, also if it was just removed.
        self.pass_on(extension, revisions.iter()).await
    }

    /// Copies the current settings to the revisions. Returns the reason if a revision has changed.
    async fn pass_on(
        &self,
        extension: &ClusterExtension,
        revisions: impl Iterator<Item = &ClusterObjectSet>,
    ) -> Result<Option<InstallError>, InstallError> {
        let (rules, account) =
            (self.reporter.features.rules(extension), self.reporter.features.account(extension));
        let uid = extension.metadata.uid.as_deref();
        let mirrored = mirror(self.revisions, revisions, &rules, uid, account.as_deref()).await?;
        Ok((!mirrored).then(|| InstallError::retry("a revision changed while its annotations were written")))
    }

    fn forget(&self, name: &str) {
        self.memories.forget(name);
        self.preflight.forget(name);
    }

    /// Message that names the dependents of the extension. `None` if there are none or the extension ignores them.
    async fn needed(&self, extension: &ClusterExtension) -> Result<Option<String>, InstallError> {
        let name = extension.name_any();
        let checks = |other: &Arc<ClusterExtension>| {
            other.name_any() != name && self.reporter.features.rules(other).protect(other)
        };
        if !self.extensions_in_store.state().iter().any(checks) {
            return Ok(None);
        }
        // Before the first list, nothing would seem to be installed.
        self.cache.listed().cancelled().await;
        let (features, rules) = (self.reporter.features, self.reporter.features.rules(extension));
        let available = self
            .dependencies
            .available_providers(&name, |other, type_| {
                features.protects(self.extensions_in_store, other, type_)
            })
            .await;
        match available {
            Ok((available, dependents)) => {
                let needed = needed_by(&available, &dependents);
                if let Some(needed) = needed.as_ref().filter(|_| rules.ignore_dependents) {
                    let note = format!("uninstalled although {needed}");
                    self.reporter.publish(
                        extension,
                        &[],
                        vec![ExtensionEvent::warning(events::OVERRIDE_USED, note)],
                    );
                }
                Ok(needed.filter(|_| !rules.ignore_dependents).map(|needed| waits(&needed)))
            }
            // An overridden check must not block on its failure.
            Err(_) if rules.ignore_dependents => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn set_finalizers(
        &self,
        extension: &ClusterExtension,
        all: &[String],
    ) -> Result<(), ReconcileError> {
        let metadata = json!({"finalizers": all, "resourceVersion": extension.metadata.resource_version});
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let (name, params) = (extension.name_any(), PatchParams::default());
        match within_deadline(self.extensions.patch(&name, &params, &patch)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            patched => {
                patched.map(drop).map_err(|error| ReconcileError::write("error updating finalizers", &error))
            }
        }
    }
}

/// Failure that blocks the teardown of a revision.
fn waits_of(revision: &ClusterObjectSet) -> Option<InstallError> {
    revision.metadata.deletion_timestamp.as_ref()?;
    let progressing = revision.condition(types::PROGRESSING)?;
    match progressing.reason.as_str() {
        reasons::RETRYING => Some(InstallError::retry(&progressing.message)),
        reasons::BLOCKED => Some(InstallError::blocked(&progressing.message)),
        _ => None,
    }
}

/// Message that names the dependents whose requirements these providers do not satisfy.
fn needed_by(available: &AvailableProviders, dependents: &[Dependent]) -> Option<String> {
    let unmet = unmet(available, dependents);
    (!unmet.is_empty()).then(|| unmet.join("; "))
}

fn waits(needed: &str) -> String {
    let key = annotations::EXT_IGNORE_DEPENDENTS;
    format!("{UNINSTALL_WAITS}{needed}; to uninstall anyway, set annotation {key}: \"true\"")
}

#[cfg(test)]
mod tests {
    use olm_fbc::Property;
    use olm_resolve::{Provider, Requirement};
    use serde_json::value::to_raw_value;

    use super::*;

    fn property(kind: &str, value: &serde_json::Value) -> Property {
        Property { kind: kind.to_owned(), value: to_raw_value(value).unwrap() }
    }

    #[test]
    fn foreground_deletion_reports_blocked_revision() {
        let set = |deleted: Option<&str>, reason: &str| -> ClusterObjectSet {
            let progressing = json!({"type": "Progressing", "status": "True", "reason": reason, "message": "waiting",
                "lastTransitionTime": "2026-01-02T03:04:05Z"});
            let object = json!({"metadata": {"name": "demo-1", "deletionTimestamp": deleted},
                "status": {"conditions": [progressing]}});
            serde_json::from_value(object).unwrap()
        };
        let deleted = Some("2026-01-02T03:04:05Z");
        assert_eq!(waits_of(&set(deleted, "Retrying")), Some(InstallError::retry("waiting")));
        assert_eq!(waits_of(&set(deleted, "Blocked")), Some(InstallError::blocked("waiting")));
        assert_eq!(waits_of(&set(deleted, "Succeeded")), None);
        assert_eq!(waits_of(&set(None, "Retrying")), None);
    }

    // Case additions-e20
    #[test]
    fn dependents_block_unless_another_provider_exists() {
        let required =
            property("olm.package.required", &json!({"packageName": "base", "versionRange": ">=1.0.0"}));
        let dependent = |extension: &str| Dependent {
            extension: extension.to_owned(),
            bundle: format!("{extension}.v1.0.0"),
            requirements: Requirement::all(std::slice::from_ref(&required)),
        };
        let dependents = [dependent("b"), dependent("a")];
        let nothing = AvailableProviders::default();
        let requires = "requires an operator with package: base and with version in range: >=1.0.0";
        assert_eq!(
            waits(&needed_by(&nothing, &dependents).unwrap()),
            format!(
                "uninstall waits: installed extension a (bundle a.v1.0.0) {requires}; installed extension b (bundle \
                 b.v1.0.0) {requires}; to uninstall anyway, set annotation \
                 ext.olm.operatorframework.io/ignore-dependents: \"true\""
            )
        );
        let package = property("olm.package", &json!({"packageName": "base", "version": "1.2.0"}));
        let other = Provider::new(Some("base2".to_owned()), "base.v1.2.0".to_owned(), vec![package]);
        let available = AvailableProviders { providers: vec![other], ..AvailableProviders::default() };
        assert_eq!(needed_by(&available, &dependents), None);
        assert_eq!(needed_by(&nothing, &[]), None);
    }
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod going;
