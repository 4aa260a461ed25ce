//! `--for-platform`: upgrades all extensions that block a version of the platform
//! (docs/design/operations.md#upgrade-targets).

use std::collections::BTreeSet;

use kube::ResourceExt;
use olm_api::ClusterUpgradeStatus;
use olm_api::cluster_upgrade_status::PlatformType;
use olm_cli_core::change::{self, ChangeFormat, WrittenObject};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_platform::{ConstrainedRevision, MinorVersion, evaluate};

use super::steps::StepContext;
use super::{UpgradeArgs, with_version};
use crate::cluster_check::{blocking, upgrade_status, upgrades};
use crate::resolve::{PlatformUpgrade, platform_upgrades};
use crate::rollout::{ExpectedState, wait_for};
use crate::status::observe;
use crate::status::tree::installed;

/// Runs `olm upgrade --for-platform VERSION`.
///
/// # Errors
/// The cluster cannot be read, the answer is no, a step fails, or an extension has no upgrade that supports the
/// version.
pub(super) async fn run(
    version: MinorVersion,
    args: &UpgradeArgs,
    session: &mut Session,
) -> Result<(), CliError> {
    let cluster = args.access.cluster.connect().await?;
    let platform = args.platform.platform(cluster.platform(session).await?);
    let platform = match platform.type_ {
        PlatformType::OpenShift => platform.towards(Some(version), None),
        _ => platform.towards(None, Some(version)),
    };
    let revisions: Vec<ConstrainedRevision> =
        cluster.object_sets(session).await?.iter().filter_map(ConstrainedRevision::of).collect();
    let status = upgrade_status(&cluster, session).await?;
    let acknowledged = status.as_ref().map_or(&[][..], ClusterUpgradeStatus::acknowledgements);
    let verdict = evaluate(&platform, acknowledged, &revisions);
    let names: BTreeSet<&str> = blocking(&verdict);
    if names.is_empty() {
        say(&format!("no extension blocks {} {version}", platform.type_));
        return change::print(args.change.output, "", &[], &mut session.output);
    }
    let mut extensions = cluster.extensions(session).await?;
    extensions.retain(|extension| names.contains(extension.name_any().as_str()));
    let context =
        StepContext { cluster: &cluster, controller: ControllerArgs::read(&cluster, session).await?, args };
    let plan = platform_upgrades(&context.controller, &extensions, &platform, &args.access, session).await?;
    context.show(&upgrades(&plan), session)?;
    let stuck: Vec<&str> =
        plan.iter().filter(|one| one.steps.is_empty()).map(|one| one.extension.as_str()).collect();
    if stuck.len() < plan.len() && args.change.dry_run.is_none() {
        change::confirm("Upgrade them?", args.yes, session).await?;
    }
    let mut written = Vec::new();
    let ended = context.carry_out(&plan, &mut written, session).await;
    if args.change.output != ChangeFormat::Table {
        change::print(args.change.output, "", &written, &mut session.output)?;
    }
    ended?;
    match stuck.is_empty() {
        true => Ok(()),
        false => Err(CliError::no_candidate(format!(
            "no upgrade of {} leads to a bundle that supports {} {version}: uninstall it, or acknowledge it with `olm \
             cluster-check --acknowledge NAME`",
            stuck.join(", "),
            platform.type_
        ))),
    }
}

impl StepContext<'_> {
    async fn carry_out(
        &self,
        plan: &[PlatformUpgrade],
        written: &mut Vec<WrittenObject>,
        session: &mut Session,
    ) -> Result<(), CliError> {
        let is_dry = self.args.change.dry_run.is_some();
        for upgrade in plan {
            for (index, step) in upgrade.steps.iter().enumerate() {
                let live = observe::extension(self.cluster, &upgrade.extension, session).await?;
                let desired = if upgrade.automatic {
                    live.clone()
                } else {
                    with_version(&live, Some(step.version.clone()))
                };
                let one = self.step(&live, &desired, step, session).await?;
                written.push(one.clone());
                let is_last = index + 1 == upgrade.steps.len();
                if is_dry || (is_last && !self.args.change.wait) {
                    // A later step starts from this one.
                    break;
                }
                let before = installed(&live).map(|bundle| bundle.name);
                let target = ExpectedState::new(&one, Some(step.bundle.clone()), before);
                let words = wait_for(self.cluster, &target, self.args.change.timeout, session).await?;
                self.show(&format!("{words}\n"), session)?;
            }
        }
        Ok(())
    }
}
