//! `olm resolve`: shows the bundle that operator-controller would choose, with reasons, and with `--solve` a plan for
//! its dependencies.
//!
//! The choice comes from the resolver that the controller calls. This module builds the request and prints the
//! result.

mod answer;
mod answer_text;
mod available;
mod catalogs;
mod choice;
mod dependency_inputs;
mod hints;
mod plan;
mod query;
mod routes;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use olm_api::cluster_extension::UpgradeConstraintPolicy;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::manifest::read_extensions;
use olm_cli_core::output::{Format, FormatArgs, List};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_cli_core::version_expression;
use olm_resolve::CatalogSelector;
use olm_version::quote;

use self::answer::{Answer, AnswerInputs};
use self::answer_text::text;
pub(crate) use self::available::{AvailableUpgrade, AvailableUpgrades, available_upgrades};
use self::catalogs::{Catalogs, Reading};
pub use self::choice::{AllowedVersions, Resolver, choose_as};
pub(crate) use self::choice::{ResolvedBundle, choose};
use self::dependency_inputs::{DependencyInputs, split_with};
use self::plan::Printing;
pub(crate) use self::plan::{InstallPlan, PlannedExtension, plan_as};
use self::query::Query;
pub(crate) use self::routes::{PlatformUpgrade, UpgradeStep, platform_upgrades};
use self::rules::RuleArgs;

/// First lines of the command's help.
pub const ABOUT: &str = "Show which bundle of a package would be installed, and why

The command chooses as operator-controller does. In each catalog, the eligible bundles are those in the channels and the \
version range and, if a bundle is installed, only its direct successors and those of the same version. The highest \
of these versions that is not deprecated is the catalog's candidate, and the catalog with the highest priority \
wins.

The request comes from flags, from a file with ClusterExtensions, which is validated as by the API server, or from \
an extension of the cluster. --solve also plans all dependencies.";

/// Arguments of `olm resolve`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 a bundle is chosen   1 operation failed, such as reading a catalog   2 wrong usage
  3 the API server would refuse the file   4 no bundle can be chosen

Examples:
  {olm} resolve etcd                                            # from the catalogs of the cluster
  {olm} resolve etcd --catalog ./catalog --channel alpha --version '>=0.9, <1'
  {olm} resolve etcd --catalog ./catalog --installed etcdoperator.v0.9.0 --explain
  {olm} resolve --extension my-etcd --explain                   # reasons, and held-back bundles
  {olm} resolve -f extension.yaml --catalog quay.io/operatorhubio/catalog:latest
  {olm} resolve my-app --solve --manifests --namespace apps | kubectl apply -f -")]
pub struct ResolveArgs {
    /// Package name
    #[arg(value_name = "PACKAGE", required_unless_present_any = ["file", "extension"])]
    package: Option<String>,
    /// Catalog to choose from: a directory, an image reference, cluster/NAME, or cluster for all catalogs of the
    /// cluster; may be given several times
    #[arg(long = "catalog", value_name = "SOURCE", default_value = "cluster")]
    catalogs: Vec<String>,
    /// Priority of a catalog, by its name or as given with --catalog; default: 0, or that of the ClusterCatalog
    #[arg(long = "priority", value_name = "CATALOG=N", value_parser = priority)]
    priorities: Vec<(String, i32)>,
    /// Only bundles of these channels ('default' is the package's default channel); without it, all channels are
    /// allowed; may be given several times
    #[arg(long = "channel", value_name = "CHANNEL", value_delimiter = ',')]
    channels: Vec<String>,
    /// Only these versions, such as 1.2.3, 1.2.x or '>=1.2, <2'
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Upgrade policy; default: CatalogProvided
    #[arg(long, value_parser = policy(), value_name = "POLICY")]
    policy: Option<UpgradeConstraintPolicy>,
    /// Only catalogs with these labels, such as olm.operatorframework.io/metadata.name=operatorhubio
    #[arg(long, value_name = "LABELS", value_parser = query::parse_selector)]
    selector: Option<CatalogSelector>,
    /// Installed bundle: NAME@VERSION, or the name or version of a bundle in the catalogs
    #[arg(long, value_name = "BUNDLE")]
    installed: Option<String>,
    /// Resolve the ClusterExtensions of this file; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = QUESTION)]
    file: Option<String>,
    /// Resolve this ClusterExtension of the cluster, with its installed bundle
    #[arg(long, value_name = "NAME", conflicts_with_all = QUESTION, conflicts_with = "file")]
    extension: Option<String>,
    /// Show every bundle of every catalog, and the rule that keeps or drops it
    #[arg(long, conflicts_with = "solve")]
    explain: bool,
    /// Also plan all dependencies of the package
    #[arg(long, visible_alias = "with-dependencies")]
    solve: bool,
    /// Print the plan as ClusterExtensions to apply, in this order; their namespaces must exist
    #[arg(long, requires = "solve")]
    manifests: bool,
    /// Namespace of new extensions in the manifests; default: the name of the package
    #[arg(long, value_name = "NAMESPACE", requires = "manifests")]
    namespace: Option<String>,
    /// Another installed extension, as PACKAGE@VERSION; replaces those of the cluster; may be given several times
    #[arg(long, value_name = "PACKAGE@VERSION", help_heading = "Dependencies")]
    with: Vec<String>,
    /// A kind that the cluster serves, as GROUP/VERSION/KIND; replaces those of the cluster; may be given several times
    #[arg(long, value_name = "KIND", help_heading = "Dependencies")]
    served: Vec<String>,
    #[command(flatten)]
    rules: RuleArgs,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    format: FormatArgs,
}

