//! Runs the binary in the directory of the test catalogs.

use std::path::PathBuf;
use std::process::Command;

pub(crate) use crate::fixture::Ran;
use crate::fixture::{olm_in, tests};

/// Directory of the test catalogs. Commands run in it, so that messages are independent of the path of the clone.
pub(crate) fn data() -> PathBuf {
    tests("data")
}

/// `olm` command in the directory of the catalogs.
pub(crate) fn command(args: &[&str]) -> Command {
    olm_in(&data(), args)
}

pub(crate) fn olm(args: &[&str]) -> Ran {
    command(args).output().unwrap().into()
}
