//! `olm catalog deprecate`: edits the `olm.deprecations` object of a package (docs/design/cli.md#deprecations).

use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::names::listed;
use olm_cli_core::output::{FormatArgs, Table};
use olm_cli_core::session::Session;
use olm_fbc::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE};
use olm_version::{Range, quote};
use serde::Serialize;
use serde_json::{Value, json};

use super::catalog_dir::CatalogDir;
use super::catalog_text::CatalogText;
use super::edits::Edits;
use crate::package::{CatalogPackage, shown_version};

/// File for the deprecations of a package that has none, beside the file of the package.
const FILE: &str = "deprecations.yaml";

/// Help text of `olm catalog deprecate`.
pub(crate) const ABOUT: &str = "Deprecate a package, a channel or versions, or change or remove its deprecation

Edits the olm.deprecations object of the package, which is created in deprecations.yaml beside the file of the \
package, and prints which extensions get which condition. Deprecated bundles can still be installed, but others are \
preferred. Comments and layout of the files are kept, except in what changes. An object whose list is in flow style \
([…]) is rewritten, and keeps only the comments before its content. Nothing is written unless the result passes \
`validate`. A repeated call changes nothing.";

/// Arguments of `olm catalog deprecate`.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("object").args(["channel", "version", "range", "bundle"])),
    group(clap::ArgGroup::new("action").args(["message", "remove", "list"]).required(true)),
    after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the result would be invalid   4 no such package, bundle or channel

