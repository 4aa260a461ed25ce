//! Which bundle an extension shall have (docs/design/apply.md#choice-of-the-bundle,
//! docs/design/resolution.md#served-catalogs). Pure: what catalogs and cluster say comes in a
//! [`ResolutionInputs`].

use std::collections::BTreeMap;
use std::sync::Arc;

use olm_api::cluster_extension::{BundleMetadata, CatalogFilter};
use olm_api::{ClusterCatalog, annotations};
use olm_extension::{Around, ExtensionRules, request, selector};
use olm_fbc::Property;
use olm_resolve::{
    AssessedRequirement, Catalog, CatalogError, DEPENDENCY_PROPERTIES, Held, HeldReason, Request,
    ResolveError, Resolved, Rules, SelectorError, Target, explain, resolve, target,
};
use olm_version::{Constraint, VersionRelease};
use serde::Serialize;
use serde_json::value::RawValue;

use super::findings::{self, Finding, Findings, Hints};
use super::notices::{self, Notice};
use super::revisions::{Revision, RevisionStates};
use super::status::Knowledge;
use crate::failure::Failure;

/// Catalog properties of a bundle that are recorded whole, in bytes of JSON; of more only those that others may rely on.
const PROPERTIES_BYTES: usize = 32 * 1024;

/// A bundle to install.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChosenBundle {
    /// Name, version and release as `status.install.bundle` shows them.
    pub bundle: BundleMetadata,
    /// Package of the bundle.
    pub package: String,
    /// Image of the bundle.
    pub image: String,
    /// What its revision records of its catalog entry, where dependencies are judged.
    pub catalog_properties: Option<String>,
}

impl ChosenBundle {
    /// The bundle of a revision.
    pub(super) fn of_revision(revision: &Revision, rules: &ExtensionRules) -> Self {
        let recorded = revision.catalog_properties.clone();
        Self {
            bundle: revision.bundle.clone(),
            package: revision.package.clone(),
            image: revision.image.clone(),
            catalog_properties: recorded.filter(|_| rules.judges_dependencies()),
        }
    }

    fn resolved(resolved: &Resolved, package: &str, rules: &ExtensionRules) -> Self {
        let (version, release) = resolved.version.shown(rules.settings.releases);
        let recorded = rules.judges_dependencies().then(|| catalog_properties(resolved.properties()));
        Self {
            bundle: BundleMetadata { name: resolved.bundle.clone(), version, release },
            package: package.to_owned(),
            image: resolved.image.clone(),
            catalog_properties: recorded.flatten(),
        }
    }
}

/// The target bundle, and what there is to report about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// The bundle.
    pub target: ChosenBundle,
    /// What is known of deprecation.
    pub deprecation: Knowledge,
    /// What our own rules say.
    pub findings: Findings,
    /// What is worth an Event.
    pub notices: Vec<Notice>,
    /// The choice depends on what else is on the cluster, and is to be made again soon.
    pub look_again: bool,
}

/// Why nothing could be chosen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// The resolver's text.
    pub failure: Failure,
    /// It is because some catalog's content is not here yet; there will be another look when it is.
    pub awaits_content: bool,
    /// What is known of deprecation.
    pub deprecation: Knowledge,
    /// What our own rules say.
    pub findings: Findings,
    /// The refusal depends on what else is on the cluster, and the choice is to be made again soon.
    pub look_again: bool,
}

impl Refusal {
    /// Something else than the choice failed.
    pub(super) fn other(failure: Failure, rules: &ExtensionRules) -> Box<Self> {
        Box::new(Self {
            failure,
            awaits_content: false,
            deprecation: Knowledge::Unchanged,
            findings: Findings::unchanged(rules),
            look_again: false,
        })
    }
}

/// What a choice depends on besides the extension.
pub(crate) struct ResolutionInputs {
    /// The answers of the catalogs that the extension selects and that are not switched off.
    pub catalogs: Result<Vec<Catalog>, SelectorError>,
    /// Some ClusterCatalog is selected, whatever its state; so it is taken where the selector cannot be read.
    pub catalog_exists: bool,
    /// What else is on the cluster.
    pub around: Around,
}

impl ResolutionInputs {
    /// Whether the content of some catalog is not here yet.
    pub(crate) fn awaits_content(&self) -> bool {
        let answers = self.catalogs.iter().flatten();
        answers
            .map(|catalog| &catalog.package)
            .any(|answer| matches!(answer, Err(CatalogError::NotCached(_))))
    }
}

/// What an extension asks for.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    /// `spec.source.catalog`.
    pub filter: &'a CatalogFilter,
    /// Its revisions.
    pub states: &'a RevisionStates,
    /// The rules that it is under.
    pub rules: &'a ExtensionRules,
}

