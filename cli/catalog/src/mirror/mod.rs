//! `olm catalog mirror`: copies a catalog with its bundles and the images of its operators
//! (docs/design/cli.md#mirroring).
//!
//! [`mod@plan`] is pure: names of the copies, and configuration. [`copy`] copies one image, [`layout`] is the folder for
//! air gaps.

mod copy;
mod jobs;
mod layout;
mod plan;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::Args;
use kube::ResourceExt;
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, Source, one_catalog, tagged_reference};
use olm_fbc::{Form, validate_metas};
use olm_oci::{ImageLimits, Puller, Reference, Selector};
use olm_version::names::is_dns_label;
use olm_version::quote;
use serde::Serialize;

use self::copy::Stats;
use self::jobs::{Content, Job, Target};
use self::layout::Layout;
use self::plan::{MovableTags, TargetRegistry};
use super::selection::{SelectionArgs, catalog_files};
use crate::author::{build, failed, write_whole};

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Copy a catalog with its bundles and the images of its operators

Copies the images to another registry, or to a directory that is carried to a network without internet access and \
copied from there. Images keep their bytes, digests and tags, indexes all their platforms. Signatures, attestations and \
SBOMs of the images are copied, too. What the destination already has is not copied again, so that an interrupted run \
can be repeated. A tag of the destination that has another image is not moved, unless it is that of the catalog, or was \
copied from the same source.

The repositories are below the path of --to: quay.io/org/image becomes REGISTRY/PREFIX/org/image. Flags of the \
selection reduce the catalog as `prune` does; it then gets a new digest and has no signature (see `olm catalog sign`), \
but keeps its repository and tag.

The directory --output-dir gets the configuration that redirects clients to the mirror: registries.conf for OLM and CRI-O, \
ImageDigestMirrorSet and ImageTagMirrorSet for OpenShift, a ClusterCatalog, and a list of all images.";

/// Arguments of `olm catalog mirror`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed, or images are missing   2 wrong usage   3 the selection is not valid
  4 a catalog, package, channel or version does not exist

Examples:
  {olm} catalog mirror quay.io/operatorhubio/catalog:latest --package etcd --to registry.example.com/mirror
  {olm} catalog mirror quay.io/operatorhubio/catalog:latest --package 'etcd@>=0.9.4' --to-dir ./layout
  {olm} catalog mirror ./layout --to registry.example.com/mirror
  {olm} catalog mirror ./catalog --catalog-ref quay.io/team/catalog:v1 --to registry.example.com")]
