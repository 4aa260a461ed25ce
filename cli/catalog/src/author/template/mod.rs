//! `olm catalog template`: expands a list of bundle images to packages and channels, and converts a catalog to a
//! template (docs/design/cli.md#catalog-templates).

mod convert;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt, stream};
use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::repeated_keys;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_fbc::template::{SemverBundle, Template, TemplateError};
use olm_fbc::{Form, Meta, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};
use olm_oci::Reference;

use super::bundle::CatalogBundle;
use super::catalog_dir::{CatalogDir, failed, write_whole};
use super::catalog_text::stream_text;
use super::render::{self, PARALLEL};
use crate::graph::flowchart;

/// First bytes of a generated file. Only such a file is overwritten. The comment lies inside the first document:
/// before the separator it would form a document of its own, which is not an object.
const MARK: &str = "---\n# Made by olm catalog template render from ";
/// Name of the generated file in the directory of its package.
const FILE: &str = "rendered.yaml";

/// Subcommands of `olm catalog template`.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  {olm} catalog template render semver.yaml -o yaml
  {olm} catalog template convert basic ./catalog -o yaml > basic.yaml")]
pub enum TemplateCommand {
    /// Expand a template to the objects of a catalog
    #[command(long_about = ABOUT)]
    Render(TemplateRenderArgs),
    /// Convert a catalog to a template
    #[command(long_about = convert::ABOUT)]
    Convert(convert::ConvertArgs),
}

/// Help text of `olm catalog template render`.
const ABOUT: &str = "Expand a template to the objects of a catalog

The field schema of the file selects the type of template.

olm.semver lists bundle images that are candidates, fast or stable. Channels for each major or minor version, \
their edges and the default channel follow from the versions:

  schema: olm.semver
  generateMajorChannels: true
  generateMinorChannels: false
  candidate:
    bundles:
    - image: registry.example.com/team/my-operator-bundle:v1.1.0
  stable:
    bundles:
    - image: registry.example.com/team/my-operator-bundle:v1.0.0

olm.template.basic is a catalog whose bundles contain only their image:

  schema: olm.template.basic
  entries:
  - {schema: olm.package, name: my-operator, defaultChannel: stable}
  - {schema: olm.channel, package: my-operator, name: stable, entries: [{name: my-operator.v1.0.0}]}
  - {schema: olm.bundle, image: registry.example.com/team/my-operator-bundle:v1.0.0}

olm.template.substitutes is a catalog, in entries, with bundles that take the place of others: the substitute (name, \
an image) gets the edges of the base (a bundle name) and skips it. Its version must be higher, or its release:

  schema: olm.template.substitutes
  entries: []   # the objects of the catalog, including the bundles
  substitutions:
  - name: registry.example.com/team/my-operator-bundle:v1.0.0-2
    base: my-operator.v1.0.0";

/// Arguments of `olm catalog template render`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  {olm} catalog template render semver.yaml -o yaml
  {olm} catalog template render semver.yaml --to ./catalog   # again after every change of semver.yaml
  {olm} catalog template render - -o mermaid < basic.yaml")]
pub struct TemplateRenderArgs {
    /// Template file; - is standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// Format of the objects; default: json. mermaid draws the upgrade edges, as `catalog graph` does
    #[arg(short, long, value_enum, value_name = "FORMAT", conflicts_with = "to")]
    output: Option<TemplateFormat>,
    /// Write to PACKAGE/rendered.yaml in this catalog directory; an olm.package object that already exists in the
    /// catalog is not repeated
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    #[command(flatten)]
    images: ImageArgs,
}

/// Output format of an expanded template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TemplateFormat {
    /// JSON objects, one after the other
    Json,
    /// YAML documents
    Yaml,
    /// A Mermaid flowchart
    Mermaid,
}

/// Runs the command.
///
/// # Errors
/// The file is not a template, an image in it cannot be pulled or is not a bundle, or the bundles are inconsistent. The
/// source of a conversion cannot be read or does not fit the template.
pub(crate) async fn run(command: TemplateCommand, session: &mut Session) -> Result<(), CliError> {
    let args = match command {
        TemplateCommand::Render(args) => args,
        TemplateCommand::Convert(args) => return convert::run(args, session).await,
    };
    let limit = olm_yaml::Limits::default().document_bytes as u64;
    let text = manifest::text(&args.file, limit, session).await?;
    let file = if args.file == "-" { "standard input" } else { &args.file };
    let of_file = |error: TemplateError| CliError::at(file, error);
    repeated_keys::refuse(file, text.as_bytes())?;
    let template = Template::parse(text.as_bytes()).map_err(of_file)?;
    let bundles = pull(template.images(), &args.images, session).await?;
    let metas = expand(&template, bundles).map_err(of_file)?;
    let text = match (&args.to, args.output) {
        (Some(root), _) => format!("{}\n", write(metas, file, root, session)?.display()),
        (None, Some(TemplateFormat::Mermaid)) => flowchart(file, &metas)?,
        (None, Some(TemplateFormat::Yaml)) => stream_text(metas, Form::Yaml)?,
        (None, Some(TemplateFormat::Json) | None) => stream_text(metas, Form::Json)?,
    };
    session.output.text(&text)
}

