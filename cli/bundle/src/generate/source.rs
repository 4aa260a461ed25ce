//! Manifests from files, folders, standard input, kustomizations and project folders.

use std::fs;
use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::repeated_keys;
use olm_cli_core::session::Session;
use olm_version::quote;
use serde_json::Value;

use super::kustomize::{self, MAX_BYTES};
use super::objects::Object;

/// Largest number of files in a folder.
const MAX_FILES: usize = 10_000;
/// File of a kubebuilder project.
const PROJECT: &str = "PROJECT";
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Kind of an input path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    StandardInput,
    File(PathBuf),
    Kustomization(PathBuf),
    /// Folder of a kubebuilder project: its kustomization, and its samples if it has some.
    Project(PathBuf, Option<PathBuf>),
    Folder(PathBuf),
}

/// Reads the objects of the input, except for those in the bundle directory `to`.
///
/// # Errors
/// A path cannot be read, has content that is not a Kubernetes object, or no object at all.
pub(super) async fn read(paths: &[String], to: &Path, session: &Session) -> Result<Vec<Object>, CliError> {
    if paths.iter().filter(|path| *path == "-").count() > 1 {
        return Err(CliError::usage("standard input can be given only once"));
    }
    let mut objects = Vec::new();
    for path in paths {
        let before = objects.len();
        match source(path)? {
            Source::StandardInput => {
                let text = manifest::text("-", MAX_BYTES, session).await?;
                add(&mut objects, "standard input", &text, false)?;
            }
            Source::File(file) => add_file(&mut objects, &file, false, session).await?,
            Source::Kustomization(folder) => build(&mut objects, &folder, session).await?,
            Source::Project(kustomization, samples) => {
                build(&mut objects, &kustomization, session).await?;
                if let Some(samples) = samples {
                    add_folder(&mut objects, &samples, to, true, session).await?;
                }
            }
            Source::Folder(folder) => add_folder(&mut objects, &folder, to, false, session).await?,
        }
        if objects.len() == before {
            return Err(CliError::at(path, "no Kubernetes objects found"));
        }
    }
    Ok(objects)
}

/// Name of the package of a folder with these objects: that of the project in its file PROJECT, else that of the
/// ClusterServiceVersion without its version, else that of the folder.
///
/// # Errors
/// The file cannot be read, or is not YAML.
pub(super) fn package(root: &Path, objects: &[Object]) -> Result<String, CliError> {
    let file = root.join(PROJECT);
    let failed = |error: &dyn std::fmt::Display| CliError::at(file.display(), error);
    if file.is_file() {
        let text = fs::read(&file).map_err(|error| failed(&error))?;
        let project = olm_yaml::from_slice(&text).map_err(|error| failed(&error))?;
        if let Some(name) = project["projectName"].as_str().filter(|name| !name.is_empty()) {
            return Ok(name.to_owned());
        }
    }
    let csv = objects.iter().find(|object| object.kind() == "ClusterServiceVersion");
    if let Some((package, _)) = csv.and_then(|csv| csv.name().split_once(".v")) {
        return Ok(package.to_owned());
    }
    let whole = root.canonicalize().map_err(|error| CliError::at(root.display(), error))?;
    Ok(whole.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned())
}

/// Decides how a path is read.
fn source(path: &str) -> Result<Source, CliError> {
    if path == "-" {
        return Ok(Source::StandardInput);
    }
    let folder = PathBuf::from(path);
    let metadata = fs::metadata(&folder).map_err(|error| CliError::at(quote(path), error))?;
    if metadata.is_file() {
        return Ok(Source::File(folder));
    }
    if !metadata.is_dir() {
        return Err(CliError::usage(format!("{} is neither a file nor a folder", quote(path))));
    }
    if has_kustomization(&folder) {
        return Ok(Source::Kustomization(folder));
    }
    let config = folder.join("config");
    if folder.join(PROJECT).is_file() || has_kustomization(&config.join("default")) {
        let found = ["manifests", "default"].map(|name| config.join(name));
        let found = found.into_iter().find(|one| has_kustomization(one));
        let samples = Some(config.join("samples")).filter(|samples| samples.is_dir());
        let found = found.ok_or_else(|| {
            let why = "the project has neither config/manifests nor config/default with a kustomization.yaml";
            CliError::at(quote(path), why)
        })?;
        return Ok(Source::Project(found, samples));
    }
    Ok(Source::Folder(folder))
}

