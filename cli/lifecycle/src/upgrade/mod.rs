//! `olm upgrade`: changes the catalog filter of a ClusterExtension after showing the resulting upgrade and its
//! changes (docs/design/cli.md#changing-commands).
//!
//! The choice comes from the resolver, as in `olm resolve`, and the changes from the comparison of `olm diff`.

mod all;
mod for_platform;
mod steps;

use std::sync::Arc;

use clap::{ArgGroup, Args};
use olm_api::ClusterExtension;
use olm_api::cluster_extension::UpgradeConstraintPolicy;
use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::change::{self, ChangeArgs, DryRun, WrittenObject};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::output::Fields;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_cli_core::version_expression;
use olm_platform::MinorVersion;
use olm_version::quote;

use crate::cluster_check::PlatformArgs;
use crate::diff::{ComparedExtension, Diff, Prediction, refusal};
use crate::install::with_dependencies::PlanContext;
use crate::install::{self, InstallNamespace, print_warnings};
use crate::resolve::{ResolvedBundle, choose_as};
use crate::rollout::{self, ChangedBundle};
use crate::status::health::is_paused;
use crate::status::observe;
use crate::status::tree::installed;

/// First lines of the command's help.
pub const ABOUT: &str = "Change the version range, channel or upgrade policy of a ClusterExtension

The flags change the catalog filter of the extension. First the command shows which bundle operator-controller \
will choose, and what that changes on the cluster. Without a flag the command changes nothing: it shows \
the upgrade that operator-controller makes by itself.

Each upgrade follows one edge of the catalog. --force allows any version, downgrades included, at your own risk. \
An upgrade that would break custom resources is refused, as by operator-controller, and so is one with objects that \
another extension owns.

--for-platform upgrades every extension that blocks a version of the platform to the highest version that supports \
it. It prints the plan, asks, and takes one step after the other. It pins an extension to the version of each step, \
unless operator-controller makes the upgrade by itself.

--all follows the next upgrade of every extension, within its version range and rules, providers of dependencies first. \
It prints the plan, asks, and stops at the first failure. Upgrades that wait for an approval, a window or a resume are \
listed and not taken. With --latest it removes the version ranges first.

--with-dependencies plans the upgrade of one extension with all its dependencies, asks, and carries it out in order. \
The extensions of the plan are pinned to its versions.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("plan").args(["for_platform", "all", "with_dependencies"]))]
#[command(after_help = "Exit codes:
  0 success   1 operation failed or timed out   2 wrong usage
  3 the change would be refused   4 no bundle can be chosen

Examples:
  {olm} upgrade my-operator --version 1.3.0 --wait
  {olm} upgrade my-operator --latest               # follow the catalog from now on
  {olm} upgrade my-operator --channel stable --latest
  {olm} upgrade my-operator --version 1.1.0 --force
  {olm} upgrade my-operator --latest --catalog-provided   # remove the pin of a rollback
  {olm} upgrade my-operator --latest --dry-run=server
  {olm} upgrade my-app --with-dependencies --wait
  {olm} upgrade --all --wait
  {olm} upgrade --for-platform 4.21 --wait         # all extensions that block it")]
pub struct UpgradeArgs {
    /// Name of a ClusterExtension
    #[arg(value_name = "NAME", required_unless_present_any = ["for_platform", "all"], conflicts_with_all = PLATFORM)]
    name: Option<String>,
    /// Only these versions, such as 1.2.3, 1.2.x or '>=1.2, <2'; upgrades stay within them
    #[arg(long, value_name = "RANGE", conflicts_with = "latest")]
    version: Option<String>,
    /// Only bundles of these channels ('default' is the package's default channel); may be given several times
    #[arg(long = "channel", value_name = "CHANNEL", value_delimiter = ',')]
    channels: Vec<String>,
    /// Remove the version range: upgrade to the highest version that the upgrade edges reach, now and later
    #[arg(long)]
    latest: bool,
    /// Allow any change of version (upgradeConstraintPolicy SelfCertified), at your own risk; later upgrades are also
    /// unrestricted
    #[arg(long)]
    force: bool,
    /// Only upgrades along the catalog's upgrade edges (upgradeConstraintPolicy CatalogProvided), as before --force
    /// or a rollback
    #[arg(long, conflicts_with = "force")]
    catalog_provided: bool,
    /// Upgrade the extensions that block this version of OpenShift, or of Kubernetes on other platforms
    #[arg(long, value_name = "MAJOR.MINOR", help_heading = "Platform", conflicts_with_all = ONE_EXTENSION)]
    for_platform: Option<MinorVersion>,
    /// Upgrade all extensions that have an upgrade available
    #[arg(long, conflicts_with_all = NOT_ALL)]
    all: bool,
    /// Also upgrade or install the dependencies of the extension
    #[arg(long, requires = "name", conflicts_with = "force")]
    with_dependencies: bool,
    #[command(flatten)]
    platform: PlatformArgs,
    /// Carry out the plan of --all, --for-platform or --with-dependencies without asking
    #[arg(short, long, requires = "plan")]
    yes: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    access: Access,
}

