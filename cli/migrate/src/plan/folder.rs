//! Folder with plans, for GitOps (docs/design/migration.md#folder). A new run replaces only files that an earlier one
//! wrote.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use olm_cli_core::error::CliError;
use olm_cli_core::output::{self, Format};
use serde_json::Value;

use super::{MigrationPlan, text};

/// First line of each file, by which a later run knows it.
const MARK: &str = "# Written by `olm migrate plan`.";

/// Writes the plans to `folder`. Files of packages that are not in the plan are not changed.
///
/// # Errors
/// A file cannot be written, or one of this name was not written by this command. Then nothing is written.
pub(super) fn write(folder: &Path, plan: &MigrationPlan) -> Result<(), CliError> {
    let files = files(plan)?;
    for (path, _) in &files {
        check(&folder.join(path))?;
    }
    for (path, content) in &files {
        let path = folder.join(path);
        let failed = |error: std::io::Error| CliError::at(path.display(), error);
        match content {
            Some(content) => replace(&path, content).map_err(failed)?,
            None if path.exists() => fs::remove_file(&path).map_err(failed)?,
            None => {}
        }
    }
    Ok(())
}

/// Paths below the folder with their content. `None` for a file that a former plan may have, and this one has not.
fn files(plan: &MigrationPlan) -> Result<Vec<(String, Option<String>)>, CliError> {
    let mut files = Vec::new();
    for package in &plan.packages {
        let path = |name: &str| format!("{}/{name}", package.package);
        let documents = |about: &str, objects: &[Value]| -> Result<Option<String>, CliError> {
            let mut text = format!("{MARK}\n# {about}\n");
            for object in objects {
                text += "---\n";
                text += &output::yaml(object)?;
            }
            Ok((!objects.is_empty()).then_some(text))
        };
        let extension = std::slice::from_ref(&package.opened);
        files.push((path("catalog.yaml"), documents("Create it before the migration.", &package.catalogs)?));
        files.push((
            path("extension.yaml"),
            documents(
                "State after the migration: `olm migrate apply` creates it. Apply it only afterwards.",
                extension,
            )?,
        ));
        files.push((
            path("grants.yaml"),
            documents("Access of users, created by `olm migrate apply`.", &package.grants)?,
        ));
        let plan = output::result(Format::Yaml, "PackagePlan", package, |_| String::new())?;
        files.push((path("plan.yaml"), Some(format!("{MARK}\n{plan}"))));
    }
    files.push(("plan.txt".to_owned(), Some(format!("{MARK}\n\n{}", output::printable(&text::text(plan))))));
    Ok(files)
}

/// Checks that the file does not exist, or that this command wrote it.
fn check(path: &Path) -> Result<(), CliError> {
    let mut start = Vec::new();
    match fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CliError::at(path.display(), error)),
        Ok(file) => {
            let read = file.take(MARK.len() as u64).read_to_end(&mut start);
            read.map_err(|error| CliError::at(path.display(), error))?;
        }
    }
    if start == MARK.as_bytes() {
        return Ok(());
    }
    Err(CliError::at(
        path.display(),
        "exists and was not written by `olm migrate plan`; choose another folder",
    ))
}

/// Replaces the file as a whole.
fn replace(path: &Path, content: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content.as_bytes())?;
    // Temporary files are readable only for their owner.
    olm_os::set_mode(file.path(), 0o644)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::model::PackagePlan;
    use super::*;

    fn plan(catalogs: Vec<Value>) -> MigrationPlan {
        let package = json!({"package": "lamp", "namespace": "ops", "subscription": "lamp", "csv": "lamp.v1.0.0",
            "version": "1.0.0", "channel": "stable", "catalogs": catalogs, "grants": [], "adopted": [], "created": [],
            "removed": [], "left": [], "restarts": [], "differences": [], "after": [],
            "extension": {"metadata": {"name": "lamp"}}, "opened": {"metadata": {"name": "lamp"}}});
        let package: PackagePlan = serde_json::from_value(package).unwrap();
        MigrationPlan { packages: vec![package], refused: Vec::new() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn second_run_replaces_only_its_own_files() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        write(&folder, &plan(vec![json!({"kind": "ClusterCatalog"})])).unwrap();
        assert_eq!(names(&folder), ["lamp", "plan.txt"]);
        assert_eq!(names(&folder.join("lamp")), ["catalog.yaml", "extension.yaml", "plan.yaml"]);
        fs::write(folder.join("lamp/kustomization.yaml"), "mine").unwrap();
        fs::create_dir(folder.join("shade")).unwrap();
        write(&folder, &plan(Vec::new())).unwrap();
        assert_eq!(names(&folder.join("lamp")), ["extension.yaml", "kustomization.yaml", "plan.yaml"]);
        let read = fs::read(folder.join("lamp/plan.yaml")).unwrap();
        let read: PackagePlan = serde_json::from_value(olm_yaml::from_slice(&read).unwrap()).unwrap();
        assert_eq!(read, plan(Vec::new()).packages[0]);
    }

    #[test]
    fn foreign_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("lamp")).unwrap();
        fs::write(folder.path().join("lamp/extension.yaml"), "kind: ClusterExtension").unwrap();
        let error = write(folder.path(), &plan(Vec::new())).unwrap_err().to_string();
        assert!(error.contains("lamp/extension.yaml: exists and was not written by"), "{error}");
        assert_eq!(
            (names(folder.path()), names(&folder.path().join("lamp"))),
            (vec!["lamp".to_owned()], vec!["extension.yaml".to_owned()])
        );
    }
}
