//! Plan of a change, from the functions of the commands.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use maud::Markup;
use olm_api::extension_plan::PlannedChange;
use olm_api::{ClusterExtension, annotations};
use olm_cli_core::bundle_source::BundleFiles;
use olm_cli_core::change::{self, DryRun, WriteResult, WrittenObject};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_cli_lifecycle::diff::Diff;
use olm_cli_lifecycle::plan::approve::{PreparedApproval, RecordedPlan};
use olm_cli_lifecycle::resolve::{AllowedVersions, Resolver};
use olm_cli_lifecycle::rollback::{PreparedRollback, RollbackRequest};
use olm_cli_lifecycle::status::health::Hold;
use olm_cli_lifecycle::status::observe::changeable_extension;
use olm_cli_lifecycle::status::tree::installed;
use olm_cli_lifecycle::uninstall::PlannedUninstall;
use olm_cli_lifecycle::upgrade::{PreparedUpgrade, UpgradeRequest, with_version};
use olm_plan::objects::ChangeKind;
use olm_request::UninstallPolicy;
use olm_version::{Version, quote};
use serde_json::json;

use super::difference::{attention, recorded_attention};
use super::page::{keep_choice, target_choice};
use super::{Action, LATEST, REQUESTED, Request, configure};
use crate::app::Console;
use crate::extensions::cluster_of;
use crate::visitor::Visitor;

/// Longest wait for operator-controller to apply a policy.
const LIMIT: Duration = Duration::from_secs(30);

/// Change that can be carried out.
enum Change {
    Approval(Box<PreparedApproval>),
    Upgrade(Box<PreparedUpgrade>),
    Rollback(Box<PreparedRollback>),
    Uninstall(Box<PlannedUninstall>),
}

/// Change with everything that its page shows.
pub(super) struct Planned {
    change: Change,
    /// Choice of the target.
    pub(super) choice: Markup,
    /// Sentences about the extension.
    pub(super) facts: Vec<String>,
    /// Output of the command.
    pub(super) text: String,
    pub(super) warnings: Vec<String>,
    /// Error of the command, or of the API server's dry run.
    pub(super) refusal: Option<String>,
    /// Command line of the same change.
    pub(super) command: String,
    /// CRDs with custom resources that the change deletes, or may delete.
    pub(super) endangered: Vec<String>,
    /// `true` if there is nothing to write.
    pub(super) is_unchanged: bool,
}

/// Inputs of a plan.
struct Context<'a> {
    cluster: &'a ClusterConnection,
    access: &'a Access,
    session: &'a Session,
    console: &'a Console,
    name: &'a str,
}

impl Planned {
    /// Computes the plan. Unless the console is read-only, the API server also checks the write in a dry run.
    ///
    /// # Errors
    /// The extension does not exist, there is no such target, or the cluster cannot be read.
    pub(super) async fn read(
        console: &Console,
        visitor: &Visitor,
        name: &str,
        action: Action,
        request: &Request,
    ) -> Result<Self, CliError> {
        let cluster = cluster_of(visitor, name)?;
        let (access, session) = (visitor.access(), &console.session);
        let context = Context { cluster, access, session, console, name };
        let mut planned = match action {
            Action::Approve => context.approve().await?,
            Action::Upgrade => context.upgrade(&request.to).await?,
            Action::Configure => context.configure(request).await?,
            Action::Rollback => context.rollback(&request.to).await?,
            Action::Uninstall => context.uninstall(request.keep_crds == "yes").await?,
        };
        let dry_run = if console.read_only { DryRun::Client } else { DryRun::Server };
        if planned.endangered.is_empty() && deletes_crds(planned.live()) {
            planned.endangered = planned.dropped_crds();
        }
        match planned.write(cluster, Some(dry_run), session).await {
            Ok(written) => planned.is_unchanged = written.done == WriteResult::Unchanged,
            Err(error) => planned.refusal = planned.refusal.or_else(|| Some(error.to_string())),
        }
        Ok(planned)
    }

