//! `olm resolve`: which bundle operator-controller would choose, and why; with `--solve` everything that is needed besides.
//!
//! The choice is that of the resolver which the controller calls; here is only what leads to the question and what makes the
//! answer readable.

mod answer;
mod answer_text;
mod ask;
mod catalogs;
mod choose;
mod loosen;
mod plan;
mod rules;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, ValueEnum};
use olm_api::cluster_extension::UpgradeConstraintPolicy;
use olm_resolve::CatalogSelector;
use olm_version::quote;

use self::answer::{Answer, Known};
use self::answer_text::{List, text};
use self::ask::Ask;
use self::catalogs::{Catalogs, Reading};
pub(crate) use self::choose::{Choice, choose, choose_as};
use self::plan::Printing;
pub(crate) use self::plan::{Planned, PlannedExtension, plan_as};
use self::rules::RuleArgs;
use self::world::{World, split_with};
use crate::failure::{Code, Failure};
use crate::manifest::read_extensions;
use crate::output::{Format, FormatArgs};
use crate::progress::say;
use crate::session::Session;
use crate::source::Access;
use crate::version_expression;

/// The first lines of the command's help.
pub(crate) const ABOUT: &str = "Shows which bundle of a package would be installed, and why

The answer is operator-controller's: of each catalog the bundles count that are in the channels, within the version range and, \
if something is installed, its direct successors or the same version. Of these the highest version that is not deprecated is \
the catalog's candidate, and the catalog with the highest priority wins.

The question comes from flags, from a file with ClusterExtensions, which is checked as the API server would check it, or from \
an extension of the cluster. With --solve it is not a single bundle that is chosen but everything that it depends on, too.";

/// Arguments of `olm resolve`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 a bundle is chosen   1 something did not work, such as a catalog   2 wrong usage
  3 the API server would refuse the file   4 nothing can be chosen

Examples:
  {olm} resolve etcd                                            # from the catalogs of the cluster
  {olm} resolve etcd --catalog ./catalog --channel alpha --version '>=0.9, <1'
  {olm} resolve etcd --catalog ./catalog --installed etcdoperator.v0.9.0 --explain
  {olm} resolve --extension my-etcd --explain                   # why this version, and what waits
  {olm} resolve -f extension.yaml --catalog quay.io/operatorhubio/catalog:latest
  {olm} resolve my-app --solve --manifests --namespace apps | kubectl apply -f -")]
pub(crate) struct ResolveArgs {
    /// The package
    #[arg(value_name = "PACKAGE", required_unless_present_any = ["file", "extension"])]
    package: Option<String>,
    /// Where to choose from: a directory, an image reference, cluster/NAME, or cluster for all catalogs of the cluster; may be
    /// given several times
    #[arg(long = "catalog", value_name = "SOURCE", default_value = "cluster")]
    catalogs: Vec<String>,
    /// Priority of a catalog, by its name or as given with --catalog; default: 0, or that of the ClusterCatalog
    #[arg(long = "priority", value_name = "CATALOG=N", value_parser = priority)]
    priorities: Vec<(String, i32)>,
    /// Only bundles of these channels ('default' is the package's default one); without it all count
    #[arg(long = "channel", value_name = "CHANNEL", value_delimiter = ',')]
    channels: Vec<String>,
    /// Only these versions, such as 1.2.3, 1.2.x or '>=1.2, <2'
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Which upgrades are allowed; default: CatalogProvided
    #[arg(long, value_enum, value_name = "POLICY")]
    policy: Option<Policy>,
    /// Only catalogs with these labels, such as olm.operatorframework.io/metadata.name=operatorhubio
    #[arg(long, value_name = "LABELS", value_parser = ask::parse_selector)]
    selector: Option<CatalogSelector>,
    /// The bundle that is installed: NAME@VERSION, or the name or version of a bundle of the catalogs
    #[arg(long, value_name = "BUNDLE")]
    installed: Option<String>,
    /// Ask what the ClusterExtensions of this file ask; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = QUESTION)]
    file: Option<String>,
    /// Ask what this ClusterExtension of the cluster asks, with what it has installed
    #[arg(long, value_name = "NAME", conflicts_with_all = QUESTION, conflicts_with = "file")]
    extension: Option<String>,
    /// Show every bundle of every catalog, and why it is chosen or not
    #[arg(long, conflicts_with = "solve")]
    explain: bool,
    /// Plan everything that the package depends on
    #[arg(long, visible_alias = "with-dependencies")]
    solve: bool,
    /// Print the plan as ClusterExtensions to apply, in this order; their namespaces must exist
    #[arg(long, requires = "solve")]
    manifests: bool,
    /// Namespace of new extensions in the manifests; default: the name of the package
    #[arg(long, value_name = "NAMESPACE", requires = "manifests")]
    namespace: Option<String>,
    /// Another extension that is installed, as PACKAGE@VERSION; instead of what the cluster has
    #[arg(long, value_name = "PACKAGE@VERSION", help_heading = "Dependencies")]
    with: Vec<String>,
    /// A kind that the cluster serves, as GROUP/VERSION/KIND; instead of those that the cluster serves
    #[arg(long, value_name = "KIND", help_heading = "Dependencies")]
    served: Vec<String>,
    #[command(flatten)]
    rules: RuleArgs,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    format: FormatArgs,
}

