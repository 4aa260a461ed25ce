//! Resolution result: the choice of the resolver, with warnings and hints.

use olm_cli_catalog::package::CatalogPackage;
use olm_cli_core::error::Code;
use olm_request::request;
use olm_resolve::{
    Catalog, Explanation, Request, ResolveError, Resolved, explain, missing_packages, resolve, satisfiers,
};
use olm_version::{Version, VersionRelease};
use serde::Serialize;

use super::catalogs::Catalogs;
use super::dependency_inputs::DependencyInputs;
use super::hints;
use super::query::Query;

/// Result for one extension.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    /// Name of the ClusterExtension, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extension: Option<String>,
    pub(super) package: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) installed: Option<InstalledText>,
    pub(super) outcome: ResolutionOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chosen: Option<ChosenBundle>,
    /// Error text of the controller's condition if nothing is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Suggestions to make the resolution succeed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hints: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// Newer bundles that are held back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) held: Vec<HeldBundle>,
    /// Every bundle of every catalog, with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) explanation: Option<Explanation>,
    /// Exit code if nothing is chosen.
    #[serde(skip)]
    pub(super) code: Option<Code>,
}

/// Installed bundle.
#[derive(Debug, Serialize)]
pub(super) struct InstalledText {
    pub(super) bundle: String,
    pub(super) version: String,
}

/// Action that follows from the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum ResolutionOutcome {
    /// New installation.
    Install,
    /// A higher version replaces the installed one.
    Upgrade,
    /// A lower version replaces the installed one.
    Downgrade,
    /// The installed version is chosen.
    Stay,
    /// The catalogs are unavailable, so the installed bundle is kept.
    Kept,
    /// Nothing can be chosen.
    Nothing,
}

/// Chosen bundle.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChosenBundle {
    pub(super) bundle: String,
    /// Version as shown in the status of an extension.
    pub(super) version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) release: Option<String>,
    pub(super) catalog: String,
    pub(super) image: String,
    /// Channels that contain the bundle.
    pub(super) channels: Vec<String>,
    pub(super) default_channel: String,
    /// `true` if the default channel does not contain the bundle (docs/design/cli.md#default-channel).
    pub(super) outside_default_channel: bool,
    /// Edges that lead from the installed bundle to this one, such as `replaces (stable)`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) edges: Vec<String>,
    pub(super) deprecated: bool,
    /// Dependencies, and the bundle that satisfies each, in modes Report and Check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) requirements: Vec<String>,
}

/// Bundle that a rule holds back.
#[derive(Debug, Serialize)]
pub(super) struct HeldBundle {
    pub(super) bundle: String,
    pub(super) version: String,
    pub(super) catalog: String,
    /// Reason for which it is held back.
    pub(super) reason: String,
    /// Command or change that releases it.
    pub(super) release: String,
}

/// Inputs of a resolution other than the request.
pub(super) struct AnswerInputs<'a> {
    pub(super) catalogs: &'a Catalogs,
    pub(super) dependencies: &'a DependencyInputs,
    pub(super) explain: bool,
}

impl Answer {
    /// Resolves as the controller does.
    pub(super) fn new(query: &Query, inputs: &AnswerInputs<'_>) -> Self {
        let cluster_state = inputs.dependencies.cluster_state(query, inputs.catalogs);
        let request = request(&query.filter, query.installed.as_ref(), &query.rules, &cluster_state);
        let catalogs = inputs.catalogs.responses(query.package(), &query.selector);
        let answer = Self {
            extension: query.extension.clone(),
            package: query.package().to_owned(),
            installed: query.installed.as_ref().map(|installed| InstalledText {
                bundle: installed.name.clone(),
                version: installed.version.clone(),
            }),
            outcome: ResolutionOutcome::Nothing,
            chosen: None,
            error: None,
            hints: Vec::new(),
            warnings: Vec::new(),
            held: Vec::new(),
            explanation: inputs.explain.then(|| explain(&request, &catalogs)),
            code: None,
        };
        match resolve(&request, &catalogs) {
            Ok(resolved) => answer.with_choice(query, inputs, &request, &resolved),
            Err(error) if request.keeps_installed(inputs.catalogs.exists(&query.selector)) => {
                let kept =
                    "no catalog is selected; operator-controller keeps the installed bundle".to_owned();
                Self {
                    outcome: ResolutionOutcome::Kept,
                    error: Some(error.to_string()),
                    warnings: vec![kept],
                    ..answer
                }
            }
            Err(error) => answer.with_error(query, inputs, &request, &catalogs, error),
        }
    }

