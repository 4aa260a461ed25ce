//! `olm catalog`: commands that read a catalog or create it on a cluster, one module each. [`author`] has the commands
//! that write catalogs, and [`sign`] those that sign images, also of bundles.

pub mod author;
pub mod bundle_details;
mod bundles;
pub mod channels;
pub mod classic_chain;
pub mod cluster_catalog;
pub mod create;
mod diff;
pub mod facts;
pub mod graph;
mod ls;
mod migrate;
mod mirror;
pub mod package;
mod prune;
mod render;
mod selection;
mod serve;
mod show;
pub mod sign;
pub mod suggested_namespace;
pub mod template_check;
pub mod validate;
pub mod verify;
mod whole;

use clap::Subcommand;

use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
pub use serve::{default_name, named};

use crate::author::{add, build, deprecate, dockerfile, init, promote, push, remove, template};
use crate::validate::CatalogValidateArgs;

/// Subcommands of `olm catalog`.
#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// List the catalogs of the cluster, or the packages of a catalog
    Ls(ls::LsArgs),
    /// Show a package and the bundle that an installation would choose
    Show(show::ShowArgs),
    /// List the bundles of a package with the edges that lead to them
    Bundles(bundles::BundlesArgs),
    /// List the channels of a package with their heads
    Channels(channels::ChannelsArgs),
    /// Draw the upgrade edges between the bundles of a package
    #[command(long_about = graph::ABOUT)]
    Graph(graph::GraphArgs),
    /// Print all objects of a catalog or bundle as one stream
    #[command(long_about = render::ABOUT)]
    Render(render::CatalogRenderArgs),
    /// Compare two catalogs, and find installed bundles that lose their upgrades
    #[command(long_about = diff::ABOUT)]
    Diff(diff::CatalogDiffArgs),
    /// Check a catalog; the same as `validate`
    #[command(long_about = validate::ABOUT)]
    Validate(CatalogValidateArgs),
    /// Check a catalog with its upgrade paths and images
    #[command(long_about = verify::ABOUT)]
    Verify(verify::VerifyArgs),
    /// Create a package in a catalog directory
    #[command(long_about = init::ABOUT)]
    Init(init::InitArgs),
    /// Expand catalog templates, or make them
    #[command(subcommand)]
    Template(template::TemplateCommand),
    /// Check that the images of a catalog's image template exist
    #[command(long_about = template_check::ABOUT)]
    TemplateCheck(template_check::TemplateCheckArgs),
    /// Generate files for a catalog
    #[command(subcommand)]
    Generate(dockerfile::GenerateCommand),
    /// Add bundles to a catalog directory
    #[command(long_about = add::ABOUT)]
    Add(add::AddArgs),
    /// Add a bundle of a catalog to a channel, or change its upgrade edges there
    #[command(long_about = promote::ABOUT)]
    Promote(promote::PromoteArgs),
    /// Deprecate a package, a channel or a version
    #[command(long_about = deprecate::ABOUT)]
    Deprecate(deprecate::DeprecateArgs),
    /// Remove bundles, a channel or a package from a catalog directory
    #[command(long_about = remove::ABOUT)]
    Remove(remove::RemoveArgs),
    /// Write a catalog to a new directory, with one directory per package
    #[command(long_about = migrate::ABOUT)]
    Migrate(migrate::MigrateArgs),
    /// Write a part of a catalog to a directory
    #[command(long_about = prune::ABOUT)]
    Prune(prune::PruneArgs),
    /// Build the image of a catalog
    #[command(long_about = build::ABOUT)]
    Build(build::CatalogBuildArgs),
    /// Push a catalog to a registry
    #[command(long_about = push::ABOUT)]
    Push(push::CatalogPushArgs),
    /// Sign a catalog image, and attach an SBOM or provenance
    #[command(long_about = crate::sign::ABOUT)]
    Sign(Box<crate::sign::SignArgs>),
    /// Check the signatures of a catalog image, and list attached files
    #[command(long_about = crate::sign::verify::ABOUT)]
    VerifySignature(Box<crate::sign::verify::VerifyArgs>),
    /// Copy a catalog with its bundles and the images of its operators
    #[command(long_about = mirror::ABOUT)]
    Mirror(mirror::MirrorArgs),
    /// Create a ClusterCatalog
    #[command(long_about = create::ABOUT)]
    Create(create::CreateArgs),
    /// Serve catalogs on this machine with the HTTPS API of catalogd
    #[command(long_about = serve::ABOUT)]
    Serve(serve::ServeArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Errors of the subcommand.
pub async fn run(command: CatalogCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        CatalogCommand::Ls(args) => ls::run(args, session).await,
        CatalogCommand::Show(args) => show::run(args, session).await,
        CatalogCommand::Bundles(args) => bundles::run(args, session).await,
        CatalogCommand::Channels(args) => channels::run(args, session).await,
        CatalogCommand::Graph(args) => graph::run(args, session).await,
        CatalogCommand::Render(args) => render::run(args, session).await,
        CatalogCommand::Diff(args) => diff::run(args, session).await,
        CatalogCommand::Validate(args) => validate::run(args, session).await,
        CatalogCommand::Verify(args) => verify::run(args, session).await,
        CatalogCommand::Init(args) => init::run(args, session).await,
        CatalogCommand::Template(command) => template::run(command, session).await,
        CatalogCommand::TemplateCheck(args) => template_check::run(args, session).await,
        CatalogCommand::Generate(command) => dockerfile::run(command, session),
        CatalogCommand::Add(args) => add::run(args, session).await,
        CatalogCommand::Promote(args) => promote::run(args, session).await,
        CatalogCommand::Deprecate(args) => deprecate::run(args, session).await,
        CatalogCommand::Remove(args) => remove::run(args, session).await,
        CatalogCommand::Migrate(args) => migrate::run(args, session).await,
        CatalogCommand::Prune(args) => prune::run(args, session).await,
        CatalogCommand::Build(args) => build::run(args, session).await,
        CatalogCommand::Push(args) => push::run(args, session).await,
        CatalogCommand::Sign(args) => crate::sign::run(*args, session).await,
        CatalogCommand::VerifySignature(args) => crate::sign::verify::run(*args, session).await,
        CatalogCommand::Mirror(args) => mirror::run(args, session).await,
        CatalogCommand::Create(args) => create::run(args, session).await,
        CatalogCommand::Serve(args) => serve::run(args, session).await,
    }
}
