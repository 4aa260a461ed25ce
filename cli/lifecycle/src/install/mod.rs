//! `olm install`: creates a ClusterExtension after showing the bundle that the controller will choose, and any
//! problems (docs/design/cli.md#changing-commands).
//!
//! The choice comes from the resolver, as in `olm resolve`, and the objects from the renderer, as in `olm render`.
//! This module creates one extension, and [`with_dependencies`] several that depend on each other.

mod existing;
mod extension;
mod namespace;
pub(crate) mod with_dependencies;

use clap::Args;
use kube::ResourceExt;
use olm_api::{ClusterExtension, annotations};
use olm_cli_core::change::{self, ChangeArgs, ChangeFormat};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::output::Fields;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_cli_core::version_expression;
use olm_resolve::UpgradeScope;
use olm_version::Version;

pub use self::existing::{check_namespace, find_existing, find_twin, require_same, twin_error};
use self::extension::differences;
pub use self::extension::{of_catalog, of_package};
pub(crate) use self::namespace::InstallNamespace;
pub use self::namespace::made_for;
use self::with_dependencies::PlanContext;
use crate::diff::{ComparedExtension, collision_error};
use crate::hardened;
use crate::rendering;
use crate::resolve::choose_as;
use crate::rollout::{self, ChangedBundle};

/// First lines of the command's help.
pub const ABOUT: &str = "Install a package as a new ClusterExtension

Before anything is written, the bundle is chosen as operator-controller chooses it. The command warns if the \
choice is not in the package's default channel, is skipped by a later bundle, or is deprecated. It fails if \
the API server, the bundle's install modes or its configuration schema would reject the extension, or if another \
extension owns an object of the bundle, such as a CRD. An existing extension with the same \
settings is left unchanged. An existing one with different settings is an error.

Without --namespace, the namespace is the one that the bundle suggests, which is printed first. It is created if it does not \
exist. If the bundle also suggests labels or annotations for it, --create-namespace is required, because they can relax Pod \
Security. A namespace that exists for another purpose is used only with --namespace.

With --with-dependencies, all dependencies of the package are planned and, after confirmation, installed in \
order, each after its own dependencies. After a failure, run the same command again to continue.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed or timed out   2 wrong usage
  3 the change would be refused   4 no bundle can be chosen

Examples:
  {olm} install my-operator --wait
  {olm} install my-operator --namespace my-operator --create-namespace --wait
  {olm} install my-operator -n my-operator --channel default --version '1.x'
  {olm} install my-operator -n my-operator --watch-namespace apps --catalog operatorhubio
  {olm} install my-app -n apps --with-dependencies
  {olm} install my-operator -n my-operator --dry-run=client -o yaml > extension.yaml")]
