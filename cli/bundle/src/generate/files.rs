//! Files of a generated bundle.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::text;
use olm_cli_core::error::CliError;
use olm_cli_core::output::yaml;
use olm_cli_core::repeated_keys;
use serde_json::{Value, json};

use super::objects::Object;
use super::summary::{Change, FileChange, Report};

pub(super) const ANNOTATIONS_FILE: &str = "metadata/annotations.yaml";
const PREFIX: &str = "operators.operatorframework.io.bundle.";
const DEFAULT_CHANNELS: &str = "stable";

/// Files of a bundle by path.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Objects of the manifests that a bundle has before the run.
#[derive(Debug, Default)]
pub(super) struct Existing {
    /// Objects by path.
    manifests: BTreeMap<String, Vec<Value>>,
    annotations: Value,
}

impl Existing {
    /// Parses the files of a bundle.
    ///
    /// # Errors
    /// A file cannot be parsed, or there are several ClusterServiceVersions. The message names the files.
    pub(super) fn parse(files: &Files) -> Result<Self, CliError> {
        let mut existing = Self::default();
        for (path, content) in files {
            // Keys of directories are for the rules.
            if path.ends_with('/') {
                continue;
            }
            repeated_keys::refuse(path, content)?;
            if path.starts_with("manifests/") {
                let objects = olm_yaml::all_from_slice(content).map_err(|error| CliError::at(path, error))?;
                existing.manifests.insert(path.clone(), objects);
            } else if path == ANNOTATIONS_FILE {
                existing.annotations =
                    olm_yaml::from_slice(content).map_err(|error| CliError::at(path, error))?;
            }
        }
        let with_csv: Vec<&str> = existing.csvs().map(|(path, _)| path).collect();
        if with_csv.len() > 1 {
            let why = "a bundle has one ClusterServiceVersion; delete the others";
            return Err(CliError::at(with_csv.join(", "), why));
        }
        Ok(existing)
    }

    fn csvs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let objects =
            self.manifests.iter().flat_map(|(path, objects)| objects.iter().map(move |one| (path, one)));
        objects
            .filter(|(_, one)| one["kind"] == "ClusterServiceVersion")
            .map(|(path, one)| (path.as_str(), one))
    }

    pub(super) fn csv(&self) -> Option<&Value> {
        self.csvs().next().map(|(_, csv)| csv)
    }
}

/// Group, kind and name of an object. A bundle has one namespace.
fn identity(object: &Value) -> [String; 3] {
    let api_version = text(object, "/apiVersion");
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    [group, text(object, "/kind"), text(object, "/metadata/name")].map(str::to_owned)
}

/// Files of the generated bundle.
#[derive(Debug, Default)]
pub(super) struct Generated {
    /// Texts by path.
    pub(super) written: BTreeMap<String, String>,
    /// Paths of existing files whose objects are all in `written`.
    pub(super) removed: Vec<String>,
    /// Paths of other existing manifests.
    pub(super) kept: Vec<String>,
}

/// Channels that the command line gives.
#[derive(Debug, Default)]
pub(super) struct Channels {
    pub(super) channels: Option<String>,
    pub(super) default: Option<String>,
}

/// Lays out the objects, one per file.
///
/// # Errors
/// An object cannot be encoded.
pub(super) fn lay_out(
    package: &str,
    csv: &Value,
    objects: &[Object],
    channels: &Channels,
    existing: &Existing,
    report: &mut Report,
) -> Result<Generated, CliError> {
    let mut generated = Generated::default();
    let mut identities = BTreeSet::from([identity(csv)]);
    generated.written.insert(format!("manifests/{package}.clusterserviceversion.yaml"), yaml(csv)?);
    for object in objects {
        let path = path(object);
        identities.insert(identity(&object.value));
        if generated.written.insert(path, yaml(&object.value)?).is_some() {
            report.problem(format!(
                "{}: {}: the input has another {} of this name; a bundle has one namespace, so names must differ",
                object.origin,
                object.label(),
                object.kind()
            ));
        }
    }
    let is_replaced = |object: &Value| {
        text(object, "/kind") == "ClusterServiceVersion" || identities.contains(&identity(object))
    };
    for (path, objects) in &existing.manifests {
        let is_written = generated.written.contains_key(path);
        let others: Vec<&Value> = objects.iter().filter(|one| !is_replaced(one)).collect();
        if others.first().is_some_and(|_| is_written || others.len() < objects.len()) {
            report.problem(mixed(path, &others));
        } else if !is_written {
            let is_removed = !objects.is_empty() && others.is_empty();
            let list = if is_removed { &mut generated.removed } else { &mut generated.kept };
            list.push(path.clone());
        }
    }
    let annotations = annotations(package, channels, &existing.annotations);
    generated.written.insert(ANNOTATIONS_FILE.to_owned(), yaml(&annotations)?);
    Ok(generated)
}

