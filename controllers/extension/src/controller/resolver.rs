//! Resolver of extensions: reads the inputs of a choice from the catalogs and, where a rule needs it, from the cluster, and
//! has [`super::choice`] decide.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use olm_api::cluster_extension::CatalogFilter;
use olm_api::conditions::types;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_controller_core::RevisionCache;
use olm_controller_core::UpgradeTargets;
use olm_controller_core::install_error::InstallError;
use olm_controller_core::metrics::ExtensionMetrics;
use olm_platform::ConstrainedRevision;
use olm_request::{ClusterState, ExtensionRules, is_available, priority};
use olm_resolve::{AssessedRequirement, Catalog, Indexing, missing_packages, satisfiers};
use olm_runtime::traces::TRACES;
use tokio::time::Instant;
use tracing::Instrument;

use super::choice::{self, Choice, ChoiceRequest, ResolutionFailure, ResolutionInputs};
use super::findings::Hints;
use super::memory::Memories;
use super::observed::ObservedExtension;
use super::rollback;
use crate::catalogs::Catalogs;
use crate::dependencies::Dependencies;
use crate::features::Features;

/// Maximum number of packages searched for bundles that satisfy a requirement.
const SEARCHED: usize = 16;
/// Time that an extension waits for catalog content before its status reports it.
pub(super) const CONTENT_WAIT: Duration = Duration::from_secs(20);

/// Resolves extensions.
pub(super) struct Resolver<'a> {
    pub catalogs: &'a Catalogs,
    pub catalog_store: &'a Store<ClusterCatalog>,
    pub extensions: &'a Store<ClusterExtension>,
    pub cache: &'a RevisionCache,
    pub dependencies: &'a Dependencies,
    /// Possible upgrades, for the verdict on the platform.
    pub upgrade_targets: &'a UpgradeTargets,
    pub metrics: &'a ExtensionMetrics,
    pub memories: &'a Memories,
    pub features: Features,
}

