//! `olm catalog template`: expands a list of bundle images to packages and channels
//! (docs/design/cli.md#catalog-templates).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt, stream};
use olm_fbc::template::{BasicTemplate, BundleIdentity, SemverTemplate, TemplateError};
use olm_fbc::{Form, Meta, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};
use olm_oci::Reference;

use super::CatalogFormat;
use super::bundle::CatalogBundle;
use super::catalog_dir::{CatalogDir, failed, write_whole};
use super::catalog_text::stream_text;
use super::render::{self, PARALLEL};
use crate::error::CliError;
use crate::session::Session;
use crate::source::ImageArgs;

/// First bytes of a generated file. Only such a file is overwritten. The comment lies inside the first document:
/// before the separator it would form a document of its own, which is no object.
const MARK: &str = "---\n# Made by olm catalog template render from ";
/// Name of the generated file in the directory of its package.
const FILE: &str = "rendered.yaml";

/// Subcommands of `olm catalog template`.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  {olm} catalog template render semver.yaml -o yaml")]
pub(crate) enum TemplateCommand {
    /// Expand a template to the objects of a catalog
    #[command(long_about = ABOUT)]
    Render(RenderArgs),
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

olm.template.basic is a catalog whose bundles contain only their image.";

/// Arguments of `olm catalog template render`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  {olm} catalog template render semver.yaml -o yaml
  {olm} catalog template render semver.yaml --to ./catalog   # again after every change of semver.yaml")]
pub(crate) struct RenderArgs {
    /// Template file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the objects; default: json
    #[arg(short, long, value_enum, value_name = "FORMAT", conflicts_with = "to")]
    output: Option<CatalogFormat>,
    /// Write to PACKAGE/rendered.yaml in this catalog directory; an olm.package object that already exists in the
    /// catalog is not repeated
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    #[command(flatten)]
    images: ImageArgs,
}

/// A template of either kind.
enum Template {
    Semver(SemverTemplate),
    Basic(BasicTemplate),
}

impl Template {
    fn parse(text: &[u8]) -> Result<Self, TemplateError> {
        let document = olm_yaml::from_slice(text).map_err(|error| TemplateError::Read(error.to_string()))?;
        match document["schema"].as_str() {
            Some("olm.semver") => SemverTemplate::parse(text).map(Self::Semver),
            Some("olm.template.basic") => BasicTemplate::parse(text).map(Self::Basic),
            other => {
                let other = olm_version::quote(other.unwrap_or_default());
                Err(TemplateError::Read(format!("schema {other}: expected olm.semver or olm.template.basic")))
            }
        }
    }

    fn images(&self) -> BTreeSet<&str> {
        match self {
            Self::Semver(template) => template.images(),
            Self::Basic(template) => template.images(),
        }
    }

    /// Objects of the catalog, including the bundles.
    fn expand(&self, bundles: BTreeMap<String, CatalogBundle>) -> Result<Vec<Meta>, TemplateError> {
        let mut objects = BTreeMap::new();
        for (image, bundle) in &bundles {
            let meta = Meta::from_json(bundle.object.to_string().as_bytes());
            let meta = meta.map_err(|error| TemplateError::Bundles(error.to_string()))?;
            objects.insert(image.clone(), meta);
        }
        match self {
            Self::Basic(template) => template.expand(&objects),
            Self::Semver(template) => {
                let identity = |(image, bundle): (String, CatalogBundle)| {
                    let CatalogBundle { package, name, version, .. } = bundle;
                    (image, BundleIdentity { package, name, version })
                };
                let mut metas = template.expand(&bundles.into_iter().map(identity).collect())?;
                metas.extend(objects.into_values());
                Ok(metas)
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The file is no template, an image in it cannot be pulled or is no bundle, or the bundles are inconsistent.
pub(crate) async fn run(command: TemplateCommand, session: &mut Session) -> Result<(), CliError> {
    let TemplateCommand::Render(args) = command;
    let text = fs::read(&args.file).map_err(|error| failed("read", &args.file, &error))?;
    let of_file = |error: TemplateError| CliError::at(args.file.display(), error);
    let template = Template::parse(&text).map_err(of_file)?;
    let bundles = pull(template.images(), &args.images, session).await?;
    let metas = template.expand(bundles).map_err(of_file)?;
    match &args.to {
        None => {
            let form = args.output.unwrap_or(CatalogFormat::Json).form();
            session.output.text(&stream_text(metas, form)?)
        }
        Some(root) => {
            let path = write(metas, &args.file, root, session)?;
            session.output.text(&format!("{}\n", path.display()))
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
            let bundle = render::bundle_image(&reference, images, session).await?;
            Ok::<_, CliError>((text.to_owned(), bundle))
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

/// Writes the objects of a package into the catalog directory `root`, replacing those of an earlier run.
fn write(mut metas: Vec<Meta>, template: &Path, root: &Path, session: &Session) -> Result<PathBuf, CliError> {
    let Some(package) = single_package(&metas) else {
        let why = "--to supports only templates of one package; omit it to print the objects";
        return Err(CliError::at(template.display(), why));
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
    let name = template.file_name().unwrap_or_default().to_string_lossy();
    let head = format!("{MARK}{}; change that file instead.\n", crate::output::printable(&name));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_type_follows_from_schema() {
        let error = |text: &str| Template::parse(text.as_bytes()).err().map(|error| error.to_string());
        let expected = |schema: &str| {
            let why = format!("schema {schema}: expected olm.semver or olm.template.basic");
            Some(format!("render: unable to read file: {why}"))
        };
        assert_eq!(error("schema: olm.template.substitutes"), expected("\"olm.template.substitutes\""));
        assert_eq!(error("- a"), expected("\"\""));
        assert_eq!(error("schema: olm.template.basic\nentries: []"), None);
    }
}
