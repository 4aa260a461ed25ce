//! `olm catalog template convert`: a template from the objects of a catalog (docs/design/cli.md#catalog-templates).

use std::path::Path;

use clap::{Args, ValueEnum};
use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_fbc::template::{TemplateKind, convert};
use olm_fbc::{Meta, MetaReader};

use crate::author::CatalogFormat;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Convert a catalog to a template

In a basic template, bundles contain only their image. A substitutes template is the whole catalog, with an empty list \
of substitutions. `catalog template render` makes the same catalog again.";

/// Largest catalog file, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// Arguments of `olm catalog template convert`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog template convert basic ./catalog/my-operator/catalog.yaml -o yaml > basic.yaml
  {olm} catalog template convert substitutes registry.example.com/team/catalog:v1 > substitutes.json")]
pub struct ConvertArgs {
    /// Type of the template
    #[arg(value_enum, value_name = "TYPE")]
    kind: Kind,
    /// A catalog file, - for standard input, a directory, an image reference, or cluster/NAME
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Format of the template
    #[arg(short, long, value_enum, default_value = "json", value_name = "FORMAT")]
    output: CatalogFormat,
    #[command(flatten)]
    access: Access,
}

/// Type of a template.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// olm.template.basic
    Basic,
    /// olm.template.substitutes
    Substitutes,
}

/// Runs the command.
///
/// # Errors
/// The source cannot be read, or has a bundle without image.
pub(super) async fn run(args: ConvertArgs, session: &mut Session) -> Result<(), CliError> {
    let is_file = args.source == "-" || Path::new(&args.source).is_file();
    let mut metas = match is_file {
        true => read_file(&args.source, session).await?,
        false => args.access.read_one(&args.source, session).await?,
    };
    // An empty document is not an object.
    metas.retain(|meta| !meta.blob.is_empty());
    let kind = match args.kind {
        Kind::Basic => TemplateKind::Basic,
        Kind::Substitutes => TemplateKind::Substitutes,
    };
    let text = convert(&metas, kind, args.output.form());
    session.output.text(&text.map_err(|error| CliError::at(&args.source, error))?)
}

/// Objects of a catalog file.
async fn read_file(path: &str, session: &Session) -> Result<Vec<Meta>, CliError> {
    let text = manifest::text(path, MAX_FILE, session).await?;
    let metas = MetaReader::new(text.as_bytes(), olm_yaml::Limits::default());
    metas.map(|meta| meta.map_err(|error| CliError::at(path, error))).collect()
}
