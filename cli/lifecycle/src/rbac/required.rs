//! `olm rbac required`: prints the permissions that a service account needs to install a bundle
//! (docs/design/operations.md#hardened-rights, docs/design/additions.md#service-account-impersonation).
//!
//! They are computed from the rendered objects by the function that operator-controller calls for impersonated
//! service accounts.

use std::path::Path;

use clap::{Args, ValueEnum};
use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec};
use olm_bundle::rights::Rights;
use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::error::CliError;
use olm_cli_core::manifest::check_inputs;
use olm_cli_core::output;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_cli_core::version_expression;
use serde_json::{Value, json};

use super::documents::{additions, documents, table};
use crate::hardened::namespaced_rules;
use crate::rendering::{self, RenderSettings, RenderSettingsArgs};
use crate::resolve::choose;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Print the permissions that installing a bundle requires

The output is a ClusterRole, and a Role for each namespace, ready to be applied. They grant create, read, change \
and delete on exactly the objects of this bundle, and all permissions of its own roles, because the API server lets \
a user grant only permissions that the user holds. Another version may need other permissions. --escalate prints \
the verbs escalate and bind instead, which usually suffice for later versions, but allow far more. An upgrade needs \
the permissions of both versions.

A ClusterExtension's service account needs these permissions if operator-controller impersonates it (gate \
ServiceAccountImpersonation). With --service-account, that service account and bindings to it are printed, too.

operator-controller needs them if it has no cluster-admin permissions (hardened.yaml). With --operator-controller, the \
ClusterRole has the label that gives it to operator-controller, and each namespace gets bindings to it.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the bundle cannot be installed this way
  4 the requested object does not exist

Examples:
  {olm} rbac required my-operator -n my-operator         # the bundle that would be chosen now
  {olm} rbac required ./bundle -n my-operator -o table
  {olm} rbac required ./bundle -n my-operator --service-account installer | kubectl apply -f -
  {olm} rbac required my-operator -n my-operator --operator-controller | kubectl apply -f -
  {olm} rbac required ./bundle -n my-operator --aggregate-api-roles
  {olm} rbac required --extension my-operator            # the bundle of its next upgrade
  {olm} rbac required -f extension.yaml --escalate")]
pub struct RequiredArgs {
    /// A package, or a bundle: a directory with the directories manifests and metadata, or an image reference
    #[arg(value_name = "NAME|BUNDLE", required_unless_present_any = ["extension", "file"])]
    what: Option<String>,
    /// Use the settings of this ClusterExtension of the cluster
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "namespace"])]
    extension: Option<String>,
    /// File with a ClusterExtension, whose namespace, configuration and service account are used; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Catalog to choose an unnamed bundle from: a directory, an image reference, cluster/NAME, or cluster for all
    /// catalogs of the cluster; may be given several times
    #[arg(long = "catalog", value_name = "SOURCE", default_value = "cluster")]
    catalogs: Vec<String>,
    /// Only these versions of the package
    #[arg(long, value_name = "RANGE", conflicts_with_all = ["extension", "file"])]
    version: Option<String>,
    /// Service account in the extension's namespace that gets the permissions; default: that of the ClusterExtension,
    /// if it has one
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Print the roles and bindings that operator-controller of hardened.yaml needs in addition to its own
    #[arg(long, conflicts_with = "service_account")]
    operator_controller: bool,
    /// Name of the roles; default: name of the extension or package, with the suffix -installer
    #[arg(long, value_name = "NAME")]
    role_name: Option<String>,
    /// Print the verbs escalate and bind instead of the rules of the bundle's roles
    #[arg(long)]
    escalate: bool,
    #[command(flatten)]
    settings: RenderSettingsArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml", value_name = "FORMAT")]
    output: RequiredFormat,
    #[command(flatten)]
    access: Access,
}

/// Output format of the permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RequiredFormat {
    /// One document per object
    Yaml,
    /// One List
    Json,
    /// One row per rule
    Table,
}

/// Runs the command.
///
/// # Errors
/// The bundle cannot be read or rendered.
pub(crate) async fn run(args: RequiredArgs, session: &mut Session) -> Result<(), CliError> {
    check_inputs(&[args.file.as_deref(), args.settings.config_file()])?;
    if let Some(text) = &args.version {
        version_expression::check(text)?;
    }
    let (file, name) = (args.file.as_deref(), args.extension.as_deref());
    let extension = rendering::extension(file, name, &args.access, session).await?;
    let settings = args.settings.read(extension.as_ref(), session).await?;
    let settings = settings.with_namespaces(&args.access, session).await?;
    let files = bundle(&args, extension.as_ref(), &settings, session).await?;
    let rendered = rendering::objects(&files, &settings)?;
    let rights = Rights::of(&rendered.objects);
    let rights = if args.escalate { rights.escalating() } else { rights.exact() };
    let stem =
        extension.as_ref().map_or_else(|| rendered.bundle.package_name().to_owned(), ResourceExt::name_any);
    let name = args.role_name.clone().unwrap_or_else(|| format!("{stem}-installer"));
    let documents = if args.operator_controller {
        let system = args.access.cluster.namespace();
        additions(&name, &rights, &namespaced_rules()?, system)
    } else {
        let account = args.service_account.clone().or_else(|| account(extension.as_ref()));
        documents(&name, &rights, &settings.namespace, account.as_deref())
    };
    match args.output {
        RequiredFormat::Table => session.output.text(&table(&rights)),
        RequiredFormat::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
            session.output.text(&output::json(&list)?)
        }
        RequiredFormat::Yaml => documents.iter().try_for_each(|document: &Value| {
            session.output.text("---\n")?;
            session.output.text(&output::yaml(document)?)
        }),
    }
}

/// Files of the bundle argument, or of the chosen bundle.
async fn bundle(
    args: &RequiredArgs,
    extension: Option<&ClusterExtension>,
    settings: &RenderSettings,
    session: &Session,
) -> Result<BundleFiles, CliError> {
    let images = &args.access.images;
    let asked = match (&args.what, extension) {
        (Some(what), _) if !is_package(what) => return bundle_source::read(what, images, session).await,
        (Some(package), None) => {
            let version = args.version.clone();
            let filter = CatalogFilter { package_name: package.clone(), version, ..CatalogFilter::default() };
            ClusterExtension::new(package, ClusterExtensionSpec::of_package(&settings.namespace, filter))
        }
        (None, Some(extension)) => extension.clone(),
        (Some(package), Some(_)) => {
            return Err(CliError::usage(format!(
                "{} is a package, but the ClusterExtension has a package, too: omit one of them, or specify a \
                 bundle",
                olm_version::quote(package)
            )));
        }
        (None, None) => return Err(CliError::usage("specify a package, a bundle or a ClusterExtension")),
    };
    let chosen = choose(&asked, &args.catalogs, settings.gates(), &args.access, session).await?;
    bundle_source::read_image(&chosen, images, session).await
}

/// Reports whether `what` is a package name. Unlike image references and paths, it has no separators.
fn is_package(what: &str) -> bool {
    !what.contains(['/', ':', '@']) && !Path::new(what).exists() && what != "." && what != ".."
}

fn account(extension: Option<&ClusterExtension>) -> Option<String> {
    let account = extension?.spec.as_ref()?.service_account.as_ref()?;
    Some(account.name.clone()).filter(|name| !name.is_empty())
}
