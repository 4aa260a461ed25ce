//! Test fixture: working directory and golden files. `OLM_GOLDEN_WRITE=1` rewrites the golden files. Review the
//! result.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use crate::program::Ran;
use crate::program::olm_in;

pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles/data")
}

/// `olm` command in the directory of the bundles.
pub(crate) fn command(args: &[&str]) -> Command {
    olm_in(&data(), args)
}

/// Files of a bundle, by path.
pub(crate) fn files(bundle: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in ["manifests", "metadata"] {
        for entry in data().join(bundle).join(folder).read_dir().unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    files
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
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles/golden").join(name);
    if std::env::var_os("OLM_GOLDEN_WRITE").is_some() {
        std::fs::write(&file, printed).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(golden == printed, "{name} differs; printed was:\n{printed}");
}
