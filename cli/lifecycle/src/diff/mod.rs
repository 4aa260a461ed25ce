//! `olm diff`: shows the changes when a bundle replaces another, or the installed state of a cluster
//! (docs/design/cli.md#dry-runs).
//!
//! The compared objects come from the functions that operator-controller calls. The comparison is pure ([`olm_plan`],
//! [`report`]). [`cluster`] only reads and makes dry runs.

mod cluster;
mod next;
mod ownership;
mod prediction;
mod report;
mod served;

use std::collections::BTreeSet;

use clap::Args;
use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_bundle::{BundleContent, config_schema};
use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::manifest::{check_inputs, only_extension};
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_plan::fields::{self, FieldChange};
use olm_plan::objects::{self, ObjectChange};
use olm_plan::permissions;
use olm_upgrade_check::{UpgradeFinding, check_objects};
use serde_json::{Map, Value, json};

pub use self::cluster::ComparedExtension;
pub(crate) use self::ownership::ALTERNATIVES;
pub use self::ownership::collision_error;
pub use self::prediction::Prediction;
pub(crate) use self::prediction::{is_unchecked, refusal, unsafe_upgrade};
use self::report::ComparedBundle;
pub use self::report::{Diff, object_text};
use crate::crd_check::{self, CrdResult, Verdict};
use crate::rendering::{self, RenderSettings, RenderSettingsArgs};
use crate::resolve::choose;

/// First lines of the command's help.
pub const ABOUT: &str = "Show the changes that a bundle makes

With OLD and NEW, two bundles are compared as installed with the same namespace and configuration. With NEW and a \
ClusterExtension of the cluster, NEW is compared with the live objects: dry runs of what operator-controller would \
apply show each object after the change. If you may not make dry runs, the fields that the bundle sets are \
compared. Without a bundle, NEW is the one that operator-controller would choose. The command changes nothing.

The output shows objects that are created, changed or deleted, permissions that service accounts gain or lose, \
CustomResourceDefinitions that would break existing custom resources or clients, and the configuration. Secret data is never \
shown. If another extension owns an object of NEW, such as a CRD, the command then fails with exit code 3.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 a bundle cannot be installed this way
  4 the requested object does not exist   5 there are changes, with --exit-code

Examples:
  {olm} diff ./old ./new --namespace my-operator
  {olm} diff quay.io/example/bundle:v1.0.0 quay.io/example/bundle:v1.1.0 -n my-operator
  {olm} diff --extension my-operator                      # what the next upgrade would change
  {olm} diff ./new --extension my-operator                # what this bundle would change
  {olm} diff -f extension.yaml --exit-code                # what applying this file would change
  {olm} diff ./old ./new -n my-operator -o json | jq '.permissions[].gained'")]
pub struct DiffArgs {
    /// OLD and NEW, or NEW alone to compare with a cluster: directories with the directories manifests and metadata,
    /// or image references
    #[arg(value_name = "BUNDLE", num_args = 0..=2)]
    bundles: Vec<String>,
    /// Compare with the installed objects of this ClusterExtension
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "namespace"])]
    extension: Option<String>,
    /// File with a ClusterExtension that is, or will be, on the cluster; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Catalog to choose an unnamed bundle from: a directory, an image reference, cluster/NAME, or cluster for all
    /// catalogs of the cluster; may be given several times
    #[arg(long = "catalog", value_name = "SOURCE", default_value = "cluster", conflicts_with = "bundles")]
    catalogs: Vec<String>,
    /// Exit with 5 if anything changes
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    settings: RenderSettingsArgs,
    /// File with the configuration of OLD, if it differs from that of NEW
    #[arg(long, value_name = "FILE", help_heading = "Rendering")]
    old_config: Option<String>,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    format: FormatArgs,
}

/// Runs the command.
///
/// # Errors
/// A bundle or the cluster cannot be read, or there are changes and `--exit-code` is set.
pub async fn run(args: DiffArgs, session: &mut Session) -> Result<(), CliError> {
    check_inputs(&[args.file.as_deref(), args.settings.config_file(), args.old_config.as_deref()])?;
    let diff = match args.bundles.as_slice() {
        [old, new] => of_bundles(old, new, &args, session).await?,
        rest => against_cluster(rest.first().map(String::as_str), &args, session).await?,
    };
    session.output.result(args.format.output, "BundleDiff", &diff, Diff::text)?;
    if let Some(error) = collision_error(&diff.collisions) {
        return Err(error);
    }
    if args.exit_code && !diff.empty { Err(CliError::ExitCode(Code::Changes as u8)) } else { Ok(()) }
}

async fn of_bundles(old: &str, new: &str, args: &DiffArgs, session: &Session) -> Result<Diff, CliError> {
    let (file, name) = (args.file.as_deref(), args.extension.as_deref());
    let extension = rendering::extension(file, name, &args.access, session).await?;
    let new_settings = args.settings.read(extension.as_ref(), session).await?;
    let mut old_settings = new_settings.clone();
    if let Some(file) = &args.old_config {
        old_settings.config = rendering::config(file, session).await?;
    }
    let old_settings = old_settings.with_namespaces(&args.access, session).await?;
    let new_settings = new_settings.with_namespaces(&args.access, session).await?;
    let old_files = bundle_source::read(old, &args.access.images, session).await?;
    let new_files = bundle_source::read(new, &args.access.images, session).await?;
    let (old, new) =
        (rendering::objects(&old_files, &old_settings)?, rendering::objects(&new_files, &new_settings)?);
    let objects = objects::changes(&old.objects, &new.objects);
    let mut diff = Diff::new(&old.objects, &new.objects, &old.objects, objects);
    diff.old = compared_bundle(&old_files, &old.bundle);
    diff.new = compared_bundle(&new_files, &new.bundle);
    diff.add_config(&accepted(&old.bundle, &old_settings), &accepted(&new.bundle, &new_settings));
    Ok(diff)
}

