//! `olm cluster-check`: checks whether the installed extensions allow the next cluster version
//! (docs/design/operations.md#cluster-upgrades, docs/design/additions.md#platform-compatibility).
//!
//! The verdict comes from the same function as that of operator-controller. It is computed on each call, so the
//! command also works without a running controller, and for versions beyond the next one.

mod acknowledge;
mod platform;
mod removed;
mod templates;
mod text;

use std::collections::BTreeSet;

use clap::Args;
use kube::ResourceExt;
use olm_api::cluster_upgrade_status::{
    Acknowledgement, ExtensionVerdict, PlatformStatus, PlatformType, VerdictResult,
};
use olm_api::conditions::Status;
use olm_api::{ClusterObjectSet, ClusterUpgradeStatus};
use olm_cli_core::change::DryRun;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::FormatArgs;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterArgs, ClusterConnection, ImageArgs};
use olm_platform::{ConstrainedRevision, MinorVersion, Platform, Verdict, evaluate};
use serde::Serialize;

pub(crate) use self::platform::PlatformArgs;
use self::removed::{RemovedApi, removed_apis};
pub(crate) use self::text::upgrades;
use crate::resolve::{PlatformUpgrade, platform_upgrades};

/// First lines of the command's help.
pub const ABOUT: &str = "Check whether the installed extensions allow the next cluster version

Bundles may declare the highest minor version that they support: olm.maxOpenShiftVersion applies to OpenShift only, \
ext.olm.operatorframework.io/maxKubernetesVersion everywhere. Upgrade or uninstall an extension whose bundle does not \
support the next version before you upgrade the cluster. For each of these extensions, the command shows the upgrades \
that allow the upgrade of the cluster. It also lists installed objects whose API version the next Kubernetes version \
no longer serves, and warns of catalogs whose image template has no image for it.

The verdict is the one that operator-controller writes to ClusterUpgradeStatus \"cluster\" (kubectl get cus). \
--acknowledge records there that the bundles of an extension do not block the next version, until the bundle or the \
next version changes.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 the cluster may be upgraded   1 operation failed   2 wrong usage
  4 the cluster must not be upgraded, the verdict is unknown, or removed API versions are in use

Examples:
  {olm} cluster-check
  {olm} cluster-check --kube 1.38                 # a version after the next one
  {olm} cluster-check --target-platform 4.21      # the same on OpenShift
  {olm} cluster-check --platform openshift --platform-version 4.18
  {olm} cluster-check --acknowledge kiwi --comment 'tested on 4.19'
  {olm} cluster-check -o json | jq '.extensions[] | select(.result == \"Blocking\") | .name'")]
pub struct ClusterCheckArgs {
    #[command(flatten)]
    platform: PlatformArgs,
    /// OpenShift version to upgrade the cluster to; default: the one after its current version
    #[arg(long, value_name = "MAJOR.MINOR")]
    target_platform: Option<MinorVersion>,
    /// Kubernetes version to upgrade the cluster to; default: the one after its current version
    #[arg(long, visible_alias = "kube", value_name = "MAJOR.MINOR")]
    target_kube: Option<MinorVersion>,
    /// Record that the bundles of this extension do not block the version
    #[arg(long, value_name = "EXTENSION")]
    acknowledge: Option<String>,
    /// Reason for the acknowledgement
    #[arg(long, value_name = "TEXT", requires = "acknowledge")]
    comment: Option<String>,
    /// Only show the verdict with the acknowledgement, as computed locally (client) or after the API server has
    /// validated it (server)
    #[arg(long, value_enum, value_name = "WHERE", requires = "acknowledge")]
    dry_run: Option<DryRun>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
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
    /// Upgrades that let the platform move, for each blocking extension.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    upgrades: Vec<PlatformUpgrade>,
    /// Installed objects that the next Kubernetes version does not serve.
    #[serde(rename = "removedAPIs", skip_serializing_if = "Vec::is_empty")]
    removed_apis: Vec<RemovedApi>,
}