pub struct MirrorArgs {
    /// A directory, an image reference, cluster/NAME, or a layout that --to-dir wrote
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Copy to this registry, below this path
    #[arg(
        long,
        value_name = "REGISTRY[/PREFIX]",
        required_unless_present = "to_dir",
        conflicts_with = "to_dir"
    )]
    to: Option<String>,
    /// Copy to this directory, as an OCI image layout
    #[arg(long, value_name = "LAYOUT")]
    to_dir: Option<PathBuf>,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Do not copy the related images of the bundles
    #[arg(long)]
    no_related_images: bool,
    /// Also move tags of the mirror whose images no earlier run with this --output-dir copied from the same source
    #[arg(long)]
    overwrite_tags: bool,
    /// Reference of the catalog, REGISTRY/REPOSITORY:TAG; needed for a directory, and to reduce a catalog that is named
    /// by digest
    #[arg(long, value_name = "REF")]
    catalog_ref: Option<String>,
    /// With --to: directory for the configuration of clients
    #[arg(long, value_name = "DIR", default_value = "mirror")]
    output_dir: PathBuf,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MirroredCatalog {
    /// References of the mirrored catalogs, or their names in the layout.
    catalogs: Vec<String>,
    images: usize,
    /// Blobs that were copied, and those that the destination already had.
    blobs_copied: u64,
    blobs_present: u64,
    bytes_copied: u64,
    failures: Vec<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_dir: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Failure {
    image: String,
    error: String,
}

/// Images to copy.
struct Plan {
    jobs: Vec<Job>,
    /// Images that cannot be copied, with the reason: texts in the catalog that are not references, and images that a
    /// layout does not have.
    missing: BTreeMap<String, String>,
    /// Reference of the image that the catalog is read from, if it is one.
    origin: Option<Reference>,
}

/// Runs the command.
///
/// # Errors
/// The catalog cannot be read, the selection is refused, an image is not copied, or a file cannot be written.
pub(crate) async fn run(args: MirrorArgs, session: &mut Session) -> Result<(), CliError> {
    let registry = args.to.as_deref().map(TargetRegistry::parse).transpose()?;
    let source_layout = open_layout(&args)?;
    let plan = match &source_layout {
        Some(layout) => of_layout(layout)?,
        None => plan(&args, session).await?,
    };
    if let Some(registry) = &registry {
        check_targets(registry, &plan)?;
    }
    let mapping = fs::read_to_string(args.output_dir.join(plan::MAPPING)).unwrap_or_default();
    let tags = MovableTags { mapping, all: args.overwrite_tags };
    let configuration = match &registry {
        Some(registry) => configuration(&args.output_dir, registry, &plan.jobs)?,
        None => BTreeMap::new(),
    };
    let layout = args.to_dir.as_deref().map(Layout::create).transpose()?;
    let target = match (&registry, &layout) {
        (Some(registry), _) => Target::Registry(registry, &tags),
        (None, Some(layout)) => Target::Layout(layout),
        (None, None) => return Err(CliError::usage("specify --to or --to-dir")),
    };
    let stats = Stats::default();
    let total = plan.jobs.len() + plan.missing.len();
    let copied = jobs::run(&plan.jobs, &target, source_layout.as_ref(), &args.access.images, &stats, session);
    let failed = copied.await?;
    let failures: BTreeMap<String, String> = plan.missing.into_iter().chain(failed).collect();
    if let Some(layout) = &layout {
        layout.finish(&args.source, failures.clone())?;
    }
    for (name, mut text) in configuration {
        if name == plan::MAPPING {
            text = tags.recorded(&text, &failures);
        }
        write_whole(&args.output_dir.join(name), &text)?;
    }
    let count = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
    let catalogs = plan.jobs.iter().filter(|job| job.catalog.is_some());
    let result = MirroredCatalog {
        catalogs: catalogs.map(|job| target.name(&job.source)).collect(),
        images: total,
        blobs_copied: count(&stats.blobs),
        blobs_present: count(&stats.known),
        bytes_copied: count(&stats.bytes),
        failures: failures.into_iter().map(|(image, error)| Failure { image, error }).collect(),
        output_dir: registry.is_some().then_some(args.output_dir),
    };
    session.output.result(args.format.output, "MirroredCatalog", &result, text)?;
    if result.failures.is_empty() {
        return Ok(());
    }
    result.failures.iter().for_each(|failure| say(&format!("{}: {}", failure.image, failure.error)));
    Err(CliError::operational(format!("{} of {total} images were not copied", result.failures.len())))
}

/// Fails if a copy would overwrite another one, or the catalog that it is made of.
fn check_targets(registry: &TargetRegistry, plan: &Plan) -> Result<(), CliError> {
    if let Some((a, b)) = plan::conflict(registry, plan.jobs.iter().map(|job| &job.source)) {
        let why = format!("{a} and {b} would have the same name in the mirror");
        return Err(CliError::usage(format!("{why}; mirror them with different prefixes")));
    }
    let catalogs = plan.jobs.iter().filter(|job| job.catalog.is_some()).map(|job| &job.source);
    match plan::overwritten(registry, catalogs, plan.origin.as_ref()) {
        None => Ok(()),
        Some(target) => {
            let why = format!("the copy would overwrite the catalog {target}; nothing was copied");
            Err(CliError::usage(format!("{why}: add a path to --to, such as {}/mirror", target.host())))
        }
    }
}

/// Layout that SOURCE names, if it does.
fn open_layout(args: &MirrorArgs) -> Result<Option<Layout>, CliError> {
    let root = Path::new(&args.source);
    if !olm_pack::is_layout(root) {
        return Ok(None);
    }
    if !args.selection.is_everything() || args.no_related_images || args.catalog_ref.is_some() {
        let why = "select packages and images when the layout is written; it is always copied whole";
        return Err(CliError::usage(format!("{}: {why}", args.source)));
    }
    Layout::open(root).map(Some)
}

fn of_layout(layout: &Layout) -> Result<Plan, CliError> {
    let mut jobs = Vec::new();
    for (name, entry) in layout.entries() {
        let invalid =
            |error: &dyn std::fmt::Display| CliError::at(format!("image {name} of the layout"), error);
        let source = name.parse().map_err(|error: olm_oci::ReferenceError| invalid(&error))?;
        let digest = entry.digest.parse().map_err(|_| invalid(&"its digest is not valid"))?;
        let content = Content::Layout(digest);
        let catalog = entry.catalog().map(str::to_owned);
        if let Some(catalog) = catalog.as_ref().filter(|name| !is_object_name(name)) {
            let why = format!("{} is not a valid name of a ClusterCatalog", quote(catalog));
            return Err(invalid(&why));
        }
        jobs.push(Job { source, content, catalog });
    }
    let missing = layout.missing().into_iter();
    let missing = missing.map(|(image, why)| (image, format!("the layout does not have it: {why}")));
    Ok(Plan { jobs, missing: missing.collect(), origin: None })
}

/// `true` for a DNS subdomain, as names of objects are.
fn is_object_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

/// Images of the catalog that SOURCE names, with the catalog last.
async fn plan(args: &MirrorArgs, session: &Session) -> Result<Plan, CliError> {
    let Origin { content: source, reference: published, name } = origin(args, session).await?;
    let given = args.catalog_ref.as_deref().map(tagged_reference).transpose()?;
    let is_whole = args.selection.is_everything();
    let reference = match (given, &published) {
        (Some(given), _) => given,
        (None, None) => {
            let why = "the catalog of a directory needs a reference: --catalog-ref REGISTRY/REPOSITORY:TAG";
            return Err(CliError::usage(why));
        }
        (None, Some(image)) if !is_whole && matches!(image.selector(), Selector::Digest(_)) => {
            let why =
                "the reduced catalog gets another digest: name it with --catalog-ref REGISTRY/REPOSITORY:TAG";
            return Err(CliError::usage(why));
        }
        (None, Some(image)) => image.clone(),
    };
    // The tag could move between the reads of the catalog.
    let source = match source {
        CatalogContent::Image(image) => CatalogContent::Image(pinned(&image, args, session).await?),
        directory => directory,
    };
    let mut metas = args.access.metas(&source.parsed(), &source.to_string(), session).await?;
    let content = match source {
        CatalogContent::Image(image) if is_whole => Content::Registry(image),
        CatalogContent::Directory(root) if is_whole => Content::Built(build::image_of(&root, session)?.image),
        _ => {
            let before = validate_metas(&metas);
            metas = args.selection.apply(&args.source, metas)?.metas;
            let files = catalog_files(&args.source, metas.clone(), Form::Json, &before)?;
            Content::Built(olm_pack::Image::catalog(&files)?)
        }
    };
    let images = plan::images(&metas, !args.no_related_images)?;
    let missing = images.invalid;
    let images = images.references.into_iter().filter(|image| *image != reference);
    let mut jobs: Vec<Job> = images
        .map(|source| Job { content: Content::Registry(source.clone()), source, catalog: None })
        .collect();
    let catalog = Some(name.unwrap_or_else(|| plan::catalog_name(&reference)));
    jobs.push(Job { source: reference, content, catalog });
    Ok(Plan { jobs, missing, origin: published })
}

/// Reference of an image by its current digest.
async fn pinned(image: &Reference, args: &MirrorArgs, session: &Session) -> Result<Reference, CliError> {
    let _step = session.progress.step(format!("resolving {image}"));
    let puller = Puller::new(args.access.images.config(image, ImageLimits::CATALOG)?);
    let canonical = session.unless_interrupted(puller.resolve(image)).await?;
    let pinned = format!("{}@{}", image.name(), canonical.digest());
    pinned.parse().map_err(|error| CliError::at(image, format!("{error}: {pinned}")))
}

/// Content of a catalog that is not a layout.
enum CatalogContent {
    Directory(PathBuf),
    Image(Reference),
}

impl CatalogContent {
    fn parsed(&self) -> Source {
        match self {
            Self::Directory(root) => Source::Directory(root.clone()),
            Self::Image(reference) => Source::Image(reference.clone()),
        }
    }
}

impl std::fmt::Display for CatalogContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(root) => write!(f, "{}", root.display()),
            Self::Image(reference) => write!(f, "{reference}"),
        }
    }
}