/// Flags about one extension. They conflict with `--for-platform`.
const ONE_EXTENSION: [&str; 6] = ["name", "version", "channels", "latest", "force", "catalog_provided"];

/// Flags that do not apply to all extensions.
const NOT_ALL: [&str; 9] = [
    "name",
    "version",
    "channels",
    "force",
    "with_dependencies",
    "for_platform",
    PLATFORM[0],
    PLATFORM[1],
    PLATFORM[2],
];

/// Flags about the platform. They have no effect on the upgrade of one extension.
const PLATFORM: [&str; 3] = ["platform", "platform_version", "openshift_version_map"];

/// Runs the command.
///
/// # Errors
/// The extension does not exist, no bundle can be chosen, the change would be refused, or it does not complete.
pub async fn run(args: UpgradeArgs, session: &mut Session) -> Result<(), CliError> {
    if let Some(version) = args.for_platform {
        return for_platform::run(version, &args, session).await;
    }
    if args.all {
        return all::run(&args, session).await;
    }
    if let Some(text) = &args.version {
        version_expression::check(text)?;
    }
    let cluster = args.access.cluster.connect().await?;
    let name = args.name.as_deref().unwrap_or_default();
    let live = observe::changeable_extension(&cluster, name, session).await?;
    let desired = args.desired(&live);
    let controller = ControllerArgs::read(&cluster, session).await?;
    if args.with_dependencies {
        return with_dependencies(&args, &cluster, &controller, desired, session).await;
    }
    let read = async |image: &str| {
        bundle_source::read_image(image, &args.access.images, session).await.map(Arc::new)
    };
    let sources = ["cluster".to_owned()];
    let choice = choose_as(&controller, &desired, &sources, &args.access, session).await?;
    let request = UpgradeRequest { cluster: &cluster, controller: &controller, session };
    let upgrade = request.prepare(live, desired, choice, read).await?;
    if let Some(why) = upgrade.unknown() {
        say(&format!("warning: cannot predict the changes of the bundle: {why}"));
    }
    if let Some(error) = upgrade.refusal() {
        return Err(error);
    }
    let written = upgrade.carry_out(&cluster, args.change.dry_run, session).await?;
    let warnings = upgrade.warnings(args.version.is_some());
    let text = upgrade.text(&warnings);
    let problems = upgrade.problems();
    print_warnings(args.change.output, upgrade.choice.warnings.iter().chain(&warnings).chain(&problems));
    let installed = installed(&upgrade.live).map(|bundle| bundle.name);
    let bundle = ChangedBundle { chosen: Some(upgrade.choice.bundle), installed };
    rollout::print_and_wait(&cluster, &args.change, &text, &[written], bundle, session).await
}

/// The extension with another version range. `None` allows any version.
pub fn with_version(live: &ClusterExtension, version: Option<String>) -> ClusterExtension {
    let mut desired = live.clone();
    if let Some(catalog) = desired.spec.as_mut().and_then(|spec| spec.source.catalog.as_mut()) {
        catalog.version = version;
    }
    desired
}

/// Cluster of an upgrade.
pub struct UpgradeRequest<'a> {
    /// Cluster with the extension.
    pub cluster: &'a ClusterConnection,
    /// Flags of its operator-controller.
    pub controller: &'a ControllerArgs,
    /// Run of the program.
    pub session: &'a Session,
}

/// Predicted upgrade, which is not written yet.
#[derive(Debug)]
pub struct PreparedUpgrade {
    /// The extension as read.
    pub live: ClusterExtension,
    desired: ClusterExtension,
    /// Bundle that operator-controller would choose.
    pub choice: ResolvedBundle,
    /// Changes, or the reason for which this machine cannot tell. `None` if bundle and configuration are the installed ones.
    pub diff: Option<Result<Diff, String>>,
    prediction: Prediction,
}

