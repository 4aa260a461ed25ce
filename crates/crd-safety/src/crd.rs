//! Fields of a CustomResourceDefinition that the checks read.

use serde_json::Value;

use crate::CheckError;
use crate::schema::Schema;

pub(crate) const API_VERSION: &str = "apiextensions.k8s.io/v1";
pub(crate) const KIND: &str = "CustomResourceDefinition";

/// Maximum nesting of lists and objects in a CRD. Published CRDs stay below 40 levels. Schemas are walked by
/// recursion.
pub(crate) const MAX_DEPTH: usize = 200;

/// Published CRDs have up to six versions. Each served version is compared with each other.
const MAX_VERSIONS: usize = 100;

/// CRD whose fields have the types that the API requires.
#[derive(Debug)]
pub(crate) struct Crd<'a> {
    pub(crate) name: &'a str,
    pub(crate) scope: &'a str,
    /// `true` if a webhook converts between the versions.
    pub(crate) webhook_conversion: bool,
    pub(crate) versions: Vec<Version<'a>>,
    /// `status.storedVersions`
    pub(crate) stored_versions: Vec<&'a str>,
}

#[derive(Debug)]
pub(crate) struct Version<'a> {
    pub(crate) name: &'a str,
    pub(crate) served: bool,
    /// `true` for the storage version.
    pub(crate) stored: bool,
    pub(crate) schema: Option<Schema<'a>>,
}

impl<'a> Crd<'a> {
    /// Reads a CRD from its JSON.
    ///
    /// # Errors
    /// The object is not a CRD, or an API server would reject it.
    pub(crate) fn read(object: &'a Value) -> Result<Self, CheckError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if !crate::is_crd(object) {
            let [api_version, kind] =
                ["apiVersion", "kind"].map(|key| object[key].as_str().unwrap_or_default());
            return Err(CheckError(format!(
                "object {name:?} is a {kind:?} of {api_version:?}, not a {KIND} of {API_VERSION}"
            )));
        }
        if deeper_than(object, MAX_DEPTH) {
            return Err(CheckError(format!("{KIND} {name:?} is nested deeper than {MAX_DEPTH} levels")));
        }
        let malformed = |field: &str, expected| CheckError::malformed(name, field, expected);
        let spec = &object["spec"];
        let versions = spec["versions"].as_array().ok_or_else(|| malformed("spec.versions", "a list"))?;
        if versions.len() > MAX_VERSIONS {
            let count = versions.len();
            return Err(CheckError(format!(
                "{KIND} {name:?} has {count} versions, at most {MAX_VERSIONS} are compared"
            )));
        }
        let versions = versions
            .iter()
            .enumerate()
            .map(|(index, version)| Version::read(name, &format!("spec.versions[{index}]"), version));
        let stored = match &object["status"]["storedVersions"] {
            Value::Null => Vec::new(),
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => return Err(malformed("status.storedVersions", "a list")),
        };
        Ok(Self {
            name,
            scope: spec["scope"].as_str().unwrap_or_default(),
            webhook_conversion: spec["conversion"]["strategy"] == "Webhook",
            versions: versions.collect::<Result<_, _>>()?,
            stored_versions: stored,
        })
    }

    /// Names of the served versions, in the order of the list.
    pub(crate) fn served(&self) -> impl Iterator<Item = &'a str> {
        self.versions.iter().filter(|version| version.served).map(|version| version.name)
    }

    pub(crate) fn version(&self, name: &str) -> Option<&Version<'a>> {
        self.versions.iter().find(|version| version.name == name)
    }
}

impl<'a> Version<'a> {
    /// Reads a version. `path` is its place in the CRD of this name.
    fn read(crd: &str, path: &str, version: &'a Value) -> Result<Self, CheckError> {
        let name = version["name"].as_str();
        let name = name.ok_or_else(|| CheckError::malformed(crd, &format!("{path}.name"), "text"))?;
        let schema = match &version["schema"]["openAPIV3Schema"] {
            Value::Null => None,
            schema => Some(Schema::read(crd, format!("{path}.schema.openAPIV3Schema"), schema)?),
        };
        Ok(Self { name, served: version["served"] == true, stored: version["storage"] == true, schema })
    }
}

/// Reports whether lists and objects are nested in more than `limit` levels. Iterative: needs no stack.
fn deeper_than(value: &Value, limit: usize) -> bool {
    let mut open = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        match value {
            Value::Array(_) | Value::Object(_) if level > limit => return true,
            Value::Array(list) => open.extend(list.iter().map(|item| (item, level + 1))),
            Value::Object(map) => open.extend(map.values().map(|item| (item, level + 1))),
            _ => {}
        }
    }
    false
}