/// Flags of a request. They conflict with a file or an extension.
const QUESTION: [&str; 5] = ["package", "channels", "version", "policy", "selector"];

/// Parser of `--policy`, whose values are those of the API.
fn policy() -> impl TypedValueParser<Value = UpgradeConstraintPolicy> {
    let value = |name: &'static str, help: &'static str| PossibleValue::new(name).help(help);
    PossibleValuesParser::new([
        value("CatalogProvided", "Upgrades along the edges of the catalog's channels"),
        value("SelfCertified", "Any change of version, at your own risk"),
    ])
    .map(UpgradeConstraintPolicy::from)
}

fn priority(text: &str) -> Result<(String, i32), String> {
    let (name, number) = text.rsplit_once('=').ok_or("expected CATALOG=N, such as ./catalog=10")?;
    Ok((name.to_owned(), number.parse().map_err(|_| format!("{} is not an integer", quote(number)))?))
}

/// Runs the command.
///
/// # Errors
/// A source cannot be read, the request is invalid, or no bundle can be chosen.
pub async fn run(args: ResolveArgs, session: &mut Session) -> Result<(), CliError> {
    let settings = args.rules.settings()?;
    if args.manifests && args.format.output == Format::Json {
        return Err(CliError::usage("--manifests prints YAML for kubectl apply; omit -o json"));
    }
    let mut queries = queries(&args, session).await?;
    if args.installed.is_some() && queries.len() > 1 {
        return Err(CliError::usage(
            "--installed is the bundle of one extension; the file has several extensions",
        ));
    }
    let catalogs = read_catalogs(&args, &queries, session).await?;
    for query in &mut queries {
        if args.package.is_some() {
            query.name_default_channel(&catalogs)?;
        }
        if let Some(installed) = &args.installed {
            query.set_installed(installed, &catalogs)?;
        }
    }
    let dependencies =
        dependency_inputs(&args, &queries, &catalogs, settings.cluster_constraints, session).await?;
    if args.solve {
        let (format, namespace) = (args.format.output, args.namespace.as_deref());
        let printing = Printing { format, manifests: args.manifests, namespace };
        return plan::run(&queries, &catalogs, &dependencies, &printing, session);
    }
    let known = AnswerInputs { catalogs: &catalogs, dependencies: &dependencies, explain: args.explain };
    let list = List { items: queries.iter().map(|query| Answer::new(query, &known)).collect() };
    session.output.result(args.format.output, "ResolutionList", &list, text)?;
    failure(&list)
}