/// Message for an existing file that can neither be deleted nor kept, because only some of its objects are `others`.
fn mixed(path: &str, others: &[&Value]) -> String {
    let name = |object: &&Value| format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"));
    let others: Vec<String> = others.iter().map(name).collect();
    format!(
        "{path}: the bundle gets objects of this file from the input, one per file, but the input lacks {}: move {} to a \
         file of another name, or delete what is obsolete",
        others.join(", "),
        if others.len() == 1 { "it" } else { "them" }
    )
}

/// Path of the file of an object, named as operator-sdk does.
fn path(object: &Object) -> String {
    let (group, kind) = (object.group(), object.kind().to_lowercase());
    let name = if kind == "customresourcedefinition" {
        format!("{}_{}", text(&object.value, "/spec/group"), text(&object.value, "/spec/names/plural"))
    } else {
        let parts = [object.name(), group, object.version(), &kind];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("_")
    };
    format!("manifests/{}.yaml", name.replace(['/', ':'], "-"))
}

/// Content of `metadata/annotations.yaml`. Other annotations of the existing file are kept.
fn annotations(package: &str, channels: &Channels, existing: &Value) -> Value {
    let mut document = if existing.is_object() { existing.clone() } else { json!({}) };
    if !document["annotations"].is_object() {
        document["annotations"] = json!({});
    }
    let key = |name: &str| format!("{PREFIX}{name}");
    let known = |name: &str| {
        existing["annotations"][key(name)].as_str().filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let channel_list = channels.channels.clone().or_else(|| known("channels.v1"));
    let channel_list = channel_list.unwrap_or_else(|| DEFAULT_CHANNELS.to_owned());
    let names: Vec<&str> = channel_list.split(',').map(str::trim).collect();
    let default = channels.default.clone().or_else(|| {
        let known = known("channel.default.v1").filter(|known| names.contains(&known.as_str()));
        known.or_else(|| names.first().map(ToString::to_string))
    });
    for (name, value) in [
        ("mediatype.v1", "registry+v1"),
        ("manifests.v1", "manifests/"),
        ("metadata.v1", "metadata/"),
        ("package.v1", package),
        ("channels.v1", &names.join(",")),
        ("channel.default.v1", &default.unwrap_or_default()),
    ] {
        document["annotations"][key(name)] = json!(value);
    }
    document
}

impl Generated {
    /// Files of the bundle after the run.
    pub(super) fn files(&self, existing: &Files) -> Files {
        let mut files = existing.clone();
        files.retain(|path, _| !self.removed.contains(path));
        files.extend(self.written.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes())));
        files
    }

    /// Differences from the files before the run.
    pub(super) fn changes(&self, existing: &Files) -> Vec<FileChange> {
        let change = |path: &String, text: &String| match existing.get(path) {
            None => Change::Created,
            Some(known) if known == text.as_bytes() => Change::Unchanged,
            Some(_) => Change::Changed,
        };
        let written = self.written.iter().map(|(path, text)| (path, change(path, text)));
        let removed = self.removed.iter().map(|path| (path, Change::Removed));
        let kept = self.kept.iter().map(|path| (path, Change::Kept));
        let all: BTreeMap<&String, Change> = written.chain(removed).chain(kept).collect();
        all.into_iter().map(|(path, change)| FileChange { path: path.clone(), change }).collect()
    }
}
