//! `olm catalog remove`: removes bundles, a channel or a package from a catalog directory (docs/design/cli.md#removal).

mod plan;

use std::collections::BTreeSet;
use std::path::PathBuf;

use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, counted};
use olm_cli_core::session::Session;
use olm_fbc::{ChannelEntry, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE, heads};
use olm_version::{Range, Version, quote};
use serde::Serialize;
use serde_json::{Value, json};

use self::plan::Plan;
use super::catalog_dir::CatalogDir;
use super::edits::Edits;
use super::promote::{set_default_channel, set_edges};
use crate::package::CatalogPackage;

/// Help text of `olm catalog remove`.
pub(crate) const ABOUT: &str = "Remove bundles, a channel or a package from a catalog directory

If entry C replaced the removed bundle B, and B replaced A, then C now replaces A, and skips B and the bundles that B \
skipped. Extensions with B still have an upgrade. The changed edges are printed. With --channel, \
bundles are only removed from this channel, and from the catalog if no other channel lists them. Deprecations of removed \
objects are removed, too. Without BUNDLE and --channel, the whole package is removed.

Nothing is written unless the result passes `validate`. To stop the use of a version that is installed, prefer `catalog \
deprecate`: users see its message.";

/// Arguments of `olm catalog remove`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the result would be invalid   4 no such package, bundle or channel

Examples:
  {olm} catalog remove ./catalog my-operator 1.2.0
  {olm} catalog remove ./catalog my-operator 1.2.0 1.2.1 --channel stable
  {olm} catalog remove ./catalog my-operator --channel alpha --default-channel stable
  {olm} catalog remove ./catalog my-operator      # the package")]
