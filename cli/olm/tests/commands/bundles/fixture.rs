//! Working directory and golden files of the tests.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) use crate::fixture::Ran;
use crate::fixture::{bundle_files, olm_in, tests};

pub(crate) fn data() -> PathBuf {
    tests("commands/bundles/data")
}

/// `olm` command in the directory of the bundles.
pub(crate) fn command(args: &[&str]) -> Command {
    olm_in(&data(), args)
}

pub(crate) fn files(bundle: &str) -> BTreeMap<String, Vec<u8>> {
    bundle_files(&data().join(bundle))
}

pub(crate) fn olm(args: &[&str]) -> Ran {
    command(args).output().unwrap().into()
}

/// Runs `olm` with `input` on standard input.
pub(crate) fn olm_with(args: &[&str], input: &str) -> Ran {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

pub(crate) fn compare(name: &str, printed: &str) {
    crate::fixture::compare("commands/bundles/golden", name, printed);
}