/// The flags of a question, which a file or an extension asks instead.
const QUESTION: [&str; 5] = ["package", "channels", "version", "policy", "selector"];

/// Which upgrades are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// Those that the catalog's channels lead to
    #[value(name = "CatalogProvided")]
    CatalogProvided,
    /// Any change of version, at your own risk
    #[value(name = "SelfCertified")]
    SelfCertified,
}

impl Policy {
    /// As an extension says it.
    fn constraint(self) -> UpgradeConstraintPolicy {
        match self {
            Self::CatalogProvided => UpgradeConstraintPolicy::CatalogProvided,
            Self::SelfCertified => UpgradeConstraintPolicy::SelfCertified,
        }
    }
}

fn priority(text: &str) -> Result<(String, i32), String> {
    let (name, number) = text.rsplit_once('=').ok_or("expected CATALOG=N, such as ./catalog=10")?;
    Ok((name.to_owned(), number.parse().map_err(|_| format!("{} is no whole number", quote(number)))?))
}

/// Runs the command.
///
/// # Errors
/// Those of the sources and of the question; nothing can be chosen.
pub(crate) async fn run(args: ResolveArgs, session: &mut Session) -> Result<(), Failure> {
    let settings = args.rules.settings()?;
    if args.manifests && args.format.output == Format::Json {
        return Err(Failure::usage("--manifests prints YAML for kubectl apply; leave out -o json"));
    }
    let mut asks = asks(&args, session).await?;
    if args.installed.is_some() && asks.len() > 1 {
        return Err(Failure::usage("--installed says what one extension has; the file has several"));
    }
    let catalogs = read_catalogs(&args, &asks, session).await?;
    for ask in &mut asks {
        if args.package.is_some() {
            ask.name_default_channel(&catalogs)?;
        }
        if let Some(installed) = &args.installed {
            ask.set_installed(installed, &catalogs)?;
        }
    }
    let world = world(&args, &asks, &catalogs, settings.cluster_constraints, session).await?;
    if args.solve {
        let (format, namespace) = (args.format.output, args.namespace.as_deref());
        let printing = Printing { format, manifests: args.manifests, namespace };
        return plan::run(&asks, &catalogs, &world, &printing, session);
    }
    let known = Known { catalogs: &catalogs, world: &world, explain: args.explain };
    let list = List { items: asks.iter().map(|ask| Answer::new(ask, &known)).collect() };
    session.output.result(args.format.output, "ResolutionList", &list, text)?;
    failure(&list)
}

