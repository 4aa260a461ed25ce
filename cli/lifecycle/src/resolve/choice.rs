//! Bundle that the controller would choose for an extension, for commands that use its content.

use olm_api::ClusterExtension;
use olm_cli_catalog::graph::is_candidate;
use olm_cli_catalog::suggested_namespace::SuggestedNamespace;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_resolve::CatalogSelector;
use olm_version::Version;

use super::answer::{Answer, AnswerInputs, ChosenBundle, ResolutionOutcome};
use super::answer_text::answer_text;
use super::catalogs::{Catalogs, Reading};
use super::dependency_inputs::DependencyInputs;
use super::failure_text;
use super::query::Query;
use super::rules::RuleArgs;
use crate::rendering::RenderSettings;

/// Chosen bundle.
#[derive(Debug)]
pub struct ResolvedBundle {
    /// Name of the bundle.
    pub bundle: String,
    /// Version, without the release if the controller shows it apart.
    pub(crate) version: String,
    pub(crate) release: Option<String>,
    /// Name of the catalog that contains it.
    pub(crate) catalog: String,
    /// Image reference.
    pub image: String,
    /// `true` if it is the installed bundle.
    pub(crate) unchanged: bool,
    /// Text output of the whole result, with warnings.
    pub text: String,
    /// Warnings of the resolver.
    pub warnings: Vec<String>,
    /// Namespace that the bundle suggests, or why there is none.
    pub(crate) namespace: Result<SuggestedNamespace, String>,
    /// Requested channels, with `default` replaced by the package's default channel.
    pub(crate) channels: Vec<String>,
}

/// Image of the bundle chosen for `extension`, whose status contains the installed bundle. `sources` are catalogs as
/// given on the command line, `gates` those of the controller. Prints the choice to standard error.
///
/// # Errors
/// A source cannot be read, or no bundle can be chosen.
pub(crate) async fn choose(
    extension: &ClusterExtension,
    sources: &[String],
    gates: impl Iterator<Item = (&'static str, bool)>,
    access: &Access,
    session: &Session,
) -> Result<String, CliError> {
    let rules = RuleArgs::of_controller(gates, None, None);
    let choice = Resolver::with_rules(rules, extension, sources, access, session).await?.choose(extension)?;
    say(&format!("{} of catalog {}: {}", choice.bundle, choice.catalog, choice.image));
    Ok(choice.image)
}

/// Bundle that [`choose`] finds, with the configuration of the cluster's controller.
///
/// # Errors
/// Errors of [`choose`].
pub async fn choose_as(
    controller: &ControllerArgs,
    extension: &ClusterExtension,
    sources: &[String],
    access: &Access,
    session: &Session,
) -> Result<ResolvedBundle, CliError> {
    Resolver::read(controller, extension, sources, access, session).await?.choose(extension)
}

/// Rules according to the configuration of the cluster's controller.
pub(super) fn rules_of(
    controller: &ControllerArgs,
    extension: &ClusterExtension,
) -> Result<RuleArgs, CliError> {
    let settings = RenderSettings::as_configured(extension, &controller.gates)?;
    Ok(RuleArgs::of_controller(settings.gates(), controller.dependency_mode, controller.upgrade_scope))
}

/// Catalogs and rules of an extension, read once for several version ranges.
pub struct Resolver {
    rules: RuleArgs,
    catalogs: Catalogs,
    dependencies: DependencyInputs,
}

impl Resolver {
    /// Reads the catalogs, with the configuration of the cluster's controller. `sources` are catalogs as given on the
    /// command line.
    ///
    /// # Errors
    /// A catalog cannot be read, or the request is invalid.
    pub async fn read(
        controller: &ControllerArgs,
        extension: &ClusterExtension,
        sources: &[String],
        access: &Access,
        session: &Session,
    ) -> Result<Self, CliError> {
        Self::with_rules(rules_of(controller, extension)?, extension, sources, access, session).await
    }

    async fn with_rules(
        rules: RuleArgs,
        extension: &ClusterExtension,
        sources: &[String],
        access: &Access,
        session: &Session,
    ) -> Result<Self, CliError> {
        let query = Query::of_extension(extension, &rules)?;
        let catalogs = read(&query, false, sources, &rules, access, session).await?;
        let dependencies = if query.rules.judges_dependencies() || rules.settings()?.cluster_constraints {
            DependencyInputs::of_cluster(&access.cluster.connect().await?, &rules, session).await?
        } else {
            DependencyInputs::default()
        };
        Ok(Self { rules, catalogs, dependencies })
    }

    /// Bundle for the extension that was read, or for the same one with another version range.
    ///
    /// # Errors
    /// No bundle can be chosen.
    pub fn choose(&self, extension: &ClusterExtension) -> Result<ResolvedBundle, CliError> {
        let (query, answer) = self.answer(extension, false)?;
        let text = answer_text(&answer);
        let found = |chosen: &ChosenBundle| self.catalogs.package(&chosen.catalog, query.package());
        match answer.chosen {
            Some(chosen) => Ok(ResolvedBundle {
                namespace: SuggestedNamespace::of(
                    query.package(),
                    found(&chosen).and_then(|package| package.bundle(&chosen.bundle)),
                ),
                bundle: chosen.bundle,
                version: chosen.version,
                release: chosen.release,
                catalog: chosen.catalog,
                image: chosen.image,
                unchanged: answer.outcome == ResolutionOutcome::Stay,
                text,
                warnings: answer.warnings,
                channels: query.filter.channels,
            }),
            None => Err(CliError::Message(answer.code.unwrap_or(Code::NoCandidate), failure_text(&answer))),
        }
    }

    /// Text of `olm resolve --explain`, and the error if nothing can be chosen.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn explain(&self, extension: &ClusterExtension) -> Result<(String, Option<String>), CliError> {
        let (_, answer) = self.answer(extension, true)?;
        let error = answer.chosen.is_none().then(|| failure_text(&answer));
        Ok((answer_text(&answer), error))
    }

    /// Versions that the resolver allows for the extension.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn allowed_versions(&self, extension: &ClusterExtension) -> Result<AllowedVersions, CliError> {
        let (_, answer) = self.answer(extension, true)?;
        let chosen = answer.explanation.as_ref().and_then(|explanation| explanation.chosen.as_ref());
        let chosen = chosen.map(|choice| choice.version.clone());
        let bundles = answer.explanation.iter().flat_map(|explanation| &explanation.catalogs);
        let bundles = bundles.flat_map(|catalog| &catalog.bundles).filter(|bundle| is_candidate(bundle.fate));
        let versions = highest_first(bundles.filter_map(|bundle| bundle.version.as_deref()));
        Ok(AllowedVersions { chosen, versions })
    }

    fn answer(&self, extension: &ClusterExtension, explain: bool) -> Result<(Query, Answer), CliError> {
        let mut query = Query::of_extension(extension, &self.rules)?;
        query.name_default_channel(&self.catalogs)?;
        let inputs = AnswerInputs { catalogs: &self.catalogs, dependencies: &self.dependencies, explain };
        let answer = Answer::new(&query, &inputs);
        Ok((query, answer))
    }
}

