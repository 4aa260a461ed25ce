//! `olm render`: prints the objects that operator-controller would apply for a bundle
//! (docs/design/cli.md#dry-runs).
//!
//! The objects come from the function that the controller calls. This module reads its inputs and prints the result.

use clap::{ArgGroup, Args, ValueEnum};
use olm_cli_core::bundle_source;
use olm_cli_core::error::CliError;
use olm_cli_core::manifest::check_inputs;
use olm_cli_core::output;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use serde_json::Value;

use crate::rendering::{self, RenderSettingsArgs, objects};
use crate::resolve::choose;

/// First lines of the command's help.
pub const ABOUT: &str = "Print the objects that operator-controller applies for a bundle

The objects are those for a ClusterExtension with this namespace and configuration, in the order of the renderer, \
without the labels that name the extension as owner.

The cluster is only read to choose a bundle from its catalogs, and to list the namespaces that \
watchNamespaceSelector selects. An object that the API server would refuse is \
printed with a warning.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["bundle", "file"]))]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the bundle cannot be installed this way

Examples:
  {olm} render ./bundle --namespace my-operator
  {olm} render quay.io/example/operator-bundle:v1.2.0 --namespace my-operator | kubectl diff -f -
  {olm} render ./bundle --namespace my-operator --config config.yaml --cert-provider cert-manager
  echo '{watchNamespace: apps}' | {olm} render ./bundle --namespace my-operator --config -
  {olm} render -f extension.yaml --catalog ./catalog
  {olm} render ./bundle --namespace my-operator -o json | jq -r '.[] | .kind + \" \" + .metadata.name'")]
pub struct RenderArgs {
    /// A directory with the directories manifests and metadata, or an image reference
    #[arg(value_name = "BUNDLE")]
    bundle: Option<String>,
    /// File with a ClusterExtension, whose namespace and configuration are used; without BUNDLE, its bundle is chosen
    /// as `resolve` does; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Catalog to choose the bundle of a ClusterExtension from: a directory, an image reference, cluster/NAME, or
    /// cluster for all catalogs of the cluster; may be given several times
    #[arg(long = "catalog", value_name = "SOURCE", default_value = "cluster", conflicts_with = "bundle")]
    catalogs: Vec<String>,
    #[command(flatten)]
    settings: RenderSettingsArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml", value_name = "FORMAT")]
    output: ObjectFormat,
    #[command(flatten)]
    access: Access,
}

/// Output format of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ObjectFormat {
    /// One document per object
    Yaml,
    /// One array
    Json,
}

/// Runs the command.
///
/// # Errors
/// The bundle cannot be read or rendered.
pub async fn run(args: RenderArgs, session: &mut Session) -> Result<(), CliError> {
    check_inputs(&[args.file.as_deref(), args.settings.config_file()])?;
    let extension = rendering::extension(args.file.as_deref(), None, &args.access, session).await?;
    let settings = args.settings.read(extension.as_ref(), session).await?;
    let settings = settings.with_namespaces(&args.access, session).await?;
    let files = match (args.bundle, extension) {
        (Some(bundle), _) => bundle_source::read(&bundle, &args.access.images, session).await?,
        (None, Some(extension)) => {
            let chosen = choose(&extension, &args.catalogs, settings.gates(), &args.access, session).await?;
            bundle_source::read_image(&chosen, &args.access.images, session).await?
        }
        (None, None) => {
            return Err(CliError::usage("specify a bundle, or a file with a ClusterExtension with -f"));
        }
    };
    let objects = objects(&files, &settings)?.objects;
    print(&objects, args.output, session)
}

fn print(objects: &[Value], notation: ObjectFormat, session: &mut Session) -> Result<(), CliError> {
    match notation {
        ObjectFormat::Json => session.output.text(&output::json(&objects)?),
        ObjectFormat::Yaml => objects.iter().try_for_each(|object| {
            session.output.text("---\n")?;
            session.output.text(&output::yaml(object)?)
        }),
    }
}