/// Content of a catalog with its names.
struct Origin {
    content: CatalogContent,
    /// Reference of the image that users know, such as by tag.
    reference: Option<Reference>,
    /// Name of the ClusterCatalog, if it is one of the cluster.
    name: Option<String>,
}

/// Catalog that SOURCE names. Of a ClusterCatalog, the image that it serves.
async fn origin(args: &MirrorArgs, session: &Session) -> Result<Origin, CliError> {
    let name = match one_catalog(&args.source)? {
        Source::Cluster(name) => name.unwrap_or_default(),
        Source::Directory(root) => {
            return Ok(Origin { content: CatalogContent::Directory(root), reference: None, name: None });
        }
        Source::Image(reference) => {
            let content = CatalogContent::Image(reference.clone());
            return Ok(Origin { content, reference: Some(reference), name: None });
        }
    };
    let cluster = args.access.cluster.connect().await?;
    let catalogs = cluster.catalogs(session).await?;
    let catalog = catalogs.iter().find(|catalog| catalog.name_any() == name);
    let image = catalog.and_then(|catalog| catalog.spec.source.image.as_ref()).ok_or_else(|| {
        CliError::no_candidate(format!("the cluster has no ClusterCatalog {name} with an image"))
    })?;
    let status = catalog.and_then(|catalog| catalog.status.as_ref());
    let served = status.and_then(|status| status.resolved_source.as_ref()).ok_or_else(|| {
        CliError::operational(format!(
            "ClusterCatalog {name} serves no content: status.resolvedSource is not set"
        ))
    })?;
    let failed = |error: olm_oci::ReferenceError| CliError::at(format!("ClusterCatalog {name}"), error);
    let content = CatalogContent::Image(served.image.ref_.parse().map_err(failed)?);
    let reference = Some(image.ref_.parse().map_err(failed)?);
    Ok(Origin { content, reference, name: Some(name) })
}