/// Requests from the flags, the file or the extension.
async fn queries(args: &ResolveArgs, session: &Session) -> Result<Vec<Query>, CliError> {
    let extensions = match (&args.file, &args.extension) {
        (Some(file), _) => read_extensions(file, session).await?,
        (None, Some(name)) => vec![args.access.cluster.connect().await?.extension(name, session).await?],
        (None, None) => {
            if let Some(text) = &args.version {
                version_expression::check(text)?;
            }
            let package = args.package.as_deref().unwrap_or_default();
            let mut query = Query::plain(package, &args.rules)?;
            query.filter.channels = args.channels.clone();
            query.filter.version = args.version.clone();
            query.filter.upgrade_constraint_policy = args.policy.clone();
            query.selector = args.selector.clone().unwrap_or_default();
            query.namespace = args.namespace.clone();
            return Ok(vec![query]);
        }
    };
    let mut queries = Vec::new();
    for extension in &extensions {
        let mut query = Query::of_extension(extension, &args.rules)?;
        for fault in &query.rules.invalid {
            say(&format!("warning: {}: {fault}", query.name()));
        }
        if args.file.is_some() {
            // The status in a file does not describe the cluster.
            query.installed = None;
        }
        queries.push(query);
    }
    Ok(queries)
}

async fn read_catalogs(
    args: &ResolveArgs,
    queries: &[Query],
    session: &Session,
) -> Result<Catalogs, CliError> {
    let mut packages: BTreeSet<String> = queries.iter().map(|query| query.package().to_owned()).collect();
    for text in &args.with {
        packages.insert(split_with(text)?.0.to_owned());
    }
    let everything = CatalogSelector::default();
    let mut selectors: Vec<_> = queries.iter().map(|query| &query.selector).collect();
    if args.solve {
        selectors.push(&everything);
    }
    let reading = Reading {
        access: &args.access,
        sources: &args.catalogs,
        priorities: args.priorities.iter().cloned().collect::<BTreeMap<_, _>>(),
        packages,
        others: args.solve || judges_dependencies(queries),
        selectors,
        indexing: args.rules.indexing()?,
    };
    reading.read(session).await
}

fn judges_dependencies(queries: &[Query]) -> bool {
    queries.iter().any(|query| query.rules.judges_dependencies())
}

/// Environment for dependency checks: as given by flags, else from the cluster that the request or a catalog comes
/// from.
async fn dependency_inputs(
    args: &ResolveArgs,
    queries: &[Query],
    catalogs: &Catalogs,
    cluster_constraints: bool,
    session: &Session,
) -> Result<DependencyInputs, CliError> {
    let described = !args.with.is_empty() || !args.served.is_empty();
    let from_cluster = args.extension.is_some()
        || args.catalogs.iter().any(|source| source == "cluster" || source.starts_with("cluster/"));
    let matters = args.solve || judges_dependencies(queries) || cluster_constraints;
    if described || !from_cluster || !matters {
        if cluster_constraints {
            return Err(CliError::usage(
                "feature gate ClusterConstraints needs a cluster: use a catalog of the cluster, such as --catalog cluster",
            ));
        }
        return DependencyInputs::described(&args.with, &args.served, &args.rules, catalogs);
    }
    let cluster = args.access.cluster.connect().await?;
    DependencyInputs::of_cluster(&cluster, &args.rules, session).await
}

/// Failure of the first request without result, with the errors of all.
fn failure(list: &List<Answer>) -> Result<(), CliError> {
    let failed: Vec<_> = list.items.iter().filter_map(|answer| Some((answer, answer.code?))).collect();
    let Some((_, code)) = failed.first() else { return Ok(()) };
    let several = list.items.len() > 1;
    let message = |(answer, _): &(&Answer, Code)| match &answer.extension {
        Some(name) if several => format!("{name}: {}", failure_text(answer)),
        _ => failure_text(answer),
    };
    Err(CliError::Message(*code, failed.iter().map(message).collect::<Vec<_>>().join("\nerror: ")))
}

/// Error and hints of a request without result.
fn failure_text(answer: &Answer) -> String {
    with_hints(answer.error.clone().unwrap_or_default(), &answer.hints)
}

fn with_hints(error: String, hints: &[String]) -> String {
    hints.iter().fold(error, |text, hint| text + "\nhint: " + hint)
}
