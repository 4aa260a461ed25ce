//! `olm catalog add`: adds bundles to a catalog directory, with the upgrade edges of their ClusterServiceVersions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use futures::{StreamExt, TryStreamExt, stream};
use olm_bundle_check::{name_fault, range_fault};
use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, counted};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_fbc::{
    CatalogFinding, ChannelEntry, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE, VersionEdges, VersionedEntry,
};
use olm_oci::Reference;
use olm_version::{Range, Version};
use serde::Serialize;
use serde_json::{Value, json};

use super::bundle::CatalogBundle;
use super::catalog_dir::CatalogDir;
use super::edits::Edits;
use super::render::{self, PARALLEL};

/// Help text of `olm catalog add`.
pub(crate) const ABOUT: &str = "Add bundles to a catalog directory

Each bundle becomes an olm.bundle object in the file of its package, and an entry in its channels. The edges of the \
entry are those of the bundle itself: spec.replaces, spec.skips and the annotation olm.skipRange of its \
ClusterServiceVersion. With --mode semver or semver-skippatch, the edges of all entries of its channels follow from \
the versions instead. Missing channels are created. A bundle that is already in the catalog is not changed. Comments \
and layout of the files are kept, except in a channel whose entries are in flow style ([…]): such a channel is \
rewritten, and keeps only the comments before its content.

Nothing is written unless everything can be added, and the result has no error of `validate` that the catalog did not \
have before. --force writes such a result, too.";

/// Arguments of `olm catalog add`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the result would be invalid

