//! The bundle that the controller would choose for an extension, for commands that go on with its content.

use olm_api::ClusterExtension;

use super::answer::{Answer, Known};
use super::ask::Ask;
use super::catalogs::Reading;
use super::rules::RuleArgs;
use super::world::World;
use super::{failure_text, judges_dependencies};
use crate::failure::{Code, Failure};
use crate::session::Session;
use crate::source::Access;

/// The bundle that is chosen.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Name of the bundle.
    pub(crate) bundle: String,
    /// Name of the catalog that has it.
    pub(crate) catalog: String,
    /// Reference of its image.
    pub(crate) image: String,
}

/// Chooses for `extension`, whose status says what is installed. `sources` are catalogs as the command line gives them,
/// `gates` those of the controller.
///
/// # Errors
/// Those of the sources; nothing can be chosen.
pub(crate) async fn choose(
    extension: &ClusterExtension,
    sources: &[String],
    gates: impl Iterator<Item = (&'static str, bool)>,
    access: &Access,
    session: &Session,
) -> Result<Choice, Failure> {
    let rules = RuleArgs::of_gates(gates);
    let asks = [Ask::of_extension(extension, &rules)?];
    let [ask] = &asks;
    let reading = Reading {
        access,
        sources,
        priorities: Default::default(),
        packages: [ask.package().to_owned()].into(),
        others: judges_dependencies(&asks),
        selectors: vec![&ask.selector],
        indexing: rules.indexing()?,
    };
    let catalogs = reading.read(session).await?;
    let world = if judges_dependencies(&asks) || rules.settings()?.cluster_constraints {
        World::of_cluster(&access.cluster.connect().await?, &rules, session).await?
    } else {
        World::default()
    };
    let answer = Answer::new(ask, &Known { catalogs: &catalogs, world: &world, explain: false });
    match answer.chosen {
        Some(chosen) => Ok(Choice { bundle: chosen.bundle, catalog: chosen.catalog, image: chosen.image }),
        None => Err(Failure::Told(answer.code.unwrap_or(Code::NoCandidate), failure_text(&answer))),
    }
}