    fn with_choice(
        self,
        query: &Query,
        inputs: &AnswerInputs<'_>,
        request: &Request<'_>,
        resolved: &Resolved,
    ) -> Self {
        let package = inputs.catalogs.package(&resolved.catalog, query.package());
        let origin = request.installed.and_then(|installed| installed.origin().ok());
        let outcome = match &origin {
            None if query.installed.is_some() => ResolutionOutcome::Upgrade,
            None => ResolutionOutcome::Install,
            Some(origin) => outcome(&origin.version, &resolved.version),
        };
        let offer = package.and_then(|package| package.offer(&resolved.bundle));
        let channels: Vec<_> = offer.iter().flat_map(|offer| offer.channels()).map(str::to_owned).collect();
        let default_channel = package.map(CatalogPackage::default_channel).unwrap_or_default().to_owned();
        let edges = offer.iter().zip(&origin).flat_map(|(offer, origin)| {
            let edges = offer.edges_from(origin, request.channels);
            edges.map(|edge| format!("{} ({})", edge.rule.as_str(), edge.channel)).collect::<Vec<_>>()
        });
        let (version, release) = resolved.version.shown(query.rules.settings.releases);
        let chosen = ChosenBundle {
            bundle: resolved.bundle.clone(),
            version,
            release,
            catalog: resolved.catalog.clone(),
            image: resolved.image.clone(),
            outside_default_channel: !default_channel.is_empty() && !channels.contains(&default_channel),
            channels,
            default_channel,
            edges: edges.collect(),
            deprecated: resolved.deprecated,
            requirements: resolved.requirements.iter().map(ToString::to_string).collect(),
        };
        let held = resolved.held.iter().map(|held| HeldBundle {
            bundle: held.bundle.clone(),
            version: held.version.clone(),
            catalog: held.catalog.clone(),
            reason: held.reason.to_string(),
            release: hints::release(query, held),
        });
        let warnings = warnings(query, package, resolved, &chosen);
        Self { outcome, held: held.collect(), warnings, chosen: Some(chosen), ..self }
    }

    fn with_error(
        self,
        query: &Query,
        inputs: &AnswerInputs<'_>,
        request: &Request<'_>,
        catalogs: &[Catalog],
        error: ResolveError,
    ) -> Self {
        let error = with_satisfiers(error, inputs.catalogs);
        let hints = hints::hints(query, inputs.catalogs, request, catalogs, &error);
        let code = match error.cause() {
            ResolveError::Catalog { .. } | ResolveError::List(_) => Code::Operational,
            ResolveError::Version { .. } | ResolveError::Selector(_) | ResolveError::Installed { .. } => {
                Code::Usage
            }
            _ => Code::NoCandidate,
        };
        Self { error: Some(error.to_string()), hints, code: Some(code), ..self }
    }
}

fn outcome(installed: &VersionRelease, chosen: &VersionRelease) -> ResolutionOutcome {
    match chosen.cmp(installed) {
        std::cmp::Ordering::Equal => ResolutionOutcome::Stay,
        std::cmp::Ordering::Greater => ResolutionOutcome::Upgrade,
        std::cmp::Ordering::Less => ResolutionOutcome::Downgrade,
    }
}

/// Adds the bundles of other packages that would satisfy unmet dependencies, as the controller does.
fn with_satisfiers(mut error: ResolveError, catalogs: &Catalogs) -> ResolveError {
    let unmet = match &mut error {
        ResolveError::BestEffort { error, .. } => error.as_mut(),
        other => other,
    };
    if let ResolveError::DependenciesNotSatisfied { unmet, satisfiers: found, .. } = unmet {
        let packages: Vec<_> =
            missing_packages(unmet).into_iter().flat_map(|name| catalogs.indexes(name)).collect();
        *found = satisfiers(unmet, &packages);
    }
    error
}

/// Warnings about a choice.
fn warnings(
    query: &Query,
    package: Option<&CatalogPackage>,
    resolved: &Resolved,
    chosen: &ChosenBundle,
) -> Vec<String> {
    let mut warnings: Vec<String> = resolved.remarks.clone();
    if chosen.outside_default_channel && query.filter.channels.is_empty() {
        warnings.push(format!(
            "{} is not in the default channel {}: without --channel, all channels are searched; use --channel default to search only the default channel",
            chosen.bundle, chosen.default_channel
        ));
    }
    let is_pre_release =
        |version: &str| Version::parse(version).is_ok_and(|version| !version.pre().is_empty());
    let from_release = query.installed.as_ref().is_none_or(|installed| !is_pre_release(&installed.version));
    let any_version = query.filter.version.as_deref().is_none_or(str::is_empty);
    if any_version && from_release && is_pre_release(&chosen.version) {
        warnings.push(format!(
            "{} is a pre-release: without a version, pre-releases are admitted; use --version '*' for releases only",
            chosen.bundle
        ));
    }
    let mut deprecated = |what: String, messages: Vec<String>| {
        warnings.extend(messages.into_iter().map(|message| format!("{what} is deprecated: {message}")));
    };
    if let Some(package) = package {
        deprecated(format!("package {}", package.name), package.deprecation());
        for channel in chosen
            .channels
            .iter()
            .filter(|name| query.filter.channels.is_empty() || query.filter.channels.contains(name))
        {
            deprecated(format!("channel {channel}"), package.channel_deprecation(channel));
        }
        deprecated(format!("bundle {}", chosen.bundle), package.bundle_deprecation(&chosen.bundle));
    }
    for skipped in &resolved.left_out {
        warnings.push(format!("catalog {} is skipped: {}", skipped.catalog, skipped.fault));
    }
    warnings
}