    /// Carries out the change.
    ///
    /// # Errors
    /// The API server refuses it or does not answer.
    pub(super) async fn write(
        &self,
        cluster: &ClusterConnection,
        dry_run: Option<DryRun>,
        session: &Session,
    ) -> Result<WrittenObject, CliError> {
        match &self.change {
            Change::Approval(approval) => approval.carry_out(cluster, dry_run, session).await,
            Change::Upgrade(upgrade) => upgrade.carry_out(cluster, dry_run, session).await,
            Change::Rollback(rollback) => rollback.carry_out(cluster, dry_run, session).await,
            Change::Uninstall(plan) => plan.carry_out(cluster, LIMIT, dry_run, session).await,
        }
    }

    /// The extension as read.
    fn live(&self) -> &ClusterExtension {
        match &self.change {
            Change::Approval(approval) => &approval.live,
            Change::Upgrade(upgrade) => &upgrade.live,
            Change::Rollback(rollback) => &rollback.live,
            Change::Uninstall(plan) => &plan.extension,
        }
    }

    /// Predicted changes of objects, if known.
    pub(super) fn diff(&self) -> Option<&Diff> {
        match &self.change {
            Change::Approval(approval) => approval.diff(),
            Change::Upgrade(upgrade) => upgrade.diff.as_ref()?.as_ref().ok(),
            Change::Rollback(rollback) => rollback.diff.as_ref().ok(),
            Change::Uninstall(_) => None,
        }
    }

    /// Sentences about what may do harm.
    pub(super) fn attention(&self) -> Vec<String> {
        match self.recorded() {
            Some(plan) => recorded_attention(plan, &self.endangered),
            None => attention(self.diff(), &self.endangered),
        }
    }

    /// Changes that operator-controller recorded.
    fn recorded(&self) -> Option<RecordedPlan<'_>> {
        match &self.change {
            Change::Approval(approval) => approval.recorded(),
            _ => None,
        }
    }

    /// CRDs that the new revision does not have.
    fn dropped_crds(&self) -> Vec<String> {
        let recorded = self.recorded().into_iter().flat_map(|plan| plan.objects).filter(|object| {
            object.change == PlannedChange::Deleted && object.kind == "CustomResourceDefinition"
        });
        let predicted = self.diff().into_iter().flat_map(|diff| &diff.objects);
        let predicted =
            predicted.filter(|change| change.change == ChangeKind::Deleted && change.object.is_crd());
        recorded
            .map(|object| object.name.clone())
            .chain(predicted.map(|change| change.object.name.clone()))
            .collect()
    }

    /// Digest of what a write would do. The write compares it with the one that the user saw.
    pub(super) fn digest(&self) -> String {
        let choice = match &self.change {
            Change::Upgrade(upgrade) => Some(&upgrade.choice),
            Change::Rollback(rollback) => Some(&rollback.choice),
            Change::Approval(_) | Change::Uninstall(_) => None,
        };
        let chosen = choice.map(|choice| (choice.bundle.as_str(), choice.image.as_str()));
        digest(
            self.live(),
            chosen,
            &[&self.command, &self.text, &self.diff().map_or_else(String::new, Diff::text)],
        )
    }
}

/// Reports whether CRDs that a new revision does not have are deleted with their custom resources. By default, they are
/// kept.
pub(super) fn deletes_crds(extension: &ClusterExtension) -> bool {
    let policy = extension.annotations().get(annotations::EXT_UNINSTALL_POLICY);
    policy.is_some_and(|text| UninstallPolicy::of(text) == UninstallPolicy::Delete)
}

/// Digest over the identity and generation of an extension, the name and image of a bundle, and texts.
pub(super) fn digest(live: &ClusterExtension, chosen: Option<(&str, &str)>, texts: &[&str]) -> String {
    let (uid, generation) = (&live.metadata.uid, live.metadata.generation);
    olm_pack::digest_of(json!([uid, generation, chosen, texts]).to_string().as_bytes())
}