fn has_kustomization(folder: &Path) -> bool {
    KUSTOMIZATIONS.iter().any(|name| folder.join(name).is_file())
}

async fn build(objects: &mut Vec<Object>, folder: &Path, session: &Session) -> Result<(), CliError> {
    let text = kustomize::build(folder, session).await?;
    add(objects, &folder.display().to_string(), &text, false)
}

async fn add_file(
    objects: &mut Vec<Object>,
    file: &Path,
    is_sample: bool,
    session: &Session,
) -> Result<(), CliError> {
    let path = file.to_str().ok_or_else(|| CliError::at(file.display(), "the name is not UTF-8"))?;
    let text = manifest::text(path, MAX_BYTES, session).await?;
    add(objects, path, &text, is_sample)
}

async fn add_folder(
    objects: &mut Vec<Object>,
    folder: &Path,
    to: &Path,
    is_sample: bool,
    session: &Session,
) -> Result<(), CliError> {
    let mut files = Vec::new();
    find(folder, fs::canonicalize(to).ok().as_deref(), &mut files)?;
    files.sort();
    for file in files {
        session.check()?;
        add_file(objects, &file, is_sample, session).await?;
    }
    Ok(())
}

/// Finds the manifests in a folder. Skips hidden entries, kustomizations, linked folders, and the folder `excluded`.
fn find(folder: &Path, excluded: Option<&Path>, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::at(folder.display(), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if name.starts_with('.') || KUSTOMIZATIONS.contains(&&*name) {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            if fs::canonicalize(&path).ok().as_deref() != excluded {
                find(&path, excluded, files)?;
            }
        } else if ["yaml", "yml", "json"]
            .iter()
            .any(|ending| path.extension().is_some_and(|one| one == *ending))
            && path.is_file()
        {
            if files.len() == MAX_FILES {
                let why =
                    format!("more than {MAX_FILES} manifests; give the folder of the operator's manifests");
                return Err(CliError::at(folder.display(), why));
            }
            files.push(path);
        }
    }
    Ok(())
}

