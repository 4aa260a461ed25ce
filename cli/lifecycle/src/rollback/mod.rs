//! `olm rollback`: returns an extension to an earlier bundle (docs/design/apply.md#handover,
//! docs/design/cli.md#changing-commands).
//!
//! A rollback creates a new revision with the older bundle. So the command writes a version pin and the policy
//! SelfCertified, and operator-controller does the rest. The functions of `olm diff` predict the changes. A rollback
//! that may lose data is refused.

mod plan;
mod risk;
mod target;

use std::sync::Arc;

use clap::Args;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::change::{self, ChangeArgs, ChangeFormat, DryRun, WrittenObject};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_revision::generate::BundleIdentity;

use self::plan::Plan;
use self::risk::Risks;
use self::target::{RollbackTarget, target};
use crate::diff::{ComparedExtension, Diff, collision_error};
use crate::history::records;
use crate::install::print_warnings;
use crate::resolve::{ResolvedBundle, choose_as};
use crate::rollout::{self, ChangedBundle};
use crate::status::observe;
use crate::status::tree::{RevisionState, installed};

/// First lines of the command's help.
pub const ABOUT: &str = "Return an extension to an earlier bundle

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
pub struct RollbackArgs {
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
pub async fn run(args: RollbackArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.access.cluster.connect().await?;
    let request = RollbackRequest {
        cluster: &cluster,
        name: &args.name,
        to: args.to.as_deref(),
        accept_risk: args.accept_risk,
        catalogs: &args.catalogs,
        access: &args.access,
        session,
    };
    let read = async |image: &str| {
        bundle_source::read_image(image, &args.access.images, request.session).await.map(Arc::new)
    };
    let rollback = request.prepare(read).await?;
    if let Some(note) = &rollback.note {
        say(&format!("warning: {note}"));
    }
    if let Some(error) = rollback.collision() {
        return Err(error);
    }
    print_warnings(args.change.output, rollback.warnings.iter());
    let mut text = rollback.text(&rollback.warnings);
    if let Some(error) = rollback.refusal() {
        if args.change.output == ChangeFormat::Table {
            session.output.text(&text)?;
        }
        return Err(error);
    }
    text += &rollback.afterwards();
    if let (Some(_), Ok(diff)) = (args.change.dry_run, &rollback.diff) {
        text += &format!("\n{}\n", diff.text());
    }
    let written = rollback.carry_out(&cluster, args.change.dry_run, session).await?;
    let before = installed(&rollback.live).map(|bundle| bundle.name);
    let bundle = ChangedBundle { chosen: Some(rollback.choice.bundle), installed: before };
    rollout::print_and_wait(&cluster, &args.change, &text, &[written], bundle, session).await
}

/// Requested rollback.
pub struct RollbackRequest<'a> {
    /// Cluster with the extension.
    pub cluster: &'a ClusterConnection,
    /// Name of the extension.
    pub name: &'a str,
    /// Revision or version. `None` for the newest possible target.
    pub to: Option<&'a str>,
    /// `true` if known risks of the target do not prevent the rollback.
    pub accept_risk: bool,
    /// Catalogs as given on the command line.
    pub catalogs: &'a [String],
    /// Flags for access to catalogs and images.
    pub access: &'a Access,
    /// Run of the program.
    pub session: &'a Session,
}

/// Predicted rollback, which is not written yet.
#[derive(Debug)]
pub struct PreparedRollback {
    /// The extension as read.
    pub live: ClusterExtension,
    /// Bundle to return to.
    pub choice: ResolvedBundle,
    /// Changes, or the reason for which they cannot be determined.
    pub diff: Result<Diff, String>,
    /// Other source of the compared objects, if the bundle image cannot be read.
    pub note: Option<String>,
    /// What the user should know before the rollback.
    pub warnings: Vec<String>,
    plan: Plan,
    risks: Risks,
    accept_risk: bool,
}

