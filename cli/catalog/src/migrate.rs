//! `olm catalog migrate`: a catalog as a new directory with one directory per package
//! (docs/design/cli.md#catalog-migrations).

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};

use clap::Args;
use olm_cli_core::bundle_source::is_bundle_dir;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, Source, one_catalog};
use olm_fbc::{Meta, MigrationLevel};
use olm_version::quote;

use super::render::migrated;
use crate::author::{CatalogFormat, check_empty, stream_text, write_directory};

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Write a catalog to a new directory, with one directory per package

The file of a package is DIR/PACKAGE/catalog.json, or catalog.yaml. Objects without package are in a file of DIR. \
--migrate-level also converts the objects to a newer format:

  none                           changes nothing
  bundle-object-to-csv-metadata  bundles have the metadata of their ClusterServiceVersion (olm.csv.metadata) in place \
of all manifests (olm.bundle.object), which makes the catalog smaller
  all                            every migration";

/// Arguments of `olm catalog migrate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog migrate registry.example.com/team/catalog:v1 ./catalog -o yaml
  {olm} catalog migrate ./old ./catalog --migrate-level bundle-object-to-csv-metadata")]
pub struct MigrateArgs {
    /// A directory, an image reference, or cluster/NAME
    #[arg(value_name = "SOURCE")]
    source: String,
    /// New or empty directory
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Last migration to run: none, bundle-object-to-csv-metadata or all
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    migrate_level: MigrationLevel,
    /// Format of the files
    #[arg(short, long, value_enum, default_value = "json", value_name = "FORMAT")]
    output: CatalogFormat,
    #[command(flatten)]
    access: Access,
}

/// Runs the command.
///
/// # Errors
/// The directory is not empty or cannot be written, or the source cannot be read or migrated.
pub(crate) async fn run(args: MigrateArgs, session: &mut Session) -> Result<(), CliError> {
    let source = &args.source;
    if matches!(one_catalog(source)?, Source::Directory(root) if is_bundle_dir(&root)) {
        return Err(CliError::usage(format!("{} is a bundle; specify a catalog", quote(source))));
    }
    check_empty(&args.to)?;
    let metas = args.access.read_one(source, session).await?;
    let metas = migrated(metas, args.migrate_level).map_err(|error| CliError::at(source, error))?;
    let step = session.progress.step(format!("writing {}", args.to.display()));
    let files = files(metas, args.output).map_err(|error| CliError::at(source, error))?;
    let written: String = files.keys().map(|file| format!("{}\n", args.to.join(file).display())).collect();
    let texts = files.into_iter().map(|(file, metas)| Ok((file, stream_text(metas, args.output.form())?)));
    write_directory(&args.to, texts, session)?;
    drop(step);
    session.output.text(&olm_cli_core::output::printable(&written))
}

/// Files of the new catalog with their objects.
fn files(metas: Vec<Meta>, format: CatalogFormat) -> Result<BTreeMap<PathBuf, Vec<Meta>>, CliError> {
    let name = match format {
        CatalogFormat::Json => "catalog.json",
        CatalogFormat::Yaml => "catalog.yaml",
    };
    let mut files: BTreeMap<PathBuf, Vec<Meta>> = BTreeMap::new();
    for meta in metas.into_iter().filter(|meta| !meta.blob.is_empty()) {
        let mut path = PathBuf::from(meta.owner());
        let mut components = path.components();
        if !matches!((components.next(), components.next()), (None | Some(Component::Normal(_)), None)) {
            let package = quote(meta.owner());
            let why = format!("invalid package name {package}: must be a single local path element");
            return Err(CliError::operational(why));
        }
        path.push(name);
        files.entry(path).or_default().push(meta);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_one_per_package_inside_of_the_directory() {
        let paths = |owners: &[&str]| {
            let meta = |owner: &&str| {
                let text = serde_json::json!({ "schema": "x", "package": owner }).to_string();
                Meta::from_json(text.as_bytes()).unwrap()
            };
            let files = files(owners.iter().map(meta).collect(), CatalogFormat::Yaml);
            files.map(|files| files.into_keys().collect::<Vec<_>>()).map_err(|error| error.to_string())
        };
        let expected = ["a/catalog.yaml", "b.c/catalog.yaml", "catalog.yaml"].map(PathBuf::from).to_vec();
        assert_eq!(paths(&["b.c", "", "a", "a"]), Ok(expected));
        for owner in ["..", ".", "/", "/a", "a/b", "../a"] {
            let expected = format!("invalid package name {owner:?}: must be a single local path element");
            assert_eq!(paths(&[owner]), Err(expected));
        }
    }
}