async fn against_cluster(new: Option<&str>, args: &DiffArgs, session: &Session) -> Result<Diff, CliError> {
    if args.file.is_none() && args.extension.is_none() {
        return Err(CliError::usage(
            "specify OLD and NEW, or a ClusterExtension with --extension or -f to compare with the cluster",
        ));
    }
    if args.old_config.is_some() {
        return Err(CliError::usage(
            "--old-config is for two bundles; the configuration on the cluster is read from the ClusterExtension",
        ));
    }
    let cluster = args.access.cluster.connect().await?;
    let (extension, live) = extensions(args, &cluster, session).await?;
    let settings = args.settings.read(Some(&extension), session).await?;
    let mut settings = settings.on(&cluster, session).await?;
    let compared = ComparedExtension { cluster: &cluster, extension: &extension, session };
    let installed = compared.installed().await?;
    settings.certificates = settings.certificates.or_else(|| cluster::certificates(&installed.objects));
    let files = match new {
        Some(new) => bundle_source::read(new, &args.access.images, session).await?,
        None => {
            let chosen = choose(&extension, &args.catalogs, settings.gates(), &args.access, session).await?;
            bundle_source::read_image(&chosen, &args.access.images, session).await?
        }
    };
    let mut diff = compared.with_bundle(installed, &files, &settings).await?;
    if let Some(live) = live {
        let before = rendering::inline_config(&live).unwrap_or_default();
        diff.add_config(&json!({ "inline": before }), &json!({ "inline": settings.config }));
    }
    Ok(diff)
}

/// The desired extension, with the status of the live one, and the live extension.
async fn extensions(
    args: &DiffArgs,
    cluster: &ClusterConnection,
    session: &Session,
) -> Result<(ClusterExtension, Option<ClusterExtension>), CliError> {
    let Some(file) = &args.file else {
        let live = cluster.extension(args.extension.as_deref().unwrap_or_default(), session).await?;
        return Ok((live.clone(), Some(live)));
    };
    let mut desired = only_extension(file, session).await?;
    let live = cluster.find_extension(&desired.name_any(), session).await?;
    desired.status = live.as_ref().and_then(|live| live.status.clone());
    desired.metadata.uid = live.as_ref().and_then(|live| live.uid());
    Ok((desired, live))
}

fn compared_bundle(files: &BundleFiles, bundle: &BundleContent) -> ComparedBundle {
    ComparedBundle {
        origin: files.origin.clone(),
        bundle: bundle.name().to_owned(),
        version: bundle.version().unwrap_or_default().to_owned(),
        digest: files.digest.clone(),
    }
}

/// Configuration schema of a bundle.
fn accepted(bundle: &BundleContent, settings: &RenderSettings) -> Value {
    let options = settings.options();
    let schema = config_schema(bundle, options.deployment_config, options.multi_watch_namespaces);
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
    let state = |name: &String| json!(if required(name) { "required" } else { "optional" });
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields: Map<String, Value> = fields.map(|(name, _)| (name.clone(), state(name))).collect();
    let modes = bundle.install_modes().into_iter();
    let modes: Map<String, Value> = modes.map(|mode| (mode.name().to_owned(), json!("supported"))).collect();
    json!({ "installModes": modes, "accepted": fields, "inline": settings.config.clone().unwrap_or_else(|| json!({})) })
}

impl Diff {
    /// Difference between `old` and `new` with the object changes `objects`. The caller sets the sides. `crds`
    /// contains the CustomResourceDefinitions that those of `new` replace.
    fn new(old: &[Value], new: &[Value], crds: &[Value], objects: Vec<ObjectChange>) -> Self {
        let mut warnings = Vec::new();
        let permissions = permissions::changes(old, new).unwrap_or_else(|error| {
            warnings.push(error.to_string());
            Vec::new()
        });
        let findings = findings(old, crds, new);
        let crds = crd_changes(crds, new, &objects, &mut warnings);
        let empty = objects.is_empty() && permissions.is_empty();
        Self { empty, objects, permissions, crds, findings, warnings, ..Self::default() }
    }

    fn add_config(&mut self, old: &Value, new: &Value) {
        let differs = |change: &FieldChange| change.old != change.new;
        self.config = fields::changes(old, new).into_iter().filter(differs).collect();
        self.empty &= self.config.is_empty();
    }
}

/// What `new` breaks, where it replaces the objects `old`, and CustomResourceDefinitions of the cluster.
fn findings(old: &[Value], crds: &[Value], new: &[Value]) -> Vec<UpgradeFinding> {
    if old.is_empty() {
        return Vec::new();
    }
    let before: Vec<Value> = old.iter().chain(crds).cloned().collect();
    check_objects(&before, new)
}

/// CRD results: the changed CustomResourceDefinitions, and unchanged ones that are unsafe to replace.
fn crd_changes(
    old: &[Value],
    new: &[Value],
    changes: &[ObjectChange],
    warnings: &mut Vec<String>,
) -> Vec<CrdResult> {
    let (old, new) = (objects::by_name(old), objects::by_name(new));
    let names = old.keys().chain(new.keys()).filter(|name| name.is_crd());
    let mut results = Vec::new();
    for name in names.collect::<BTreeSet<_>>() {
        let judged = crd_check::compare(&name.name, old.get(name).copied(), new.get(name).copied());
        match judged {
            Ok(result)
                if result.result == Verdict::Unsafe
                    || changes.iter().any(|change| change.object == *name) =>
            {
                results.push(result);
            }
            Ok(_) => {}
            Err(failure) => warnings.push(format!("{name} is not checked: {failure}")),
        }
    }
    results
}