impl Context<'_> {
    async fn bundle(&self, image: &str) -> Result<Arc<BundleFiles>, CliError> {
        self.console.bundles.read(image, self.access, self.session).await
    }

    async fn approve(&self) -> Result<Planned, CliError> {
        let Self { cluster, access, session, name, .. } = *self;
        let approval = PreparedApproval::read(cluster, name, access, session).await?;
        let digest = approval.digest();
        Ok(Planned {
            choice: Markup::default(),
            facts: vec![
                "operator-controller applies exactly this plan after the approval. Any later change makes a new plan, which \
                 waits again."
                    .to_owned(),
            ],
            // The difference has a section of its own.
            text: approval.heading(),
            warnings: approval.warning.iter().cloned().collect(),
            refusal: approval.refusal().map(|error| error.to_string()),
            command: format!("olm approve {name} --digest {digest}"),
            endangered: Vec::new(),
            is_unchanged: false,
            change: Change::Approval(Box::new(approval)),
        })
    }

    async fn upgrade(&self, to: &str) -> Result<Planned, CliError> {
        let Self { cluster, access, session, name, .. } = *self;
        let live = changeable_extension(cluster, name, session).await?;
        let controller = &ControllerArgs::read(cluster, session).await?;
        let free = with_version(&live, None);
        let sources = ["cluster".to_owned()];
        let resolver = Resolver::read(controller, &live, &sources, access, session).await?;
        let allowed = resolver.allowed_versions(&free)?;
        let target = UpgradeTarget::new(to, &live, &allowed)?;
        let desired = match &target {
            UpgradeTarget::Requested => live.clone(),
            UpgradeTarget::Latest => free,
            UpgradeTarget::Version(version) => with_version(&live, Some(version.clone())),
        };
        let targets = target_choice(target.as_str(), &allowed.versions);
        let facts = vec![pin(&live)];
        let choice = resolver.choose(&desired)?;
        let request = UpgradeRequest { cluster, controller, session };
        let read = async |image: &str| self.bundle(image).await;
        let upgrade = request.prepare(live, desired, choice, read).await?;
        let mut warnings = upgrade.warnings(matches!(target, UpgradeTarget::Version(_)));
        let unknown = |why| format!("cannot predict the changes of the bundle: {why}");
        warnings.extend(upgrade.unknown().map(unknown));
        Ok(Planned {
            choice: targets,
            facts,
            text: upgrade.text(&[]),
            warnings,
            refusal: upgrade.refusal().map(|error| error.to_string()),
            command: format!("olm upgrade {name}{}", target.flags()),
            endangered: Vec::new(),
            is_unchanged: false,
            change: Change::Upgrade(Box::new(upgrade)),
        })
    }

    async fn configure(&self, form: &Request) -> Result<Planned, CliError> {
        let Self { cluster, access, session, name, .. } = *self;
        let live = changeable_extension(cluster, name, session).await?;
        let desired = configure::desired(&live, form)?;
        let is_outdated = form.generation != configure::generation(&live);
        let controller = &ControllerArgs::read(cluster, session).await?;
        let sources = ["cluster".to_owned()];
        let resolver = Resolver::read(controller, &desired, &sources, access, session).await?;
        let choice = resolver.choose(&desired)?;
        let patch = change::merge_patch(&serde_json::to_value(&live)?, &serde_json::to_value(&desired)?);
        let changed = configure::changed(&live, &desired);
        let request = UpgradeRequest { cluster, controller, session };
        let facts = vec![pin(&desired)];
        let upgrade =
            request.prepare(live, desired, choice, async |image: &str| self.bundle(image).await).await?;
        let unknown = |why| format!("cannot predict the changes of the bundle: {why}");
        let warnings = upgrade.warnings(false).into_iter().chain(upgrade.unknown().map(unknown)).collect();
        let patch = patch.map(|patch| patch.to_string()).unwrap_or_default().replace('\'', "'\\''");
        let outdated = "The extension has changed since this form was opened. Open its configuration again.";
        Ok(Planned {
            choice: configure::controls(form),
            facts,
            text: format!("{changed}{}", upgrade.text(&[])),
            warnings,
            refusal: match is_outdated {
                true => Some(outdated.to_owned()),
                false => upgrade.refusal().map(|error| error.to_string()),
            },
            command: format!("kubectl patch clusterextension {name} --type merge -p '{patch}'"),
            endangered: Vec::new(),
            is_unchanged: false,
            change: Change::Upgrade(Box::new(upgrade)),
        })
    }

    async fn rollback(&self, to: &str) -> Result<Planned, CliError> {
        let Self { cluster, access, session, name, .. } = *self;
        let to = Some(to).filter(|to| !to.is_empty());
        let catalogs = &["cluster".to_owned()];
        let request = RollbackRequest { cluster, name, to, accept_risk: false, catalogs, access, session };
        let rollback = request.prepare(async |image: &str| self.bundle(image).await).await?;
        let refusal = rollback.collision().or_else(|| rollback.refusal());
        let mut text = rollback.text(&[]);
        if refusal.is_none() {
            text += &rollback.afterwards();
        }
        let target = to.map(|to| format!(" --to {to}")).unwrap_or_default();
        Ok(Planned {
            choice: Markup::default(),
            facts: Vec::new(),
            text,
            warnings: rollback.note.iter().chain(&rollback.warnings).cloned().collect(),
            refusal: refusal.map(|error| error.to_string()),
            command: format!("olm rollback {name}{target}"),
            endangered: Vec::new(),
            is_unchanged: false,
            change: Change::Rollback(Box::new(rollback)),
        })
    }

    async fn uninstall(&self, keep_crds: bool) -> Result<Planned, CliError> {
        let Self { cluster, session, name, .. } = *self;
        let uninstall = PlannedUninstall::read(cluster, name, keep_crds, session).await?;
        let plan = &uninstall.plan;
        let flag = if keep_crds { " --keep-crds" } else { "" };
        Ok(Planned {
            choice: keep_choice(keep_crds),
            facts: vec![plan.question()],
            text: plan.text(),
            warnings: uninstall.notes.clone(),
            refusal: plan.blocked().map(|error| error.to_string()),
            command: format!("olm uninstall {name}{flag}"),
            endangered: plan.endangered().map(str::to_owned).collect(),
            is_unchanged: false,
            change: Change::Uninstall(Box::new(uninstall)),
        })
    }
}

