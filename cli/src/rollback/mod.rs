//! `olm rollback`: takes an extension back to a bundle that it had (docs/design/apply.md#handover,
//! docs/design/additions.md#changing-commands).
//!
//! Going back is going on: a new revision with the older bundle. So what is written is a version pin and the leave to go
//! anywhere, and operator-controller does the rest. What that would change is found with the functions of `olm diff`, and what
//! may cost data is refused.

mod plan;
mod risk;
mod target;

use clap::Args;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_revision::generate::BundleIdentity;

use self::plan::Plan;
use self::risk::Risks;
use self::target::{Target, target};
use crate::change::{self, ChangeArgs, Controller, Notation};
use crate::diff::{Diff, with_image, with_objects};
use crate::failure::{Code, Failure};
use crate::history::records;
use crate::install::tell_programs;
use crate::output::printable;
use crate::progress::say;
use crate::resolve::{Choice, choose_as};
use crate::session::Session;
use crate::source::{Access, Cluster};
use crate::status::observe;
use crate::status::tree::RevisionState;

/// The first lines of the command's help.
pub(crate) const ABOUT: &str = "Takes an extension back to a bundle that it had

The ClusterExtension is pinned to the older version, with upgradeConstraintPolicy SelfCertified, and operator-controller makes a \
new revision of that version's bundle. The bundle must still be in a catalog. spec.config stays as it is now: a rollback changes \
the bundle, not the configuration. What would change on the cluster is found as `diff` does, and --dry-run shows all of it. The \
output ends with the command that lifts the pin again.

Refused, with exit code 3, is a rollback that may lose data: a CustomResourceDefinition that goes while there are custom \
resources, a stored version that goes, fields that go; and one that operator-controller itself would refuse. --accept-risk does it \
all the same, and turns the check of definitions off where it stands in the way.

An installation that was made by the reference's Helm applier cannot be given back to that one, whatever the revision.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 something did not work, or was not there in time   2 wrong usage
  3 refused: data may be lost, or the cluster would not take it
  4 there is nothing to go back to, or no catalog has it any more

Examples:
  {olm} history my-operator                        # where can I go back to?
  {olm} rollback my-operator --dry-run=server      # what would change?
  {olm} rollback my-operator --wait
  {olm} rollback my-operator --to 3 --wait         # to the bundle of revision 3
  {olm} rollback my-operator --to 1.4.2            # to a version that a catalog has")]
pub(crate) struct RollbackArgs {
    /// Name of a ClusterExtension
    #[arg(value_name = "NAME")]
    name: String,
    /// Number of a revision, or a version; default: the newest revision that has rolled out with another bundle
    #[arg(long, value_name = "REVISION|VERSION")]
    to: Option<String>,
    /// Do it although data may be lost
    #[arg(long)]
    accept_risk: bool,
    /// Where the bundle is looked for: a directory, an image reference, cluster/NAME, or cluster for all catalogs of the
    /// cluster; may be given several times. operator-controller looks in the cluster's own
    #[arg(long = "catalog", value_name = "SOURCE", default_value = "cluster")]
    catalogs: Vec<String>,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    access: Access,
}

