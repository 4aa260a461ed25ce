//! Measures the performance targets of the project with real servers and real load, and prints one table. Not part of
//! any test, because the figures depend on the machine and its other load.

mod catalogd;
mod console;
mod content;
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

/// Measure the performance targets of the project and print one table
#[derive(Parser)]
#[command(name = "olm-bench")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure catalogd: from image to response
    Catalogd(CatalogdArguments),
    /// Measure resolution: from catalog content to the chosen bundle
    Resolve(ResolveArguments),
    /// Measure rendering: from bundle files to objects
    Render(RenderArguments),
    /// Measure `olm console`: first page, search, upgrade graph, memory
    Console(ConsoleArguments),
    /// Measure operator-controller: installs, upgrades, idle load, growth
    Controller(ControllerArguments),
}

/// Arguments of the cases of catalogd.
#[derive(clap::Args)]
pub(crate) struct CatalogdArguments {
    /// Run only these cases [default: all]
    #[arg(value_enum, value_name = "CASE")]
    cases: Vec<catalogd::Case>,
    /// Binary of catalogd to measure
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,
    /// Folder with real catalogs
    #[arg(long, env = "OLM_FIELD_DATA", value_name = "DIR")]
    field_data: Option<PathBuf>,
    /// Seconds of load in each case of many requests
    #[arg(long, default_value_t = 2.5, value_name = "SECONDS")]
    seconds: f64,
    /// Seed of the generated catalogs
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Print the logs of the server
    #[arg(long)]
    log: bool,
}

/// Servers of the cases of resolution and of operator-controller.
#[derive(clap::Args)]
pub(crate) struct Servers {
    /// Binary of catalogd that serves the catalogs
    #[arg(long, value_name = "FILE")]
    catalogd: PathBuf,
    /// Binary of operator-controller to measure
    #[arg(long, value_name = "FILE")]
    controller: PathBuf,
    /// Print the logs of the servers
    #[arg(long)]
    log: bool,
}

/// Arguments of the cases of resolution.
#[derive(clap::Args)]
pub(crate) struct ResolveArguments {
    #[command(flatten)]
    servers: Servers,
    /// Seed of the generated catalogs
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

/// Arguments of the cases of the console.
#[derive(clap::Args)]
pub(crate) struct ConsoleArguments {
    /// Binary of `olm` to measure
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,
    /// Folder with real catalogs
    #[arg(long, env = "OLM_FIELD_DATA", value_name = "DIR")]
    field_data: Option<PathBuf>,
    /// Seed of the generated catalogs
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

/// Arguments of the cases of rendering.
#[derive(clap::Args)]
pub(crate) struct RenderArguments {
    /// Folder with real bundles
    #[arg(long, env = "OLM_FIELD_DATA", value_name = "DIR")]
    field_data: Option<PathBuf>,
    /// Seed of the generated bundle
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

/// Arguments of the cases of operator-controller.
#[derive(clap::Args)]
pub(crate) struct ControllerArguments {
    /// Run only these cases [default: all]
    #[arg(value_enum, value_name = "CASE")]
    cases: Vec<extensions::Case>,
    #[command(flatten)]
    servers: Servers,
    /// Kubeconfig of a cluster with a node, without any OLM objects, for the cases with pods
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Image of the Deployments, present on the node
    #[arg(long, default_value = "olm.test/pause:1", value_name = "IMAGE")]
    operand: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    // Fails only if there is a provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let measured = match &Arguments::parse().what {
        What::Catalogd(arguments) => catalogd::measure(arguments).await,
        What::Resolve(arguments) => resolve::measure(arguments).await,
        What::Console(arguments) => console::measure(arguments).await,
        What::Render(arguments) => render::measure(arguments),
        What::Controller(arguments) => extensions::measure(arguments).await,
    };
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
