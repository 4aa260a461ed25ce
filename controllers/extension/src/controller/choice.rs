//! Choice of the bundle for an extension (docs/design/apply.md#choice-of-the-bundle,
//! docs/design/resolution.md#served-catalogs). Pure: the answers of catalogs and cluster come in
//! [`ResolutionInputs`].

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use olm_api::cluster_extension::{BundleMetadata, CatalogFilter};
use olm_api::{ClusterCatalog, annotations};
use olm_controller_core::install_error::InstallError;
use olm_fbc::Property;
use olm_request::{ClusterState, ExtensionRules, request, selector};
use olm_resolve::{
    AssessedRequirement, Catalog, CatalogError, DEPENDENCY_PROPERTIES, HeldReason, Reach, Request,
    ResolveError, Resolved, Rules, SelectorError, Waiting, explain, required_members, resolve, waiting,
};
use olm_revision::generate::BundleIdentity;
use olm_version::{Constraint, VersionRelease};

use super::events::{self, ExtensionEvent};
use super::findings::{self, ConditionChange, ConditionChanges, Hints};
use super::revisions::{Revision, RevisionStates, is_other};
use super::status::DeprecationData;

/// Maximum JSON size in bytes of the catalog properties that a revision records completely. Above it, only those
/// that other bundles may depend on are recorded.
const PROPERTIES_BYTES: usize = 32 * 1024;

/// Bundle of a revision, as the target.
pub(super) fn of_revision(revision: &Revision, rules: &ExtensionRules) -> BundleIdentity {
    let BundleMetadata { name, version, release } = revision.bundle.clone();
    let recorded = revision.catalog_properties.clone();
    BundleIdentity {
        name,
        package: revision.package.clone(),
        version,
        release,
        image: revision.image.clone(),
        catalog_properties: recorded.filter(|_| rules.judges_dependencies()),
        ..BundleIdentity::default()
    }
}

/// Bundles of the other members of an upgrade group that move in the same step, by extension.
pub(super) type Together = BTreeMap<String, String>;

/// Target bundle and its findings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// Bundle to install, without the properties in its image. Its catalog properties are recorded only if dependencies
    /// are checked.
    pub target: BundleIdentity,
    /// Name of the catalog that it was chosen from, if one was asked.
    pub catalog: Option<String>,
    /// Deprecation data.
    pub deprecation: DeprecationData,
    /// Conditions of annotations and gates.
    pub findings: ConditionChanges,
    /// Events to publish.
    pub events: Vec<ExtensionEvent>,
    /// Members of the upgrade group without which the target does not fit.
    pub together: Together,
    /// `true` if the choice depends on other objects of the cluster and must be repeated soon.
    pub requeue: bool,
}

impl Choice {
    /// Choice of the bundle of a revision, without a catalog.
    fn kept(
        revision: &Revision,
        rules: &ExtensionRules,
        deprecation: DeprecationData,
        findings: ConditionChanges,
    ) -> Self {
        Self {
            target: of_revision(revision, rules),
            catalog: None,
            deprecation,
            findings,
            events: Vec::new(),
            together: Together::new(),
            requeue: false,
        }
    }

    /// `bundle … version … from catalog …`
    pub(super) fn described(&self) -> String {
        let BundleIdentity { name, version, .. } = &self.target;
        let catalog = self.catalog.as_ref().map(|catalog| format!(" from catalog {catalog}"));
        format!("bundle {name} version {version}{}", catalog.unwrap_or_default())
    }
}

/// Reason that no bundle was chosen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResolutionFailure {
    /// Error text of the resolver.
    pub failure: InstallError,
    /// `true` if the content of a catalog is not cached yet. Its arrival triggers a reconcile.
    pub awaits_content: bool,
    /// Deprecation data.
    pub deprecation: DeprecationData,
    /// Conditions of annotations and gates.
    pub findings: ConditionChanges,
    /// `true` if the refusal depends on other objects of the cluster and the choice must be repeated soon.
    pub requeue: bool,
}

impl ResolutionFailure {
    /// Returns a refusal for a failure outside of the choice.
    pub(super) fn other(failure: InstallError, rules: &ExtensionRules) -> Box<Self> {
        Box::new(Self {
            failure,
            awaits_content: false,
            deprecation: DeprecationData::Unchanged,
            findings: ConditionChanges::unchanged(rules),
            requeue: false,
        })
    }
}

/// Inputs of a choice besides the extension.
pub(crate) struct ResolutionInputs {
    /// Answers of the selected catalogs with availability mode `Available`.
    pub catalogs: Result<Vec<Catalog>, SelectorError>,
    /// `true` if any ClusterCatalog is selected, in whatever state, or if the selector is invalid.
    pub catalog_exists: bool,
    /// Other objects of the cluster.
    pub cluster_state: ClusterState,
    /// `true` if content for another member of the upgrade group is not cached yet.
    pub group_awaits_content: bool,
}

