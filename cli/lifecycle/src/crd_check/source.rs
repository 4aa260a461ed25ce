//! CRDs of a file, a bundle, a folder or an image, with their lines.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use olm_cli_core::bundle_source::{self, is_bundle_dir};
use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::report::relative;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_version::quote;
use olm_yaml::json::VALUE_DEPTH;
use olm_yaml::{Limits, Stream, field_lines};
use serde_json::Value;

/// Largest file. Sized for `kubectl get crd -o yaml` on a large cluster.
const MAX_FILE: u64 = 64 << 20;
/// Deepest folder that is searched.
const MAX_DEPTH: usize = 16;

/// CRDs of one argument.
#[derive(Debug, Default)]
pub(super) struct Crds {
    /// By name.
    pub(super) by_name: BTreeMap<String, Crd>,
    /// `true` if the argument has all CRDs of an operator: a bundle, a folder or an image.
    pub(super) is_complete: bool,
}

/// CRD with its position.
#[derive(Debug)]
pub(super) struct Crd {
    pub(super) object: Value,
    /// Path below the working directory. `None` for an image and for standard input.
    file: Option<String>,
    /// Line, from 1, of its document. `None` within a list.
    line: Option<usize>,
    /// Text of the file, and its part from that line on, for the lines of fields.
    text: (Arc<[u8]>, Range<usize>),
}

impl Crd {
    /// File, and line of the closest existing parent of a property.
    pub(super) fn place(
        &self,
        version: Option<&str>,
        property: Option<&str>,
    ) -> (Option<String>, Option<usize>) {
        let path = self.path(version, property.unwrap_or_default()).unwrap_or_default();
        let line = self.line.filter(|_| self.file.is_some());
        let text = || self.text.0.get(self.text.1.clone()).unwrap_or_default();
        let line = line.map(|line| line - 1 + field_lines(text(), 1, &[&path]).first().copied().unwrap_or(1));
        (self.file.clone(), line)
    }

    /// Path of a property in the object, as far as it exists.
    fn path(&self, version: Option<&str>, property: &str) -> Option<Vec<String>> {
        // Of a pair of served versions, the higher one.
        let version = version.and_then(|version| version.split(" -> ").last())?;
        let versions = self.object.pointer("/spec/versions")?.as_array()?;
        let index = versions.iter().position(|one| one["name"] == version)?;
        let mut path: Vec<String> =
            ["spec", "versions", &index.to_string(), "schema", "openAPIV3Schema"].map(str::to_owned).into();
        let mut schema = &versions[index]["schema"]["openAPIV3Schema"];
        for step in property.split('.').skip(1) {
            if let Some(child) = schema["properties"].get(step) {
                path.push("properties".to_owned());
                schema = child;
            } else if let Some(child) = schema.get(step) {
                schema = child;
            } else {
                break;
            }
            path.push(step.to_owned());
        }
        Some(path)
    }
}

/// Reads the CRDs that a user names.
///
/// # Errors
/// The argument cannot be read, or has a CRD twice or without a name.
pub(super) async fn read(argument: &str, images: &ImageArgs, session: &Session) -> Result<Crds, CliError> {
    let path = Path::new(argument);
    let mut crds = Crds::default();
    if argument != "-" && path.is_dir() {
        crds.is_complete = true;
        if is_bundle_dir(path) {
            for (name, text) in bundle_source::read_bundle_dir(path)? {
                crds.add_manifest(&path.join(&name), &name, text)?;
            }
        } else {
            let mut files = Vec::new();
            collect(path, 0, &mut files)?;
            for file in files {
                let shown = file.to_string_lossy().into_owned();
                let text = manifest::text(&shown, MAX_FILE, session).await?;
                crds.add(&shown, Some(relative(&file)), text.into_bytes())?;
            }
        }
    } else if argument == "-" || path.exists() || is_file_name(path) {
        let text = manifest::text(argument, MAX_FILE, session).await?;
        crds.add(argument, (argument != "-").then(|| relative(path)), text.into_bytes())?;
    } else {
        crds.is_complete = true;
        for (name, text) in bundle_source::read(argument, images, session).await?.files {
            if name.starts_with("manifests/") {
                crds.add(&format!("{argument}: {name}"), None, text)?;
            }
        }
    }
    Ok(crds)
}

fn is_file_name(path: &Path) -> bool {
    path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
}

/// Files with manifests below a folder, sorted.
fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::at(folder.display(), error);
    if depth > MAX_DEPTH {
        return Err(CliError::at(folder.display(), format!("is more than {MAX_DEPTH} folders deep")));
    }
    let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).map_err(failed)?.collect();
    let mut paths: Vec<_> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        // A link may lead out of the folder, or in circles.
        let metadata = path.symlink_metadata().map_err(failed)?;
        if metadata.is_dir() {
            collect(&path, depth + 1, files)?;
        } else if metadata.is_file() && is_file_name(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// Position of the first byte of each line.
fn line_starts(text: &[u8]) -> Vec<usize> {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1);
    std::iter::once(0).chain(ends).collect()
}

impl Crds {
    fn add_manifest(&mut self, path: &Path, name: &str, text: Vec<u8>) -> Result<(), CliError> {
        if !name.starts_with("manifests/") || name.ends_with('/') {
            return Ok(());
        }
        self.add(&path.display().to_string(), Some(relative(path)), text)
    }

    /// Adds the CRDs of a text, including those in List objects as `kubectl get` prints them.
    fn add(&mut self, shown: &str, file: Option<String>, text: Vec<u8>) -> Result<(), CliError> {
        let limits = Limits { depth: VALUE_DEPTH, ..Limits::default() };
        let text: Arc<[u8]> = text.into();
        let starts = line_starts(&text);
        let mut stream = Stream::new(&*text, limits);
        loop {
            let object = stream.next(|json, _| olm_yaml::json::to_value(json));
            let Some(mut object) = object.map_err(|error| CliError::at(shown, error))? else { return Ok(()) };
            match object.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => {
                    for item in items {
                        let text = (Arc::clone(&text), 0..0);
                        self.add_object(shown, Crd { object: item, file: file.clone(), line: None, text })?;
                    }
                }
                _ => {
                    let line = stream.position().line;
                    let start = starts.get(line.saturating_sub(1)).copied().unwrap_or(text.len());
                    let text = (Arc::clone(&text), start..text.len());
                    self.add_object(shown, Crd { object, file: file.clone(), line: Some(line), text })?;
                }
            }
        }
    }

    fn add_object(&mut self, shown: &str, crd: Crd) -> Result<(), CliError> {
        if crd.object["kind"] != "CustomResourceDefinition" {
            return Ok(());
        }
        let Some(name) = crd.object["metadata"]["name"].as_str().map(str::to_owned) else {
            return Err(CliError::at(shown, "a CustomResourceDefinition has no metadata.name"));
        };
        if self.by_name.contains_key(&name) {
            let problem = format!("CustomResourceDefinition {} occurs twice", quote(&name));
            return Err(CliError::at(shown, problem));
        }
        self.by_name.insert(name, crd);
        Ok(())
    }
}