pub struct InstallArgs {
    /// Package name
    #[arg(value_name = "PACKAGE")]
    package: String,
    /// Namespace that the operator is installed into; default: the one that the bundle suggests, else PACKAGE-system,
    /// which is created if it does not exist
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Create the namespace if it does not exist, also with the labels and annotations that the bundle suggests
    #[arg(long)]
    create_namespace: bool,
    /// Name of the ClusterExtension; default: that of the package
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only these versions, such as 1.2.3, 1.2.x or '>=1.2, <2'; upgrades stay within them
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Only bundles of these channels ('default' is the package's default channel); without it, all channels are
    /// allowed; may be given several times
    #[arg(long = "channel", value_name = "CHANNEL", value_delimiter = ',')]
    channels: Vec<String>,
    /// Only this ClusterCatalog
    #[arg(long, value_name = "NAME")]
    catalog: Option<String>,
    /// Namespaces that the operator watches, if its bundle does not watch all; may be given several times
    #[arg(long = "watch-namespace", value_name = "NAMESPACE", value_delimiter = ',')]
    watch_namespaces: Vec<String>,
    /// Give the users of the built-in roles admin, edit and view access to the APIs of the operator (annotation
    /// aggregate-api-roles)
    #[arg(long)]
    aggregate_api_roles: bool,
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
    cluster: &'a ClusterConnection,
    controller: ControllerArgs,
}

/// Runs the command.
///
/// # Errors
/// No bundle can be chosen, the change would be refused, or it does not complete.
pub async fn run(args: InstallArgs, session: &mut Session) -> Result<(), CliError> {
    if let Some(text) = &args.version {
        version_expression::check(text)?;
    }
    let config = match &args.config {
        Some(file) => rendering::config(file, session).await?,
        None => None,
    };
    let mut desired = extension::extension(&args, config)?;
    check_schema(&desired)?;
    let cluster = args.access.cluster.connect().await?;
    let extensions = cluster.extensions(session).await?;
    let found = find_existing(&extensions, &desired)?;
    if let (None, Some(existing)) = (&args.namespace, found.and_then(|found| found.spec.as_ref())) {
        extension::set_namespace(&mut desired, &existing.namespace);
    }
    if let (None, Some(twin)) = (found, find_twin(&extensions, &desired)) {
        // The CRDs only complete the message.
        let crds = cluster.crds_of(&twin.name_any(), session).await.unwrap_or_default();
        session.check()?;
        return Err(twin_error(twin, &crds));
    }
    if let Some(name) = &args.catalog {
        cluster.served(Some(name), session).await?;
    }
    let controller = ControllerArgs::read(&cluster, session).await?;
    let context = InstallContext { args: &args, cluster: &cluster, controller };
    if args.with_dependencies {
        let is_known = args.namespace.is_some() || found.is_some();
        let known = desired.spec.as_ref().filter(|_| is_known);
        let namespace = known.map(|spec| InstallNamespace::given(&spec.namespace, args.create_namespace));
        let plan = PlanContext {
            cluster: &cluster,
            controller: &context.controller,
            extensions: &extensions,
            access: &args.access,
            change: &args.change,
            namespace: namespace.as_ref(),
            create_namespace: args.create_namespace,
            yes: args.yes,
            upgrades: false,
        };
        return with_dependencies::run(&plan, desired, session).await;
    }
    install_one(&context, desired, found, session).await
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
    mut desired: ClusterExtension,
    existing: Option<&ClusterExtension>,
    session: &mut Session,
) -> Result<(), CliError> {
    let InstallContext { args, cluster, controller } = context;
    // An existing extension without differences needs no catalog.
    if let Some(existing) = existing.filter(|existing| differences(existing, &desired).is_empty()) {
        return unchanged(context, existing, session).await;
    }
    desired.status = existing.and_then(|existing| existing.status.clone());
    let choice = choose_as(controller, &desired, &sources(args), &args.access, session).await?;
    desired.status = None;
    if let Some(catalog) = desired.spec.as_mut().and_then(|spec| spec.source.catalog.as_mut()) {
        catalog.channels.clone_from(&choice.channels);
    }
    if let Some(existing) = existing {
        require_same(existing, &desired)?;
        return unchanged(context, existing, session).await;
    }
    let namespace = match &args.namespace {
        Some(name) => InstallNamespace::given(name, args.create_namespace),
        None => InstallNamespace::suggested(choice.namespace, &args.package, args.create_namespace)?,
    };
    extension::set_namespace(&mut desired, namespace.name());
    let has_namespace = namespace.exists(cluster, session).await?;
    let compared = ComparedExtension { cluster, extension: &desired, session };
    let prediction = compared.predict_or_warn(&choice.image, controller, has_namespace, &args.access).await?;
    if let Some(error) = collision_error(&prediction.collisions) {
        return Err(error);
    }
    if args.change.dry_run.is_none() {
        change::dry_create(cluster, &desired, session).await?;
    }
    if let Some(note) = namespace.note() {
        say(&format!("namespace {note}"));
    }
    let mut written = Vec::new();
    if !has_namespace {
        written.extend(namespace.create(cluster, args.change.dry_run, session).await?);
    }
    written.extend(hardened::grant(cluster, &desired, args.change.dry_run, session).await?);
    written.push(change::apply(cluster, None, &desired, args.change.dry_run, session).await?);
    let mut fields = Fields { text: choice.text.clone() };
    if let Some(follows) = follows(&desired, controller.upgrade_scope, &choice.version) {
        fields.add(0, "Follows", &follows);
    }
    fields.list(0, "Changes", &prediction.changes);
    fields.list(0, "Problems", &prediction.problems);
    print_warnings(args.change.output, choice.warnings.iter().chain(&prediction.problems));
    let bundle = ChangedBundle { chosen: Some(choice.bundle), installed: None };
    rollout::print_and_wait(cluster, &args.change, &fields.text, &written, bundle, session).await
}

/// Sentence about the versions to which an extension without version range upgrades by itself.
fn follows(extension: &ClusterExtension, scope: Option<UpgradeScope>, version: &str) -> Option<String> {
    let catalog = extension.spec.as_ref()?.source.catalog.as_ref()?;
    let is_limited = catalog.version.is_some()
        || extension.annotations().contains_key(annotations::EXT_UPGRADE_SCOPE)
        || scope.is_some_and(|scope| scope != UpgradeScope::Major);
    let major = Version::parse(version).ok()?.major();
    (!is_limited).then(|| {
        format!(
            "every upgrade, including major version {}; to stay on {major}, use --version {major}.x",
            major.saturating_add(1)
        )
    })
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

/// Reports an existing extension as unchanged.
async fn unchanged(
    context: &InstallContext<'_>,
    existing: &ClusterExtension,
    session: &mut Session,
) -> Result<(), CliError> {
    let (cluster, change) = (context.cluster, &context.args.change);
    let written = change::apply(cluster, Some(existing), existing, change.dry_run, session).await?;
    rollout::print_and_wait(cluster, change, "", &[written], ChangedBundle::default(), session).await
}
