//! Record of an installation: a ConfigMap in the namespace of the servers with the variant and the applied objects
//! (docs/design/operations.md#olm-system).

use olm_cli_core::error::CliError;
use olm_cli_core::object_access::ObjectId;
use olm_cli_core::output::yaml;
use olm_runtime::component::Component;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::manifest::{Manifest, is_same};

/// Name of the ConfigMap.
const NAME: &str = "olm-installation";
/// Key of the record in the ConfigMap.
const KEY: &str = "installation.yaml";
/// Label of all objects of an installation, except CRDs.
pub(super) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "olm");

/// Applied install file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Name of the variant. Empty for another file.
    pub(super) variant: String,
    pub(super) objects: Vec<ObjectId>,
}

impl Record {
    /// Record of an install file. While it is applied, the objects of the earlier record may still exist.
    pub(super) fn new(manifest: &Manifest, earlier: Option<&Record>) -> Self {
        let mut objects = manifest.ids();
        for id in earlier.map_or(&[][..], |record| &record.objects) {
            if !objects.iter().any(|one| is_same(one, id)) {
                objects.push(id.clone());
            }
        }
        Self { variant: manifest.variant.clone(), objects }
    }

    /// ConfigMap with the record.
    ///
    /// # Errors
    /// The record cannot be encoded.
    pub(super) fn to_object(&self, namespace: &str) -> Result<Value, CliError> {
        let metadata = json!({ "name": NAME, "namespace": namespace, "labels": { PART_OF.0: PART_OF.1 } });
        let data = json!({ KEY: yaml(self)? });
        Ok(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }))
    }

    /// Record in a ConfigMap. `None` if it has none.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let text = object["data"][KEY].as_str()?;
        serde_json::from_value(olm_yaml::from_slice(text.as_bytes()).ok()?).ok()
    }

    /// Removes and returns identities that would change the path of a request: users of the namespace may edit the record.
    pub(super) fn remove_invalid(&mut self) -> Vec<ObjectId> {
        self.objects.extract_if(.., |id| !is_valid(id)).collect()
    }
}

/// Identity of the ConfigMap.
pub(super) fn id(namespace: &str) -> ObjectId {
    ObjectId::new(("v1", "ConfigMap"), namespace, NAME)
}

fn is_valid(id: &ObjectId) -> bool {
    let is_segment = |text: &str| {
        !matches!(text, "." | "..")
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte))
    };
    let (group, version) = id.api_version.split_once('/').unwrap_or(("", &id.api_version));
    !id.name.is_empty() && [group, version, &id.kind, &id.namespace, &id.name].into_iter().all(is_segment)
}

/// Identities of the Deployments of both servers.
pub(super) fn deployments(namespace: &str) -> [ObjectId; 2] {
    [Component::Catalogd, Component::OperatorController]
        .map(|server| ObjectId::new(("apps/v1", "Deployment"), namespace, &server.deployment_name()))
}

/// Reports whether an object has the label of installations.
pub(super) fn is_labeled(object: &Value) -> bool {
    object["metadata"]["labels"][PART_OF.0] == PART_OF.1
}

/// Reports whether a binding has a subject in `namespace`.
pub(super) fn has_subject_in(object: &Value, namespace: &str) -> bool {
    let mut subjects = object["subjects"].as_array().into_iter().flatten();
    subjects.any(|subject| subject["namespace"] == namespace)
}
