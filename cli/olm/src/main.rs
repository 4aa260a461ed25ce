//! `olm`, also usable as `kubectl olm`: installs, upgrades and diagnoses extensions and OLM; reads and makes catalogs.
//!
//! The program is a command line for the crates that the servers use. Its answers about catalogs come from the
//! functions that catalogd and operator-controller call. Exit codes: [`olm_cli_core::error::Code`].

mod command;
mod shell;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use olm_cli_catalog::validate;
use olm_cli_core::error::CliError;
use olm_cli_core::progress;
use olm_cli_core::session::Session;
use olm_cli_lifecycle::{
    apis, cluster_check, config, crd_check, diff, history, install, plan, rbac, render, resolve, rollback,
    status, uninstall, upgrade,
};
use olm_cli_system::doctor;

use crate::command::{Cli, Command, command_line};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                progress::say(&format!("error: {message}"));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(arguments: Vec<OsString>) -> Result<(), CliError> {
    let program = program_name(arguments.first());
    let parsed = command_line(program).try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        // clap reports help and version as errors. They are none.
        Err(error) => {
            error.print().map_err(CliError::Output)?;
            let code = u8::try_from(error.exit_code()).unwrap_or(1);
            return if code == 0 { Ok(()) } else { Err(CliError::ExitCode(code)) };
        }
    };
    // Fails if a provider is already installed, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::operational(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let mut session = Session::start();
        let result = match cli.command {
            Command::Install(args) => install::run(*args, &mut session).await,
            Command::Upgrade(args) => upgrade::run(*args, &mut session).await,
            Command::Plan(args) => plan::run(*args, &mut session).await,
            Command::Approve(args) => plan::approve::run(*args, &mut session).await,
            Command::Uninstall(args) => uninstall::run(args, &mut session).await,
            Command::Resolve(args) => resolve::run(*args, &mut session).await,
            Command::ClusterCheck(args) => cluster_check::run(args, &mut session).await,
            Command::CrdCheck(args) => crd_check::run(args, &mut session).await,
            Command::Diff(args) => diff::run(*args, &mut session).await,
            Command::Render(args) => render::run(*args, &mut session).await,
            Command::Apis(args) => apis::run(args, &mut session).await,
            Command::History(args) => history::run(args, &mut session).await,
            Command::Rollback(args) => rollback::run(*args, &mut session).await,
            Command::Status(args) => status::run(args, &mut session).await,
            Command::Doctor(args) => doctor::run(args, &mut session).await,
            Command::Validate(args) => validate::run(args, &mut session).await,
            Command::System(command) => olm_cli_system::run(command, &mut session).await,
            Command::Migrate(command) => olm_cli_migrate::run(command, &mut session).await,
            Command::Console(args) => olm_cli_console::run(*args, &mut session).await,
            Command::Config(command) => config::run(command, &mut session).await,
            Command::Rbac(command) => rbac::run(command, &mut session).await,
            Command::Bundle(command) => olm_cli_bundle::run(command, &mut session).await,
            Command::Catalog(command) => olm_cli_catalog::run(command, &mut session).await,
            Command::Completion(args) => shell::completion(&args, command_line("olm"), &mut session),
            Command::Man(args) => shell::man(&args, command_line("olm")),
        };
        // Flushes the output even if the command failed.
        session.output.finish().and(result)
    })
}

/// Program name as the user typed it: kubectl runs `kubectl-olm` for `kubectl olm`.
fn program_name(first: Option<&OsString>) -> &'static str {
    let name = first.map(Path::new).and_then(Path::file_name);
    if name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"kubectl-")) {
        "kubectl olm"
    } else {
        "olm"
    }
}
