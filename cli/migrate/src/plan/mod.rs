//! `olm migrate plan`: how each package of classic OLM becomes a ClusterExtension (docs/design/migration.md#plan).
//!
//! [`context`] reads the inputs and joins the parts: [`catalogs`], [`extension`], [`grants`] and [`disposition`], which
//! are pure, and [`observe`], which reads what runs. [`model`] is the result, which `olm migrate apply` executes,
//! [`text`] prints it, and [`folder`] writes it for GitOps.

mod catalogs;
mod context;
mod disposition;
mod extension;
mod folder;
mod grants;
pub(crate) mod model;
mod observe;
mod selection;
mod text;

use std::path::PathBuf;

use clap::Args;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use serde::Serialize;

pub(super) use self::catalogs::{ProposedCatalog, proposed};
pub(super) use self::context::{PlanContext, of_package};
use self::model::PackagePlan;
pub(super) use self::selection::{ACCEPTABLE, ordered, refusal, select};
use super::classify::PackageReport;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Plan how packages of classic OLM become ClusterExtensions

For each package, the installed bundle is pulled and rendered as operator-controller does it, and compared with what \
runs. The plan has the ClusterCatalog and the ClusterExtension, access for users, and each object that will be adopted, \
created, removed or left, with the reason. It names the Deployments whose pod template changes, which means one rolling \
restart. The command changes nothing.

A package that needs a decision or cannot be migrated yet is refused with the findings of `olm migrate scan`. --accept \
takes the decision: the extension reports unmet dependencies (DECISION-2), the bindings of the plan replace the roles of \
the OperatorGroup (DECISION-6), operator-controller installs with its own permissions (DECISION-7).

--to writes a folder for GitOps: for each package catalog.yaml, extension.yaml (the state after the migration), \
grants.yaml and plan.yaml, and plan.txt for all.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage
  4 there is no such package, or a package is refused

Examples:
  {olm} migrate plan lamp
  {olm} migrate plan operators/lamp shade --to ./migration
  {olm} migrate plan --all -o json | jq '.packages[] | {package, restarts}'
  {olm} migrate plan lamp --accept DECISION-6")]
pub struct MigratePlanArgs {
    /// Packages to plan, as PACKAGE or NAMESPACE/PACKAGE
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// Plan all packages that can be migrated
    #[arg(long)]
    all: bool,
    /// Write the plans to this folder
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Keep the installed version after the migration, too, instead of following the channel
    #[arg(long)]
    keep_pinned: bool,
    /// Accept what the plan does about this finding; may be given several times
    #[arg(long, value_name = "RULE", value_parser = ACCEPTABLE, value_delimiter = ',')]
    accept: Vec<String>,
    /// Catalog that must have the installed bundles: a directory, an image, or cluster/NAME; default: all of the
    /// cluster, and the images of CatalogSources; may be given several times
    #[arg(long = "catalog", value_name = "SOURCE")]
    catalogs: Vec<String>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    access: Access,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct MigrationPlan {
    /// In the order of the migration.
    packages: Vec<PackagePlan>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refusal>,
}

/// Package without a plan.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Refusal {
    pub(super) package: String,
    pub(super) namespace: String,
    /// Findings, each with the next step.
    pub(super) reasons: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The cluster cannot be read, the folder cannot be written, or a package is refused.
pub(super) async fn run(args: MigratePlanArgs, session: &mut Session) -> Result<(), CliError> {
    let plan = plan(&args, session).await?;
    if let Some(folder) = &args.to {
        folder::write(folder, &plan)?;
    }
    session.output.result(args.format.output, "MigrationPlan", &plan, text::text)?;
    if plan.refused.is_empty() { Ok(()) } else { Err(CliError::ExitCode(Code::NoCandidate as u8)) }
}

async fn plan(args: &MigratePlanArgs, session: &Session) -> Result<MigrationPlan, CliError> {
    let cluster = args.access.cluster.connect().await?;
    let context = PlanContext::read(&cluster, &args.access, &args.catalogs, session).await?;
    let selected = select(&context.reports, &args.names)?;
    let mut plan = MigrationPlan { packages: Vec::new(), refused: Vec::new() };
    for report in ordered(selected, |report| (report.id(), report.after.as_slice())) {
        let _step = session.progress.step(format!("planning {}", report.id()));
        let refuse = |reasons| Refusal {
            package: report.package.clone(),
            namespace: report.namespace.clone(),
            reasons,
        };
        let planned: Vec<String> =
            plan.packages.iter().map(|plan| format!("{}/{}", plan.namespace, plan.package)).collect();
        if let Some(reasons) = refusal(report, &planned, &args.accept) {
            plan.refused.push(refuse(reasons));
            continue;
        }
        match of_package(&context, report).await {
            Ok(mut package) => {
                if args.keep_pinned {
                    package.keep_pinned();
                }
                plan.packages.push(package);
            }
            Err(error @ CliError::Message(Code::Interrupted, _)) => return Err(error),
            // One package does not prevent the plans of the others.
            Err(error) => plan.refused.push(refuse(vec![error.to_string()])),
        }
    }
    Ok(plan)
}
