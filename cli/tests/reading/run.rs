//! Running the binary.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use crate::program::Ran;
use crate::program::olm_in;

/// The catalogs of these tests; commands run here, so that messages are the same everywhere.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// A command that runs beside the catalogs.
pub(crate) fn command(args: &[&str]) -> Command {
    olm_in(&data(), args)
}

/// Runs `olm` with these arguments.
pub(crate) fn olm(args: &[&str]) -> Ran {
    command(args).output().unwrap().into()
}
