//! `olm rollback`: returns an extension to an earlier bundle (docs/design/apply.md#handover,
//! docs/design/cli.md#changing-commands).
//!
//! A rollback creates a new revision with the older bundle. So the command writes a version pin and the policy
//! SelfCertified, and operator-controller does the rest. The functions of `olm diff` predict the changes. A rollback
//! that may lose data is refused.

mod plan;
mod risk;
mod target;

use clap::Args;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_revision::generate::BundleIdentity;

use self::plan::Plan;
use self::risk::Risks;
use self::target::{RollbackTarget, target};
use crate::change::{self, ChangeArgs, ChangeFormat};
use crate::controller::Controller;
use crate::diff::{ComparedExtension, Diff, collision_error};
use crate::error::{CliError, Code};
use crate::history::records;
use crate::install::print_warnings;
use crate::progress::say;
use crate::resolve::{Choice, choose_as};
use crate::session::Session;
use crate::source::{Access, Cluster};
use crate::status::observe;
use crate::status::tree::{RevisionState, installed};

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Return an extension to an earlier bundle

The ClusterExtension is pinned to the older version, with upgradeConstraintPolicy SelfCertified, and \
operator-controller creates a new revision with that version's bundle. The bundle must still be in a catalog. A \
rollback changes the bundle, not the configuration: spec.config remains unchanged. The changes on the cluster are \
computed as in `diff`, and --dry-run shows all of them. The output ends with the command that removes the pin.

The command refuses a rollback that may lose data with exit code 3: if it removes a CustomResourceDefinition with \
custom resources, a stored version, or fields. It also refuses a rollback that operator-controller would refuse. \
--accept-risk rolls back anyway, and disables the CRD upgrade check if necessary.

An extension that was adopted from the Helm applier of the Go implementation cannot return to Helm.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed or timed out   2 wrong usage
  3 refused: data may be lost, or operator-controller would refuse it
  4 there is no rollback target, or no catalog contains it

Examples:
  {olm} history my-operator                        # possible rollback targets
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
    /// Roll back although data may be lost
    #[arg(long)]
    accept_risk: bool,
    /// Catalog to search for the bundle: a directory, an image reference, cluster/NAME, or cluster for all catalogs
    /// of the cluster; may be given several times. operator-controller only searches those of the cluster
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
/// There is no target, the rollback may lose data, or it fails.
pub(crate) async fn run(args: RollbackArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.access.cluster.connect().await?;
    let live = observe::extension(&cluster, &args.name, session).await?;
    if live.metadata.deletion_timestamp.is_some() {
        let text = format!("ClusterExtension {} is being deleted", args.name);
        return Err(CliError::findings(text));
    }
    let sets = observe::revisions(&cluster, &args.name, session).await?;
    let target = target(&args.name, args.to.as_deref(), &records(&sets))?;
    let mut plan = Plan::new(&live, &target, &sets);
    let controller = Controller::read(&cluster, session).await?;
    let inputs =
        Inputs { cluster: &cluster, args: &args, controller: &controller, target: &target, sets: &sets };
    let choice = inputs.choice(&plan.desired, session).await?;
    let seen = inputs.difference(&plan.desired, &choice, session).await?;
    if let Some(error) = seen.as_ref().ok().and_then(|diff| collision_error(&diff.collisions)) {
        return Err(error);
    }
    let risks = match &seen {
        Ok(diff) => Risks::new(diff, &risk::count(diff, &cluster).await, &plan.desired),
        Err(why) => {
            Risks { losses: vec![format!("the changes cannot be determined: {why}")], ..Risks::default() }
        }
    };
    if args.accept_risk && !risks.refusals.is_empty() {
        plan.disable_crd_check();
    }
    let warnings = plan.warnings(&choice);
    print_warnings(args.change.output, warnings.iter());
    let mut text = plan.text(seen.as_ref().ok(), &warnings);
    if !risks.is_empty() && !args.accept_risk {
        if args.change.output == ChangeFormat::Table {
            session.output.text(&text)?;
        }
        return Err(refusal(&args.name, &risks));
    }
    text += &plan.afterwards(&risks);
    if let (Some(_), Ok(diff)) = (args.change.dry_run, &seen) {
        text += &format!("\n{}\n", diff.text());
    }
    let written = change::apply(&cluster, Some(&live), &plan.desired, args.change.dry_run, session).await?;
    let bundles = (Some(choice.bundle), installed(&live).map(|bundle| bundle.name));
    change::print_and_wait(&cluster, &args.change, &text, &[written], bundles, session).await
}

fn refusal(name: &str, risks: &Risks) -> CliError {
    CliError::findings(format!(
        "the rollback of {name} is refused:{}\nnothing has been changed; back up your data, then run the command with --accept-risk",
        risks.text()
    ))
}

/// Inputs to predict a rollback.
struct Inputs<'a> {
    cluster: &'a Cluster,
    args: &'a RollbackArgs,
    controller: &'a Controller,
    target: &'a RollbackTarget,
    sets: &'a [ClusterObjectSet],
}

impl Inputs<'_> {
    /// Bundle that operator-controller will choose.
    async fn choice(&self, desired: &ClusterExtension, session: &Session) -> Result<Choice, CliError> {
        let version = &self.target.version;
        let chosen =
            choose_as(self.controller, desired, &self.args.catalogs, &self.args.access, session).await;
        let choice = chosen.map_err(|failure| match failure {
            CliError::Message(Code::NoCandidate, text) => CliError::no_candidate(format!(
                "{text}\na rollback needs a catalog that contains version {version} in a channel that the extension allows"
            )),
            other => other,
        })?;
        match &self.target.bundle {
            Some(bundle) if *bundle != choice.bundle => Err(CliError::no_candidate(format!(
                "for version {version} operator-controller would choose {} of catalog {}, but revision {} had {bundle}",
                choice.bundle,
                choice.catalog,
                self.target.revision.unwrap_or_default()
            ))),
            _ => Ok(choice),
        }
    }

    /// Changes that the rollback makes. If the bundle image cannot be read, compares the objects that its revision
    /// kept. The inner error contains the reason if neither works.
    async fn difference(
        &self,
        desired: &ClusterExtension,
        choice: &Choice,
        session: &Session,
    ) -> Result<Result<Diff, String>, CliError> {
        let Self { cluster, args, controller, target, sets } = self;
        let compared = ComparedExtension { cluster, extension: desired, session };
        let why = match compared.with_image(&choice.image, controller, &args.access).await {
            Err(CliError::Message(Code::Operational | Code::Usage, why)) => why,
            seen => return seen.map(Ok),
        };
        let set = sets.iter().find(|set| Some(observe::number(set)) == target.revision);
        let Some(set) = set else { return Ok(Err(why)) };
        let phases = match session.interruptible(observe::stored(cluster, set)).await? {
            Ok(phases) => phases,
            Err(second) => return Ok(Err(format!("{why}; {second}"))),
        };
        say(&format!("warning: comparing the stored objects of revision {}: {why}", observe::number(set)));
        let RevisionState { name, bundle, version, .. } = RevisionState::alone(set);
        let package = desired.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
        let package = package.map(|catalog| catalog.package_name.clone()).unwrap_or_default();
        let identity = BundleIdentity { name: bundle, package, version, ..BundleIdentity::default() };
        let objects = phases.into_iter().flat_map(|phase| phase.objects).map(|held| held.object).collect();
        compared.with_objects(&identity, &name, objects).await.map(Ok)
    }
}
