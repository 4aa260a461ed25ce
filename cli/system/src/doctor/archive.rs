//! Archive with support data: the report, objects by kind, and logs. Everything in it is already redacted.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::output::{Format, result, yaml};
use olm_pack::{Layer, LayerEntry};
use serde_json::json;

use super::Report;
use super::observed::{Log, Observed};

/// Folder of all files.
const FOLDER: &str = "olm-doctor";

/// Checks that the archive can be written to `path`, before the cluster is read.
///
/// # Errors
/// The file exists, or its folder does not.
pub(super) fn check(path: &Path) -> Result<(), CliError> {
    if path.symlink_metadata().is_ok() {
        return Err(CliError::usage(format!("{} already exists; name a new file", path.display())));
    }
    let folder = folder(path);
    if !folder.is_dir() {
        return Err(CliError::usage(format!("there is no folder {}", folder.display())));
    }
    Ok(())
}

fn folder(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new(".")).to_owned()
}

/// Writes the archive, whole or not at all, readable only for the user.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(path: &Path, report: &Report, observed: &Observed) -> Result<(), CliError> {
    let archive = Layer::new(&files(report, observed)?)?;
    let failed = |error: std::io::Error| CliError::at(path.display(), format!("cannot write: {error}"));
    let mut file = tempfile::Builder::new().prefix(".olm-").tempfile_in(folder(path)).map_err(failed)?;
    file.write_all(&archive.blob).map_err(failed)?;
    file.persist_noclobber(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn files(report: &Report, observed: &Observed) -> Result<BTreeMap<String, LayerEntry>, CliError> {
    let mut files = BTreeMap::new();
    let mut add = |name: String, text: String| {
        files.insert(format!("{FOLDER}/{name}"), LayerEntry::file(text));
    };
    add("report.yaml".to_owned(), result(Format::Yaml, "DoctorReport", report, |_| String::new())?);
    for (kind, objects) in &observed.objects {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        add(format!("objects/{kind}.yaml"), yaml(&list)?);
    }
    for Log { pod, container, previous, text } in &observed.logs {
        let suffix = if *previous { ".previous" } else { "" };
        add(format!("logs/{pod}.{container}{suffix}.log"), text.clone());
    }
    Ok(files)
}