impl ResolutionInputs {
    /// Reports whether the content of a catalog is not cached yet.
    pub(crate) fn awaits_content(&self) -> bool {
        let mut answers = self.catalogs.iter().flatten();
        self.group_awaits_content
            || answers.any(|catalog| matches!(catalog.package, Err(CatalogError::NotCached(_))))
    }

    /// Reports whether all selected catalogs answer, and none of them has the package.
    fn lack_package(&self) -> bool {
        let catalogs = self.catalogs.as_ref();
        catalogs.is_ok_and(|all| all.iter().all(|catalog| matches!(catalog.package, Ok(None))))
    }
}

/// Request of an extension.
#[derive(Clone, Copy)]
pub(crate) struct ChoiceRequest<'a> {
    pub filter: &'a CatalogFilter,
    pub states: &'a RevisionStates,
    pub rules: &'a ExtensionRules,
}

/// Keeps the revision that is rolling out as the target while the version range admits it, unless the extension has
/// `changed` since the last reconcile (docs/design/apply.md#choice-of-the-bundle).
pub(crate) fn rolling_choice(question: ChoiceRequest<'_>, changed: bool) -> Option<Choice> {
    let ChoiceRequest { filter, states, rules } = question;
    let changed = changed || states.is_newest_removed;
    let rolling = states.rolling_out.last().filter(|rolling| !changed && admits(filter, &rolling.bundle))?;
    Some(Choice::kept(rolling, rules, DeprecationData::Unchanged, ConditionChanges::unchanged(rules)))
}

/// Catalogs that the extension selects.
///
/// # Errors
/// The selector is invalid.
pub(crate) fn selected<'a>(
    filter: &CatalogFilter,
    catalogs: &'a [Arc<ClusterCatalog>],
) -> Result<Vec<&'a ClusterCatalog>, SelectorError> {
    let selector = selector(filter.selector.as_ref())?;
    let matches = |catalog: &&ClusterCatalog| selector.matches(catalog.labels());
    Ok(catalogs.iter().map(|catalog| &**catalog).filter(matches).collect())
}

/// Assessed requirements, whether they block the choice or are only reported.
pub(crate) fn judged(resolution: &Result<Resolved, ResolveError>) -> &[AssessedRequirement] {
    match resolution {
        Ok(resolved) => &resolved.requirements,
        Err(error) => match error.cause() {
            ResolveError::DependenciesNotSatisfied { unmet, .. } => unmet,
            _ => &[],
        },
    }
}

