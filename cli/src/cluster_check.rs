//! `olm cluster-check`: checks whether the installed extensions allow the next cluster version
//! (docs/design/operations.md#cluster-upgrades, docs/design/additions.md#platform-compatibility).
//!
//! The verdict comes from the same function as that of operator-controller. It is computed on each call, so the
//! command also works without a running controller, and for versions beyond the next one.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use olm_api::cluster_upgrade_status::{ExtensionVerdict, PlatformStatus, PlatformType, VerdictResult};
use olm_api::conditions::Status;
use olm_platform::{Facts, MinorVersion, OpenShiftVersionMap, Platform, Revision, Verdict, evaluate};
use serde::Serialize;

use crate::error::{CliError, Code};
use crate::output::{Fields, FormatArgs, Table};
use crate::session::Session;
use crate::source::ClusterArgs;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Check whether the installed extensions allow the next cluster version

Bundles may declare the highest minor version that they support: olm.maxOpenShiftVersion applies to OpenShift \
only, ext.olm.operatorframework.io/maxKubernetesVersion everywhere. Upgrade or uninstall an extension whose bundle \
does not support the next version before you upgrade the cluster.

The verdict is the one that operator-controller writes to ClusterUpgradeStatus \"cluster\" (kubectl get cus).";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 the cluster may be upgraded   1 operation failed   2 wrong usage
  4 the cluster may not be upgraded, or the verdict is unknown

Examples:
  {olm} cluster-check
  {olm} cluster-check --target-kube 1.37          # a version after the next one
  {olm} cluster-check --target-platform 4.21      # the same on OpenShift
  {olm} cluster-check --platform openshift --platform-version 4.18
  {olm} cluster-check -o json | jq '.extensions[] | select(.result == \"Blocking\") | .name'")]
pub(crate) struct ClusterCheckArgs {
    /// Platform to check
    #[arg(long, value_enum, default_value = "auto")]
    platform: PlatformChoice,
    /// Current version of the platform; default: the version that the cluster reports
    #[arg(long, value_name = "MAJOR.MINOR")]
    platform_version: Option<MinorVersion>,
    /// Interpretation of olm.maxOpenShiftVersion if the platform is not OpenShift: off, or k8s-offset (4.y as
    /// Kubernetes 1.(y+13)); as the flag of operator-controller
    #[arg(long, value_name = "MAP", default_value = "off")]
    openshift_version_map: OpenShiftVersionMap,
    /// OpenShift version to upgrade the cluster to; default: the one after its current version
    #[arg(long, value_name = "MAJOR.MINOR")]
    target_platform: Option<MinorVersion>,
    /// Kubernetes version to upgrade the cluster to; default: the one after its current version
    #[arg(long, value_name = "MAJOR.MINOR")]
    target_kube: Option<MinorVersion>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PlatformChoice {
    /// The platform that the cluster runs on
    Auto,
    /// OpenShift
    #[value(name = "openshift")]
    OpenShift,
    /// Any other Kubernetes
    Kubernetes,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterCheck {
    /// `True`, `False` or `Unknown`.
    upgradeable: &'static str,
    reason: &'static str,
    message: String,
    platform: PlatformStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_kubernetes_version: Option<String>,
    blocking_extensions: usize,
    extensions: Vec<ExtensionVerdict>,
}

/// Runs the command.
///
/// # Errors
/// The platform facts cannot be read, or the verdict is not `True`.
pub(crate) async fn run(args: ClusterCheckArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let facts = cluster.platform(session).await?;
    let platform = checked_platform(&args, facts)?;
    let revisions = cluster.revisions(session).await?;
    let verdict = evaluate(&platform, &revisions);
    let check = ClusterCheck::new(&platform, &verdict, &revisions);
    session.output.result(args.format.output, "ClusterCheck", &check, text)?;
    match verdict.status {
        Status::True => Ok(()),
        Status::False | Status::Unknown => Err(CliError::ExitCode(Code::NoCandidate as u8)),
    }
}

fn checked_platform(args: &ClusterCheckArgs, facts: Facts) -> Result<Platform, CliError> {
    let requested = match args.platform {
        PlatformChoice::Auto => None,
        PlatformChoice::OpenShift => Some(PlatformType::OpenShift),
        PlatformChoice::Kubernetes => Some(PlatformType::Kubernetes),
    };
    let (flag, openshift_map) = (args.platform_version, args.openshift_version_map);
    let platform = Platform::of(&Facts { named: requested, flag, openshift_map, ..facts });
    if args.target_platform.is_some() && platform.type_ != PlatformType::OpenShift {
        return Err(CliError::usage(
            "--target-platform is an OpenShift version, but the cluster is not OpenShift: use --target-kube, or --platform \
             openshift to check as on OpenShift",
        ));
    }
    Ok(platform.towards(args.target_platform, args.target_kube))
}

impl ClusterCheck {
    fn new(platform: &Platform, verdict: &Verdict, revisions: &[Revision]) -> Self {
        let mut extensions = verdict.extensions.clone();
        let constrained: BTreeSet<(&str, &str)> =
            verdict.extensions.iter().map(|row| (row.name.as_str(), row.bundle.as_str())).collect();
        let unconstrained =
            revisions.iter().filter(|one| !constrained.contains(&(&one.extension, &one.bundle)));
        extensions.extend(unconstrained.map(without_constraint));
        let key = |row: &ExtensionVerdict| (row.name.clone(), row.bundle.clone(), row.constraint.clone());
        extensions.sort_by_key(key);
        extensions.dedup();
        Self {
            upgradeable: verdict.status.as_str(),
            reason: verdict.reason,
            message: verdict.message.clone(),
            platform: PlatformStatus::from(platform),
            next_kubernetes_version: platform.next_kubernetes.map(|version| version.to_string()),
            blocking_extensions: verdict.blocking,
            extensions,
        }
    }
}

/// Verdict for an extension that declares no platform limit: it blocks nothing.
fn without_constraint(revision: &Revision) -> ExtensionVerdict {
    ExtensionVerdict {
        name: revision.extension.clone(),
        bundle: revision.bundle.clone(),
        version: revision.version.clone(),
        constraint: String::new(),
        value: String::new(),
        result: VerdictResult::Compatible,
        upgrade_to: None,
        message: None,
        operator_condition: None,
    }
}

fn text(check: &ClusterCheck) -> String {
    let platform = &check.platform;
    let mut fields = Fields::default();
    let current = match (&platform.current_version, &platform.source) {
        (Some(version), Some(source)) => format!("{} {version} (from {source})", platform.type_),
        _ => format!("{}, version unknown", platform.type_),
    };
    fields.add(0, "Platform", &current);
    fields.add(0, "Next version", platform.next_version.as_deref().unwrap_or("unknown"));
    if platform.type_ == PlatformType::OpenShift {
        fields.add(0, "Next Kubernetes", check.next_kubernetes_version.as_deref().unwrap_or("unknown"));
    }
    fields.add(0, "Upgradeable", &format!("{} ({})", check.upgradeable, check.reason));
    let lines: Vec<String> = check.message.lines().map(str::to_owned).collect();
    fields.list(0, "Message", &lines);
    if check.extensions.is_empty() {
        return fields.text;
    }
    let mut table = Table::new(&["EXTENSION", "BUNDLE", "VERSION", "RESULT", "CONSTRAINT", "VALUE"]);
    for row in &check.extensions {
        table.row([&row.name, &row.bundle, &row.version, row.result.as_str(), &row.constraint, &row.value]);
    }
    format!("{}\n{}", fields.text, table.text())
}