/// Files that lead clients to the mirror, by name. Those in `directory` must be of the same mirror.
fn configuration(
    directory: &Path,
    registry: &TargetRegistry,
    jobs: &[Job],
) -> Result<BTreeMap<&'static str, String>, CliError> {
    let mut mapping = BTreeMap::new();
    let mut catalogs = Vec::new();
    for job in jobs {
        let target = registry.target(&job.source).map_err(|error| CliError::at(&job.source, error))?;
        catalogs.extend(job.catalog.clone().map(|name| (name, target.clone())));
        mapping.insert(job.source.clone(), target);
    }
    let files = plan::files(registry, &mapping, &plan::unique(catalogs.into_iter()))?;
    for (name, text) in &files {
        let path = directory.join(name);
        match fs::read(&path) {
            // A newer catalog has other images.
            Ok(old) if old == text.as_bytes() || *name == plan::MAPPING => {}
            Ok(_) => {
                let why = "the file has other content, such as of another mirror; nothing was copied";
                let hint = "choose another directory with --output-dir, or remove the file";
                return Err(CliError::usage(format!("{}: {why}: {hint}", path.display())));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read", &path, &error)),
        }
    }
    Ok(files)
}

fn text(result: &MirroredCatalog) -> String {
    let MirroredCatalog { images, blobs_copied, blobs_present, bytes_copied, failures, .. } = result;
    let done = images - failures.len();
    let mut text = format!(
        "copied {done} of {images} images: {blobs_copied} blobs with {bytes_copied} bytes, {blobs_present} were present\n"
    );
    for catalog in &result.catalogs {
        text.push_str(&format!("catalog: {catalog}\n"));
    }
    if let Some(directory) = &result.output_dir {
        text.push_str(&format!("configuration: {}\n", directory.display()));
    }
    text
}