/// Verdict on the next cluster version, for readers of a page.
#[derive(Debug)]
pub struct NextVersion {
    /// Platform with its current version.
    pub current: String,
    /// Next version, if known.
    pub next: Option<String>,
    /// `True`, `False` or `Unknown`.
    pub upgradeable: &'static str,
    /// Reason in a sentence.
    pub message: String,
    /// Verdicts on the bundles of extensions.
    pub extensions: Vec<ExtensionVerdict>,
    /// For each blocking extension, its name and what to do.
    pub advice: Vec<(String, String)>,
    /// Objects whose API version the next Kubernetes version no longer serves: extension, and the object in words.
    pub removed: Vec<(String, String)>,
    /// What could not be checked, and catalogs without an image for the next version.
    pub warnings: Vec<String>,
}

/// Computes the verdict as the command does.
///
/// # Errors
/// The platform facts cannot be read.
pub async fn next_version(
    cluster: &ClusterConnection,
    access: &Access,
    session: &Session,
) -> Result<NextVersion, CliError> {
    let platform = Platform::of(&cluster.platform(session).await?);
    let revisions = cluster.object_sets(session).await?;
    let constrained: Vec<ConstrainedRevision> =
        revisions.iter().filter_map(ConstrainedRevision::of).collect();
    let status = upgrade_status(cluster, session).await?;
    let acknowledged = status.as_ref().map_or(&[][..], ClusterUpgradeStatus::acknowledgements);
    let verdict = evaluate(&platform, acknowledged, &constrained);
    let (upgrades, mut warnings) =
        upgrades_and_warnings(cluster, &verdict, &platform, access, session).await?;
    let (removed, unchecked) = removed_and_warnings(cluster, &revisions, &platform, session).await;
    warnings.extend(unchecked);
    if let Some(kubernetes) = platform.next_kubernetes {
        warnings.extend(templates::warnings(cluster, kubernetes, session).await?);
    }
    let check = ClusterCheck::new(&platform, &verdict, &constrained, upgrades, removed);
    let version = check.platform.current_version.as_deref().unwrap_or("of unknown version");
    let removed = check.removed_apis.iter().map(|one| {
        let text = format!(
            "{} {} uses {}, which Kubernetes {} no longer serves",
            one.kind, one.object, one.api_version, one.removed_in
        );
        (one.extension.clone(), text)
    });
    Ok(NextVersion {
        current: format!("{} {version}", check.platform.type_),
        next: check.platform.next_version.clone(),
        upgradeable: check.upgradeable,
        removed: removed.collect(),
        advice: check.upgrades.iter().map(|upgrade| (upgrade.extension.clone(), upgrade.advice())).collect(),
        message: check.message,
        extensions: check.extensions,
        warnings,
    })
}

/// Runs the command.
///
/// # Errors
/// The platform facts cannot be read, the acknowledgement cannot be written, or the cluster must not be upgraded.
pub async fn run(args: ClusterCheckArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let platform = args.target(args.platform.platform(cluster.platform(session).await?))?;
    let revisions = cluster.object_sets(session).await?;
    let constrained: Vec<ConstrainedRevision> =
        revisions.iter().filter_map(ConstrainedRevision::of).collect();
    let status = upgrade_status(&cluster, session).await?;
    let acknowledged = status.as_ref().map_or(&[][..], ClusterUpgradeStatus::acknowledgements);
    let mut verdict = evaluate(&platform, acknowledged, &constrained);
    if let Some(extension) = &args.acknowledge {
        let new = acknowledge::acknowledgements(&verdict, extension, args.comment.as_deref())?;
        let list: Vec<Acknowledgement> = acknowledge::with(acknowledged, &new, stored_next(status.as_ref()));
        let stored = status.as_ref().ok_or_else(|| {
            CliError::operational(
                "there is no ClusterUpgradeStatus \"cluster\": operator-controller creates it with gate \
                 ClusterUpgradeStatus",
            )
        })?;
        say(&acknowledge::write(&cluster, stored, &list, args.dry_run, session).await?);
        verdict = evaluate(&platform, &list, &constrained);
    }
    let access = Access { images: ImageArgs::default(), cluster: args.cluster.clone() };
    let (upgrades, mut warnings) =
        upgrades_and_warnings(&cluster, &verdict, &platform, &access, session).await?;
    let (removed, unchecked) = removed_and_warnings(&cluster, &revisions, &platform, session).await;
    warnings.extend(unchecked);
    if let Some(kubernetes) = platform.next_kubernetes {
        warnings.extend(templates::warnings(&cluster, kubernetes, session).await?);
    }
    warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    let check = ClusterCheck::new(&platform, &verdict, &constrained, upgrades, removed);
    session.output.result(args.format.output, "ClusterCheck", &check, text::text)?;
    match verdict.status {
        Status::True if check.removed_apis.is_empty() => Ok(()),
        _ => Err(CliError::ExitCode(Code::NoCandidate as u8)),
    }
}

