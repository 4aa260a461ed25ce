//! Measures the bars of the project: real servers, real load, one table. Never part of a test, because what it
//! finds depends on the machine and on who else uses it.

mod catalogd;
mod content;
mod controller;
mod extensions;
mod load;
mod process;
mod render;
mod resolve;
mod setup;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures the bars of the project and prints one table
#[derive(Parser)]
#[command(name = "olm-bench")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Content: from image to answer
    Catalogd(CatalogdArguments),
    /// Resolution: from a catalog's content to the chosen bundle
    Resolve(ResolveArguments),
    /// Rendering: from a bundle's files to its objects
    Render(RenderArguments),
    /// Extensions: installed, upgraded, left alone, more and more of them
    Controller(ControllerArguments),
}

/// What is measured, and with what.
#[derive(clap::Args)]
pub(crate) struct CatalogdArguments {
    /// Only these cases; all without any
    #[arg(value_enum, value_name = "CASE")]
    cases: Vec<catalogd::Case>,
    /// The catalogd to measure
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,
    /// Folder with real catalogs
    #[arg(long, env = "OLM_FIELD_DATA", value_name = "DIR")]
    field_data: Option<PathBuf>,
    /// Seconds of load in each case of many requests
    #[arg(long, default_value_t = 2.5, value_name = "SECONDS")]
    seconds: f64,
    /// Another one makes other catalogs of the same shape
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Show what the server logs
    #[arg(long)]
    log: bool,
}

/// What is measured, and with what.
#[derive(clap::Args)]
pub(crate) struct ResolveArguments {
    /// The catalogd to ask
    #[arg(long, value_name = "FILE")]
    catalogd: PathBuf,
    /// The operator-controller to measure
    #[arg(long, value_name = "FILE")]
    controller: PathBuf,
    /// Another one makes other catalogs of the same shape
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Show what the servers log
    #[arg(long)]
    log: bool,
}

/// What is rendered.
#[derive(clap::Args)]
pub(crate) struct RenderArguments {
    /// Folder with real bundles
    #[arg(long, env = "OLM_FIELD_DATA", value_name = "DIR")]
    field_data: Option<PathBuf>,
    /// Another one makes another bundle of the same shape
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

/// What is measured, and with what.
#[derive(clap::Args)]
pub(crate) struct ControllerArguments {
    /// Only these cases; all without any
    #[arg(value_enum, value_name = "CASE")]
    cases: Vec<extensions::Case>,
    /// The catalogd to ask
    #[arg(long, value_name = "FILE")]
    catalogd: PathBuf,
    /// The operator-controller to measure
    #[arg(long, value_name = "FILE")]
    controller: PathBuf,
    /// A cluster with a node, for the cases with pods; everything of ours in it must be gone
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Image on the node that the Deployments run
    #[arg(long, default_value = "olm.test/pause:1", value_name = "IMAGE")]
    operand: String,
    /// Show what the servers log
    #[arg(long)]
    log: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let measured = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            match &arguments.what {
                What::Catalogd(arguments) => catalogd::measure(arguments).await,
                What::Resolve(arguments) => resolve::measure(arguments).await,
                What::Render(arguments) => render::measure(arguments),
                What::Controller(arguments) => extensions::measure(arguments).await,
            }
        })
    });
    match measured {
        Ok(table) => {
            print!("{table}");
            if table.all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("olm-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}
