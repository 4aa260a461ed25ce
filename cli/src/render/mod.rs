//! `olm render`: prints the objects that operator-controller would apply for a bundle
//! (docs/design/additions.md#dry-runs).
//!
//! The objects come from the function that the controller calls. This module reads its inputs and prints the result.

mod wishes;

use clap::{ArgGroup, Args, ValueEnum};
use olm_api::ClusterExtension;
use olm_bundle::{Bundle, install_checks};
use olm_version::quote;
use serde_json::Value;

pub(crate) use self::wishes::{WishArgs, Wishes, config};
use crate::bundle_source::{self, BundleFiles};
use crate::failure::{Code, Failure};
use crate::manifest::read_extensions;
use crate::output;
use crate::progress::say;
use crate::resolve::choose;
use crate::session::Session;
use crate::source::Access;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Print the objects that operator-controller applies for a bundle

The objects are those for a ClusterExtension with this namespace and configuration, in the order of the renderer, \
without the labels that name the extension as owner.

The cluster is only read to choose a bundle from its catalogs. An object that the API server would refuse is \
printed with a warning.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["bundle", "file"]))]
#[command(after_help = "Exit codes:
  0 success   1 something did not work   2 wrong usage   3 the bundle cannot be installed this way

Examples:
  {olm} render ./bundle --namespace my-operator
  {olm} render quay.io/example/operator-bundle:v1.2.0 --namespace my-operator | kubectl diff -f -
  {olm} render ./bundle --namespace my-operator --config config.yaml --cert-provider cert-manager
  echo '{watchNamespace: apps}' | {olm} render ./bundle --namespace my-operator --config -
  {olm} render -f extension.yaml --catalog ./catalog
  {olm} render ./bundle --namespace my-operator -o json | jq -r '.[] | .kind + \" \" + .metadata.name'")]
pub(crate) struct RenderArgs {
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
    wishes: WishArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml", value_name = "FORMAT")]
    output: Notation,
    #[command(flatten)]
    access: Access,
}

/// Output format of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Notation {
    /// One document per object
    Yaml,
    /// One array
    Json,
}

/// Runs the command.
///
/// # Errors
/// The bundle cannot be read or rendered.
pub(crate) async fn run(args: RenderArgs, session: &mut Session) -> Result<(), Failure> {
    check_inputs(&[args.file.as_deref(), args.wishes.config_file()])?;
    let extension = match &args.file {
        Some(file) => Some(only_extension(file, session).await?),
        None => None,
    };
    let wishes = args.wishes.read(extension.as_ref(), session).await?;
    let bundle = match (args.bundle, extension) {
        (Some(bundle), _) => bundle,
        (None, Some(extension)) => {
            // The status in a file does not describe the cluster.
            let extension = ClusterExtension { status: None, ..extension };
            let choice = choose(&extension, &args.catalogs, wishes.gates(), &args.access, session).await?;
            say(&format!("{} of catalog {}: {}", choice.bundle, choice.catalog, choice.image));
            choice.image
        }
        (None, None) => {
            return Err(Failure::usage("name a bundle, or a file with a ClusterExtension with -f"));
        }
    };
    let files = bundle_source::read(&bundle, &args.access.images, session).await?;
    let objects = objects(&files, &wishes)?.objects;
    print(&objects, args.output, session)
}

/// Rejects command lines that use standard input more than once.
///
/// # Errors
/// More than one of the files is `-`.
pub(crate) fn check_inputs(files: &[Option<&str>]) -> Result<(), Failure> {
    let wanted = files.iter().filter(|file| **file == Some("-")).count();
    if wanted > 1 { Err(Failure::usage("only one of the files can be standard input")) } else { Ok(()) }
}

/// Reads the ClusterExtension of a file.
///
/// # Errors
/// The file cannot be read, or does not contain exactly one.
pub(crate) async fn only_extension(file: &str, session: &Session) -> Result<ClusterExtension, Failure> {
    let mut extensions = read_extensions(file, session).await?;
    match (extensions.pop(), extensions.len()) {
        (Some(extension), 0) => Ok(extension),
        (_, others) => Err(Failure::usage(format!(
            "{} has {} ClusterExtensions; give a file with one",
            quote(file),
            others + 1
        ))),
    }
}

/// Bundle with its rendered objects.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) bundle: Bundle,
    /// In the order of the renderer.
    pub(crate) objects: Vec<Value>,
}

/// Renders a bundle. Prints to standard error what an API server would refuse.
///
/// # Errors
/// [`Code::Findings`] with the message of the renderer.
pub(crate) fn objects(files: &BundleFiles, wishes: &Wishes) -> Result<Rendered, Failure> {
    let refused = |text: String| Failure::Told(Code::Findings, format!("{}: {text}", files.origin));
    let bundle = Bundle::load(&files.files).map_err(|error| refused(error.to_string()))?;
    let objects =
        olm_bundle::render(&bundle, &wishes.options()).map_err(|error| refused(error.to_string()))?;
    let warnings = wishes.warnings(&bundle);
    for warning in warnings.into_iter().chain(install_checks(&bundle, &objects, &wishes.namespace)) {
        say(&format!("warning: {}: {warning}", files.origin));
    }
    Ok(Rendered { bundle, objects })
}

fn print(objects: &[Value], notation: Notation, session: &mut Session) -> Result<(), Failure> {
    match notation {
        Notation::Json => session.output.text(&output::json(&objects)?),
        Notation::Yaml => objects.iter().try_for_each(|object| {
            session.output.text("---\n")?;
            session.output.text(&output::yaml(object)?)
        }),
    }
}
