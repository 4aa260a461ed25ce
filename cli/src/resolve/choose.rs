//! Bundle that the controller would choose for an extension, for commands that use its content.

use olm_api::ClusterExtension;
use olm_resolve::CatalogSelector;

use super::answer::{Answer, Known, Outcome};
use super::answer_text::{List, text};
use super::ask::Ask;
use super::catalogs::{Catalogs, Reading};
use super::rules::RuleArgs;
use super::world::World;
use super::{failure_text, judges_dependencies};
use crate::controller::Controller;
use crate::failure::{Code, Failure};
use crate::rendering::Wishes;
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
    pub(crate) told: String,
    pub(crate) warnings: Vec<String>,
    /// Requested channels, with `default` replaced by the package's default channel.
    pub(crate) channels: Vec<String>,
}

/// Chooses a bundle for `extension`, whose status contains the installed bundle. `sources` are catalogs as given on
/// the command line, `gates` those of the controller.
///
/// # Errors
/// A source cannot be read, or nothing can be chosen.
pub(crate) async fn choose(
    extension: &ClusterExtension,
    sources: &[String],
    gates: impl Iterator<Item = (&'static str, bool)>,
    access: &Access,
    session: &Session,
) -> Result<Choice, Failure> {
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
) -> Result<Choice, Failure> {
    choice(extension, sources, &rules_of(controller, extension)?, access, session).await
}

/// Rules according to the configuration of the cluster's controller.
pub(super) fn rules_of(controller: &Controller, extension: &ClusterExtension) -> Result<RuleArgs, Failure> {
    let wishes = Wishes::as_configured(extension, &controller.gates)?;
    Ok(RuleArgs::of_controller(wishes.gates(), controller.dependency_mode))
}

async fn choice(
    extension: &ClusterExtension,
    sources: &[String],
    rules: &RuleArgs,
    access: &Access,
    session: &Session,
) -> Result<Choice, Failure> {
    let mut asks = [Ask::of_extension(extension, rules)?];
    let catalogs = read(&asks[0], false, sources, rules, access, session).await?;
    asks[0].name_default_channel(&catalogs)?;
    let world = if judges_dependencies(&asks) || rules.settings()?.cluster_constraints {
        World::of_cluster(&access.cluster.connect().await?, rules, session).await?
    } else {
        World::default()
    };
    let [ask] = &asks;
    let mut list =
        List { items: vec![Answer::new(ask, &Known { catalogs: &catalogs, world: &world, explain: false })] };
    let told = text(&list);
    let Some(answer) = list.items.pop() else { return Err(Failure::no_candidate("nothing was asked")) };
    match answer.chosen {
        Some(chosen) => Ok(Choice {
            bundle: chosen.bundle,
            catalog: chosen.catalog,
            image: chosen.image,
            stays: answer.outcome == Outcome::Stay,
            told,
            warnings: answer.warnings,
            channels: ask.filter.channels.clone(),
        }),
        None => Err(Failure::Told(answer.code.unwrap_or(Code::NoCandidate), failure_text(&answer))),
    }
}

/// Reads the catalogs of the request. `others` includes all other packages.
pub(super) async fn read(
    ask: &Ask,
    others: bool,
    sources: &[String],
    rules: &RuleArgs,
    access: &Access,
    session: &Session,
) -> Result<Catalogs, Failure> {
    let everything = CatalogSelector::default();
    let reading = Reading {
        access,
        sources,
        priorities: Default::default(),
        packages: [ask.package().to_owned()].into(),
        others: others || ask.rules.judges_dependencies(),
        selectors: if others { vec![&ask.selector, &everything] } else { vec![&ask.selector] },
        indexing: rules.indexing()?,
    };
    reading.read(session).await
}
