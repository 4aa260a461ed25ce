//! Runs the real binary, for all tests of the CLI.

use std::path::Path;
use std::process::{Command, Output};

/// `olm` command with these arguments in a folder, with a cleared environment.
pub(crate) fn olm_in(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_olm"));
    command.args(args).current_dir(folder).env_clear().env("HOME", "/nonexistent");
    command
}

/// Output and exit code of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