/// Runs the command.
///
/// # Errors
/// There is nothing to go back to, it would cost data, or it does not work.
pub(crate) async fn run(args: RollbackArgs, session: &mut Session) -> Result<(), Failure> {
    let cluster = args.access.cluster.connect().await?;
    let live = observe::extension(&cluster, &args.name, session).await?;
    if live.metadata.deletion_timestamp.is_some() {
        let text = format!("ClusterExtension {} is being deleted", args.name);
        return Err(Failure::Told(Code::Findings, text));
    }
    let sets = observe::revisions(&cluster, &args.name, session).await?;
    let target = target(&args.name, args.to.as_deref(), &records(&sets))?;
    let mut plan = Plan::new(&live, &target, &sets);
    let controller = Controller::read(&cluster, session).await?;
    let looking =
        Looking { cluster: &cluster, args: &args, controller: &controller, target: &target, sets: &sets };
    let choice = looking.choice(&plan.wanted, session).await?;
    let seen = looking.difference(&plan.wanted, &choice, session).await?;
    let risks = match &seen {
        Ok(diff) => Risks::new(diff, &risk::count(diff, &cluster).await, &plan.wanted),
        Err(why) => Risks { losses: vec![format!("what changes is not known: {why}")], ..Risks::default() },
    };
    if args.accept_risk && !risks.refusals.is_empty() {
        plan.turn_the_check_off();
    }
    let warnings = plan.warnings(&choice);
    tell_programs(args.change.output, warnings.iter());
    let mut told = plan.text(seen.as_ref().ok(), &warnings);
    if !risks.is_empty() && !args.accept_risk {
        if args.change.output == Notation::Table {
            session.output.text(&printable(&told))?;
        }
        return Err(refusal(&args.name, &risks));
    }
    told += &plan.afterwards(&risks);
    if let (Some(_), Ok(diff)) = (args.change.dry_run, &seen) {
        told += &format!("\n{}\n", diff.text());
    }
    let written = change::apply(&cluster, Some(&live), &plan.wanted, args.change.dry_run, session).await?;
    let arrives = change::Target {
        name: args.name.clone(),
        uid: live.metadata.uid.clone(),
        generation: written.generation.or(live.metadata.generation).unwrap_or_default(),
        bundle: Some(choice.bundle.clone()),
        before: crate::status::tree::installed(&live).map(|bundle| bundle.name),
    };
    change::print(args.change.output, &told, &[written], &mut session.output)?;
    change::arrive(&cluster, &args.change, &arrives, session).await
}

fn refusal(name: &str, risks: &Risks) -> Failure {
    Failure::Told(
        Code::Findings,
        format!(
            "the rollback of {name} is refused:{}\nnothing has been changed; save what you need, then --accept-risk does it",
            risks.text()
        ),
    )
}

/// What is needed to find out what a rollback leads to.
struct Looking<'a> {
    cluster: &'a Cluster,
    args: &'a RollbackArgs,
    controller: &'a Controller,
    target: &'a Target,
    sets: &'a [ClusterObjectSet],
}

impl Looking<'_> {
    /// The bundle that operator-controller will choose.
    async fn choice(&self, wanted: &ClusterExtension, session: &Session) -> Result<Choice, Failure> {
        let version = &self.target.version;
        let chosen =
            choose_as(self.controller, wanted, &self.args.catalogs, &self.args.access, session).await;
        let choice = chosen.map_err(|failure| match failure {
            Failure::Told(Code::NoCandidate, text) => Failure::no_candidate(format!(
                "{text}\na rollback needs a catalog that still has version {version}, in a channel that the extension may use"
            )),
            other => other,
        })?;
        match &self.target.bundle {
            Some(bundle) if *bundle != choice.bundle => Err(Failure::no_candidate(format!(
                "for version {version} operator-controller would choose {} of catalog {}, but revision {} had {bundle}",
                choice.bundle,
                choice.catalog,
                self.target.revision.unwrap_or_default()
            ))),
            _ => Ok(choice),
        }
    }

    /// What the rollback changes. Where the bundle's image cannot be read from here, what its revision has kept is compared;
    /// the inner error tells why neither can be.
    async fn difference(
        &self,
        wanted: &ClusterExtension,
        choice: &Choice,
        session: &Session,
    ) -> Result<Result<Diff, String>, Failure> {
        let Self { cluster, args, controller, target, sets } = self;
        let why = match with_image(cluster, wanted, &choice.image, controller, &args.access, session).await {
            Err(Failure::Told(Code::Operational | Code::Usage, why)) => why,
            seen => return seen.map(Ok),
        };
        let set = sets.iter().find(|set| Some(observe::number(set)) == target.revision);
        let Some(set) = set else { return Ok(Err(why)) };
        let kept = async { Ok::<_, Failure>(observe::stored(cluster, set).await) };
        let phases = match session.unless_interrupted(kept).await? {
            Ok(phases) => phases,
            Err(second) => return Ok(Err(format!("{why}; {second}"))),
        };
        say(&format!("warning: compared is what revision {} has kept: {why}", observe::number(set)));
        let RevisionState { name, bundle, version, .. } = RevisionState::alone(set);
        let package = wanted.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
        let package = package.map(|catalog| catalog.package_name.clone()).unwrap_or_default();
        let identity = BundleIdentity { name: bundle, package, version, ..BundleIdentity::default() };
        let objects = phases.into_iter().flat_map(|phase| phase.objects).map(|held| held.object).collect();
        with_objects(cluster, wanted, &identity, &name, objects, session).await.map(Ok)
    }
}
