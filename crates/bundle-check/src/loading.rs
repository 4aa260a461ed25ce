//! Loads the bundle as operator-controller does, and reports every loading error instead of the first.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::{Bundle, LoadError};
use serde_json::Value;

use crate::content::{Content, MANIFESTS, Object};
use crate::findings::Findings;
use crate::metadata::ANNOTATIONS_FILE;
use crate::place::Place;
use crate::properties::PROPERTIES_FILE;
use crate::rule;

/// Replaces unreadable metadata, so that the manifests can be loaded.
const SUBSTITUTE: &[u8] = b"annotations: {operators.operatorframework.io.bundle.package.v1: unnamed}";

/// Returns the bundle if its manifests can be loaded. Broken metadata is reported and replaced.
pub(crate) fn check(
    files: &BTreeMap<String, Vec<u8>>,
    loaded: Result<Bundle, LoadError>,
    content: &Content,
    findings: &mut Findings,
) -> Option<Bundle> {
    let mut loaded = loaded;
    let mut mended = None;
    loop {
        let error = match loaded {
            Ok(bundle) => return Some(bundle),
            Err(error) => error,
        };
        let files = mended.get_or_insert_with(|| files.clone());
        match error {
            LoadError::NoAnnotations => {
                let what = "the file is missing; it names the package and its channels";
                findings.add(&rule::FILE_1, Place::file(ANNOTATIONS_FILE), what);
                files.insert(ANNOTATIONS_FILE.to_string(), SUBSTITUTE.to_vec());
            }
            LoadError::Annotations(text) => {
                if !findings.concern(ANNOTATIONS_FILE) {
                    findings.add(&rule::FILE_2, Place::document(ANNOTATIONS_FILE), text);
                }
                let known = files.insert(ANNOTATIONS_FILE.to_string(), SUBSTITUTE.to_vec());
                if known.as_deref() == Some(SUBSTITUTE) {
                    return None;
                }
            }
            LoadError::Subdirectory(_) => {
                if !without_directories(files, findings) {
                    return None;
                }
            }
            LoadError::NoManifests => {
                findings.add(&rule::FILE_1, Place::file(MANIFESTS), "there are no manifests");
                return None;
            }
            LoadError::NoClusterServiceVersion => {
                findings.add(&rule::CSV_1, Place::file(MANIFESTS), "no manifest is a ClusterServiceVersion");
                return None;
            }
            LoadError::PropertiesFile(text) => {
                if !findings.concern(PROPERTIES_FILE) {
                    findings.add(&rule::PROP_1, Place::document(PROPERTIES_FILE), text);
                }
                files.remove(PROPERTIES_FILE)?;
            }
            LoadError::PropertiesAnnotation(text) => {
                if let Some(csv) = content.service_version().filter(|_| !findings.has(&rule::PROP_3)) {
                    findings.add(&rule::PROP_3, csv.at_annotation(olm_bundle::PROPERTIES_ANNOTATION), text);
                }
                return None;
            }
            LoadError::Manifest { file, detail, .. } => {
                manifests(files, content, findings);
                if !findings.concern(&file) {
                    findings.add(&rule::FILE_2, Place::file(&file), detail);
                }
                return None;
            }
            error @ LoadError::TooLarge { .. } => {
                findings.add(&rule::FILE_4, Place::nowhere(), error.to_string());
                return None;
            }
        }
        loaded = Bundle::load(files);
    }
}

/// Reports and removes every directory inside of the manifests. `false` if there is none.
fn without_directories(files: &mut BTreeMap<String, Vec<u8>>, findings: &mut Findings) -> bool {
    let directory = |path: &String| {
        let (directory, _) = path.strip_prefix(MANIFESTS)?.split_once('/')?;
        Some(format!("{MANIFESTS}{directory}"))
    };
    let directories: BTreeSet<String> = files.keys().filter_map(directory).collect();
    files.retain(|path, _| directory(path).is_none());
    for directory in &directories {
        let what = "a directory inside of manifests/ is not allowed: move its files up or remove it";
        findings.add(&rule::FILE_1, Place::file(directory), what);
    }
    !directories.is_empty()
}

/// Reports each object that cannot be loaded.
fn manifests(files: &BTreeMap<String, Vec<u8>>, content: &Content, findings: &mut Findings) {
    let mut refused = BTreeSet::new();
    for object in &content.objects {
        let place = object.place();
        if let Some((mut detail, field)) = fault(object) {
            refused.insert(place.file.clone());
            let value = object.value.pointer(&format!("/{}", field.replace('.', "/")));
            if let Some(value @ (Value::Bool(_) | Value::Number(_))) = value {
                detail = format!("{detail}: the value is {value}, text has to be put in quotes");
            }
            let place = if field.is_empty() { place } else { place.at(&field) };
            findings.add(&rule::FILE_2, place, detail);
        }
    }
    // Errors that occur only in the file as a whole.
    for (file, text) in files {
        if !file.starts_with(MANIFESTS) || refused.contains(file) || content.unreadable.contains(file) {
            continue;
        }
        if let Err(LoadError::Manifest { detail, .. }) = load_alone(file, text.clone()) {
            findings.add(&rule::FILE_2, Place::file(file), detail);
        }
    }
}

/// Loading error of this object alone, and the dotted path of the invalid field, empty if unknown.
fn fault(object: &Object) -> Option<(String, String)> {
    let place = object.place();
    let text = object.value.to_string().into_bytes();
    match load_alone(&place.file, text) {
        Err(LoadError::Manifest { detail, field, .. }) => Some((detail, field)),
        _ => None,
    }
}

fn load_alone(file: &str, text: Vec<u8>) -> Result<Bundle, LoadError> {
    Bundle::load(&BTreeMap::from([
        (ANNOTATIONS_FILE.to_string(), SUBSTITUTE.to_vec()),
        (file.to_string(), text),
    ]))
}
