//! `olm catalog verify`: checks a catalog with the images that it refers to.
//!
//! [`local`] and [`content`] are pure. [`images`] and [`job`] ask the registries.

mod bundle_images;
mod content;
mod finding;
mod images;
mod job;
mod local;
mod output;
mod signatures;
mod state;
mod upgrades;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::report::{ReportArgs, RuleList};
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, DirectoryFolder, Source};
use olm_fbc::LoadLimits;
use olm_finding::Level;

pub use self::bundle_images::check_images;
use self::finding::{Finding, arrange, of_structure, rules};
use self::images::Checked;
use self::job::Extent;
use self::output::Verification;
use self::state::State;
use self::upgrades::UpgradeArgs;
pub use self::upgrades::compare_bundles;
use super::whole::WholeCatalog;
use crate::sign::PolicyArgs;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Check a catalog with its upgrade paths and images

Runs the checks of `validate`, and then checks for each bundle that its properties can be read, that it is not a \
dead end, and that its image exists for the architectures that it supports: those of the labels \
operatorframework.io/arch.* of its ClusterServiceVersion, else amd64. Images are checked by their manifests, 8 at a \
time; --layers also looks for their layers. --content pulls the bundles, compares them with the catalog, and checks \
that OLM v1 can install them. --key and --policy check the signatures of the bundles, and of a SOURCE that is an \
image, as servers do.

With --state, an interrupted run is resumed: images that passed are recorded in the file if they are given by digest, \
and the next run skips them as long as bundle and flags are the same. All others are checked again. The file is deleted \
once all images pass.

A bundle is a dead end if one of its channels has a higher version, but no upgrade leads there (GRAPH-3), or if it is \
the last patch of a minor version and its channel continues without it (GRAPH-5). A patch that is released after the \
next minor version causes this if that minor version neither replaces nor skips it. A skipRange with higher versions \
permits downgrades, and one without lower versions has no effect (GRAPH-6).

An upgrade that no longer serves a version of an API is a warning (GRAPH-7), which does not change the exit code.

With --upgrades, the command checks what the upgrades to the newest bundle of each channel do on clusters instead: CRDs that \
break custom resources or clients, fields that the API server never changes, deleted data, gained permissions, lost \
install modes and platforms. For each upgrade it says whether operator-controller holds it.";

/// Arguments of `olm catalog verify`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 no errors   1 operation failed   2 wrong usage   3 errors   4 a catalog or package does not exist

Examples:
  {olm} catalog verify ./catalog
  {olm} catalog verify ./catalog --no-images                      # without network
  {olm} catalog verify ./catalog --related-images --arch amd64,arm64
  {olm} catalog verify cluster/operatorhubio --package etcd --content
  {olm} catalog verify registry.example.com/team/catalog:v1 --key team.pub
  {olm} catalog verify ./catalog --layers --state verify.state     # run again after an interruption
  {olm} catalog verify ./catalog --ignore GRAPH-5 -o sarif > verify.sarif
  {olm} catalog verify ./catalog --upgrades --package etcd --details
  {olm} catalog verify ./catalog --upgrades --bundles ./operators   # folders instead of images
  {olm} catalog verify --rules")]
pub struct VerifyArgs {
    /// A directory, an image reference, or cluster/NAME
    #[arg(
        value_name = "SOURCE",
        required_unless_present = "rules",
        default_value = "",
        hide_default_value = true
    )]
    source: String,
    /// Only check this package; may be given several times. The checks of `validate` are always of the whole catalog
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Check no images, and use no registry other than that of the catalog
    #[arg(long, conflicts_with_all = ["related_images", "content", "layers", "architectures", "state", "keys", "policy"])]
    no_images: bool,
    /// Also check the related images of the bundles
    #[arg(long)]
    related_images: bool,
    /// Pull the bundles, compare their content with the catalog, and check that OLM v1 can install them
    #[arg(long)]
    content: bool,
    /// Also look for the layers of the images, without pulling them
    #[arg(long)]
    layers: bool,
    /// File with the images that passed in an interrupted run, which are skipped; created if it does not exist
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Architectures that every image must have, separated by commas, in place of those that the bundles declare
    #[arg(long = "arch", value_name = "ARCH", value_delimiter = ',')]
    architectures: Vec<String>,
    #[command(flatten)]
    upgrades: UpgradeArgs,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    signatures: PolicyArgs,
    #[command(flatten)]
    access: Access,
}

