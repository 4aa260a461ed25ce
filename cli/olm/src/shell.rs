//! `olm completion` and the hidden `olm man`: what a shell and the manual need to know about the commands.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Print the completion script of a shell

Bash: put the script into /etc/bash_completion.d/olm, or ~/.local/share/bash-completion/completions/olm.
Zsh: put it into a folder of $fpath, as _olm.
Fish: put it into ~/.config/fish/completions/olm.fish.
PowerShell: put it into a file that $PROFILE runs.";

/// Arguments of `olm completion`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} completion bash > ~/.local/share/bash-completion/completions/olm
  source <({olm} completion bash)      # for this shell only")]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Arguments of `olm man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} man ./man1 && man ./man1/olm-install.1")]
pub(crate) struct ManArgs {
    /// Existing folder to write to
    folder: PathBuf,
}

/// Prints the completion script of `commands`. kubectl completes plugins by a program of its own, so the script is
/// always that of `olm`.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn completion(
    args: &CompletionArgs,
    mut commands: Command,
    session: &mut Session,
) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut commands, "olm", &mut script);
    session.output.text(&String::from_utf8_lossy(&script))
}

/// Writes one page for each of `commands`, such as `olm-catalog-ls.1`.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn man(args: &ManArgs, commands: Command) -> Result<(), CliError> {
    clap_mangen::generate_to(commands, &args.folder)
        .map_err(|error| CliError::operational(format!("write to {}: {error}", args.folder.display())))
}