pub struct RemoveArgs {
    /// Catalog directory
    #[arg(value_name = "DIR")]
    catalog: PathBuf,
    /// Package; removed as a whole without BUNDLE and --channel
    package: String,
    /// Names or versions of bundles
    #[arg(value_name = "BUNDLE|VERSION")]
    bundles: Vec<String>,
    /// Channel to remove, or to remove the bundles from
    #[arg(short, long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// New default channel; required if the default channel is removed
    #[arg(long, value_name = "CHANNEL")]
    default_channel: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Removal {
    package: String,
    /// `true` if the package is removed.
    whole: bool,
    /// Removed bundles.
    bundles: BTreeSet<String>,
    /// Removed channels.
    channels: Vec<String>,
    /// Entries with other edges than before.
    entries: Vec<MendedEntry>,
    /// Channels with another head than before.
    heads: Vec<NewHead>,
    /// Changed files, relative to the catalog directory.
    files: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct MendedEntry {
    channel: String,
    #[serde(flatten)]
    entry: ChannelEntry,
}

#[derive(Debug, Serialize)]
struct NewHead {
    channel: String,
    head: String,
    before: String,
    /// Removed bundles of the channel from which no edge leads to a remaining one.
    stranded: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The catalog cannot be read, the package, a bundle or the channel does not exist, or the result would be invalid.
/// Nothing is written then.
pub(crate) async fn run(args: RemoveArgs, session: &mut Session) -> Result<(), CliError> {
    let catalog = CatalogDir::open(&args.catalog, session)?;
    let mut edits = Edits::new(&catalog);
    let package = edits.package(&args.package, session)?;
    let mut removal = Removal { package: package.name.clone(), ..Removal::default() };
    if args.bundles.is_empty() && args.channel.is_none() {
        if args.default_channel.is_some() {
            return Err(CliError::usage("--default-channel cannot be used if the whole package is removed"));
        }
        removal.whole = true;
        removal.bundles = package.content.bundles.iter().map(|bundle| bundle.name.clone()).collect();
        for file in catalog.files_of(&package.name, |_, _| true) {
            edits.text(file)?.remove(|object| owner(object) == package.name);
        }
    } else {
        let plan = Plan::of(&package, &args.bundles, args.channel.as_deref())?;
        set_default(&mut edits, &catalog, &package, &plan, args.default_channel.as_deref())?;
        apply(&mut edits, &catalog, &package, &plan)?;
        describe(&package, plan, &mut removal);
    }
    removal.files = edits.files();
    edits.check(session)?;
    edits.write()?;
    session.output.result(args.format.output, "RemovedBundles", &removal, text)
}

/// Package of an object.
fn owner(object: &Value) -> &str {
    let field = if object["schema"] == SCHEMA_PACKAGE { "name" } else { "package" };
    object[field].as_str().unwrap_or_default()
}

/// Sets the new default channel.
///
/// # Errors
/// The default channel is removed and no new one is given, or the given one does not remain.
fn set_default(
    edits: &mut Edits<'_>,
    catalog: &CatalogDir,
    package: &CatalogPackage,
    plan: &Plan,
    new: Option<&str>,
) -> Result<(), CliError> {
    let is_removed = |channel: &str| is_removed(SCHEMA_CHANNEL, channel, plan);
    let channels = package.content.channels.iter().map(|channel| channel.name.as_str());
    let left: Vec<&str> = channels.filter(|name| !is_removed(name)).collect();
    match new {
        None if is_removed(package.default_channel()) => Err(CliError::usage(format!(
            "channel {} is the default channel: choose another with --default-channel: {}",
            quote(package.default_channel()),
            left.join(", ")
        ))),
        None => Ok(()),
        Some(new) if !left.contains(&new) => {
            let left = left.join(", ");
            Err(CliError::usage(format!("--default-channel {new}: the remaining channels are {left}")))
        }
        Some(new) => set_default_channel(edits, catalog, &package.name, new),
    }
}

/// Edits the files of the package as planned.
fn apply(
    edits: &mut Edits<'_>,
    catalog: &CatalogDir,
    package: &CatalogPackage,
    plan: &Plan,
) -> Result<(), CliError> {
    let mut deprecations = package.content.deprecations.iter().flat_map(|one| &one.entries);
    let is_deprecated = deprecations.any(|one| is_removed(&one.reference.schema, &one.reference.name, plan));
    let files = catalog.files_of(&package.name, |schema, name| match schema {
        SCHEMA_CHANNEL => plan.channels.contains_key(name),
        SCHEMA_DEPRECATIONS => is_deprecated,
        _ => is_removed(schema, name, plan),
    });
    for file in files {
        let text = edits.text(file)?;
        let name = |object: &Value| object["name"].as_str().unwrap_or_default().to_owned();
        let is_own =
            |object: &Value, schema: &str| object["schema"] == schema && owner(object) == package.name;
        text.remove(|object| {
            let schema = object["schema"].as_str().unwrap_or_default();
            is_own(object, schema) && is_removed(schema, &name(object), plan)
        });
        for (channel, entries) in &plan.channels {
            let Some(entries) = entries else { continue };
            let is_channel = |object: &Value| is_own(object, SCHEMA_CHANNEL) && name(object) == *channel;
            text.change(is_channel, |object| keep(object, entries))?;
        }
        let is_deprecations = |object: &Value| is_own(object, SCHEMA_DEPRECATIONS);
        text.change(is_deprecations, |object| {
            if let Some(entries) = object["entries"].as_array_mut() {
                let part = |entry: &Value, field: &str| {
                    entry["reference"][field].as_str().unwrap_or_default().to_owned()
                };
                entries.retain(|entry| !is_removed(&part(entry, "schema"), &part(entry, "name"), plan));
            }
        })?;
        let is_empty = |object: &Value| object["entries"].as_array().is_some_and(Vec::is_empty);
        text.remove(|object| is_deprecations(object) && is_empty(object));
    }
    Ok(())
}

/// Keeps these entries of a channel object, with their edges.
fn keep(channel: &mut Value, entries: &[ChannelEntry]) {
    let Some(known) = channel["entries"].as_array_mut() else { return };
    known.retain_mut(|one| {
        let entry = entries.iter().find(|entry| one["name"] == entry.name);
        if let Some(entry) = entry {
            set_edges(one, &json!(entry));
        }
        entry.is_some()
    });
}

/// Reports whether an object of the package is removed.
fn is_removed(schema: &str, name: &str, plan: &Plan) -> bool {
    match schema {
        SCHEMA_BUNDLE => plan.bundles.contains(name),
        SCHEMA_CHANNEL => plan.channels.get(name).is_some_and(Option::is_none),
        _ => false,
    }
}

/// Adds the changes to the result.
fn describe(package: &CatalogPackage, plan: Plan, removal: &mut Removal) {
    removal.bundles = plan.bundles;
    for (name, entries) in plan.channels {
        let channel = package.content.channels.iter().find(|channel| channel.name == name);
        let all = channel.map_or(&[][..], |channel| &channel.entries);
        let Some(entries) = entries else {
            removal.channels.push(name);
            continue;
        };
        let new_head = (heads(all).first().copied(), heads(&entries).first().copied());
        if let (Some(before), Some(head)) = new_head
            && before != head
        {
            let stranded = stranded(package, all, &entries);
            let (head, before) = (head.to_owned(), before.to_owned());
            removal.heads.push(NewHead { channel: name.clone(), head, before, stranded });
        }
        let changed = entries.into_iter().filter(|entry| !all.contains(entry));
        removal.entries.extend(changed.map(|entry| MendedEntry { channel: name.clone(), entry }));
    }
}

/// Names of the entries among `all` that are not `left`, and from which no edge leads to one that is.
fn stranded(package: &CatalogPackage, all: &[ChannelEntry], left: &[ChannelEntry]) -> Vec<String> {
    let is_followed = |name: &String| {
        let version = package.version(name).and_then(|version| Version::parse(&version).ok());
        left.iter().any(|entry| {
            let range = Range::parse(&entry.skip_range).ok().filter(|_| !entry.skip_range.is_empty());
            let is_skipped =
                range.zip(version.as_ref()).is_some_and(|(range, version)| range.contains(version));
            entry.replaces == *name || entry.skips.contains(name) || is_skipped
        })
    };
    let names = all.iter().map(|entry| &entry.name);
    let is_left = |name: &String| left.iter().any(|entry| entry.name == *name);
    names.filter(|name| !is_left(name) && !is_followed(name)).cloned().collect()
}

fn text(removal: &Removal) -> String {
    let mut text = String::new();
    if removal.whole {
        let bundles = counted(removal.bundles.len(), "bundle");
        text += &format!("package {} removed, with {bundles}\n", removal.package);
    } else {
        text.extend(removal.bundles.iter().map(|bundle| format!("{bundle} removed\n")));
    }
    text.extend(removal.channels.iter().map(|channel| format!("channel {channel} removed\n")));
    for MendedEntry { channel, entry } in &removal.entries {
        text += &format!("channel {channel}: {}\n", entry.name);
        let edges = [("replaces", entry.replaces.clone()), ("skips", entry.skips.join(", "))];
        let edges = edges.iter().filter(|(_, value)| !value.is_empty());
        text.extend(edges.map(|(field, value)| format!("  {field}: {value}\n")));
    }
    for NewHead { channel, head, stranded, .. } in &removal.heads {
        text += &format!("channel {channel}: its head is now {head}");
        text += &match stranded.join(" or ") {
            names if names.is_empty() => "\n".to_owned(),
            names => format!("; extensions with {names} keep it until a higher version follows\n"),
        };
    }
    let files: Vec<_> = removal.files.iter().map(|file| file.display().to_string()).collect();
    text + &format!("changed: {}\n", files.join(", "))
}
