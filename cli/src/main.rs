//! `olm`, also usable as `kubectl olm`: reads, checks and makes catalogs.
//!
//! The program is a command line for the crates that the servers use. Its answers about catalogs come from the
//! functions that catalogd and operator-controller call. Exit codes: [`error::Code`].

mod access_level;
mod access_review;
mod apis;
mod author;
mod bundle;
mod bundle_source;
mod catalog;
mod change;
mod classic_kinds;
mod cluster_check;
mod command;
mod config;
mod console;
mod controller;
mod crd_check;
mod diff;
mod doctor;
mod error;
mod hardened;
mod history;
mod install;
mod install_files;
mod manifest;
mod migrate;
mod names;
mod object_access;
mod output;
mod plan;
mod progress;
mod rbac;
mod render;
mod rendering;
mod resolve;
mod rollback;
mod rollout;
mod session;
mod shell;
mod sign;
mod source;
mod status;
mod system;
mod uninstall;
mod upgrade;
mod validate;
mod version_expression;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;

use crate::command::{Cli, Command, command_line};
use crate::error::CliError;
use crate::session::Session;

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
            Command::System(command) => system::run(command, &mut session).await,
            Command::Migrate(command) => migrate::run(command, &mut session).await,
            Command::Console(args) => console::run(*args, &mut session).await,
            Command::Config(command) => config::run(command, &mut session).await,
            Command::Rbac(command) => rbac::run(command, &mut session).await,
            Command::Bundle(command) => bundle::run(command, &mut session).await,
            Command::Catalog(command) => catalog::run(command, &mut session).await,
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
