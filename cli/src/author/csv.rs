//! Subset of a ClusterServiceVersion that a catalog contains as `olm.csv.metadata`
//! (docs/design/catalogd.md#property-types). The field set is that of the reference. All other fields are dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// ClusterServiceVersion, reduced to the fields that catalogs use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Csv {
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Spec {
    pub(super) version: String,
    /// String or number.
    release: Option<Value>,
    pub(super) replaces: String,
    pub(super) skips: Vec<String>,
    #[serde(rename = "relatedImages")]
    pub(super) related_images: Vec<RelatedImage>,
    #[serde(rename = "customresourcedefinitions")]
    pub(super) definitions: Definitions,
    #[serde(rename = "apiservicedefinitions")]
    pub(super) api_services: ApiServices,
    install: Install,
    #[serde(flatten)]
    shown: CopiedFields,
}

/// Image that the bundle uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct RelatedImage {
    pub(super) name: String,
    pub(super) image: String,
}

/// CustomResourceDefinitions that the operator provides or requires.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Definitions {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) owned: Vec<Definition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) required: Vec<Definition>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) kind: String,
    #[serde(flatten)]
    details: Details,
}

/// Aggregated APIs that the operator provides or requires.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ApiServices {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) owned: Vec<ApiService>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) required: Vec<ApiService>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ApiService {
    name: String,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    #[serde(rename = "deploymentName", skip_serializing_if = "String::is_empty")]
    deployment_name: String,
    #[serde(rename = "containerPort", skip_serializing_if = "is_zero")]
    container_port: i32,
    #[serde(flatten)]
    details: Details,
}

/// Descriptive fields common to CRD and API service descriptions.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    display_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<Resource>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    status_descriptors: Vec<Descriptor>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spec_descriptors: Vec<Descriptor>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    action_descriptors: Vec<Descriptor>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Resource {
    name: String,
    kind: String,
    version: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Descriptor {
    path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    display_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(rename = "x-descriptors", skip_serializing_if = "Vec::is_empty")]
    x_descriptors: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

/// Fields of `spec` that are copied to the property unchanged.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct CopiedFields {
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    display_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    install_modes: Vec<InstallMode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keywords: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<Link>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    maintainers: Vec<Maintainer>,
    #[serde(skip_serializing_if = "String::is_empty")]
    maturity: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    min_kube_version: String,
    #[serde(rename = "nativeAPIs", skip_serializing_if = "Vec::is_empty")]
    native_apis: Vec<NativeApi>,
    provider: Link,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct InstallMode {
    #[serde(rename = "type")]
    mode: String,
    supported: bool,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Link {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    url: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Maintainer {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    email: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct NativeApi {
    group: String,
    version: String,
    kind: String,
}

/// Install strategy. Contains the container images.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Install {
    strategy: String,
    spec: Strategy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Strategy {
    deployments: Vec<Deployment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Deployment {
    spec: DeploymentSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeploymentSpec {
    template: Template,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    spec: PodSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    image: String,
}

/// Value of the property `olm.csv.metadata`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataProperty<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
    api_service_definitions: &'a ApiServices,
    crd_descriptions: &'a Definitions,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    shown: &'a CopiedFields,
}

impl Csv {
    /// Deserializes the object as authored. An explicit `null` equals an absent field.
    ///
    /// # Errors
    /// A field has the wrong type.
    pub(super) fn read(mut object: Value) -> Result<Self, serde_json::Error> {
        drop_nulls(&mut object);
        Self::deserialize(object)
    }

    /// Value of the property `olm.csv.metadata` (docs/design/catalogd.md#property-types).
    ///
    /// # Errors
    /// Only JSON encoding errors.
    pub(super) fn metadata_property(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(MetadataProperty {
            annotations: &self.metadata.annotations,
            api_service_definitions: &self.spec.api_services,
            crd_descriptions: &self.spec.definitions,
            labels: &self.metadata.labels,
            shown: &self.spec.shown,
        })
    }

    /// `spec.release`, which may be a number. Empty if absent.
    pub(super) fn release(&self) -> String {
        match &self.spec.release {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    /// Images of all containers of the operator's deployments, with duplicates.
    pub(super) fn container_images(&self) -> impl Iterator<Item = &str> {
        let install = &self.spec.install;
        let deployments =
            if install.strategy == "deployment" { install.spec.deployments.as_slice() } else { &[] };
        deployments.iter().flat_map(|deployment| {
            let pod = &deployment.spec.template.spec;
            pod.containers.iter().chain(&pod.init_containers).map(|container| container.image.as_str())
        })
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}