impl UpgradeRequest<'_> {
    /// Predicts the effect of `desired`, for which `choice` is the bundle. `read` reads the bundle of an image.
    ///
    /// # Errors
    /// The bundle cannot be installed this way, or the cluster cannot be read.
    pub async fn prepare(
        &self,
        live: ClusterExtension,
        mut desired: ClusterExtension,
        choice: ResolvedBundle,
        read: impl AsyncFn(&str) -> Result<Arc<BundleFiles>, CliError>,
    ) -> Result<PreparedUpgrade, CliError> {
        let Self { cluster, controller, session } = *self;
        if let Some(catalog) = desired.spec.as_mut().and_then(|spec| spec.source.catalog.as_mut()) {
            catalog.channels.clone_from(&choice.channels);
        }
        let compared = ComparedExtension { cluster, extension: &desired, session };
        let config =
            |extension: &ClusterExtension| extension.spec.as_ref().and_then(|spec| spec.config.clone());
        let diff = match choice.unchanged && config(&live) == config(&desired) {
            true => None,
            false => Some(compared.difference(&choice.image, controller, read).await?),
        };
        let prediction = diff.as_ref().and_then(|diff| diff.as_ref().ok()).map(Prediction::of);
        let prediction = prediction.unwrap_or_default();
        Ok(PreparedUpgrade { live, desired, choice, diff, prediction })
    }
}

impl PreparedUpgrade {
    /// Reason for which the changes are not known, if they are not.
    pub fn unknown(&self) -> Option<&str> {
        self.diff.as_ref().and_then(|diff| diff.as_ref().err()).map(String::as_str)
    }

    /// Error if the upgrade would collide with another extension, or if operator-controller would refuse it.
    pub fn refusal(&self) -> Option<CliError> {
        refusal(&self.desired, &self.prediction)
    }

    /// Warnings besides those of the choice. `is_named` tells that the user named the version.
    pub fn warnings(&self, is_named: bool) -> Vec<String> {
        warnings(&self.desired, &self.choice, is_named)
    }

    /// Objects and CRDs with problems.
    pub(crate) fn problems(&self) -> Vec<String> {
        [&self.prediction.problems[..], &self.prediction.unsafe_crds].concat()
    }

    /// Text output: choice and changes.
    pub fn text(&self, warnings: &[String]) -> String {
        let mut fields = Fields { text: self.choice.text.clone() };
        fields.list(0, "Warning", warnings);
        fields.list(0, "Changes", &self.prediction.changes);
        fields.list(0, "Problems", &self.problems());
        fields.text
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
        change::apply(cluster, Some(&self.live), &self.desired, dry_run, session).await
    }
}

/// Plans the upgrade with its dependencies and carries it out.
async fn with_dependencies(
    args: &UpgradeArgs,
    cluster: &ClusterConnection,
    controller: &ControllerArgs,
    desired: ClusterExtension,
    session: &mut Session,
) -> Result<(), CliError> {
    let extensions = cluster.extensions(session).await?;
    let namespace = desired.spec.as_ref().map(|spec| spec.namespace.as_str()).unwrap_or_default();
    let namespace = InstallNamespace::given(namespace, false);
    let context = PlanContext {
        cluster,
        controller,
        extensions: &extensions,
        access: &args.access,
        change: &args.change,
        namespace: Some(&namespace),
        create_namespace: false,
        yes: args.yes,
        upgrades: true,
    };
    install::with_dependencies::run(&context, desired, session).await
}

impl UpgradeArgs {
    /// The live extension with the flags applied.
    fn desired(&self, live: &ClusterExtension) -> ClusterExtension {
        let mut desired = live.clone();
        let spec = desired.spec.as_mut();
        let Some(catalog) = spec.and_then(|spec| spec.source.catalog.as_mut()) else { return desired };
        if self.latest {
            catalog.version = None;
        }
        if let Some(version) = &self.version {
            catalog.version = Some(version.clone());
        }
        if !self.channels.is_empty() {
            catalog.channels.clone_from(&self.channels);
        }
        if self.force {
            catalog.upgrade_constraint_policy = Some(UpgradeConstraintPolicy::SelfCertified);
        }
        if self.catalog_provided {
            catalog.upgrade_constraint_policy = Some(UpgradeConstraintPolicy::CatalogProvided);
        }
        desired
    }
}

