//! Running the binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The catalogs of these tests; commands run here, so that messages are the same everywhere.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// A command that sees nothing of the environment of the tests.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_olm"));
    command.args(args).current_dir(data()).env_clear().env("HOME", "/nonexistent");
    command
}

/// What a run printed, and its exit code.
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

/// Runs `olm` with these arguments.
pub(crate) fn olm(args: &[&str]) -> Ran {
    command(args).output().unwrap().into()
}