/// Next version in the status that operator-controller wrote.
fn stored_next(status: Option<&ClusterUpgradeStatus>) -> Option<&str> {
    status?.status.as_ref()?.platform.as_ref()?.next_version.as_deref()
}

impl ClusterCheckArgs {
    /// The platform with the versions to upgrade to.
    fn target(&self, platform: Platform) -> Result<Platform, CliError> {
        if self.target_platform.is_some() && platform.type_ != PlatformType::OpenShift {
            return Err(CliError::usage(
                "--target-platform is an OpenShift version, but the cluster is not OpenShift: use --target-kube, or --platform \
             openshift to check as on OpenShift",
            ));
        }
        Ok(platform.towards(self.target_platform, self.target_kube))
    }
}

/// ClusterUpgradeStatus `cluster`. Without the right to read it, no bundle counts as acknowledged.
///
/// # Errors
/// A signal arrived.
pub(crate) async fn upgrade_status(
    cluster: &ClusterConnection,
    session: &Session,
) -> Result<Option<ClusterUpgradeStatus>, CliError> {
    match cluster.upgrade_status(session).await {
        Err(failure @ CliError::Message(Code::Interrupted, _)) => Err(failure),
        Err(failure) => {
            say(&format!("warning: cannot read the acknowledgements: {failure}"));
            Ok(None)
        }
        status => status,
    }
}

/// Names of the extensions that block the platform.
pub(crate) fn blocking(verdict: &Verdict) -> BTreeSet<&str> {
    let blocks =
        |row: &&ExtensionVerdict| matches!(row.result, VerdictResult::Blocking | VerdictResult::Invalid);
    verdict.extensions.iter().filter(blocks).map(|row| row.name.as_str()).collect()
}

/// Upgrades of the blocking extensions, and warnings. An unreadable catalog is a warning, because the verdict does not
/// depend on it.
async fn upgrades_and_warnings(
    cluster: &ClusterConnection,
    verdict: &Verdict,
    platform: &Platform,
    access: &Access,
    session: &Session,
) -> Result<(Vec<PlatformUpgrade>, Vec<String>), CliError> {
    let names = blocking(verdict);
    if names.is_empty() {
        return Ok(Default::default());
    }
    let upgrades = async {
        let mut extensions = cluster.extensions(session).await?;
        extensions.retain(|extension| names.contains(extension.name_any().as_str()));
        if extensions.is_empty() {
            return Ok(Vec::new());
        }
        let controller = ControllerArgs::read(cluster, session).await?;
        platform_upgrades(&controller, &extensions, platform, access, session).await
    };
    match upgrades.await {
        Err(failure @ CliError::Message(Code::Interrupted, _)) => Err(failure),
        Err(failure) => {
            let why = format!("cannot determine the upgrades of the blocking extensions: {failure}");
            Ok((Vec::new(), vec![why]))
        }
        Ok(upgrades) => Ok((upgrades, Vec::new())),
    }
}

/// Installed objects that the next version does not serve, and warnings.
async fn removed_and_warnings(
    cluster: &ClusterConnection,
    revisions: &[ClusterObjectSet],
    platform: &Platform,
    session: &Session,
) -> (Vec<RemovedApi>, Vec<String>) {
    let Some(kubernetes) = platform.next_kubernetes else { return Default::default() };
    removed_apis(cluster, revisions, kubernetes, session).await
}

impl ClusterCheck {
    fn new(
        platform: &Platform,
        verdict: &Verdict,
        revisions: &[ConstrainedRevision],
        upgrades: Vec<PlatformUpgrade>,
        removed_apis: Vec<RemovedApi>,
    ) -> Self {
        let mut extensions = verdict.extensions.clone();
        for row in &mut extensions {
            let upgrade = upgrades.iter().find(|one| one.extension == row.name && one.within_range);
            row.upgrade_to = upgrade.and_then(PlatformUpgrade::version).map(str::to_owned);
        }
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
            upgrades,
            removed_apis,
        }
    }
}

/// Verdict for an extension that declares no platform limit: it blocks nothing.
fn without_constraint(revision: &ConstrainedRevision) -> ExtensionVerdict {
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
