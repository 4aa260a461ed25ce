//! Bundle that the controller would choose for an extension, for commands that use its content.

use olm_api::ClusterExtension;
use olm_resolve::CatalogSelector;

use super::answer::{Answer, AnswerInputs, ResolutionOutcome};
use super::answer_text::{List, text};
use super::catalogs::{Catalogs, Reading};
use super::dependency_inputs::DependencyInputs;
use super::query::Query;
use super::rules::RuleArgs;
use super::{failure_text, judges_dependencies};
use crate::controller::Controller;
use crate::error::{CliError, Code};
use crate::rendering::RenderSettings;
use crate::session::Session;
use crate::source::Access;

/// Chosen bundle.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) bundle: String,
    /// Name of the catalog that contains it.
    pub(crate) catalog: String,
    /// Image reference.
    pub(crate) image: String,
    /// `true` if it is the installed bundle.
    pub(crate) stays: bool,
    /// Text output of the whole result, with warnings.
    pub(crate) text: String,
    pub(crate) warnings: Vec<String>,
    /// Requested channels, with `default` replaced by the package's default channel.
    pub(crate) channels: Vec<String>,
}

/// Chooses a bundle for `extension`, whose status contains the installed bundle. `sources` are catalogs as given on
/// the command line, `gates` those of the controller.
///
/// # Errors
/// A source cannot be read, or no bundle can be chosen.
pub(crate) async fn choose(
    extension: &ClusterExtension,
    sources: &[String],
    gates: impl Iterator<Item = (&'static str, bool)>,
    access: &Access,
    session: &Session,
) -> Result<Choice, CliError> {
    choice(extension, sources, &RuleArgs::of_controller(gates, None), access, session).await
}

/// [`choose`] with the configuration of the cluster's controller.
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
    let mut queries = [Query::of_extension(extension, rules)?];
    let catalogs = read(&queries[0], false, sources, rules, access, session).await?;
    queries[0].name_default_channel(&catalogs)?;
    let dependencies = if judges_dependencies(&queries) || rules.settings()?.cluster_constraints {
        DependencyInputs::of_cluster(&access.cluster.connect().await?, rules, session).await?
    } else {
        DependencyInputs::default()
    };
    let [query] = &queries;
    let mut list = List {
        items: vec![Answer::new(
            query,
            &AnswerInputs { catalogs: &catalogs, dependencies: &dependencies, explain: false },
        )],
    };
    let text = text(&list);
    let Some(answer) = list.items.pop() else { return Err(CliError::no_candidate("nothing was asked")) };
    match answer.chosen {
        Some(chosen) => Ok(Choice {
            bundle: chosen.bundle,
            catalog: chosen.catalog,
            image: chosen.image,
            stays: answer.outcome == ResolutionOutcome::Stay,
            text,
            warnings: answer.warnings,
            channels: query.filter.channels.clone(),
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
