//! Runs the binary in the directory of the test catalogs.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use crate::program::Ran;
use crate::program::olm_in;

/// Directory of the test catalogs. Commands run in it, so that messages are independent of the path of the clone.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// `olm` command in the directory of the catalogs.
pub(crate) fn command(args: &[&str]) -> Command {
    olm_in(&data(), args)
}

pub(crate) fn olm(args: &[&str]) -> Ran {
    command(args).output().unwrap().into()
}
