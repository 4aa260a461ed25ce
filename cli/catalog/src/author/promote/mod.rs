//! `olm catalog promote`: adds a bundle of a catalog to a channel, or changes its upgrade edges there.

mod plan;

use std::path::PathBuf;

use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_fbc::{ChannelEntry, SCHEMA_CHANNEL, SCHEMA_PACKAGE};
use serde::Serialize;
use serde_json::{Value, json};

use self::plan::{Plan, Request, plan};
use super::catalog_dir::CatalogDir;
use super::edits::Edits;
use crate::package::CatalogPackage;

/// Help text of `olm catalog promote`.
pub(crate) const ABOUT: &str = "Add a bundle of a catalog to a channel, or change its upgrade edges there

The bundle becomes the head of the channel: its entry replaces the current head, and gets skips and skipRange of its \
entry in another channel, except for skips of bundles that have an upgrade in the channel anyway. A bundle with a \
lower version than the head is inserted: it replaces the next lower version, and is skipped by the next higher one \
that is not skipped itself. In a new channel, the entry is copied.

If the channel already lists the bundle, the edges that are given change, and --from is refused. Comments and layout \
of the files are kept, except in what changes. An object whose list is in flow style ([…]) is rewritten, and keeps \
only the comments before its content. Nothing is written unless the result passes `validate`.";

/// Arguments of `olm catalog promote`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the result would be invalid   4 no such package, bundle or channel

Examples:
  {olm} catalog promote ./catalog my-operator 1.3.0 --channel stable
  {olm} catalog promote ./catalog my-operator 1.3.0 --channel stable-1.3 --from fast --create --default-channel
  {olm} catalog promote ./catalog my-operator 1.3.0 --channel stable --skips +1.2.1    # from 1.2.1, too
  {olm} catalog promote ./catalog my-operator 1.3.0 --channel stable --skip-range '>=1.0.0 <1.3.0'")]