/// The questions.
async fn asks(args: &ResolveArgs, session: &Session) -> Result<Vec<Ask>, Failure> {
    let extensions = match (&args.file, &args.extension) {
        (Some(file), _) => read_extensions(file, session).await?,
        (None, Some(name)) => vec![args.access.cluster.connect().await?.extension(name, session).await?],
        (None, None) => {
            if let Some(text) = &args.version {
                version_expression::check(text)?;
            }
            let package = args.package.as_deref().unwrap_or_default();
            let mut ask = Ask::plain(package, &args.rules)?;
            ask.filter.channels = args.channels.clone();
            ask.filter.version = args.version.clone();
            ask.filter.upgrade_constraint_policy = args.policy.map(Policy::constraint);
            ask.selector = args.selector.clone().unwrap_or_default();
            ask.namespace = args.namespace.clone();
            return Ok(vec![ask]);
        }
    };
    let mut asks = Vec::new();
    for extension in &extensions {
        let mut ask = Ask::of_extension(extension, &args.rules)?;
        for fault in &ask.rules.invalid {
            say(&format!("warning: {}: {fault}", ask.name()));
        }
        if args.file.is_some() {
            // What a file says about its status is not what a cluster has.
            ask.installed = None;
        }
        asks.push(ask);
    }
    Ok(asks)
}

async fn read_catalogs(args: &ResolveArgs, asks: &[Ask], session: &Session) -> Result<Catalogs, Failure> {
    let mut packages: BTreeSet<String> = asks.iter().map(|ask| ask.package().to_owned()).collect();
    for text in &args.with {
        packages.insert(split_with(text)?.0.to_owned());
    }
    let everything = CatalogSelector::default();
    let mut selectors: Vec<_> = asks.iter().map(|ask| &ask.selector).collect();
    if args.solve {
        selectors.push(&everything);
    }
    let reading = Reading {
        access: &args.access,
        sources: &args.catalogs,
        priorities: args.priorities.iter().cloned().collect::<BTreeMap<_, _>>(),
        packages,
        others: args.solve || judges_dependencies(asks),
        selectors,
        indexing: args.rules.indexing()?,
    };
    reading.read(session).await
}

fn judges_dependencies(asks: &[Ask]) -> bool {
    asks.iter().any(|ask| ask.rules.judges_dependencies())
}

/// What dependencies are judged by: what flags describe, else the cluster that the question or a catalog comes from.
async fn world(
    args: &ResolveArgs,
    asks: &[Ask],
    catalogs: &Catalogs,
    cluster_constraints: bool,
    session: &Session,
) -> Result<World, Failure> {
    let described = !args.with.is_empty() || !args.served.is_empty();
    let from_cluster = args.extension.is_some()
        || args.catalogs.iter().any(|source| source == "cluster" || source.starts_with("cluster/"));
    let matters = args.solve || judges_dependencies(asks) || cluster_constraints;
    if described || !from_cluster || !matters {
        if cluster_constraints {
            return Err(Failure::usage(
                "the gate ClusterConstraints compares with a cluster: name one of its catalogs, as --catalog cluster",
            ));
        }
        return World::described(&args.with, &args.served, &args.rules, catalogs);
    }
    let cluster = args.access.cluster.connect().await?;
    World::of_cluster(&cluster, &args.rules, session).await
}

/// The failure of the first question that has no answer, with the errors of all.
fn failure(list: &List) -> Result<(), Failure> {
    let failed: Vec<_> = list.items.iter().filter_map(|answer| Some((answer, answer.code?))).collect();
    let Some((_, code)) = failed.first() else { return Ok(()) };
    let several = list.items.len() > 1;
    let message = |(answer, _): &(&Answer, Code)| {
        let name = answer.extension.as_deref().filter(|_| several);
        format!("{}{}", name.map(|name| format!("{name}: ")).unwrap_or_default(), failure_text(answer))
    };
    Err(Failure::Told(*code, failed.iter().map(message).collect::<Vec<_>>().join("\nerror: ")))
}

/// Why nothing is chosen, and what helps.
fn failure_text(answer: &Answer) -> String {
    let mut text = answer.error.clone().unwrap_or_default();
    for hint in &answer.hints {
        text += &format!("\nhint: {hint}");
    }
    text
}
