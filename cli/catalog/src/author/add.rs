//! `olm catalog add`: adds bundles to a catalog directory, with the upgrade edges of their ClusterServiceVersions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt, stream};
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_fbc::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};
use olm_oci::Reference;
use serde::Serialize;
use serde_json::{Value, json};

use super::bundle::CatalogBundle;
use super::catalog_dir::CatalogDir;
use super::edits::Edits;
use super::render::{self, PARALLEL};

/// Help text of `olm catalog add`.
pub(crate) const ABOUT: &str = "Add bundles to a catalog directory

Each bundle becomes an olm.bundle object in the file of its package, and an entry in its channels. The edges of \
the entry are those of the bundle itself: spec.replaces, spec.skips and the annotation olm.skipRange of its \
ClusterServiceVersion. Missing channels are created. Comments and layout of the files are kept, except in a channel whose \
entries are in flow style ([…]): it is written anew below its first comments. Nothing is written unless everything can be added.";

/// Arguments of `olm catalog add`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  {olm} catalog add ./catalog registry.example.com/team/my-operator-bundle:v1.0.0
  {olm} catalog add ./catalog ./bundle --image registry.example.com/team/my-operator-bundle:v1.0.0 --channel stable
  {olm} catalog add ./catalog bundles/* --image 'registry.example.com/team/{{.Package}}-bundle:v{{.Version}}'

The package must be in the catalog: {olm} catalog init
Channels by version instead of by bundle: {olm} catalog template render --help")]
pub struct AddArgs {
    /// Catalog directory
    #[arg(value_name = "DIR")]
    catalog: PathBuf,
    /// Bundle images, or directories with manifests and metadata
    #[arg(value_name = "BUNDLE", required = true)]
    bundles: Vec<String>,
    /// Channel to add to; may be given several times; default: the channels in the bundle's annotations
    #[arg(short, long = "channel", value_name = "CHANNEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    channels: Vec<String>,
    /// Image reference of bundles that are directories; {{.Package}}, {{.Name}} and {{.Version}} are replaced by
    /// those of the bundle
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct Added {
    bundles: Vec<AddedBundle>,
}

#[derive(Debug, Serialize)]
struct AddedBundle {
    package: String,
    name: String,
    version: String,
    image: String,
    channels: Vec<String>,
    /// Relative to the catalog directory.
    file: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// A bundle cannot be read or is invalid, its package is not in the catalog, or the catalog already has it. Nothing
/// is written then.
pub(crate) async fn run(args: AddArgs, session: &mut Session) -> Result<(), CliError> {
    let catalog = CatalogDir::open(&args.catalog, session)?;
    let bundles = read_bundles(&args, session).await?;
    let mut additions =
        Additions { catalog: &catalog, edits: Edits::new(&catalog), bundles: BTreeSet::new() };
    let mut added = Vec::new();
    for bundle in bundles {
        let channels = if args.channels.is_empty() { bundle.channels.clone() } else { args.channels.clone() };
        added.push(additions.add(bundle, channels)?);
    }
    additions.edits.write()?;
    session.output.result(args.format.output, "AddedBundles", &Added { bundles: added }, |added| {
        let line = |bundle: &AddedBundle| {
            let (noun, channels) =
                (if bundle.channels.len() == 1 { "channel" } else { "channels" }, bundle.channels.join(", "));
            format!("{}: {} added to {noun} {channels}\n", bundle.file.display(), bundle.name)
        };
        added.bundles.iter().map(line).collect()
    })
}

async fn read_bundles(args: &AddArgs, session: &Session) -> Result<Vec<CatalogBundle>, CliError> {
    let directories = args.bundles.iter().filter(|bundle| Path::new(bundle).exists()).count();
    check_image(args.image.as_deref(), directories)?;
    stream::iter(&args.bundles)
        .map(|bundle| read_bundle(bundle, args, session))
        .buffered(PARALLEL)
        .try_collect()
        .await
}

async fn read_bundle(bundle: &str, args: &AddArgs, session: &Session) -> Result<CatalogBundle, CliError> {
    let path = Path::new(bundle);
    if path.exists() {
        let image = args.image.as_deref().unwrap_or_default();
        let bundle = render::bundle_dir(path, |bundle| filled(image, bundle))?;
        let image = bundle.object["image"].as_str().unwrap_or_default();
        if let Err(error) = image.parse::<Reference>() {
            let known = if image.contains("{{") {
                format!("; the placeholders are {PLACEHOLDERS}")
            } else {
                String::new()
            };
            return Err(CliError::usage(format!("--image: {error}{known}")));
        }
        return Ok(bundle);
    }
    let reference: Reference = bundle.parse().map_err(|error: olm_oci::ReferenceError| {
        CliError::usage(format!(
            "BUNDLE {} is neither an existing directory nor an image reference such as \
             registry.example.com/team/bundle:v1: {error}",
            olm_version::quote(bundle)
        ))
    })?;
    render::bundle_image(&reference, &args.images, session).await
}

/// Checks that `image` can name the images of `directories` directories.
fn check_image(image: Option<&str>, directories: usize) -> Result<(), CliError> {
    match image {
        None if directories > 0 => Err(CliError::usage(
            "a bundle is a directory: specify the reference of its image with --image REF",
        )),
        Some(_) if directories == 0 => Err(CliError::usage(
            "--image is for bundles that are directories; images have their own reference",
        )),
        Some(image) if directories > 1 && !image.contains("{{") => {
            let why = format!("{directories} bundles cannot have the same image; use {PLACEHOLDERS}");
            Err(CliError::usage(format!("--image {image}: {why}")))
        }
        Some(_) | None => Ok(()),
    }
}

const PLACEHOLDERS: &str = "{{.Package}}, {{.Name}} and {{.Version}}";

/// `template` with the placeholders replaced by values of `bundle`.
fn filled(template: &str, bundle: &CatalogBundle) -> String {
    let names = [("Package", &bundle.package), ("Name", &bundle.name), ("Version", &bundle.version)];
    names.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{{.{name}}}}}"), value).replace(&format!("{{{{ .{name} }}}}"), value)
    })
}

/// Bundles to add, with the pending changes to files.
struct Additions<'a> {
    catalog: &'a CatalogDir,
    edits: Edits<'a>,
    /// Package and name of each added bundle.
    bundles: BTreeSet<(String, String)>,
}

impl Additions<'_> {
    fn add(&mut self, bundle: CatalogBundle, channels: Vec<String>) -> Result<AddedBundle, CliError> {
        let CatalogBundle { package, name, .. } = &bundle;
        if channels.is_empty() {
            return Err(CliError::operational(format!(
                "bundle {name}: its annotations have no channel; specify one with --channel"
            )));
        }
        let Some(file) = self.catalog.file(SCHEMA_PACKAGE, package, package).map(Path::to_owned) else {
            return Err(CliError::operational(format!(
                "bundle {name}: package {package} is not in the catalog; create it with `catalog init {package} --to DIR`"
            )));
        };
        if let Some(known) = self.catalog.file(SCHEMA_BUNDLE, package, name) {
            let known = self.catalog.path(known);
            return Err(CliError::operational(format!("bundle {name} is already in {}", known.display())));
        }
        if !self.bundles.insert((package.clone(), name.clone())) {
            return Err(CliError::operational(format!("bundle {name} is given twice")));
        }
        let entry = serde_json::to_value(&bundle.entry)?;
        for channel in &channels {
            self.add_entry(package, channel, &entry, &file)?;
        }
        self.edits.text(&file)?.append(bundle.object.clone())?;
        Ok(AddedBundle {
            image: bundle.object["image"].as_str().unwrap_or_default().to_owned(),
            version: bundle.shown_version(),
            package: bundle.package,
            name: bundle.name,
            channels,
            file,
        })
    }

    fn add_entry(
        &mut self,
        package: &str,
        channel: &str,
        entry: &Value,
        package_file: &Path,
    ) -> Result<(), CliError> {
        let is_channel = |object: &Value| {
            object["schema"] == SCHEMA_CHANNEL && object["package"] == package && object["name"] == channel
        };
        // A new channel is created in the file of the package.
        let known = self.catalog.file(SCHEMA_CHANNEL, package, channel);
        let text = self.edits.text(known.unwrap_or(package_file))?;
        if known.is_none() && !text.objects().any(is_channel) {
            return text.append(json!({
                "schema": SCHEMA_CHANNEL, "package": package, "name": channel, "entries": [entry]
            }));
        }
        let listed = text.objects().filter(|object| is_channel(object)).any(|object| {
            let entries = object["entries"].as_array();
            entries.is_some_and(|entries| entries.iter().any(|known| known["name"] == entry["name"]))
        });
        // The author's own entry wins, with its edges.
        if listed { Ok(()) } else { text.add_entry(is_channel, entry.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_reference_without_placeholders_fits_only_one_directory() {
        let error = |image, directories| {
            check_image(image, directories).map_err(|error| (error.exit_code(), error.to_string()))
        };
        assert_eq!(error(None, 0), Ok(()));
        assert_eq!(error(Some("r.example/a:v1"), 1), Ok(()));
        assert_eq!(error(Some("r.example/a:v{{.Version}}"), 2), Ok(()));
        assert_eq!(
            error(Some("r.example/a:v1"), 2),
            Err((2, "--image r.example/a:v1: 2 bundles cannot have the same image; use {{.Package}}, {{.Name}} and {{.Version}}".to_owned()))
        );
        assert_eq!(error(None, 1).unwrap_err().0, 2);
        assert_eq!(error(Some("r.example/a:v1"), 0).unwrap_err().0, 2);
    }
}