/// The revision that is rolling out stays the target while its version is within the wanted range, unless the
/// extension has `changed` since it was last looked at (docs/design/apply.md#choice-of-the-bundle).
pub(crate) fn underway(question: Question<'_>, changed: bool) -> Option<Choice> {
    let Question { filter, states, rules } = question;
    let rolling = states.rolling_out.last().filter(|rolling| !changed && admits(filter, &rolling.bundle))?;
    Some(Choice {
        target: ChosenBundle::of_revision(rolling, rules),
        deprecation: Knowledge::Unchanged,
        findings: Findings::unchanged(rules),
        notices: Vec::new(),
        look_again: false,
    })
}

/// The catalogs that the extension selects.
///
/// # Errors
/// The selector cannot be read.
pub(crate) fn selected<'a>(
    filter: &CatalogFilter,
    catalogs: &'a [Arc<ClusterCatalog>],
) -> Result<Vec<&'a ClusterCatalog>, SelectorError> {
    let selector = selector(filter.selector.as_ref())?;
    let unlabelled = BTreeMap::new();
    let matches =
        |catalog: &&ClusterCatalog| selector.matches(catalog.metadata.labels.as_ref().unwrap_or(&unlabelled));
    Ok(catalogs.iter().map(|catalog| &**catalog).filter(matches).collect())
}

/// The requirements that were judged, be it that they stand in the way or that they are to be reported.
pub(crate) fn judged(resolution: &Result<Resolved, ResolveError>) -> &[AssessedRequirement] {
    match resolution {
        Ok(resolved) => &resolved.requirements,
        Err(error) => match error.cause() {
            ResolveError::DependenciesNotSatisfied { unmet, .. } => unmet,
            _ => &[],
        },
    }
}