Examples:
  {olm} catalog deprecate ./catalog my-operator --channel alpha --message 'Channel alpha ends: use stable.'
  {olm} catalog deprecate ./catalog my-operator --version 1.2.0 --message '1.2.0 loses data: upgrade to 1.2.1.'
  {olm} catalog deprecate ./catalog my-operator --range '<1.2.0' --message 'No fixes any more: upgrade to 1.2.'
  {olm} catalog deprecate ./catalog my-operator --message 'my-operator ends in June: use your-operator.'
  {olm} catalog deprecate ./catalog my-operator --channel alpha --remove
  {olm} catalog deprecate ./catalog my-operator --list"
)]
pub struct DeprecateArgs {
    /// Catalog directory
    #[arg(value_name = "DIR")]
    catalog: PathBuf,
    /// Package; deprecated as a whole without --channel, --version, --range and --bundle
    package: String,
    /// Channel to deprecate
    #[arg(short, long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// Version whose bundle is deprecated
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Range of versions whose bundles are deprecated, such as '>=1.0.0 <1.2.0'
    #[arg(long, value_name = "RANGE")]
    range: Option<String>,
    /// Name of the bundle to deprecate
    #[arg(long, value_name = "NAME")]
    bundle: Option<String>,
    /// Reason and advice for users; replaces an earlier one
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Remove the deprecation
    #[arg(long)]
    remove: bool,
    /// List the deprecations of the package, or of the given object
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct Deprecations {
    package: String,
    /// Changed files, relative to the catalog directory.
    files: Vec<PathBuf>,
    deprecations: Vec<Deprecated>,
}

/// Deprecated object, and the extensions that it concerns.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Deprecated {
    schema: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    message: String,
    /// Condition that is true, with `Deprecated`.
    condition: &'static str,
    extensions: String,
    /// Installed versions with which the condition is true.
    installed_versions: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The catalog cannot be read, the package or object does not exist, or the result would be invalid. Nothing is
/// written then.
pub(crate) async fn run(args: DeprecateArgs, session: &mut Session) -> Result<(), CliError> {
    let message = args.message.as_deref().map(str::trim);
    if message == Some("") {
        return Err(CliError::usage("--message must not be empty; use --remove to end a deprecation"));
    }
    let catalog = CatalogDir::open(&args.catalog, session)?;
    let mut edits = Edits::new(&catalog);
    let package = edits.package(&args.package, session)?;
    let references = references(&package, &args)?;
    if !args.list {
        edit(&mut edits, &catalog, &package.name, &references, message)?;
    }
    let files = edits.files();
    if !files.is_empty() {
        edits.check(session)?;
    }
    let after = edits.package(&args.package, session)?;
    let is_whole = [&args.channel, &args.version, &args.range, &args.bundle].iter().all(|one| one.is_none());
    let all = args.list && is_whole;
    let mut deprecations = affected(&after);
    deprecations.retain(|one| all || references.contains(&json_reference(&one.schema, &one.name)));
    if !files.is_empty() && deprecations.is_empty() != args.remove {
        let file = catalog.path(files.first().map_or_else(|| Path::new(FILE), PathBuf::as_path));
        return Err(CliError::at(
            file.display(),
            "the catalog ignores this file, see .indexignore; nothing was written",
        ));
    }
    edits.write()?;
    let result = Deprecations { package: args.package, files, deprecations };
    session.output.result(args.format.output, "Deprecations", &result, text)
}

fn json_reference(schema: &str, name: &str) -> Value {
    if name.is_empty() { json!({ "schema": schema }) } else { json!({ "schema": schema, "name": name }) }
}

/// References to the objects of the package that the flags name.
fn references(package: &CatalogPackage, args: &DeprecateArgs) -> Result<Vec<Value>, CliError> {
    if let Some(channel) = &args.channel {
        return Ok(vec![json_reference(SCHEMA_CHANNEL, &package.channel(channel)?.name)]);
    }
    if let Some(text) = &args.range {
        return in_range(package, text);
    }
    Ok(vec![match args.bundle.as_ref().or(args.version.as_ref()) {
        Some(requested) => json_reference(SCHEMA_BUNDLE, package.bundle_named(requested)?),
        None => json_reference(SCHEMA_PACKAGE, ""),
    }])
}

/// References to the bundles of the package with versions in a range, lowest version first.
fn in_range(package: &CatalogPackage, text: &str) -> Result<Vec<Value>, CliError> {
    let range = Range::parse(text).map_err(|error| {
        let expected = "expected a range such as '>=1.0.0 <1.2.0'";
        CliError::usage(format!("--range {}: {expected}: {error}", quote(text)))
    })?;
    let versions = package.index.offers().filter_map(|offer| Some((offer.version().ok()?, offer.name())));
    let mut versions: Vec<_> = versions.collect();
    versions.sort();
    let found = versions.iter().filter(|(version, _)| range.contains(version.version()));
    let found: Vec<Value> = found.map(|(_, name)| json_reference(SCHEMA_BUNDLE, name)).collect();
    if found.is_empty() {
        let known: Vec<_> = versions.iter().map(|(version, _)| version.shown(false).0).collect();
        return Err(CliError::no_candidate(format!(
            "package {} has no version in {}; its versions: {}",
            quote(&package.name),
            quote(text),
            listed(&known)
        )));
    }
    Ok(found)
}

/// Sets or, without message, removes the deprecations of `references`.
fn edit(
    edits: &mut Edits<'_>,
    catalog: &CatalogDir,
    package: &str,
    references: &[Value],
    message: Option<&str>,
) -> Result<(), CliError> {
    let changed = |entries: &[Value]| {
        let each = references.iter();
        each.fold(entries.to_vec(), |entries, reference| changed(&entries, reference, message))
    };
    let is_own = |object: &Value| object["schema"] == SCHEMA_DEPRECATIONS && object["package"] == package;
    let Some(file) = catalog.file_of(SCHEMA_DEPRECATIONS, package) else {
        if message.is_none() {
            return Ok(());
        }
        let beside = catalog.file(SCHEMA_PACKAGE, package, package).and_then(Path::parent);
        let beside = beside.ok_or_else(|| {
            CliError::operational(format!("the catalog has no olm.package object of {package}"))
        })?;
        let object = json!({ "schema": SCHEMA_DEPRECATIONS, "package": package, "entries": changed(&[]) });
        return edits.text(&beside.join(FILE))?.append(object);
    };
    let path = catalog.path(file).display().to_string();
    let text = CatalogText::parse(&catalog.read(file)?, &path)?;
    let entries =
        text.objects().find(|object| is_own(object)).and_then(|object| object["entries"].as_array());
    let entries = entries.map_or(&[][..], Vec::as_slice);
    let new = changed(entries);
    if new == entries {
        return Ok(());
    }
    let text = edits.text(file)?;
    if new.is_empty() {
        text.remove(is_own);
        return Ok(());
    }
    text.change(is_own, |object| object["entries"] = json!(new))
}

/// `entries` with one entry of `reference`, or none without message.
fn changed(entries: &[Value], reference: &Value, message: Option<&str>) -> Vec<Value> {
    let key = |value: &Value| {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        (text("schema"), text("name"))
    };
    let is_own = |entry: &Value| key(&entry["reference"]) == key(reference);
    let mut changed = entries.to_vec();
    match (message, changed.iter_mut().find(|entry| is_own(entry))) {
        (None, _) => changed.retain(|entry| !is_own(entry)),
        (Some(message), Some(known)) if known["message"].as_str().map(str::trim) != Some(message) => {
            known["message"] = json!(message);
        }
        (Some(_), Some(_)) => {}
        (Some(message), None) => changed.push(json!({ "reference": reference, "message": message })),
    }
    changed
}

/// Deprecations of the package, with the extensions that they concern (docs/design/api.md#deprecation-conditions).
fn affected(package: &CatalogPackage) -> Vec<Deprecated> {
    // The index sorts deprecated bundles last.
    let mut offers: Vec<_> = package.index.offers().filter(|offer| offer.version().is_ok()).collect();
    offers.sort_by(|a, b| b.version().ok().cmp(&a.version().ok()));
    let versions = |of: &dyn Fn(&str) -> bool| -> Vec<String> {
        let offers = offers.iter().filter(|offer| of(offer.name()));
        offers.filter_map(|offer| shown_version(offer)).collect()
    };
    let entries = package.content.deprecations.iter().flat_map(|deprecation| &deprecation.entries);
    let deprecated = entries.filter_map(|entry| {
        let (schema, name) = (entry.reference.schema.clone(), entry.reference.name.clone());
        let (condition, extensions, installed_versions) = match schema.as_str() {
            SCHEMA_PACKAGE => {
                ("PackageDeprecated", "all extensions of the package".to_owned(), versions(&|_| true))
            }
            SCHEMA_CHANNEL => {
                let extensions = format!("extensions that select channel {name}, or no channel");
                ("ChannelDeprecated", extensions, versions(&|_| true))
            }
            SCHEMA_BUNDLE => {
                let installed = versions(&|bundle| bundle == name);
                ("BundleDeprecated", format!("extensions with {name} installed"), installed)
            }
            _ => return None,
        };
        let message = entry.message.trim().to_owned();
        Some(Deprecated { schema, name, message, condition, extensions, installed_versions })
    });
    deprecated.collect()
}

fn text(result: &Deprecations) -> String {
    let mut text = String::new();
    if result.deprecations.is_empty() {
        text += "not deprecated\n";
    } else {
        let mut table = Table::new(&["OBJECT", "CONDITION", "INSTALLED VERSIONS", "EXTENSIONS", "MESSAGE"]);
        for one in &result.deprecations {
            let kind = one.schema.strip_prefix("olm.").unwrap_or(&one.schema);
            let object = format!("{kind} {}", if one.name.is_empty() { &result.package } else { &one.name });
            let versions = one.installed_versions.join(", ");
            table.row([&object, one.condition, &versions, &one.extensions, &one.message]);
        }
        text += &table.text();
    }
    let files: Vec<_> = result.files.iter().map(|file| file.display().to_string()).collect();
    if files.is_empty() { text } else { text + &format!("changed: {}\n", files.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_of_the_object_is_added_changed_or_removed() {
        let of = |name: &str, message: &str| json!({ "reference": json_reference(SCHEMA_CHANNEL, name), "message": message });
        let whole = json!({ "reference": json_reference(SCHEMA_PACKAGE, ""), "message": "gone" });
        let known = [of("a", "old\n"), of("b", "keep"), whole.clone()];
        let [a, b, c] = ["a", "b", "c"].map(|name| json_reference(SCHEMA_CHANNEL, name));
        let package = json!({ "schema": SCHEMA_PACKAGE, "name": "" });
        let cases: [(&Value, Option<&str>, Vec<Value>); 6] = [
            (&a, Some("new"), vec![of("a", "new"), known[1].clone(), whole.clone()]),
            (&a, Some("old"), known.to_vec()),
            (&b, None, vec![known[0].clone(), whole.clone()]),
            (&c, Some("x"), [known.to_vec(), vec![of("c", "x")]].concat()),
            (&c, None, known.to_vec()),
            (&package, None, known[..2].to_vec()),
        ];
        for (reference, message, expected) in cases {
            assert_eq!(changed(&known, reference, message), expected, "{reference} {message:?}");
        }
    }
}
