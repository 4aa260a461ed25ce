//! Bundle that the controller would choose for an extension, for commands that use its content.

use olm_api::ClusterExtension;
use olm_resolve::CatalogSelector;

use super::answer::{Answer, AnswerInputs, ResolutionOutcome};
use super::answer_text::answer_text;
use super::catalogs::{Catalogs, Reading};
use super::dependency_inputs::DependencyInputs;
use super::failure_text;
use super::query::Query;
use super::rules::RuleArgs;
use crate::controller::Controller;
use crate::error::{CliError, Code};
use crate::progress::say;
use crate::rendering::RenderSettings;
use crate::session::Session;
use crate::source::Access;

/// Chosen bundle.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) bundle: String,
    /// Version, without the release if the controller shows it apart.
    pub(crate) version: String,
    pub(crate) release: Option<String>,
    /// Name of the catalog that contains it.
    pub(crate) catalog: String,
    /// Image reference.
    pub(crate) image: String,
    /// `true` if it is the installed bundle.
    pub(crate) unchanged: bool,
    /// Text output of the whole result, with warnings.
    pub(crate) text: String,
    pub(crate) warnings: Vec<String>,
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
    let rules = RuleArgs::of_controller(gates, None);
    let choice = choice(extension, sources, &rules, access, session).await?;
    say(&format!("{} of catalog {}: {}", choice.bundle, choice.catalog, choice.image));
    Ok(choice.image)
}

/// Bundle that [`choose`] finds, with the configuration of the cluster's controller.
///
/// # Errors
/// Errors of [`choose`].
pub(crate) async fn choose_as(
    controller: &Controller,
    extension: &ClusterExtension,
    sources: &[String],
    access: &Access,
    session: &Session,
) -> Result<Choice, CliError> {
    choice(extension, sources, &rules_of(controller, extension)?, access, session).await
}

/// Rules according to the configuration of the cluster's controller.
pub(super) fn rules_of(controller: &Controller, extension: &ClusterExtension) -> Result<RuleArgs, CliError> {
    let settings = RenderSettings::as_configured(extension, &controller.gates)?;
    Ok(RuleArgs::of_controller(settings.gates(), controller.dependency_mode))
}

async fn choice(
    extension: &ClusterExtension,
    sources: &[String],
    rules: &RuleArgs,
    access: &Access,
    session: &Session,
) -> Result<Choice, CliError> {
    let mut query = Query::of_extension(extension, rules)?;
    let catalogs = read(&query, false, sources, rules, access, session).await?;
    query.name_default_channel(&catalogs)?;
    let dependencies = if query.rules.judges_dependencies() || rules.settings()?.cluster_constraints {
        DependencyInputs::of_cluster(&access.cluster.connect().await?, rules, session).await?
    } else {
        DependencyInputs::default()
    };
    let inputs = AnswerInputs { catalogs: &catalogs, dependencies: &dependencies, explain: false };
    let answer = Answer::new(&query, &inputs);
    let text = answer_text(&answer);
    match answer.chosen {
        Some(chosen) => Ok(Choice {
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