/// Versions that an extension may have next.
#[derive(Debug, PartialEq, Eq)]
pub struct AllowedVersions {
    /// Version that the resolver chooses.
    pub chosen: Option<String>,
    /// All versions that it would choose if requested, highest first.
    pub versions: Vec<String>,
}

/// Distinct versions in descending order.
fn highest_first<'a>(versions: impl Iterator<Item = &'a str>) -> Vec<String> {
    let parsed = |text: &'a str| Some((Version::parse(text).ok()?, text));
    let mut versions: Vec<_> = versions.filter_map(parsed).collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.dedup_by(|a, b| a.1 == b.1);
    versions.into_iter().map(|(_, text)| text.to_owned()).collect()
}

/// Reads the catalogs of the request. `others` includes all other packages.
pub(super) async fn read(
    query: &Query,
    others: bool,
    sources: &[String],
    rules: &RuleArgs,
    access: &Access,
    session: &Session,
) -> Result<Catalogs, CliError> {
    let everything = CatalogSelector::default();
    let reading = Reading {
        access,
        sources,
        priorities: Default::default(),
        packages: [query.package().to_owned()].into(),
        others: others || query.rules.judges_dependencies(),
        selectors: if others { vec![&query.selector, &everything] } else { vec![&query.selector] },
        indexing: rules.indexing()?,
    };
    reading.read(session).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_versions_are_distinct_and_highest_first() {
        let versions = ["1.9.0", "1.10.0", "1.9.0", "x", "1.10.0-rc.1"];
        assert_eq!(highest_first(versions.into_iter()), ["1.10.0", "1.10.0-rc.1", "1.9.0"]);
    }
}