impl<'a> Question<'a> {
    fn request(self, inputs: &'a ResolutionInputs) -> Request<'a> {
        let Self { filter, states, rules } = self;
        request(filter, states.installed.as_ref().map(|revision| &revision.bundle), rules, &inputs.around)
    }

    /// Asks the resolver.
    ///
    /// # Errors
    /// The resolver's.
    pub(crate) fn resolve(self, inputs: &ResolutionInputs) -> Result<Resolved, ResolveError> {
        match &inputs.catalogs {
            Ok(catalogs) => resolve(&self.request(inputs), catalogs),
            Err(fault) => Err(ResolveError::Selector(fault.clone())),
        }
    }

    /// Decides on the bundle from what the resolver said.
    ///
    /// Where no catalog matches any more, the installed bundle stays the target if the wanted range admits its version
    /// (docs/design/apply.md#pinning); so it does where rules hold back all that could follow it
    /// (docs/design/additions.md#held-upgrades).
    ///
    /// # Errors
    /// The resolver's text.
    pub(crate) fn decide(
        self,
        inputs: &ResolutionInputs,
        resolution: Result<Resolved, ResolveError>,
        hints: Hints,
    ) -> Result<Choice, Box<Refusal>> {
        let Self { filter, states, rules } = self;
        let error = match target(&self.request(inputs), resolution, inputs.catalog_exists) {
            Target::Bundle(resolved) => return Ok(self.chosen(inputs, &resolved, &hints)),
            Target::Retry(error) | Target::Installed(error) => error,
        };
        let (error, left_out) = match error {
            ResolveError::BestEffort { error, left_out } => (*error, left_out),
            other => (other, Vec::new()),
        };
        let findings = Findings { left_out, ..self.refused(&error, &hints) };
        let look_again = error.held().iter().any(is_held_by_others);
        // Where nothing new can be chosen, what is under way, or else installed, stays.
        let is_held = !error.held().is_empty();
        let kept = states.newest();
        let kept = kept.filter(|_| is_held || !inputs.catalog_exists);
        let deprecation = if is_held { Knowledge::Unchanged } else { Knowledge::None };
        if let Some(kept) = kept.filter(|kept| admits(filter, &kept.bundle)) {
            let target = ChosenBundle::of_revision(kept, rules);
            return Ok(Choice { target, deprecation, findings, notices: Vec::new(), look_again });
        }
        let awaits_content = matches!(error, ResolveError::Catalog { fault: CatalogError::NotCached(_), .. });
        let failure = Failure::retry(with_hints(error, hints));
        let deprecation = Knowledge::None;
        Err(Box::new(Refusal { failure, awaits_content, deprecation, findings, look_again }))
    }

    fn chosen(self, inputs: &ResolutionInputs, resolved: &Resolved, hints: &Hints) -> Choice {
        let Self { filter, states, rules } = self;
        let mut findings = Findings { left_out: resolved.left_out.clone(), ..Findings::default() };
        if rules.can_hold() {
            findings.upgrade = Finding::Is(findings::upgrade(&resolved.held));
        }
        if rules.judges_dependencies() {
            let (bundle, requirements) = (&resolved.bundle, &resolved.requirements);
            let mode = rules.settings.dependencies;
            findings.dependencies = Finding::Is(findings::dependencies(bundle, requirements, mode, hints));
        }
        let target = ChosenBundle::resolved(resolved, &filter.package_name, rules);
        let identity = |bundle: &BundleMetadata| (bundle.name.clone(), bundle.version.clone());
        let installed = states.installed.as_ref().map(|installed| identity(&installed.bundle));
        let is_new = installed != Some(identity(&target.bundle));
        Choice {
            notices: if is_new { self.notices(inputs, resolved) } else { Vec::new() },
            deprecation: Knowledge::Catalog(resolved.deprecations().clone(), filter.channels.clone()),
            look_again: resolved.held.iter().any(is_held_by_others)
                || resolved.requirements.iter().any(|one| !one.is_met()),
            findings,
            target,
        }
    }

    fn refused(self, error: &ResolveError, hints: &Hints) -> Findings {
        let Self { states, rules, .. } = self;
        let mut findings = Findings::unchanged(rules);
        if states.installed.is_some() && !error.held().is_empty() {
            findings.upgrade = Finding::Is(findings::upgrade(error.held()));
        }
        if let ResolveError::DependenciesNotSatisfied { bundle, unmet, .. } = error
            && states.installed.is_none()
        {
            let mode = rules.settings.dependencies;
            findings.dependencies = Finding::Is(findings::dependencies(bundle, unmet, mode, hints));
        }
        findings
    }

    /// What is worth saying about a bundle that is to be installed.
    fn notices(self, inputs: &ResolutionInputs, resolved: &Resolved) -> Vec<Notice> {
        let Ok(catalogs) = &inputs.catalogs else { return Vec::new() };
        let request = self.request(inputs);
        let note = notices::resolution(&explain(&request, catalogs));
        let remarks =
            resolved.remarks.iter().map(|remark| Notice::warning(notices::RESOLVED, remark.to_string()));
        let mut all = vec![Notice::normal(notices::RESOLVED, note)];
        all.extend(remarks);
        // An override has an effect if the choice is another one without it.
        let overrides = [
            (annotations::EXT_IGNORE_DEPENDENCIES, Rules { ignored_requirements: &[], ..request.rules }),
            (
                annotations::EXT_IGNORE_DEPENDENTS,
                Rules { dependents: &inputs.around.dependents, ..request.rules },
            ),
        ];
        for (key, rules) in overrides {
            let strict = resolve(&Request { rules, ..request }, catalogs);
            if strict.map(|strict| strict.bundle).ok().as_ref() != Some(&resolved.bundle) {
                let note = format!("bundle {} is chosen because of annotation {key}", resolved.bundle);
                all.push(Notice::warning(notices::OVERRIDE_USED, note));
            }
        }
        all
    }
}

/// Whether the candidate may pass as soon as something else on the cluster changes.
fn is_held_by_others(held: &Held) -> bool {
    matches!(held.reason, HeldReason::Dependencies(_) | HeldReason::Dependent(_) | HeldReason::Cluster(_))
}

/// The text of the error with all that may help.
fn with_hints(error: ResolveError, hints: Hints) -> String {
    let rest = findings::not_installed(&hints);
    let error = match error {
        ResolveError::DependenciesNotSatisfied { bundle, unmet, instead, held, .. } => {
            let satisfiers = hints.satisfiers;
            ResolveError::DependenciesNotSatisfied { bundle, unmet, satisfiers, instead, held }
        }
        other => other,
    };
    format!("{error}{rest}")
}

/// Whether the wanted range admits the bundle's version; no range admits every version.
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

/// The properties of a catalog entry as its bundle's revision records them, `None` where there are none.
fn catalog_properties(properties: &[Property]) -> Option<String> {
    #[derive(Serialize)]
    struct Entry<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        value: &'a RawValue,
    }
    let list = |wanted: fn(&str) -> bool| {
        let wanted = properties.iter().filter(|property| wanted(&property.kind));
        let entries: Vec<Entry<'_>> = wanted.map(|Property { kind, value }| Entry { kind, value }).collect();
        serde_json::to_string(&entries).ok().filter(|_| !entries.is_empty())
    };
    let all = list(|_| true)?;
    if all.len() <= PROPERTIES_BYTES { Some(all) } else { list(others_rely_on) }
}

/// Whether the property says what a bundle is, provides or requires.
fn others_rely_on(type_: &str) -> bool {
    ["olm.package", "olm.gvk"].contains(&type_) || DEPENDENCY_PROPERTIES.contains(&type_)
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
