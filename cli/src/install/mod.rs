//! `olm install`: creates a ClusterExtension after showing the bundle that the controller will choose, and any
//! problems (docs/design/additions.md#changing-commands).
//!
//! The choice comes from the resolver, as in `olm resolve`, and the objects from the renderer, as in `olm render`.
//! This module creates one extension, and [`with_dependencies`] several that depend on each other.

mod existing;
mod extension;
mod with_dependencies;

use clap::Args;
use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_version::quote;

use self::existing::find_existing;
pub(crate) use self::existing::has_namespace;
use self::extension::{ExtensionFlags, differences};
use crate::change::{self, ChangeArgs, ChangeFormat, ExpectedState, WrittenObject};
use crate::controller::Controller;
use crate::diff::predict_or_warn;
use crate::error::CliError;
use crate::output::Fields;
use crate::progress::say;
use crate::rendering;
use crate::resolve::{Choice, choose_as};
use crate::session::Session;
use crate::source::{Access, Cluster};
use crate::{manifest, version_expression};

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Install a package as a new ClusterExtension

Before anything is written, the bundle is chosen as operator-controller chooses it. The command warns if the \
choice is not in the package's default channel, is skipped by a later bundle, or is deprecated. It refuses what \
the API server, the bundle's install modes or its configuration would refuse. An existing extension with the same \
settings is left unchanged. An existing one with different settings is an error.

With --with-dependencies, all dependencies of the package are planned and, after confirmation, installed one after \
the other, each as soon as its own dependencies are installed. After a failure, the same command continues where \
it ended.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed or timed out   2 wrong usage
  3 the change would be refused   4 no bundle can be chosen

Examples:
  {olm} install my-operator --namespace my-operator --create-namespace --wait
  {olm} install my-operator -n my-operator --channel default --version '1.x'
  {olm} install my-operator -n my-operator --watch-namespace apps --catalog operatorhubio
  {olm} install my-app -n apps --with-dependencies
  {olm} install my-operator -n my-operator --dry-run=client -o yaml > extension.yaml")]
pub(crate) struct InstallArgs {
    /// Package name
    #[arg(value_name = "PACKAGE")]
    package: String,
    /// Namespace that the operator is installed into
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: String,
    /// Create the namespace if it does not exist
    #[arg(long)]
    create_namespace: bool,
    /// Name of the ClusterExtension; default: that of the package
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only these versions, such as 1.2.3, 1.2.x or '>=1.2, <2'; upgrades stay within them
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Only bundles of these channels ('default' is the package's default channel); without it, all channels are
    /// allowed
    #[arg(long = "channel", value_name = "CHANNEL", value_delimiter = ',')]
    channels: Vec<String>,
    /// Only this ClusterCatalog
    #[arg(long, value_name = "NAME")]
    catalog: Option<String>,
    /// Namespaces that the operator watches, if its bundle does not watch all
    #[arg(long = "watch-namespace", value_name = "NAMESPACE", value_delimiter = ',')]
    watch_namespaces: Vec<String>,
    /// File (YAML or JSON) with the configuration, as in spec.config.inline; - is standard input
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Also install all dependencies of the package
    #[arg(long)]
    with_dependencies: bool,
    /// Carry out the plan of --with-dependencies without asking
    #[arg(short, long, requires = "with_dependencies")]
    yes: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    access: Access,
}

/// Inputs of the choice.
struct InstallContext<'a> {
    args: &'a InstallArgs,
    cluster: &'a Cluster,
    controller: Controller,
    /// All extensions of the cluster.
    extensions: &'a [ClusterExtension],
}

/// Runs the command.
///
/// # Errors
/// No bundle can be chosen, the change would be refused, or it does not complete.
pub(crate) async fn run(args: InstallArgs, session: &mut Session) -> Result<(), CliError> {
    if let Some(text) = &args.version {
        version_expression::check(text)?;
    }
    let config = match &args.config {
        Some(file) => rendering::config(file, session).await?,
        None => None,
    };
    let wanted = ExtensionFlags {
        name: args.name.clone().unwrap_or_else(|| args.package.clone()),
        package: args.package.clone(),
        namespace: args.namespace.clone(),
        version: args.version.clone(),
        channels: args.channels.clone(),
        catalog: args.catalog.clone(),
        watch_namespaces: args.watch_namespaces.clone(),
        config,
    };
    let wanted = wanted.extension()?;
    check_schema(&wanted)?;
    let cluster = args.access.cluster.connect().await?;
    let extensions = cluster.extensions(session).await?;
    let found = find_existing(&extensions, &wanted)?;
    if let Some(name) = &args.catalog {
        cluster.served(Some(name), session).await?;
    }
    let controller = Controller::read(&cluster, session).await?;
    let context = InstallContext { args: &args, cluster: &cluster, controller, extensions: &extensions };
    if args.with_dependencies {
        return with_dependencies::run(&context, wanted, session).await;
    }
    install_one(&context, wanted, found, session).await
}

