//! `--all`: takes the upgrades that the extensions of the cluster have available
//! (docs/design/cli.md#changing-commands).

use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_cli_core::change::{self, ChangeFormat, WrittenObject};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{Fields, Table};
use olm_cli_core::session::Session;

use super::UpgradeArgs;
use super::steps::StepContext;
use crate::resolve::{AvailableUpgrade, AvailableUpgrades, available_upgrades};
use crate::rollout::{ExpectedState, PlanProgress, cannot_complete, wait_for};
use crate::status::observe;
use crate::status::tree::installed;

/// Runs `olm upgrade --all`.
///
/// # Errors
/// The cluster cannot be read, the answer is no, an upgrade fails, or no bundle can be chosen for an extension.
pub(super) async fn run(args: &UpgradeArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.access.cluster.connect().await?;
    let mut extensions = cluster.extensions(session).await?;
    extensions.retain(|one| one.metadata.deletion_timestamp.is_none() && installed(one).is_some());
    let desired: Vec<ClusterExtension> = extensions.iter().map(|one| args.desired(one)).collect();
    let context =
        StepContext { cluster: &cluster, controller: ControllerArgs::read(&cluster, session).await?, args };
    let mut plan = available_upgrades(&context.controller, &desired, &args.access, session).await?;
    keep_ready(&mut plan, &desired);
    context.show(&shown(&plan), session)?;
    if !plan.steps.is_empty() && args.change.dry_run.is_none() {
        change::confirm("Upgrade them?", args.yes, session).await?;
    }
    let mut written = Vec::new();
    let ended = carry_out(&context, &plan.steps, &mut written, session).await;
    if args.change.output != ChangeFormat::Table {
        change::print(args.change.output, "", &written, &mut session.output)?;
    }
    ended?;
    let failed: Vec<&str> = plan.failed.keys().map(String::as_str).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(CliError::no_candidate(format!("no bundle can be chosen for {}", failed.join(", ")))),
    }
}

/// Moves steps with a member that operator-controller holds to the held ones: for an approval, a window or a pause.
fn keep_ready(plan: &mut AvailableUpgrades, extensions: &[ClusterExtension]) {
    let cause = |upgrade: &AvailableUpgrade| {
        let extension = extensions.iter().find(|one| one.name_any() == upgrade.extension)?;
        let target = ExpectedState {
            name: upgrade.extension.clone(),
            uid: None,
            generation: 0,
            bundle: Some(upgrade.to.bundle.clone()),
            image: None,
            before: None,
            approved: None,
            ends_early: false,
        };
        cannot_complete(&target, extension)
    };
    let AvailableUpgrades { steps, held, .. } = plan;
    steps.retain(|step| {
        let Some(cause) = step.iter().find_map(cause) else { return true };
        held.extend(step.iter().map(|upgrade| (upgrade.extension.clone(), cause.clone())));
        false
    });
}

/// Table of the upgrades, and the extensions that take none although a newer bundle exists.
fn shown(plan: &AvailableUpgrades) -> String {
    let mut fields = Fields::default();
    if plan.steps.is_empty() {
        fields.text = "no upgrade is available\n".to_owned();
    } else {
        let mut table = Table::new(&["STEP", "EXTENSION", "INSTALLED", "UPGRADE TO", "CATALOG"]);
        for (number, step) in plan.steps.iter().enumerate() {
            for AvailableUpgrade { extension, from, to, .. } in step {
                table.row([&(number + 1).to_string(), extension, from, &to.bundle, &to.catalog]);
            }
        }
        fields.text = table.text();
    }
    let lines = |all: &std::collections::BTreeMap<String, String>| {
        all.iter().map(|(name, cause)| format!("{name}: {cause}")).collect::<Vec<_>>()
    };
    fields.list(0, "Held", &lines(&plan.held));
    fields.list(0, "Failed", &lines(&plan.failed));
    fields.text
}

/// Takes one step after the other, and waits for it. The last one is awaited with `--wait`.
async fn carry_out(
    context: &StepContext<'_>,
    steps: &[Vec<AvailableUpgrade>],
    written: &mut Vec<WrittenObject>,
    session: &mut Session,
) -> Result<(), CliError> {
    let StepContext { cluster, args, .. } = context;
    let label = |upgrade: &AvailableUpgrade| format!("{} ({})", upgrade.extension, upgrade.to.bundle);
    let mut progress = PlanProgress::new(steps.iter().flatten().map(label).collect());
    for (number, step) in steps.iter().enumerate() {
        let mut targets = Vec::new();
        for upgrade in step {
            let live = observe::extension(cluster, &upgrade.extension, session).await;
            let live = live.map_err(|failure| progress.with(failure))?;
            let one = context.step(&live, &args.desired(&live), &upgrade.to, session).await;
            let one = one.map_err(|failure| progress.with(failure))?;
            progress.written += 1;
            targets.push(ExpectedState::new(
                &one,
                Some(upgrade.to.bundle.clone()),
                Some(upgrade.from.clone()),
            ));
            written.push(one);
        }
        let is_last = number + 1 == steps.len();
        if args.change.dry_run.is_some() || (is_last && !args.change.wait) {
            continue;
        }
        for target in targets {
            let waited = wait_for(cluster, &target, args.change.timeout, session).await;
            let words = waited.map_err(|failure| progress.with(failure))?;
            progress.complete += 1;
            context.show(&format!("{words}\n"), session)?;
        }
    }
    Ok(())
}