/// Target of an upgrade.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UpgradeTarget {
    /// The version range of the extension.
    Requested,
    /// Any version.
    Latest,
    Version(String),
}

impl UpgradeTarget {
    /// Target with the value `to`. By default the choice of the resolver, also for an extension that is pinned to a
    /// version.
    ///
    /// # Errors
    /// The resolver does not allow the version.
    pub(super) fn new(
        to: &str,
        live: &ClusterExtension,
        allowed: &AllowedVersions,
    ) -> Result<Self, CliError> {
        let version = |version: &str| Self::Version(version.to_owned());
        match to {
            REQUESTED => Ok(Self::Requested),
            LATEST => Ok(Self::Latest),
            "" => {
                let installed = installed(live).map(|bundle| bundle.version);
                let newer = allowed.chosen.as_deref().filter(|chosen| installed.as_deref() != Some(*chosen));
                Ok(newer.filter(|_| is_pinned(live)).map_or(Self::Requested, version))
            }
            to if allowed.versions.iter().any(|one| one == to) => Ok(version(to)),
            to => Err(CliError::no_candidate(format!(
                "the resolver does not allow version {}; allowed: {}",
                quote(to),
                allowed.versions.join(", ")
            ))),
        }
    }

    /// Value in a query.
    fn as_str(&self) -> &str {
        match self {
            Self::Requested => REQUESTED,
            Self::Latest => LATEST,
            Self::Version(version) => version,
        }
    }

    /// Flags of `olm upgrade`.
    fn flags(&self) -> String {
        match self {
            Self::Requested => String::new(),
            Self::Latest => " --latest".to_owned(),
            Self::Version(version) => format!(" --version {version}"),
        }
    }
}

fn range(live: &ClusterExtension) -> Option<&str> {
    let catalog = live.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
    catalog.and_then(|catalog| catalog.version.as_deref()).filter(|version| !version.is_empty())
}

/// Reports whether the version range is one version.
fn is_pinned(live: &ClusterExtension) -> bool {
    range(live).is_some_and(|version| Version::parse(version).is_ok())
}

/// Sentence about the upgrades that operator-controller makes by itself, and what holds them.
pub(super) fn pin(live: &ClusterExtension) -> String {
    let automatic = match Hold::all(live).first() {
        None => "OLM upgrades the extension by itself",
        Some(_) => {
            "Upgrades wait at present: see the page of the extension. Otherwise, OLM upgrades the extension by itself"
        }
    };
    match range(live) {
        None => format!("{automatic}, to any new version of its channels."),
        Some(version) if is_pinned(live) => {
            format!("The extension stays at version {version}: OLM does not upgrade it.")
        }
        Some(version) => format!("{automatic}, within the range {}.", quote(version)),
    }
}
