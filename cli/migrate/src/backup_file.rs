//! Files with the Secrets of backups, from which kubectl creates them again (docs/design/migration.md#backup).
//!
//! A file never replaces one of another cluster or migration. It does not say that the migration has ended: a rollback that
//! began later would be unknown.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use serde_json::{Value, json};

use super::apply::fresh;
use super::backup::{self, COMPLETE, DIGEST, RETURNED};
use super::plan::model::PackagePlan;

/// Annotation of the first Secret in a file with the UID of Namespace `kube-system`.
const CLUSTER: &str = "ext.olm.operatorframework.io/migration-cluster";
/// Largest file in bytes: the largest backup is smaller.
const MAX_FILE: u64 = 128 << 20;
const ADVICE: &str = "name another folder with --backup, or move the file away if it is obsolete";

fn path(folder: &Path, plan: &PackagePlan) -> PathBuf {
    folder.join(format!("{}.json", backup::name(&plan.namespace, &plan.package, 1)))
}

/// Checks before a migration that the folder can be written, and that it has no file of the package.
///
/// # Errors
/// It has one, or cannot be written.
pub(super) fn check<'p>(
    folder: &Path,
    plans: impl IntoIterator<Item = &'p PackagePlan>,
) -> Result<(), CliError> {
    let existing = folder.ancestors().find(|path| path.exists() || path.is_symlink());
    let existing = existing.unwrap_or_else(|| Path::new("."));
    if let Err(error) = tempfile::tempfile_in(existing) {
        let why = format!("cannot be written: {error}; name another folder with --backup");
        return Err(CliError::at(folder.display(), why));
    }
    match plans.into_iter().map(|plan| path(folder, plan)).find(|path| path.exists()) {
        Some(path) => Err(CliError::findings(format!(
            "{}: it is the backup of another migration, and the cluster has none of the package: {ADVICE}; if the backup \
             was lost, restore it with `kubectl create -f`",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Writes the Secrets of the backup to a file of `folder`. Only its owner may read it: it has the content of Secrets.
///
/// # Errors
/// The Secrets cannot be read, the file cannot be written, or it has another backup.
pub(super) async fn write(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    folder: &Path,
) -> Result<(), CliError> {
    let read = backup::read_secrets(access, &plan.namespace, &plan.package).await?;
    let (secrets, _) = read.ok_or_else(|| backup::lost(access, plan))?;
    let system = ObjectId::new(("v1", "Namespace"), "", "kube-system");
    let cluster = access.get(&system).await?.map(|found| ObjectId::of(&found).uid);
    let cluster = cluster.ok_or_else(|| CliError::operational(format!("{system} does not exist")))?;
    let items = items(&secrets, &cluster);
    let text = serde_json::to_vec(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))?;
    let path = path(folder, plan);
    let failed = |error: io::Error| {
        CliError::at(path.display(), format!("{error}; repair it, or name another folder with --backup"))
    };
    if let Some(why) = present(&path).map_err(failed)?.and_then(|present| difference(&present, &items)) {
        return Err(CliError::findings(format!("{}: {why}: {ADVICE}", path.display())));
    }
    replace(folder, &path, &text).map_err(failed)
}

/// Removes the file of a backup that is not needed, because nothing has been changed.
///
/// # Errors
/// The file cannot be removed.
pub(super) fn remove(folder: &Path, plan: &PackagePlan) -> Result<(), CliError> {
    let path = path(folder, plan);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CliError::at(path.display(), error)),
        _ => Ok(()),
    }
}

/// Secrets as they are created again.
fn items(secrets: &[Value], cluster: &str) -> Vec<Value> {
    let mut items: Vec<Value> = secrets.iter().map(fresh).collect();
    if let Some(annotations) =
        items.first_mut().and_then(|first| first["metadata"]["annotations"].as_object_mut())
    {
        annotations.retain(|key, _| key != COMPLETE && key != RETURNED);
        annotations.insert(CLUSTER.to_owned(), json!(cluster));
    }
    items
}

fn present(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAX_FILE).read_to_end(&mut text).map(|_| Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reason for which a file does not have the backup `items`.
fn difference(present: &[u8], items: &[Value]) -> Option<&'static str> {
    let present: Value = serde_json::from_slice(present).unwrap_or_default();
    let annotations = &present["items"][0]["metadata"]["annotations"];
    let is_same =
        |key: &str| Some(&annotations[key]) == items.first().map(|own| &own["metadata"]["annotations"][key]);
    match (annotations[CLUSTER].as_str(), annotations[DIGEST].as_str()) {
        (None, _) | (_, None) => Some("it is no backup"),
        _ if !is_same(CLUSTER) => Some("it is a backup of another cluster"),
        _ if !is_same(DIGEST) => Some("it is the backup of another migration"),
        _ => None,
    }
}

/// Replaces a file at once. One that a killed run has left half written is removed.
fn replace(folder: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    create_folder(folder)?;
    let unfinished = path.with_extension("json.unfinished");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = olm_os::create_new(&unfinished, 0o600)?;
    file.write_all(text)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&unfinished, path)?;
    olm_os::sync_directory(folder)
}

/// Creates a folder that only its owner may read, with its parents. The names of new folders are on the disk afterwards.
fn create_folder(folder: &Path) -> io::Result<()> {
    let new: Vec<&Path> = folder.ancestors().take_while(|path| !is_current(path) && !path.exists()).collect();
    if new.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    olm_os::set_mode(folder, 0o700)?;
    for parent in new.iter().filter_map(|folder| folder.parent()) {
        let parent = if is_current(parent) { Path::new(".") } else { parent };
        olm_os::sync_directory(parent)?;
    }
    Ok(())
}

/// Reports whether a path is that of the current folder, as the parent of a relative path is.
fn is_current(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::fixture::plan;

    fn secret(digest: &str) -> Value {
        json!({"kind": "Secret", "metadata": {"name": "a", "uid": "u",
            "annotations": {DIGEST: digest, COMPLETE: "true", RETURNED: "true", "note": "a"}}})
    }

    #[test]
    fn file_does_not_say_that_the_migration_has_ended() {
        let expected = json!([{"kind": "Secret", "metadata": {"name": "a",
            "annotations": {DIGEST: "d", "note": "a", CLUSTER: "c"}}}]);
        assert_eq!(Value::from(items(&[secret("d")], "c")), expected);
    }

    #[test]
    fn only_the_same_backup_of_the_same_cluster_is_replaced() {
        let list = |digest: &str, cluster: &str| {
            json!({"items": items(&[secret(digest)], cluster)}).to_string().into_bytes()
        };
        let own = items(&[secret("d")], "c");
        assert_eq!(difference(&list("d", "c"), &own), None);
        assert_eq!(difference(&list("d", "other"), &own), Some("it is a backup of another cluster"));
        assert_eq!(difference(&list("e", "c"), &own), Some("it is the backup of another migration"));
        for text in ["", "{}", r#"{"items": []}"#] {
            assert_eq!(difference(text.as_bytes(), &own), Some("it is no backup"), "{text}");
        }
    }

    #[test]
    fn folder_is_checked_before_a_migration() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("a/b");
        assert!(check(&new, [&plan()]).is_ok());
        assert!(!new.exists());
        let path = path(&new, &plan());
        fs::create_dir_all(&new).unwrap();
        fs::write(path.with_extension("json.unfinished"), "half").unwrap();
        replace(&new, &path, b"text").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
        let error = check(&new, [&plan()]).unwrap_err().to_string();
        assert!(error.contains("olm-migrate-ns.lamp.json: it is the backup of another migration"), "{error}");
        assert!(check(&new, []).is_ok());
        remove(&new, &plan()).unwrap();
        remove(&new, &plan()).unwrap();
        assert!(check(&new, [&plan()]).is_ok());
        fs::write(&path, "text").unwrap();
        let error = check(&path.join("c"), []).unwrap_err().to_string();
        assert!(error.contains("cannot be written"), "{error}");
    }
}