fn warnings(desired: &ClusterExtension, choice: &ResolvedBundle, is_named: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let catalog = desired.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
    let policy = catalog.and_then(|catalog| catalog.upgrade_constraint_policy.as_ref());
    if policy == Some(&UpgradeConstraintPolicy::SelfCertified) {
        warnings.push(
            "upgradeConstraintPolicy is SelfCertified: any change of version is allowed, now and later"
                .to_owned(),
        );
    }
    if is_paused(desired) {
        warnings.push("the extension is paused: the upgrade starts when it is resumed".to_owned());
    }
    let version = catalog.and_then(|catalog| catalog.version.as_ref());
    if let (true, Some(version), false) = (choice.unchanged, version, is_named) {
        warnings.push(format!(
            "spec.source.catalog.version is {}: use --version or --latest to change it",
            quote(version)
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::{Value, json};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: UpgradeArgs,
    }

    fn args(line: &[&str]) -> UpgradeArgs {
        Line::try_parse_from([&["upgrade", "pipe"], line].concat()).unwrap().args
    }

    fn live(version: &str) -> ClusterExtension {
        let catalog = json!({"packageName": "pipe", "version": version, "channels": ["slow"]});
        let spec = json!({"namespace": "ns", "source": {"sourceType": "Catalog", "catalog": catalog}});
        serde_json::from_value(json!({"metadata": {"name": "pipe"}, "spec": spec})).unwrap()
    }

    #[test]
    fn flag_changes_only_its_own_field() {
        for (line, expected) in [
            (&[][..], json!({"packageName": "pipe", "version": "1.x", "channels": ["slow"]})),
            (&["--latest"], json!({"packageName": "pipe", "channels": ["slow"]})),
            (&["--version", "2.x"], json!({"packageName": "pipe", "version": "2.x", "channels": ["slow"]})),
            (&["--channel", "fast", "--latest"], json!({"packageName": "pipe", "channels": ["fast"]})),
            (
                &["--force", "--version", "1.0.0"],
                json!({"packageName": "pipe", "version": "1.0.0", "channels": ["slow"],
                    "upgradeConstraintPolicy": "SelfCertified"}),
            ),
            (
                &["--catalog-provided", "--latest"],
                json!({"packageName": "pipe", "channels": ["slow"],
                    "upgradeConstraintPolicy": "CatalogProvided"}),
            ),
        ] {
            let desired = serde_json::to_value(args(line).desired(&live("1.x"))).unwrap();
            assert_eq!(desired["spec"]["source"]["catalog"], expected, "{line:?}");
            assert_eq!(desired["spec"]["namespace"], Value::from("ns"));
        }
        assert!(Line::try_parse_from(["upgrade", "pipe", "--latest", "--version", "1"]).is_err());
        assert!(Line::try_parse_from(["upgrade", "pipe", "--force", "--catalog-provided"]).is_err());
        assert!(Line::try_parse_from(["upgrade", "pipe", "--wait", "--dry-run=client"]).is_err());
        assert!(Line::try_parse_from(["upgrade"]).is_err());
        assert!(Line::try_parse_from(["upgrade", "--for-platform", "4.21", "--yes"]).is_ok());
        assert!(Line::try_parse_from(["upgrade", "pipe", "--for-platform", "4.21"]).is_err());
        assert!(Line::try_parse_from(["upgrade", "pipe", "--yes"]).is_err());
        assert!(Line::try_parse_from(["upgrade", "--all", "--latest", "--yes"]).is_ok());
        assert!(Line::try_parse_from(["upgrade", "pipe", "--with-dependencies", "--yes"]).is_ok());
        for line in [
            &["pipe", "--all"][..],
            &["--all", "--version", "1"],
            &["--all", "--for-platform", "4.21"],
            &["--with-dependencies"],
        ] {
            assert!(Line::try_parse_from([&["upgrade"], line].concat()).is_err(), "{line:?}");
        }
        assert!(Line::try_parse_from(["upgrade", "pipe", "--platform", "openshift"]).is_err());
        assert!(Line::try_parse_from(["upgrade", "pipe", "--platform-version", "4.20"]).is_err());
    }

    #[test]
    fn warnings_name_policy_pause_and_unchanged_version() {
        let choice = ResolvedBundle {
            bundle: "pipe.v1".to_owned(),
            version: "1.0.0".to_owned(),
            release: None,
            catalog: "hub".to_owned(),
            image: "r.example/pipe:v1".to_owned(),
            unchanged: true,
            text: String::new(),
            warnings: Vec::new(),
            namespace: Err(String::new()),
            channels: Vec::new(),
        };
        let line = args(&["--force"]);
        let mut desired = line.desired(&live("1.x"));
        let paused = ("ext.olm.operatorframework.io/paused".to_owned(), "true".to_owned());
        desired.metadata.annotations = Some([paused].into());
        assert_eq!(
            warnings(&desired, &choice, false),
            [
                "upgradeConstraintPolicy is SelfCertified: any change of version is allowed, now and later",
                "the extension is paused: the upgrade starts when it is resumed",
                "spec.source.catalog.version is \"1.x\": use --version or --latest to change it",
            ]
        );
        let line = args(&["--version", "1.x"]);
        assert_eq!(warnings(&line.desired(&live("1.x")), &choice, true), [""; 0]);
    }
}