impl RollbackRequest<'_> {
    /// Finds the target and predicts the changes. `read` reads the bundle of an image.
    ///
    /// # Errors
    /// There is no target, no catalog contains it, or the cluster cannot be read.
    pub async fn prepare(
        &self,
        read: impl AsyncFn(&str) -> Result<Arc<BundleFiles>, CliError>,
    ) -> Result<PreparedRollback, CliError> {
        let Self { cluster, name, session, accept_risk, .. } = *self;
        let live = observe::changeable_extension(cluster, name, session).await?;
        let revisions = observe::revisions(cluster, name, session).await?;
        let target = target(name, self.to, &records(&revisions))?;
        let mut plan = Plan::new(&live, &target, &revisions);
        let controller = ControllerArgs::read(cluster, session).await?;
        let choice = self.choice(&controller, &target, &plan.desired).await?;
        let compared = ComparedExtension { cluster, extension: &plan.desired, session };
        let seen = compared.difference(&choice.image, &controller, read).await?;
        let (diff, note) = match seen {
            Ok(diff) => (Ok(diff), None),
            Err(why) => match revisions.iter().find(|revision| Some(revision.number()) == target.revision) {
                Some(revision) => self.stored_difference(&compared, revision, why).await?,
                None => (Err(why), None),
            },
        };
        let risks = match &diff {
            Ok(diff) => Risks::new(diff, &risk::count(diff, cluster).await, &plan.desired),
            Err(why) => {
                Risks { losses: vec![format!("the changes cannot be determined: {why}")], ..Risks::default() }
            }
        };
        if accept_risk && !risks.refusals.is_empty() {
            plan.disable_crd_check();
        }
        let warnings = plan.warnings(&choice);
        Ok(PreparedRollback { live, choice, diff, note, warnings, plan, risks, accept_risk })
    }

    /// Bundle that operator-controller will choose.
    async fn choice(
        &self,
        controller: &ControllerArgs,
        target: &RollbackTarget,
        desired: &ClusterExtension,
    ) -> Result<ResolvedBundle, CliError> {
        let version = &target.version;
        let chosen = choose_as(controller, desired, self.catalogs, self.access, self.session).await;
        let choice = chosen.map_err(|failure| match failure {
            CliError::Message(Code::NoCandidate, text) => CliError::no_candidate(format!(
                "{text}\na rollback needs a catalog that contains version {version} in a channel that the extension allows"
            )),
            other => other,
        })?;
        match &target.bundle {
            Some(bundle) if *bundle != choice.bundle => Err(CliError::no_candidate(format!(
                "for version {version} operator-controller would choose {} of catalog {}, but revision {} had {bundle}",
                choice.bundle,
                choice.catalog,
                target.revision.unwrap_or_default()
            ))),
            _ => Ok(choice),
        }
    }

    /// Changes according to the objects that the revision `set` kept, and a note about it. `why` is the reason for which
    /// the bundle image cannot be read. The inner error contains the reason if neither works.
    async fn stored_difference(
        &self,
        compared: &ComparedExtension<'_>,
        revision: &ClusterObjectSet,
        why: String,
    ) -> Result<(Result<Diff, String>, Option<String>), CliError> {
        let phases = match self.session.interruptible(observe::stored(self.cluster, revision)).await? {
            Ok(phases) => phases,
            Err(second) => return Ok((Err(format!("{why}; {second}")), None)),
        };
        let note = format!("comparing the stored objects of revision {}: {why}", revision.number());
        let RevisionState { name, bundle, version, .. } = RevisionState::alone(revision);
        let package = compared.extension.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
        let package = package.map(|catalog| catalog.package_name.clone()).unwrap_or_default();
        let identity = BundleIdentity { name: bundle, package, version, ..BundleIdentity::default() };
        let objects = phases.into_iter().flat_map(|phase| phase.objects).map(|held| held.object).collect();
        Ok((Ok(compared.with_objects(&identity, &name, objects).await?), Some(note)))
    }
}

impl PreparedRollback {
    /// Error if an object of the bundle belongs to another extension.
    pub fn collision(&self) -> Option<CliError> {
        self.diff.as_ref().ok().and_then(|diff| collision_error(&diff.collisions))
    }

    /// Error if data may be lost, or operator-controller would refuse the rollback, unless the risk is accepted.
    pub fn refusal(&self) -> Option<CliError> {
        let name = self.live.metadata.name.as_deref().unwrap_or_default();
        (!self.risks.is_empty() && !self.accept_risk).then(|| {
            CliError::findings(format!(
                "the rollback of {name} is refused:{}\nnothing has been changed; back up your data, then run the command with --accept-risk",
                self.risks.text()
            ))
        })
    }

    /// Text output: from, to, and changes.
    pub fn text(&self, warnings: &[String]) -> String {
        self.plan.text(self.diff.as_ref().ok(), warnings)
    }

    /// Text about the accepted risks, and the way to end the pin.
    pub fn afterwards(&self) -> String {
        self.plan.afterwards(&self.risks)
    }

    /// Writes the extension.
    ///
    /// # Errors
    /// The API server refuses it or does not answer.
    pub async fn carry_out(
        &self,
        cluster: &ClusterConnection,
        dry_run: Option<DryRun>,
        session: &Session,
    ) -> Result<WrittenObject, CliError> {
        change::apply(cluster, Some(&self.live), &self.plan.desired, dry_run, session).await
    }
}