/// Objects of the catalog, including the bundles.
fn expand(template: &Template, bundles: BTreeMap<String, CatalogBundle>) -> Result<Vec<Meta>, TemplateError> {
    let mut objects = BTreeMap::new();
    for (image, bundle) in &bundles {
        let meta = Meta::from_json(bundle.object.to_string().as_bytes());
        let meta = meta.map_err(|error| TemplateError::Bundles(error.to_string()))?;
        objects.insert(image.clone(), meta);
    }
    match template {
        Template::Basic(template) => template.expand(&objects),
        Template::Substitutes(template) => template.expand(&objects),
        Template::Semver(template) => {
            let identity = |(image, bundle): (String, CatalogBundle)| {
                let CatalogBundle { package, name, version, .. } = bundle;
                (image, SemverBundle { package, name, version })
            };
            let mut metas = template.expand(&bundles.into_iter().map(identity).collect())?;
            metas.extend(objects.into_values());
            Ok(metas)
        }
    }
}

async fn pull(
    texts: BTreeSet<&str>,
    images: &ImageArgs,
    session: &Session,
) -> Result<BTreeMap<String, CatalogBundle>, CliError> {
    let _step = session.progress.step(format!("rendering {} bundle images", texts.len()));
    stream::iter(texts)
        .map(|text| async move {
            let reference: Reference = text.parse().map_err(CliError::operational)?;
            let bundle = render::bundle_image(&reference, false, images, session).await?;
            Ok::<_, CliError>((text.to_owned(), bundle))
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

/// Writes the objects of a package into the catalog directory `root`, replacing those of an earlier run.
fn write(mut metas: Vec<Meta>, template: &str, root: &Path, session: &Session) -> Result<PathBuf, CliError> {
    let Some(package) = single_package(&metas) else {
        let why = "--to supports only templates of one package; omit it to print the objects";
        return Err(CliError::at(template, why));
    };
    let file = Path::new(&package).join(FILE);
    let path = root.join(&file);
    check_replaceable(&path)?;
    if root.is_dir() {
        let catalog = CatalogDir::open(root, session)?;
        let elsewhere = |known: Option<&Path>| known.is_some_and(|known| known != file);
        let taken = metas.iter().find(|meta| {
            [SCHEMA_CHANNEL, SCHEMA_BUNDLE].contains(&meta.schema.as_str())
                && elsewhere(catalog.file(&meta.schema, &meta.package, &meta.name))
        });
        if let Some(meta) = taken {
            return Err(CliError::operational(format!(
                "{} {} of package {package} is already in another file of {}",
                meta.schema,
                meta.name,
                root.display()
            )));
        }
        if elsewhere(catalog.file(SCHEMA_PACKAGE, &package, &package)) {
            metas.retain(|meta| meta.schema != SCHEMA_PACKAGE);
        }
    }
    let name = template.rsplit('/').next().unwrap_or_default();
    let head = format!("{MARK}{}; change that file instead.\n", olm_cli_core::output::printable(name));
    let objects = stream_text(metas, Form::Yaml)?;
    write_whole(&path, &(head + objects.strip_prefix("---\n").unwrap_or(&objects)))?;
    Ok(path)
}

/// Package that all objects belong to, if it is the same.
fn single_package(metas: &[Meta]) -> Option<String> {
    let mut packages = metas.iter().map(Meta::owner).collect::<BTreeSet<_>>().into_iter();
    packages.next().filter(|_| packages.next().is_none()).map(str::to_owned)
}

/// Fails if `path` exists and was not generated by this command.
fn check_replaceable(path: &Path) -> Result<(), CliError> {
    match fs::read(path) {
        Ok(text) if text.starts_with(MARK.as_bytes()) => Ok(()),
        Ok(_) => {
            let why = "the file was not generated from a template; it was not changed";
            Err(CliError::at(path.display(), why))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("read", path, &error)),
    }
}
