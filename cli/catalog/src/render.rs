//! `olm catalog render`: prints all objects of a source as one stream, in the order and notation of `opm render`
//! (docs/design/catalogd.md#writing-catalogs, docs/design/cli.md#opm-compatibility).

use std::path::Path;

use clap::Args;
use olm_cli_core::bundle_source::is_bundle_dir;
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Source, SourceArgs};
use olm_fbc::{
    Meta, MigrationLevel, PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA, SCHEMA_BUNDLE, WriteError, migrate,
};
use serde_json::Value;

use crate::author::{CatalogFormat, meta, metadata_of, named_bundle_dir, render};

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Print all objects of a catalog, or the object of a bundle, as one stream

Packages are sorted by name, and so are the channels and bundles of each. The same source always yields the same \
bytes. A bundle is a directory with the directories manifests and metadata, or its image. It is printed in the newest \
format. A directory needs the reference of its image. --migrate-level converts the bundles of a catalog to it, see \
`catalog migrate`.";

/// Arguments of `olm catalog render`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog render ./catalog
  {olm} catalog render quay.io/operatorhubio/catalog:latest -o yaml > catalog.yaml
  {olm} catalog render ./catalog --migrate-level bundle-object-to-csv-metadata
  {olm} catalog render ./bundle --image registry.example.com/team/my-operator-bundle:v1.0.0 >> catalog/my-operator/catalog.json")]
pub struct CatalogRenderArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Image reference of a bundle that is a directory; {{.Package}}, {{.Name}} and {{.Version}} are replaced by those of
    /// the bundle
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// Format of the objects
    #[arg(short, long, value_enum, default_value = "json", value_name = "FORMAT")]
    output: CatalogFormat,
    /// Last migration to run: none, bundle-object-to-csv-metadata or all
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    migrate_level: MigrationLevel,
    /// Run all migrations
    #[arg(long, conflicts_with = "migrate_level")]
    migrate: bool,
}

/// Runs the command.
///
/// # Errors
/// The source cannot be read.
pub(crate) async fn run(args: CatalogRenderArgs, session: &mut Session) -> Result<(), CliError> {
    let metas = match Source::parse(&args.source.source)? {
        Source::Directory(root) if is_bundle_dir(&root) => {
            vec![meta(&bundle_object(&root, args.image.as_deref())?)?]
        }
        _ if args.image.is_some() => {
            return Err(CliError::usage("--image is for a bundle that is a directory"));
        }
        Source::Image(reference) => {
            let objects = render::image(&reference, &args.source.access.images, session).await?;
            objects.iter().map(meta).collect::<Result<_, _>>()?
        }
        Source::Directory(_) | Source::Cluster(_) => {
            let mut metas = Vec::new();
            let mut keep = |_: &str, meta: Meta| {
                metas.push(meta);
                Ok(())
            };
            args.source.access.read_with_duplicates(&args.source.source, session, &mut keep).await?;
            metas
        }
    };
    let last = MigrationLevel::ALL.into_iter().max().unwrap_or_default();
    let level = if args.migrate { last } else { args.migrate_level };
    let metas = migrated(metas, level).map_err(|error| CliError::at(&args.source.source, error))?;
    session.output.write_with(|out| match olm_fbc::write(metas, args.output.form(), out) {
        Err(WriteError::Io(error)) => Err(CliError::Output(error)),
        result => result.map_err(CliError::operational),
    })
}

/// Object of the bundle in a directory.
///
/// # Errors
/// The directory has no valid bundle, or `image` is not an image reference.
fn bundle_object(root: &Path, image: Option<&str>) -> Result<Value, CliError> {
    if let Some(image) = image {
        return Ok(named_bundle_dir(root, image)?.object);
    }
    let object = render::bundle_dir_without_image(root)?;
    say(&format!(
        "warning: {}: without --image REF, the object has the manifests of the bundle in place of its image, as with opm: \
         OLM v1 cannot install it from a catalog",
        root.display()
    ));
    Ok(object)
}

/// Objects in the notation of the reference, after the migrations up to `level`.
///
/// # Errors
/// A bundle cannot be migrated.
pub(super) fn migrated(metas: Vec<Meta>, level: MigrationLevel) -> Result<Vec<Meta>, CliError> {
    let migrated = |meta| migrate(arranged(meta)?, level, metadata_of).map_err(CliError::operational);
    metas.into_iter().map(migrated).collect()
}

/// Orders a bundle as the reference renders it: related images by reference, large properties last. Other objects are
/// unchanged.
fn arranged(bundle: Meta) -> Result<Meta, CliError> {
    if bundle.schema != SCHEMA_BUNDLE {
        return Ok(bundle);
    }
    let mut object = olm_yaml::json::to_value(&bundle.blob)
        .map_err(|error| CliError::operational(format!("bundle {}: {error}", bundle.name)))?;
    let before = object.clone();
    if let Some(images) = object["relatedImages"].as_array_mut() {
        images.sort_by(|a, b| a["image"].as_str().cmp(&b["image"].as_str()));
    }
    if let Some(properties) = object["properties"].as_array_mut() {
        let is_large = |property: &Value| {
            matches!(property["type"].as_str(), Some(PROPERTY_BUNDLE_OBJECT | PROPERTY_CSV_METADATA))
        };
        properties.sort_by_key(is_large);
    }
    if object == before { Ok(bundle) } else { meta(&object) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bundle_has_large_properties_last_and_images_sorted() {
        let property = |kind: &str, value: u8| json!({ "type": kind, "value": value });
        let object = json!({
            "schema": "olm.bundle", "name": "b", "package": "p", "image": "i",
            "properties": [property("olm.csv.metadata", 1), property("z", 2), property("olm.bundle.object", 3), property("a", 4)],
            "relatedImages": [{ "name": "x", "image": "b" }, { "name": "y", "image": "a" }, { "name": "z", "image": "b" }],
        });
        let arranged = arranged(meta(&object).unwrap()).unwrap();
        let read: Value = serde_json::from_slice(&arranged.blob).unwrap();
        let order = |list: &str, field: &str| -> Vec<Value> {
            read[list].as_array().unwrap().iter().map(|item| item[field].clone()).collect()
        };
        assert_eq!(order("properties", "value"), [json!(2), json!(4), json!(1), json!(3)]);
        assert_eq!(order("relatedImages", "name"), [json!("y"), json!("x"), json!("z")]);
    }

    #[test]
    fn catalog_render_keeps_objects_that_are_not_bundles_unchanged() {
        let object =
            json!({ "schema": "vendor.x", "properties": [{ "type": "olm.csv.metadata" }, { "type": "a" }] });
        let before = meta(&object).unwrap();
        assert_eq!(arranged(before.clone()).unwrap(), before);
    }
}