impl Resolver<'_> {
    pub(super) async fn choose(
        &self,
        observed: &ObservedExtension<'_>,
        filter: &CatalogFilter,
    ) -> Result<Choice, Box<ResolutionFailure>> {
        let ObservedExtension { name: extension, rules, states, edited, .. } = observed;
        let question = ChoiceRequest { filter, states, rules };
        if let Some(choice) = choice::rolling_choice(question, *edited || rollback::is_ended(observed)) {
            return Ok(choice);
        }
        let started = Instant::now();
        let span = tracing::info_span!(target: TRACES, "resolve", package = filter.package_name);
        let chosen = self.resolve(extension, question).instrument(span).await;
        if chosen.as_ref().map_or_else(|refusal| !refusal.awaits_content, |_| true) {
            self.metrics.resolved(chosen.is_ok(), started.elapsed());
        }
        chosen
    }

    async fn resolve(
        &self,
        extension: &str,
        question: ChoiceRequest<'_>,
    ) -> Result<Choice, Box<ResolutionFailure>> {
        let ChoiceRequest { filter, rules, .. } = question;
        let inputs = self.inputs(extension, filter, rules).await;
        let inputs = inputs.map_err(|failure| ResolutionFailure::other(failure, rules))?;
        let may_await_content = self.may_await_content(extension, inputs.awaits_content());
        if may_await_content && inputs.group_awaits_content {
            let failure = InstallError::retry("content of catalogs of the upgrade group is being fetched");
            let refusal = ResolutionFailure::other(failure, rules);
            return Err(Box::new(ResolutionFailure { awaits_content: true, ..*refusal }));
        }
        let awaiting_content = rules.awaiting_content(may_await_content);
        let question = ChoiceRequest { rules: &awaiting_content, ..question };
        self.record_targets(extension, question, &inputs);
        let resolution = question.resolve(&inputs);
        let hints = self.hints(extension, choice::judged(&resolution)).await;
        question.decide(&inputs, resolution, hints).map_err(|refusal| {
            let awaits_content = may_await_content && (refusal.awaits_content || rules.settings.best_effort);
            Box::new(ResolutionFailure { awaits_content, ..*refusal })
        })
    }

    /// Reports whether an extension waits for catalog content, and has done so for less than [`CONTENT_WAIT`].
    pub(super) fn may_await_content(&self, extension: &str, awaits_content: bool) -> bool {
        self.memories.with(extension, |memory| {
            let since = awaits_content.then(|| memory.waiting_since.unwrap_or_else(Instant::now));
            memory.waiting_since = since;
            since.is_some_and(|since| since.elapsed() < CONTENT_WAIT)
        })
    }

    /// Records the possible upgrades of an extension with a bundle that limits the platform
    /// (docs/design/operations.md#upgrade-targets).
    fn record_targets(&self, extension: &str, question: ChoiceRequest<'_>, inputs: &ResolutionInputs) {
        let limits = |revision: &Arc<ClusterObjectSet>| {
            ConstrainedRevision::of(revision).is_some_and(|one| one.has_limits())
        };
        if self.cache.of_extension(extension).iter().any(limits)
            && let Some(reach) = question.reach(inputs)
        {
            self.upgrade_targets.record(extension, &reach);
        }
    }

    async fn inputs(
        &self,
        extension: &str,
        filter: &CatalogFilter,
        rules: &ExtensionRules,
    ) -> Result<ResolutionInputs, InstallError> {
        let all = self.catalog_store.state();
        let selected = choice::selected(filter, &all);
        let catalog_exists = selected.as_ref().map_or(true, |selected| !selected.is_empty());
        let catalogs = match selected {
            Ok(selected) => Ok(self.ask(&selected, &filter.package_name, rules.indexing()).await),
            Err(fault) => Err(fault),
        };
        let mut cluster_state = ClusterState::default();
        if rules.judges_dependencies() {
            let protects = |other: &str, type_: &str| self.features.protects(self.extensions, other, type_);
            let (providers, dependents) = self.dependencies.available_providers(extension, protects).await?;
            cluster_state = ClusterState { providers: Some(providers), dependents, ..cluster_state };
        }
        if rules.settings.cluster_constraints {
            cluster_state.cluster = Some(self.dependencies.cluster_facts().await?);
        }
        let group_awaits_content = self.add_group(extension, rules, &mut cluster_state).await;
        Ok(ResolutionInputs { catalogs, catalog_exists, cluster_state, group_awaits_content })
    }

    /// Answers of these catalogs for one package. Catalogs with availability mode `Unavailable` are skipped.
    pub(super) async fn ask(
        &self,
        catalogs: &[&ClusterCatalog],
        package: &str,
        indexing: Indexing,
    ) -> Vec<Catalog> {
        let asked = catalogs.iter().filter(|catalog| is_available(catalog));
        join_all(asked.map(|catalog| async {
            Catalog {
                name: catalog.name_any(),
                priority: priority(catalog),
                package: self.catalogs.package(catalog, package, indexing).await,
            }
        }))
        .await
    }

    /// Hints for unsatisfied requirements: matching bundles of all catalogs, whether or not the extension selects
    /// them, and extensions that are not installed yet.
    async fn hints(&self, extension: &str, requirements: &[AssessedRequirement]) -> Hints {
        let missing = missing_packages(requirements);
        if missing.is_empty() {
            return Hints::default();
        }
        let all = self.catalog_store.state();
        let catalogs: Vec<&ClusterCatalog> = all.iter().map(|catalog| &**catalog).collect();
        // Same indexing as for extensions that install these packages. With another one the two would re-index in
        // turns.
        let indexing = Indexing { properties: true, release_support: self.features.settings.releases };
        let searched = missing.iter().take(SEARCHED).map(|package| self.ask(&catalogs, package, indexing));
        let answers: Vec<Catalog> = join_all(searched).await.into_iter().flatten().collect();
        let packages: Vec<_> = answers
            .iter()
            .filter_map(|answer| Some((answer.name.as_str(), answer.package.as_ref().ok()?.as_deref()?)))
            .collect();
        let satisfiers = satisfiers(requirements, &packages);
        let extensions = self.extensions.state();
        Hints { satisfiers, not_installed: not_installed(&extensions, extension, &missing) }
    }
}

/// Names of the other extensions that request one of these packages and are not installed, sorted.
fn not_installed(
    extensions: &[Arc<ClusterExtension>],
    except: &str,
    packages: &BTreeSet<&str>,
) -> Vec<String> {
    let wants = |extension: &&Arc<ClusterExtension>| {
        let filter = extension.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
        extension.name_any() != except
            && filter.is_some_and(|filter| packages.contains(filter.package_name.as_str()))
            && !extension.is_true(types::INSTALLED)
    };
    let mut names: Vec<String> =
        extensions.iter().filter(wants).map(|extension| extension.name_any()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Case additions-e19
    #[test]
    fn extensions_not_yet_installed_are_listed_sorted() {
        let extension = |name: &str, package: &str, installed: Option<&str>| {
            let mut extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                "metadata": {"name": name}, "spec": {"namespace": "ns", "source": {"sourceType": "Catalog",
                "catalog": {"packageName": package}}}});
            if let Some(status) = installed {
                extension["status"]["conditions"] = json!([{"type": "Installed", "status": status, "reason": "R",
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            }
            Arc::new(serde_json::from_value(extension).unwrap())
        };
        let all = [
            extension("late", "base", Some("False")),
            extension("early", "base", None),
            extension("done", "base", Some("True")),
            extension("other", "else", None),
            extension("self", "base", None),
        ];
        assert_eq!(not_installed(&all, "self", &BTreeSet::from(["base"])), ["early", "late"]);
    }
}