/// Checks the extension against the validation of the API server.
fn check_schema(extension: &ClusterExtension) -> Result<(), CliError> {
    let value = serde_json::to_value(extension)?;
    let validation_errors = manifest::validation_errors(&value);
    if validation_errors.is_empty() {
        Ok(())
    } else {
        Err(CliError::findings(validation_errors.join("\nerror: ")))
    }
}

/// Installs one extension.
async fn install_one(
    context: &InstallContext<'_>,
    mut wanted: ClusterExtension,
    existing: Option<&ClusterExtension>,
    session: &mut Session,
) -> Result<(), CliError> {
    let InstallContext { args, cluster, controller, .. } = context;
    // An existing extension without differences needs no catalog.
    if let Some(existing) = existing.filter(|existing| differences(existing, &wanted).is_empty()) {
        return unchanged(context, existing, session).await;
    }
    wanted.status = existing.and_then(|existing| existing.status.clone());
    let choice = choose_as(controller, &wanted, &sources(args), &args.access, session).await?;
    wanted.status = None;
    if let Some(catalog) = wanted.spec.as_mut().and_then(|spec| spec.source.catalog.as_mut()) {
        catalog.channels.clone_from(&choice.channels);
    }
    if let Some(existing) = existing {
        let differences = differences(existing, &wanted);
        if differences.is_empty() {
            return unchanged(context, existing, session).await;
        }
        return Err(existing::differs(existing, &differences));
    }
    let has_namespace = check_namespace(context, session).await?;
    let prediction =
        predict_or_warn(cluster, &wanted, &choice.image, controller, has_namespace, &args.access, session)
            .await?;
    if args.change.dry_run.is_none() {
        change::dry_create(cluster, &wanted, session).await?;
    }
    let mut written = Vec::new();
    if !has_namespace {
        written
            .extend(change::create_namespace(cluster, &args.namespace, args.change.dry_run, session).await?);
    }
    written.push(change::apply(cluster, None, &wanted, args.change.dry_run, session).await?);
    let mut fields = Fields { text: choice.text.clone() };
    fields.list(0, "Changes", &prediction.changes);
    fields.list(0, "In the way", &prediction.problems);
    print_warnings(args.change.output, choice.warnings.iter().chain(&prediction.problems));
    change::print(args.change.output, &fields.text, &written, &mut session.output)?;
    match written.last() {
        Some(last) => wait_if_requested(context, target(&wanted, last, &choice), session).await,
        None => Ok(()),
    }
}

/// Catalog sources to choose the bundle from.
fn sources(args: &InstallArgs) -> [String; 1] {
    [args.catalog.as_ref().map_or_else(|| "cluster".to_owned(), |name| format!("cluster/{name}"))]
}

/// Prints warnings to standard error for JSON, YAML and name output. The table output contains them.
pub(crate) fn print_warnings<'a>(notation: ChangeFormat, warnings: impl Iterator<Item = &'a String>) {
    if notation != ChangeFormat::Table {
        warnings.for_each(|warning| say(&format!("warning: {warning}")));
    }
}

/// Reports whether the namespace exists.
///
/// # Errors
/// It does not exist, and `--create-namespace` is not set.
async fn check_namespace(context: &InstallContext<'_>, session: &Session) -> Result<bool, CliError> {
    let namespace = &context.args.namespace;
    let exists = has_namespace(context.cluster, namespace, session).await?;
    if exists || context.args.create_namespace {
        return Ok(exists);
    }
    Err(CliError::findings(format!(
        "namespace {} does not exist: --create-namespace creates it",
        quote(namespace)
    )))
}

fn target(extension: &ClusterExtension, written: &WrittenObject, choice: &Choice) -> ExpectedState {
    ExpectedState {
        name: extension.name_any(),
        uid: written.uid.clone(),
        generation: written.generation.unwrap_or_default(),
        bundle: Some(choice.bundle.clone()),
        before: None,
    }
}

/// Reports an existing extension as unchanged.
async fn unchanged(
    context: &InstallContext<'_>,
    existing: &ClusterExtension,
    session: &mut Session,
) -> Result<(), CliError> {
    let change = &context.args.change;
    let written = change::apply(context.cluster, Some(existing), existing, change.dry_run, session).await?;
    let target = ExpectedState {
        name: existing.name_any(),
        uid: existing.uid(),
        generation: existing.metadata.generation.unwrap_or_default(),
        bundle: None,
        before: None,
    };
    change::print(change.output, "", &[written], &mut session.output)?;
    wait_if_requested(context, target, session).await
}

/// Waits for the change if `--wait` is set.
async fn wait_if_requested(
    context: &InstallContext<'_>,
    target: ExpectedState,
    session: &mut Session,
) -> Result<(), CliError> {
    change::wait_if_requested(context.cluster, &context.args.change, &target, session).await
}
