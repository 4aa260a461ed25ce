//! Fields of a ClusterServiceVersion that rendering reads (docs/design/bundles.md#csv-fields), after the typed
//! pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// Service account of a permission or pod without a name.
pub(crate) const DEFAULT_ACCOUNT: &str = "default";

/// ClusterServiceVersion of group `operators.coreos.com`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Csv {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) version: Option<String>,
    pub(crate) min_kube_version: Option<String>,
    pub(crate) install_modes: Vec<InstallModeEntry>,
    pub(crate) install: Install,
    #[serde(rename = "customresourcedefinitions")]
    pub(crate) crds: OwnedNames,
    #[serde(rename = "apiservicedefinitions")]
    pub(crate) api_services: ApiServices,
    #[serde(rename = "webhookdefinitions")]
    pub(crate) webhooks: Vec<Webhook>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct InstallModeEntry {
    #[serde(rename = "type")]
    pub(crate) mode: String,
    pub(crate) supported: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Install {
    pub(crate) spec: Strategy,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Strategy {
    pub(crate) deployments: Option<Vec<Deployment>>,
    pub(crate) permissions: Vec<Permission>,
    #[serde(rename = "clusterPermissions")]
    pub(crate) cluster_permissions: Vec<Permission>,
}

/// Deployment of the install strategy. `spec` is a DeploymentSpec in normal form.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) label: BTreeMap<String, String>,
    pub(crate) spec: Value,
}

impl Deployment {
    /// Service account of its pods.
    pub(crate) fn account(&self) -> &str {
        let name = self.spec.pointer("/template/spec/serviceAccountName").and_then(Value::as_str);
        name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_ACCOUNT)
    }

    /// Number of its containers.
    pub(crate) fn containers(&self) -> usize {
        self.spec.pointer("/template/spec/containers").and_then(Value::as_array).map_or(0, Vec::len)
    }
}

/// Rules for one service account. `rules` are PolicyRules in normal form.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Permission {
    /// Name as authored: an empty name and `default` yield different hashes.
    #[serde(rename = "serviceAccountName")]
    pub(crate) service_account_name: String,
    pub(crate) rules: Option<Vec<Value>>,
}

impl Permission {
    /// Service account of the binding.
    pub(crate) fn account(&self) -> &str {
        if self.service_account_name.is_empty() { DEFAULT_ACCOUNT } else { &self.service_account_name }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OwnedNames {
    pub(crate) owned: Vec<OwnedName>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OwnedName {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiServices {
    pub(crate) owned: Vec<ApiService>,
}

/// Kind of an aggregated API, and the deployment that serves it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApiService {
    /// Plural of the resource.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) deployment_name: String,
    pub(crate) container_port: i32,
}

/// Webhook definition. Values that are copied into objects remain JSON values.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Webhook {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) generate_name: String,
    pub(crate) deployment_name: String,
    pub(crate) container_port: i32,
    pub(crate) target_port: Option<Value>,
    pub(crate) rules: Vec<Value>,
    pub(crate) failure_policy: Option<Value>,
    pub(crate) match_policy: Option<Value>,
    pub(crate) object_selector: Option<Value>,
    pub(crate) side_effects: Option<Value>,
    pub(crate) timeout_seconds: Option<Value>,
    pub(crate) admission_review_versions: Option<Value>,
    pub(crate) reinvocation_policy: Option<Value>,
    pub(crate) webhook_path: Option<String>,
    #[serde(rename = "conversionCRDs")]
    pub(crate) conversion_crds: Vec<String>,
}

impl Webhook {
    pub(crate) const VALIDATING: &str = "ValidatingAdmissionWebhook";
    pub(crate) const MUTATING: &str = "MutatingAdmissionWebhook";
    pub(crate) const CONVERSION: &str = "ConversionWebhook";

    pub(crate) fn is_conversion(&self) -> bool {
        self.kind == Self::CONVERSION
    }
}

/// Namespaces that an operator can watch, relative to the install namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstallMode {
    /// All namespaces of the cluster.
    AllNamespaces,
    /// Several namespaces. Requires the feature gate `MultiWatchNamespaces`
    /// (docs/design/bundles.md#watched-namespaces, docs/design/additions.md#several-namespaces).
    MultiNamespace,
    /// The install namespace.
    OwnNamespace,
    /// One other namespace.
    SingleNamespace,
}

impl InstallMode {
    pub(crate) const ALL: [Self; 4] =
        [Self::AllNamespaces, Self::MultiNamespace, Self::OwnNamespace, Self::SingleNamespace];

    /// Space-separated names in brackets.
    pub(crate) fn list(modes: &BTreeSet<Self>) -> String {
        let names: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
        format!("[{}]", names.join(" "))
    }

    /// Returns the name in a ClusterServiceVersion.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllNamespaces => "AllNamespaces",
            Self::MultiNamespace => "MultiNamespace",
            Self::OwnNamespace => "OwnNamespace",
            Self::SingleNamespace => "SingleNamespace",
        }
    }
}

impl fmt::Display for InstallMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Csv {
    pub(crate) fn deployments(&self) -> &[Deployment] {
        self.spec.install.spec.deployments.as_deref().unwrap_or_default()
    }

    /// Webhook definitions served by a deployment.
    pub(crate) fn webhooks_of<'a>(&'a self, deployment: &'a str) -> impl Iterator<Item = &'a Webhook> {
        self.spec.webhooks.iter().filter(move |webhook| webhook.deployment_name == deployment)
    }

    /// Aggregated APIs served by a deployment.
    pub(crate) fn api_services_of<'a>(&'a self, deployment: &'a str) -> impl Iterator<Item = &'a ApiService> {
        let owned = self.spec.api_services.owned.iter();
        owned.filter(move |service| service.deployment_name == deployment)
    }

    /// Reports whether API servers call a deployment, which thus needs a Service and a certificate.
    pub(crate) fn is_serving(&self, deployment: &str) -> bool {
        self.webhooks_of(deployment).next().is_some() || self.api_services_of(deployment).next().is_some()
    }
}
