//! Helpers for bundles on disk: reading, rendering, and comparing results.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use olm_bundle::{BundleContent, Certificates, RenderOptions, render};
use serde_json::Value;

/// Render options of a case beside its bundle.
pub(crate) struct Case {
    pub(crate) install_namespace: String,
    pub(crate) config: Option<Value>,
    pub(crate) certificates: Certificates,
    pub(crate) single_own_namespace: bool,
    pub(crate) deployment_config: bool,
}

impl Case {
    /// Reads a case. Absent gates are enabled.
    pub(crate) fn read(path: &Path) -> Self {
        let case = olm_yaml::from_slice(&fs::read(path).unwrap()).unwrap();
        let gate = |name: &str| case.get(name).and_then(Value::as_bool).unwrap_or(true);
        Self {
            install_namespace: case["installNamespace"].as_str().unwrap().to_string(),
            config: Some(case["config"].clone()).filter(|config| !config.is_null()),
            certificates: match case["certProvider"].as_str().unwrap() {
                "cert-manager" => Certificates::CertManager,
                "openshift-service-ca" => Certificates::OpenshiftServiceCa,
                "none" => Certificates::None,
                other => panic!("{}: unknown certProvider {other}", path.display()),
            },
            single_own_namespace: gate("singleOwnNamespace"),
            deployment_config: gate("deploymentConfig"),
        }
    }

    /// Loads and renders the unpacked image at `root`. Errors are returned as text.
    pub(crate) fn render(&self, root: &Path) -> Result<Vec<Value>, String> {
        let bundle = BundleContent::load(&files_below(root)).map_err(|error| error.to_string())?;
        let options = RenderOptions {
            install_namespace: &self.install_namespace,
            config: self.config.as_ref(),
            certificates: self.certificates,
            single_own_namespace: self.single_own_namespace,
            deployment_config: self.deployment_config,
            ..RenderOptions::default()
        };
        render(&bundle, &options).map_err(|error| error.to_string())
    }
}

/// All files below a folder, by slash-separated relative path.
pub(crate) fn files_below(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let relative = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                files.insert(relative, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Sorted subfolders.
pub(crate) fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Runs `check` on every folder, prints `NAME: N passed, N failed` and the failures, and panics if there are any.
pub(crate) fn check_all(name: &str, folders: &[PathBuf], check: impl Fn(&Path) -> Result<(), String>) {
    let failures: Vec<String> = folders
        .iter()
        .filter_map(|folder| {
            let failure = check(folder).err()?;
            Some(format!("{}: {failure}", folder.file_name().unwrap().to_string_lossy()))
        })
        .collect();
    say(&format!("{name}: {} passed, {} failed", folders.len() - failures.len(), failures.len()));
    for failure in &failures {
        say(&format!("  {failure}"));
    }
    assert!(!folders.is_empty(), "{name}: nothing found");
    assert!(failures.is_empty(), "{name}: {} failed", failures.len());
}

/// Compares lists of objects in order. The error is the first difference with its path.
pub(crate) fn same(rendered: &[Value], expected: &[Value]) -> Result<(), String> {
    for (rendered, expected) in rendered.iter().zip(expected) {
        if let Some(difference) = difference(rendered, expected) {
            let title = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
            return Err(format!("{} (expected {}){difference}", title(rendered), title(expected)));
        }
    }
    if rendered.len() != expected.len() {
        return Err(format!("{} objects, expected {}", rendered.len(), expected.len()));
    }
    Ok(())
}

fn difference(rendered: &Value, expected: &Value) -> Option<String> {
    match (rendered, expected) {
        (Value::Object(rendered), Value::Object(expected)) => {
            let keys: std::collections::BTreeSet<&String> = rendered.keys().chain(expected.keys()).collect();
            keys.into_iter().find_map(|key| match (rendered.get(key), expected.get(key)) {
                (Some(rendered), Some(expected)) => {
                    difference(rendered, expected).map(|deeper| format!(".{key}{deeper}"))
                }
                (Some(rendered), None) => Some(format!(".{key}: {rendered}, expected nothing")),
                (None, expected) => {
                    Some(format!(".{key}: nothing, expected {}", expected.unwrap_or(&Value::Null)))
                }
            })
        }
        (Value::Array(rendered), Value::Array(expected)) if rendered.len() == expected.len() => {
            let mut pairs = rendered.iter().zip(expected).enumerate();
            pairs.find_map(|(index, (rendered, expected))| {
                difference(rendered, expected).map(|deeper| format!("[{index}]{deeper}"))
            })
        }
        (rendered, expected) => (rendered != expected).then(|| format!(": {rendered}, expected {expected}")),
    }
}

/// Prints past the output capture of the test runner.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    // A closed standard output is ignored.
    let _ = writeln!(std::io::stdout(), "{line}");
}