/// Runs the command.
///
/// # Errors
/// The catalog cannot be read, or has findings.
pub(crate) async fn run(args: VerifyArgs, session: &mut Session) -> Result<(), CliError> {
    if args.upgrades.upgrades {
        let VerifyArgs { source, packages, upgrades, report, access, .. } = args;
        return upgrades::run(source, &packages, upgrades, &report, &access, session).await;
    }
    if args.report.rules {
        return args.report.print_rules("CatalogRules", &RuleList::new(rules()), RuleList::text, session);
    }
    args.report.check(rules())?;
    let verifier = args.signatures.is_set().then(|| args.signatures.verifier()).transpose()?;
    let (catalog, mut findings) = read(&args, session).await?;
    let is_from_cluster = matches!(Source::parse(&args.source)?, Source::Cluster(_));
    for package in catalog.packages.values() {
        session.check()?;
        findings.extend(local::check(package, is_from_cluster));
    }
    if let (Some(verifier), Source::Image(image)) = (&verifier, Source::parse(&args.source)?) {
        findings.extend(signatures::of_catalog(&image, verifier, &args.access.images, session).await?);
    }
    let mut checked = Checked::default();
    if !args.no_images {
        let extent = Extent {
            related: args.related_images,
            content: args.content,
            layers: args.layers,
            architectures: args.architectures.clone(),
            verifier,
        };
        let state = args.state.as_deref().map(State::open).transpose()?;
        let images = &args.access.images;
        checked = images::check(&catalog.packages, &extent, images, state, session).await?;
        findings.append(&mut checked.findings);
    }
    findings.retain(|finding| !args.report.ignores(finding.rule));
    arrange(&mut findings, &catalog);
    let names = bundle_names(&catalog);
    let folder = match Source::parse(&args.source)? {
        Source::Directory(root) => Some(root),
        _ => None,
    };
    let verification = Verification {
        catalog: args.source,
        passed: findings.iter().all(|finding| finding.level != Level::Error),
        packages: names.len(),
        bundles: names.values().map(Vec::len).sum(),
        images: checked.images,
        resumed: checked.resumed,
        findings,
        names,
        folder,
    };
    args.report.print("CatalogVerification", &verification, output::table, output::report, session)?;
    if verification.passed { Ok(()) } else { Err(CliError::Findings) }
}

/// Names of the bundles by package.
fn bundle_names(catalog: &WholeCatalog) -> BTreeMap<String, Vec<String>> {
    let names = catalog.packages.values().map(|package| {
        let bundles = package.content.bundles.iter().map(|bundle| bundle.name.clone()).collect();
        (package.name.clone(), bundles)
    });
    names.collect()
}

/// Catalog, and its findings of `validate`, after which a catalog that cannot be loaded is empty. catalogd has checked
/// a catalog that it serves.
async fn read(args: &VerifyArgs, session: &Session) -> Result<(WholeCatalog, Vec<Finding>), CliError> {
    match Source::parse(&args.source)? {
        Source::Directory(root) => read_folder(&root, &args.source, args, session).await,
        Source::Image(reference) => {
            let content = args.access.images.pull(&reference, olm_oci::catalog_folder, session).await?;
            read_folder(content.path(), &content.path().display().to_string(), args, session).await
        }
        Source::Cluster(_) => {
            let catalog = WholeCatalog::read(&args.source, &args.packages, &args.access, session).await?;
            WholeCatalog::require(&[(&args.source, &catalog)], &args.packages)?;
            Ok((catalog, Vec::new()))
        }
    }
}

/// [`read`] for the catalog in the folder `root`, which `source` names.
async fn read_folder(
    root: &Path,
    source: &str,
    args: &VerifyArgs,
    session: &Session,
) -> Result<(WholeCatalog, Vec<Finding>), CliError> {
    let report = {
        let _step = session.progress.step(format!("checking {}", args.source));
        olm_fbc::validate_folder(&DirectoryFolder::open(root)?, &LoadLimits::default(), false)
    };
    let findings: Vec<_> = report.findings.iter().map(of_structure).collect();
    let catalog = match WholeCatalog::read(source, &args.packages, &args.access, session).await {
        Err(CliError::Message(Code::Operational, _)) if !findings.is_empty() => WholeCatalog::default(),
        catalog => {
            let catalog = catalog?;
            WholeCatalog::require(&[(&args.source, &catalog)], &args.packages)?;
            catalog
        }
    };
    Ok((catalog, findings))
}