Examples:
  {olm} catalog add ./catalog registry.example.com/team/my-operator-bundle:v1.0.0
  {olm} catalog add ./catalog registry.example.com/team/my-operator-bundle:v1.1.0 --pin   # by digest
  {olm} catalog add ./catalog ./bundle --image registry.example.com/team/my-operator-bundle:v1.0.0 --channel stable
  {olm} catalog add ./catalog bundles/* --image 'registry.example.com/team/{{.Package}}-bundle:v{{.Version}}'
  {olm} catalog add ./catalog bundles/* --mode semver --image 'registry.example.com/team/{{.Package}}-bundle:v{{.Version}}'

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
    /// Refer to the images by the digests that their tags have now
    #[arg(long)]
    pin: bool,
    /// Upgrade edges: those of the bundles, or by version
    #[arg(long, value_enum, value_name = "MODE", default_value = "replaces")]
    mode: Mode,
    /// Write the result even if it has more errors than the catalog
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Source of the upgrade edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Those of the ClusterServiceVersions
    Replaces,
    /// Each bundle replaces the next lower version of its channel
    Semver,
    /// As semver, but a patch skips the lower patches of its minor version
    SemverSkippatch,
}

impl Mode {
    fn by_version(self) -> Option<VersionEdges> {
        match self {
            Self::Replaces => None,
            Self::Semver => Some(VersionEdges::Chain),
            Self::SemverSkippatch => Some(VersionEdges::SkipPatches),
        }
    }
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
    /// `true` if the catalog has the bundle already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    known: bool,
}

/// Runs the command.
///
/// # Errors
/// A bundle cannot be read or is invalid, its package is not in the catalog, or the catalog already has it. Nothing
/// is written then.
pub(crate) async fn run(args: AddArgs, session: &mut Session) -> Result<(), CliError> {
    let catalog = CatalogDir::open(&args.catalog, session)?;
    let bundles = read_bundles(&args, session).await?;
    let mut additions = Additions { catalog: &catalog, edits: Edits::new(&catalog) };
    let (mut added, mut entries) = (Vec::new(), Vec::new());
    for bundle in bundles {
        let channels = if args.channels.is_empty() { bundle.channels.clone() } else { args.channels.clone() };
        entries.push((bundle.entry.clone(), bundle.version.clone()));
        added.push(additions.add(bundle, channels, args.mode)?);
    }
    if let Some(rule) = args.mode.by_version() {
        let channels: BTreeSet<(&str, &str)> = added
            .iter()
            .flat_map(|one| one.channels.iter().map(|channel| (one.package.as_str(), channel.as_str())))
            .collect();
        for (package, channel) in channels {
            additions.edges(package, channel, rule, session)?;
        }
    }
    warn(&entries, args.mode);
    let errors = additions.edits.added_errors(session)?;
    if !errors.is_empty() {
        report(&errors, &entries, &args);
        if !args.force {
            return Err(CliError::Findings);
        }
    }
    additions.edits.write()?;
    session.output.result(args.format.output, "AddedBundles", &Added { bundles: added }, |added| {
        let line = |bundle: &AddedBundle| {
            let (file, name) = (bundle.file.display(), &bundle.name);
            if bundle.known {
                return format!("{file}: {name} is known\n");
            }
            let (noun, channels) =
                (if bundle.channels.len() == 1 { "channel" } else { "channels" }, bundle.channels.join(", "));
            format!("{file}: {name} added to {noun} {channels}\n")
        };
        added.bundles.iter().map(line).collect()
    })
}

/// Warns of edges of the ClusterServiceVersions that are none to an earlier bundle. Bundles are given with their version.
fn warn(entries: &[(ChannelEntry, String)], mode: Mode) {
    for (entry, version) in entries {
        let name = &entry.name;
        let replaces = Some(&entry.replaces).filter(|_| mode == Mode::Replaces);
        if let Some(fault) = replaces.and_then(|replaces| name_fault(name, version, replaces)) {
            say(&format!("warning: spec.replaces of {name}: {fault}"));
        }
        if let (Ok(range), Ok(version)) = (Range::parse(&entry.skip_range), Version::parse(version))
            && let Some(fault) = range_fault(&range, &version)
        {
            say(&format!("warning: olm.skipRange of {name}: {fault}"));
        }
    }
}

/// Prints the errors that the catalog would get, and what the bundles lack.
fn report(errors: &[CatalogFinding], entries: &[(ChannelEntry, String)], args: &AddArgs) {
    let level = if args.force { "warning" } else { "error" };
    for error in errors {
        say(&format!("{level}: {error}"));
    }
    let is_without = |entry: &&ChannelEntry| entry.replaces.is_empty() && entry.skips.is_empty();
    let without = entries.iter().map(|(entry, _)| entry).filter(is_without);
    for entry in without.filter(|_| args.mode == Mode::Replaces) {
        say(&format!(
            "hint: {} replaces no bundle: set spec.replaces of its ClusterServiceVersion, or let --mode semver make the \
             edges from the versions",
            entry.name
        ));
    }
    let root = args.catalog.display();
    let what = counted(errors.len(), "error");
    match args.force {
        true => say(&format!("{root}: {what} after the change")),
        false => say(&format!("{root}: {what} after the change, no file was changed; --force ignores them")),
    }
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
        let named = named_bundle_dir(path, args.image.as_deref().unwrap_or_default())?;
        let image = named.object["image"].as_str().filter(|_| args.pin).map(str::to_owned);
        let pins = args.images.pins(image.into_iter().collect(), session).await?;
        return pins.values().next().map_or(Ok(named), |pinned| named_bundle_dir(path, pinned));
    }
    let reference: Reference = bundle.parse().map_err(|error: olm_oci::ReferenceError| {
        CliError::usage(format!(
            "BUNDLE {} is neither an existing directory nor an image reference such as \
             registry.example.com/team/bundle:v1: {error}",
            olm_version::quote(bundle)
        ))
    })?;
    render::bundle_image(&reference, args.pin, &args.images, session).await
}

/// Bundle in a directory, with the image that `template` names.
///
/// # Errors
/// The directory has no valid bundle, or the template yields no image reference.
pub(crate) fn named_bundle_dir(path: &Path, template: &str) -> Result<CatalogBundle, CliError> {
    let bundle = render::bundle_dir(path, |bundle| filled(template, bundle))?;
    let image = bundle.object["image"].as_str().unwrap_or_default();
    if let Err(error) = image.parse::<Reference>() {
        let is_unfilled = image.contains("{{");
        let known =
            if is_unfilled { format!("; the placeholders are {PLACEHOLDERS}") } else { String::new() };
        return Err(CliError::usage(format!("--image: {error}{known}")));
    }
    Ok(bundle)
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
}

impl Additions<'_> {
    fn add(
        &mut self,
        bundle: CatalogBundle,
        channels: Vec<String>,
        mode: Mode,
    ) -> Result<AddedBundle, CliError> {
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
        let known = self.known(&bundle, &file)?;
        let entry = serde_json::to_value(&bundle.entry)?;
        let mut added = Vec::new();
        for channel in &channels {
            match self.add_entry(package, channel, &entry, &file)? {
                None => added.push(channel.clone()),
                Some(authored) if known.is_some() && mode == Mode::Replaces && !same(&authored, &entry) => {
                    say(&format!(
                        "warning: {name}: its entry in channel {channel} keeps its own edges, which differ from those of the \
                         bundle; `catalog promote` changes them"
                    ));
                }
                Some(_) => {}
            }
        }
        if known.is_none() {
            self.edits.text(&file)?.append(bundle.object.clone())?;
        }
        Ok(AddedBundle {
            image: bundle.object["image"].as_str().unwrap_or_default().to_owned(),
            version: bundle.shown_version(),
            package: bundle.package,
            name: bundle.name,
            known: known.is_some() && added.is_empty(),
            channels: if known.is_some() && !added.is_empty() { added } else { channels },
            file: known.unwrap_or(file),
        })
    }

    /// File with the same bundle, which may have been added by this run to `package_file`.
    ///
    /// # Errors
    /// The catalog has a bundle of this name with other content.
    fn known(&mut self, bundle: &CatalogBundle, package_file: &Path) -> Result<Option<PathBuf>, CliError> {
        let CatalogBundle { package, name, .. } = bundle;
        let file = self.catalog.file(SCHEMA_BUNDLE, package, name).unwrap_or(package_file).to_owned();
        let is_own = |object: &&Value| {
            object["schema"] == SCHEMA_BUNDLE && object["package"] == *package && object["name"] == *name
        };
        let Some(known) = self.edits.text(&file)?.objects().find(is_own) else { return Ok(None) };
        if same(known, &bundle.object) {
            return Ok(Some(file));
        }
        let path = self.catalog.path(&file);
        let image = |object: &Value| object["image"].as_str().unwrap_or_default().to_owned();
        let difference = match (image(known), image(&bundle.object)) {
            (old, new) if old != new => format!("with image {old}"),
            _ => "with other content".to_owned(),
        };
        Err(CliError::operational(format!(
            "bundle {name} is already in {} {difference}: remove it there first, or give the bundle another version",
            path.display()
        )))
    }

    /// Sets the edges of all entries of a channel by version.
    ///
    /// # Errors
    /// An entry has no bundle with a valid version.
    fn edges(
        &mut self,
        package: &str,
        channel: &str,
        rule: VersionEdges,
        session: &Session,
    ) -> Result<(), CliError> {
        let content = self.edits.package(package, session)?;
        let mut versions = Vec::new();
        for entry in &content.channel(channel)?.entries {
            let version = content.offer(&entry.name).and_then(|offer| offer.version().ok());
            let version = version.ok_or_else(|| {
                let name = &entry.name;
                CliError::operational(format!(
                    "channel {channel} lists {name}, of which the catalog has no version"
                ))
            })?;
            versions.push((version.clone(), entry.name.as_str()));
        }
        let entries = rule.entries(versions);
        let is_channel = |object: &Value| {
            object["schema"] == SCHEMA_CHANNEL && object["package"] == package && object["name"] == channel
        };
        let Some(file) = self
            .catalog
            .file(SCHEMA_CHANNEL, package, channel)
            .or_else(|| self.catalog.file(SCHEMA_PACKAGE, package, package))
        else {
            return Ok(());
        };
        self.edits.text(file)?.change(is_channel, |object| {
            let known = object["entries"].as_array().cloned().unwrap_or_default();
            let of = |entry: &VersionedEntry<'_>| {
                let authored = known.iter().find(|one| one["name"] == entry.name).cloned();
                let mut one = authored.unwrap_or_else(|| json!({ "name": entry.name }));
                set(&mut one, "replaces", json!(entry.replaces), entry.replaces.is_empty());
                set(&mut one, "skips", json!(entry.skips), entry.skips.is_empty());
                one
            };
            object["entries"] = entries.iter().map(of).collect();
        })
    }

    /// Adds an entry to a channel. Returns the entry of the bundle that the channel has already, with the author's edges,
    /// which stay.
    fn add_entry(
        &mut self,
        package: &str,
        channel: &str,
        entry: &Value,
        package_file: &Path,
    ) -> Result<Option<Value>, CliError> {
        let is_channel = |object: &Value| {
            object["schema"] == SCHEMA_CHANNEL && object["package"] == package && object["name"] == channel
        };
        // A new channel is created in the file of the package.
        let known = self.catalog.file(SCHEMA_CHANNEL, package, channel);
        let text = self.edits.text(known.unwrap_or(package_file))?;
        if known.is_none() && !text.objects().any(is_channel) {
            text.append(json!({
                "schema": SCHEMA_CHANNEL, "package": package, "name": channel, "entries": [entry]
            }))?;
            return Ok(None);
        }
        let entries = text
            .objects()
            .filter(|object| is_channel(object))
            .filter_map(|object| object["entries"].as_array());
        let listed = entries.flatten().find(|known| known["name"] == entry["name"]).cloned();
        if listed.is_none() {
            text.add_entry(is_channel, entry.clone())?;
        }
        Ok(listed)
    }
}

/// Sets a field, or removes an empty one.
fn set(object: &mut Value, field: &str, value: Value, is_empty: bool) {
    if !is_empty {
        object[field] = value;
    } else if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Reports whether two objects have the same content, whatever the spelling of numbers.
fn same(a: &Value, b: &Value) -> bool {
    let canonical = |value: &Value| {
        let text = serde_json::to_vec(value).ok()?;
        olm_yaml::json::canonicalize(&text).ok().map(|canonical| canonical.text)
    };
    canonical(a) == canonical(b)
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
