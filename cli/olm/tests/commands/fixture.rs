//! Helpers of all tests: the binary, its output, bundles in directories, golden files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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

/// Path in the directory of the tests.
pub(crate) fn tests(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

/// Compares with a golden file. `OLM_GOLDEN_WRITE=1` rewrites it. Review the result.
pub(crate) fn compare(folder: &str, name: &str, printed: &str) {
    let file = tests(folder).join(name);
    if std::env::var_os("OLM_GOLDEN_WRITE").is_some() {
        std::fs::write(&file, printed).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    similar_asserts::assert_eq!(printed: printed, golden: golden, "{name}");
}

/// Files of the bundle in `root`, by path.
pub(crate) fn bundle_files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in ["manifests", "metadata"] {
        for entry in root.join(folder).read_dir().unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    files
}