impl<'a> ChoiceRequest<'a> {
    fn request(self, inputs: &'a ResolutionInputs) -> Request<'a> {
        let Self { filter, states, rules } = self;
        request(
            filter,
            states.installed.as_ref().map(|revision| &revision.bundle),
            rules,
            &inputs.cluster_state,
        )
    }

    /// Runs the resolver.
    ///
    /// # Errors
    /// The error of the resolver.
    pub(crate) fn resolve(self, inputs: &ResolutionInputs) -> Result<Resolved, ResolveError> {
        match &inputs.catalogs {
            Ok(catalogs) => resolve(&self.request(inputs), catalogs),
            Err(fault) => Err(ResolveError::Selector(fault.clone())),
        }
    }

    /// Bundles that upgrades within the version range can reach. `None` if a catalog does not answer or the request is
    /// invalid.
    pub(crate) fn reach(self, inputs: &ResolutionInputs) -> Option<Reach> {
        let catalogs = inputs.catalogs.as_ref().ok()?;
        let all_answered = catalogs.iter().all(|catalog| catalog.package.is_ok());
        all_answered.then(|| Reach::new(&self.request(inputs), catalogs).ok())?
    }

    /// Decides on the bundle from the result of the resolver.
    ///
    /// If no catalog matches, the installed bundle remains the target while the version range admits it
    /// (docs/design/apply.md#pinning). The same applies if rules hold back every successor
    /// (docs/design/additions.md#held-upgrades).
    ///
    /// # Errors
    /// The error text of the resolver.
    pub(crate) fn decide(
        self,
        inputs: &ResolutionInputs,
        resolution: Result<Resolved, ResolveError>,
        hints: Hints,
    ) -> Result<Choice, Box<ResolutionFailure>> {
        let (upgrade, waiting) = self.upgrade(inputs, &resolution);
        let mut decided = self.bundle(inputs, resolution, hints);
        let (findings, requeue) = match &mut decided {
            Ok(choice) => (&mut choice.findings, &mut choice.requeue),
            Err(refusal) => (&mut refusal.findings, &mut refusal.requeue),
        };
        findings.upgrade = upgrade;
        let is_notified = self.rules.settings.update_notifications;
        findings.available_version =
            waiting.as_ref().filter(|_| is_notified).map(|waiting| waiting.version.clone());
        *requeue |= waiting.and_then(|waiting| waiting.rule).is_some_and(|rule| is_by_others(&rule));
        decided
    }

    /// Condition `UpgradeAvailable` with the version that it names (docs/design/additions.md#held-upgrades,
    /// docs/design/additions.md#update-notifications).
    fn upgrade(
        self,
        inputs: &ResolutionInputs,
        resolution: &Result<Resolved, ResolveError>,
    ) -> (ConditionChange, Option<Waiting>) {
        let Self { states, rules, filter } = self;
        let is_installed = states.installed.is_some();
        if rules.reports_upgrades() && is_installed && inputs.lack_package() {
            return (ConditionChange::State(findings::package_missing(&filter.package_name)), None);
        }
        if rules.settings.update_notifications
            && is_installed
            && let Ok(catalogs) = &inputs.catalogs
        {
            return match waiting(&self.request(inputs), catalogs, resolution) {
                Ok(waiting) => (ConditionChange::State(findings::upgrade(waiting.as_ref())), waiting),
                Err(error) if matches!(error.cause(), ResolveError::Catalog { .. }) => {
                    (ConditionChange::Unchanged, None)
                }
                Err(error) => (ConditionChange::State(findings::unknown_upgrade(&error)), None),
            };
        }
        let (held, is_evaluated) = match resolution {
            Ok(resolved) => (resolved.held.first(), rules.can_block_upgrades()),
            Err(error) => (error.held().first(), is_installed && !error.held().is_empty()),
        };
        let waiting = held.filter(|_| is_evaluated).map(Waiting::from);
        let finding = match resolution {
            _ if is_evaluated => ConditionChange::State(findings::upgrade(waiting.as_ref())),
            Ok(_) => ConditionChange::Inactive,
            Err(_) => ConditionChanges::unchanged(rules).upgrade,
        };
        (finding, waiting)
    }

    fn bundle(
        self,
        inputs: &ResolutionInputs,
        resolution: Result<Resolved, ResolveError>,
        hints: Hints,
    ) -> Result<Choice, Box<ResolutionFailure>> {
        let Self { filter, states, rules } = self;
        let error = match resolution {
            Ok(resolved) => return Ok(self.chosen(inputs, &resolved, &hints)),
            Err(error) => error,
        };
        let (error, left_out) = match error {
            ResolveError::BestEffort { error, left_out } => (*error, left_out),
            other => (other, Vec::new()),
        };
        let findings = ConditionChanges { left_out, ..self.changes_without_choice(&error, &hints) };
        let requeue = error.held().iter().any(|held| is_by_others(&held.reason));
        // Without a new choice, keep the revision that is rolling out, or else the installed one.
        let is_held = !error.held().is_empty();
        let kept = states.newest_active();
        let kept = kept.filter(|_| is_held || !inputs.catalog_exists);
        let deprecation =
            if inputs.catalog_exists { DeprecationData::Unchanged } else { DeprecationData::None };
        if let Some(kept) = kept.filter(|kept| admits(filter, &kept.bundle)) {
            return Ok(Choice { requeue, ..Choice::kept(kept, rules, deprecation, findings) });
        }
        let awaits_content = matches!(error, ResolveError::Catalog { fault: CatalogError::NotCached(_), .. });
        let failure = InstallError::retry(with_hints(error, hints));
        Err(Box::new(ResolutionFailure { failure, awaits_content, deprecation, findings, requeue }))
    }

    fn chosen(self, inputs: &ResolutionInputs, resolved: &Resolved, hints: &Hints) -> Choice {
        let Self { filter, states, rules } = self;
        let mut findings =
            ConditionChanges { left_out: resolved.left_out.clone(), ..ConditionChanges::default() };
        if rules.judges_dependencies() {
            let (bundle, requirements) = (&resolved.bundle, &resolved.requirements);
            let mode = rules.settings.dependencies;
            findings.dependencies =
                ConditionChange::State(findings::dependencies(bundle, requirements, mode, hints));
        }
        let (version, release) = resolved.version.shown(rules.settings.releases);
        let recorded = rules.judges_dependencies().then(|| catalog_properties(resolved.properties()));
        let target = BundleIdentity {
            name: resolved.bundle.clone(),
            package: filter.package_name.clone(),
            version,
            release,
            image: resolved.image.clone(),
            catalog_properties: recorded.flatten(),
            ..BundleIdentity::default()
        };
        let is_new = states.installed.as_ref().is_none_or(|installed| is_other(&installed.bundle, &target));
        Choice {
            events: if is_new { self.events(inputs, resolved) } else { Vec::new() },
            together: match &inputs.catalogs {
                Ok(catalogs) if is_new => required_members(&self.request(inputs), catalogs, resolved),
                _ => Together::new(),
            },
            deprecation: DeprecationData::Catalog(resolved.deprecations().clone(), filter.channels.clone()),
            requeue: resolved.held.iter().any(|held| is_by_others(&held.reason))
                || resolved.requirements.iter().any(|one| !one.is_met()),
            findings,
            target,
            catalog: Some(resolved.catalog.clone()),
        }
    }

    fn changes_without_choice(self, error: &ResolveError, hints: &Hints) -> ConditionChanges {
        let Self { states, rules, .. } = self;
        let mut findings = ConditionChanges::unchanged(rules);
        if let ResolveError::DependenciesNotSatisfied { bundle, unmet, .. } = error
            && states.installed.is_none()
        {
            let mode = rules.settings.dependencies;
            findings.dependencies =
                ConditionChange::State(findings::dependencies(bundle, unmet, mode, hints));
        }
        findings
    }

    /// Events about a bundle to be installed.
    fn events(self, inputs: &ResolutionInputs, resolved: &Resolved) -> Vec<ExtensionEvent> {
        let Ok(catalogs) = &inputs.catalogs else { return Vec::new() };
        let request = self.request(inputs);
        let note = events::resolution(&explain(&request, catalogs));
        let remarks =
            resolved.remarks.iter().map(|remark| ExtensionEvent::warning(events::RESOLVED, remark.clone()));
        let mut all = vec![ExtensionEvent::normal(events::RESOLVED, note)];
        all.extend(remarks);
        // An override has an effect if the resolver chooses another bundle without it.
        let overrides = [
            (annotations::EXT_IGNORE_DEPENDENCIES, Rules { ignored_requirements: &[], ..request.rules }),
            (
                annotations::EXT_IGNORE_DEPENDENTS,
                Rules { dependents: &inputs.cluster_state.dependents, ..request.rules },
            ),
        ];
        for (key, rules) in overrides {
            let strict = resolve(&Request { rules, ..request }, catalogs);
            if strict.map(|strict| strict.bundle).ok().as_ref() != Some(&resolved.bundle) {
                let note = format!("bundle {} is chosen because of annotation {key}", resolved.bundle);
                all.push(ExtensionEvent::warning(events::OVERRIDE_USED, note));
            }
        }
        all
    }
}

/// Reports whether a change of other objects in the cluster may release a candidate with this reason.
fn is_by_others(reason: &HeldReason) -> bool {
    matches!(reason, HeldReason::Dependencies(_) | HeldReason::Dependent(_) | HeldReason::Cluster(_))
}

/// Error text with the hints appended.
fn with_hints(mut error: ResolveError, hints: Hints) -> String {
    let rest = findings::not_installed(&hints);
    if let ResolveError::DependenciesNotSatisfied { satisfiers, .. } = &mut error {
        *satisfiers = hints.satisfiers;
    }
    format!("{error}{rest}")
}

/// Reports whether the version range admits the bundle. An empty range admits every version.
fn admits(filter: &CatalogFilter, bundle: &BundleMetadata) -> bool {
    let Some(range) = filter.version.as_deref().filter(|range| !range.is_empty()) else {
        return true;
    };
    let version = VersionRelease::parse(&bundle.version, bundle.release.as_deref());
    match (Constraint::parse(range), version) {
        (Ok(constraint), Ok(version)) => constraint.matches(version.version()),
        _ => false,
    }
}

/// Properties of a catalog entry as JSON, as the revision records them. `None` if there are none.
fn catalog_properties(properties: &[Property]) -> Option<String> {
    let list = |is_selected: fn(&str) -> bool| {
        let selected: Vec<_> = properties.iter().filter(|property| is_selected(&property.kind)).collect();
        serde_json::to_string(&selected).ok().filter(|_| !selected.is_empty())
    };
    let all = list(|_| true)?;
    if all.len() <= PROPERTIES_BYTES { Some(all) } else { list(others_rely_on) }
}

/// Reports whether other bundles may depend on the property: it identifies the bundle, or states what it provides
/// or requires.
fn others_rely_on(type_: &str) -> bool {
    ["olm.package", "olm.gvk"].contains(&type_) || DEPENDENCY_PROPERTIES.contains(&type_)
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