/// Adds the objects of a text. Lists become their items.
fn add(objects: &mut Vec<Object>, origin: &str, text: &str, is_sample: bool) -> Result<(), CliError> {
    let documents = olm_yaml::all_from_slice(text.as_bytes()).map_err(|error| CliError::at(origin, error))?;
    repeated_keys::refuse(origin, text.as_bytes())?;
    for (number, document) in documents.into_iter().enumerate() {
        let kind = document["kind"].as_str().unwrap_or_default();
        let items = match document.get("items").and_then(Value::as_array) {
            Some(items) if kind.ends_with("List") => items.clone(),
            _ => vec![document],
        };
        for value in items {
            let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let fields =
                [("apiVersion", "/apiVersion"), ("kind", "/kind"), ("metadata.name", "/metadata/name")];
            if let Some((field, _)) = fields.iter().find(|(_, pointer)| text(pointer).is_empty()) {
                let why = format!("document {}: not a Kubernetes object: {field} is missing", number + 1);
                return Err(CliError::at(origin, why));
            }
            objects.push(Object { origin: origin.to_owned(), is_sample, value });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "kind: ConfigMap\napiVersion: v1\nmetadata: {name: c}\n").unwrap();
        }
        folder
    }

    #[test]
    fn source_kind_follows_from_files_in_the_folder() {
        let (default, manifests) =
            ("config/default/kustomization.yaml", "config/manifests/kustomization.yaml");
        for (files, expected) in [
            (&["a.yaml"][..], "Folder()"),
            (&["kustomization.yml", "PROJECT"], "Kustomization()"),
            (&[default], "Project(config/default)"),
            (&["PROJECT", default, manifests], "Project(config/manifests)"),
            (&["PROJECT", default, "config/samples/s.yaml"], "Project(config/default, config/samples)"),
            (&["PROJECT"], "the project has neither config/manifests nor config/default"),
        ] {
            let folder = tree(files);
            let root = folder.path().to_str().unwrap();
            let relative = |path: &Path| path.strip_prefix(folder.path()).unwrap().display().to_string();
            let found = match source(root) {
                Ok(Source::Folder(path)) => format!("Folder({})", relative(&path)),
                Ok(Source::Kustomization(path)) => format!("Kustomization({})", relative(&path)),
                Ok(Source::Project(path, None)) => format!("Project({})", relative(&path)),
                Ok(Source::Project(path, Some(samples))) => {
                    format!("Project({}, {})", relative(&path), relative(&samples))
                }
                Ok(other) => format!("{other:?}"),
                Err(error) => error.to_string(),
            };
            assert!(found.contains(expected), "{files:?}: {found}");
        }
        assert_eq!(source("-").unwrap(), Source::StandardInput);
        assert!(source("/nonexistent/x").unwrap_err().to_string().contains("/nonexistent/x"));
    }

    #[test]
    fn package_is_that_of_the_project_then_of_the_csv_then_of_the_folder() {
        let object = |text: &str| Object {
            origin: "f".to_owned(),
            is_sample: false,
            value: olm_yaml::from_slice(text.as_bytes()).unwrap(),
        };
        let csv = object("{kind: ClusterServiceVersion, metadata: {name: of-csv.v0.0.0}}");
        let other = object("{kind: Deployment, metadata: {name: d.v1}}");
        for (project, objects, expected) in [
            (Some("projectName: of-project\n"), vec![csv.clone()], Some("of-project")),
            (Some("layout: [go]\n"), vec![other.clone(), csv.clone()], Some("of-csv")),
            (None, vec![csv], Some("of-csv")),
            (None, vec![other], None),
        ] {
            let folder = tree(&["a.yaml"]);
            if let Some(text) = project {
                fs::write(folder.path().join(PROJECT), text).unwrap();
            }
            let own = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
            assert_eq!(package(folder.path(), &objects).unwrap(), expected.unwrap_or(&own));
        }
    }

    #[test]
    fn folder_skips_hidden_files_kustomizations_and_the_bundle() {
        let folder = tree(&[
            "b.yaml",
            "deep/a.json",
            "deep/c.yml",
            "deep/readme.md",
            ".git/x.yaml",
            "deep/kustomization.yaml",
            "bundle/manifests/x.yaml",
        ]);
        let mut files = Vec::new();
        let excluded = fs::canonicalize(folder.path().join("bundle")).unwrap();
        find(folder.path(), Some(&excluded), &mut files).unwrap();
        files.sort();
        let names: Vec<_> = files.iter().map(|path| path.strip_prefix(folder.path()).unwrap()).collect();
        assert_eq!(names, ["b.yaml", "deep/a.json", "deep/c.yml"].map(Path::new));
    }

    #[test]
    fn text_yields_items_of_lists_and_rejects_other_content() {
        let read = |text: &str| {
            let mut objects = Vec::new();
            add(&mut objects, "f.yaml", text, false).map_err(|error| error.to_string())?;
            Ok::<_, String>(objects.iter().map(Object::label).collect::<Vec<_>>())
        };
        let list = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ns}}]}\n---\n---\n";
        assert_eq!(read(list).unwrap(), ["Pod ns/a"]);
        for (text, expected) in [
            ("a: 1", "f.yaml: document 1: not a Kubernetes object: apiVersion is missing"),
            ("[1]", "f.yaml: document 1: not a Kubernetes object: apiVersion is missing"),
            ("apiVersion: v1", "f.yaml: document 1: not a Kubernetes object: kind is missing"),
            (
                "{apiVersion: v1, kind: Pod}",
                "f.yaml: document 1: not a Kubernetes object: metadata.name is missing",
            ),
            ("{", "f.yaml: "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