pub struct PromoteArgs {
    /// Catalog directory
    #[arg(value_name = "DIR")]
    catalog: PathBuf,
    /// Package of the bundle
    package: String,
    /// Name or version of the bundle
    #[arg(value_name = "BUNDLE|VERSION")]
    bundle: String,
    /// Channel that lists the bundle afterwards
    #[arg(short, long, value_name = "CHANNEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    channel: String,
    /// Channel whose entry of the bundle is copied; required if its channels have different edges
    #[arg(long, value_name = "CHANNEL")]
    from: Option<String>,
    /// Name or version of the bundle that it replaces; '' for none
    #[arg(long, value_name = "BUNDLE")]
    replaces: Option<String>,
    /// Names or versions of all bundles that it skips, separated by commas; with + they are added; '' for none
    #[arg(long, value_name = "BUNDLE", value_delimiter = ',')]
    skips: Vec<String>,
    /// Range of versions that it skips; '' for none
    #[arg(long, value_name = "RANGE")]
    skip_range: Option<String>,
    /// Create the channel if it does not exist
    #[arg(long)]
    create: bool,
    /// Make the channel the default channel of the package
    #[arg(long)]
    default_channel: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Promotion {
    package: String,
    channel: String,
    change: Change,
    /// Entry of the bundle in the channel.
    entry: ChannelEntry,
    /// Bundle that skips it from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_by: Option<String>,
    default_channel: String,
    /// Changed files, relative to the catalog directory.
    files: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Change {
    /// The channel was created.
    Created,
    Added,
    Edited,
    Unchanged,
}

/// Runs the command.
///
/// # Errors
/// The catalog cannot be read, the bundle or a channel does not exist, or the result would be invalid. Nothing is
/// written then.
pub(crate) async fn run(args: PromoteArgs, session: &mut Session) -> Result<(), CliError> {
    let catalog = CatalogDir::open(&args.catalog, session)?;
    let mut edits = Edits::new(&catalog);
    let package = edits.package(&args.package, session)?;
    let request = Request {
        channel: args.channel,
        from: args.from,
        replaces: args.replaces,
        skips: args.skips,
        skip_range: args.skip_range,
        create: args.create,
    };
    let plan = plan(&package, &args.bundle, &request)?;
    let change = match &plan.before {
        _ if !plan.has_channel => Change::Created,
        None => Change::Added,
        Some(before) if *before == plan.entry => Change::Unchanged,
        Some(_) => Change::Edited,
    };
    if change != Change::Unchanged {
        edit_channel(&mut edits, &catalog, &package.name, &request.channel, &plan)?;
    }
    if args.default_channel && package.default_channel() != request.channel {
        set_default_channel(&mut edits, &catalog, &package.name, &request.channel)?;
    }
    let files = edits.files();
    if !files.is_empty() {
        edits.check(session)?;
        edits.write()?;
    }
    let promotion = promotion(&package, &request.channel, args.default_channel, plan, change, files);
    session.output.result(args.format.output, "PromotedBundle", &promotion, text)
}

fn promotion(
    package: &CatalogPackage,
    channel: &str,
    is_default: bool,
    plan: Plan,
    change: Change,
    files: Vec<PathBuf>,
) -> Promotion {
    Promotion {
        package: package.name.clone(),
        channel: channel.to_owned(),
        change,
        entry: plan.entry,
        skipped_by: plan.skipped_by,
        default_channel: if is_default { channel } else { package.default_channel() }.to_owned(),
        files,
    }
}

/// Changes the object of the channel as planned. A new one is created in the file of the package.
fn edit_channel(
    edits: &mut Edits<'_>,
    catalog: &CatalogDir,
    package: &str,
    channel: &str,
    plan: &Plan,
) -> Result<(), CliError> {
    let entry = serde_json::to_value(&plan.entry)?;
    let Some(file) = catalog.file(SCHEMA_CHANNEL, package, channel) else {
        let object =
            json!({ "schema": SCHEMA_CHANNEL, "package": package, "name": channel, "entries": [entry] });
        return edits.text(package_file(catalog, package)?)?.append(object);
    };
    let is_channel = |object: &Value| {
        object["schema"] == SCHEMA_CHANNEL && object["package"] == package && object["name"] == channel
    };
    edits.text(file)?.change(is_channel, |object| {
        let Some(entries) = object["entries"].as_array_mut() else {
            object["entries"] = json!([entry]);
            return;
        };
        if let Some(by) = &plan.skipped_by {
            for next in entries.iter_mut().filter(|next| next["name"] == **by) {
                match next.get_mut("skips").and_then(Value::as_array_mut) {
                    Some(skips) => skips.push(entry["name"].clone()),
                    None => next["skips"] = json!([entry["name"]]),
                }
            }
        }
        match entries.iter_mut().find(|known| known["name"] == entry["name"]) {
            Some(known) => set_edges(known, &entry),
            None => entries.push(entry),
        }
    })
}

/// Sets the edges of a catalog entry, and keeps its other fields.
pub(super) fn set_edges(known: &mut Value, entry: &Value) {
    let Some(known) = known.as_object_mut() else { return };
    for field in ["replaces", "skips", "skipRange"] {
        match entry.get(field) {
            Some(value) => known.insert(field.to_owned(), value.clone()),
            None => known.remove(field),
        };
    }
}

pub(super) fn set_default_channel(
    edits: &mut Edits<'_>,
    catalog: &CatalogDir,
    package: &str,
    channel: &str,
) -> Result<(), CliError> {
    let is_package = |object: &Value| object["schema"] == SCHEMA_PACKAGE && object["name"] == package;
    let text = edits.text(package_file(catalog, package)?)?;
    text.change(is_package, |object| object["defaultChannel"] = json!(channel))
}

fn package_file<'a>(catalog: &'a CatalogDir, package: &str) -> Result<&'a std::path::Path, CliError> {
    let file = catalog.file(SCHEMA_PACKAGE, package, package);
    file.ok_or_else(|| CliError::operational(format!("the catalog has no olm.package object of {package}")))
}

fn text(promotion: &Promotion) -> String {
    let Promotion { channel, change, entry, skipped_by, .. } = promotion;
    let name = &entry.name;
    let first = match change {
        Change::Created => format!("{name} added to the new channel {channel}"),
        Change::Added => format!("{name} added to channel {channel}"),
        Change::Edited => format!("{name} changed in channel {channel}"),
        Change::Unchanged => format!("{name} is in channel {channel}"),
    };
    let edges = [
        ("replaces", entry.replaces.clone()),
        ("skips", entry.skips.join(", ")),
        ("skipRange", entry.skip_range.clone()),
        ("skipped by", skipped_by.clone().unwrap_or_default()),
    ];
    let edges = edges.iter().filter(|(_, value)| !value.is_empty());
    let edges: String = edges.map(|(field, value)| format!("  {field}: {value}\n")).collect();
    let mut text = format!("{first}\n{edges}");
    if promotion.default_channel == *channel {
        text += "  default channel of the package\n";
    }
    match promotion.files.as_slice() {
        [] => text + "no file changed\n",
        files => {
            let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            text + &format!("changed: {}\n", files.join(", "))
        }
    }
}
