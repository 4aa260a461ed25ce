//! Requests and changes of the test so far. Together with the remaining objects on the cluster they are the input of
//! the model's prediction. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::universe::package;

/// `spec.source.catalog.upgradeConstraintPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Policy {
    #[default]
    CatalogProvided,
    SelfCertified,
}

/// `spec.config`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Config {
    #[default]
    None,
    /// Environment variable for the Deployment.
    Env(String),
    /// Key that no bundle supports.
    Invalid,
}

/// Treatment of CRDs and custom resources on uninstall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum UninstallPolicy {
    Delete,
    #[serde(rename = "KeepCRDs")]
    KeepCrds,
    BlockIfInUse,
}

/// Desired state of a ClusterExtension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DesiredSpec {
    pub(crate) version: Option<String>,
    pub(crate) channels: Vec<String>,
    pub(crate) policy: Policy,
    pub(crate) config: Config,
    pub(crate) deadline: Option<i32>,
    /// `true` if the CRD upgrade check is disabled.
    pub(crate) unchecked: bool,
    pub(crate) paused: bool,
    pub(crate) uninstall: Option<UninstallPolicy>,
}

/// Requests about the extension's objects that an admission policy denies operator-controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Denied {
    /// Creations and updates.
    Writes,
    Deletions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub(crate) exists: bool,
    /// Indexes into [`crate::universe::VERSIONS`].
    pub(crate) offered: BTreeSet<usize>,
    pub(crate) priority: i32,
}

/// State of one extension from the test's point of view.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    /// Name of the extension and its namespace.
    pub(crate) name: String,
    /// `true` if an adversary takes part.
    pub(crate) has_adversary: bool,
    /// Desired state. `None` if the extension does not exist or is being deleted.
    pub(crate) desired_spec: Option<DesiredSpec>,
    /// Catalogs by letter.
    pub(crate) catalogs: BTreeMap<char, Catalog>,
    /// `true` if Deployments become available.
    pub(crate) healthy: bool,
    /// `true` if the namespace shall exist.
    pub(crate) namespace: bool,
    /// UIDs of foreign objects, with their content.
    pub(crate) foreign: BTreeMap<String, Value>,
    /// UIDs of objects that a finalizer of the test blocks.
    pub(crate) held: BTreeSet<String>,
    /// UIDs of objects whose ownership metadata the test has removed.
    pub(crate) stripped: BTreeSet<String>,
    /// UIDs of objects whose managedFields the test has removed.
    pub(crate) disowned: BTreeSet<String>,
    /// UIDs of objects with the fields that the adversary has added to those of the revision.
    pub(crate) added: BTreeMap<String, Value>,
    /// Replicas that an autoscaler holds, by UID of the Deployment.
    pub(crate) scaled: BTreeMap<String, i64>,
    /// Requests that the API server denies.
    pub(crate) denied: Option<Denied>,
    /// `true` if an owner was deleted with its dependents orphaned.
    pub(crate) orphaned: bool,
    /// Plural of the kind of each custom resource, by UID.
    pub(crate) instances: BTreeMap<String, String>,
}

impl Intent {
    /// Initial state: nothing is installed, catalog `a` offers everything up to 1.1.0.
    pub(crate) fn new(name: &str) -> Self {
        let catalog = |exists| Catalog { exists, offered: BTreeSet::from([0, 1, 2]), priority: 0 };
        Self {
            name: name.to_owned(),
            has_adversary: false,
            desired_spec: None,
            catalogs: BTreeMap::from([('a', catalog(true)), ('b', catalog(false))]),
            healthy: true,
            namespace: true,
            foreign: BTreeMap::new(),
            held: BTreeSet::new(),
            stripped: BTreeSet::new(),
            disowned: BTreeSet::new(),
            added: BTreeMap::new(),
            scaled: BTreeMap::new(),
            denied: None,
            orphaned: false,
            instances: BTreeMap::new(),
        }
    }

    /// Existing catalogs with their letters.
    pub(crate) fn served_catalogs(&self) -> Vec<(char, &Catalog)> {
        self.catalogs.iter().filter(|(_, catalog)| catalog.exists).map(|(letter, c)| (*letter, c)).collect()
    }
}

impl DesiredSpec {
    /// `spec` of the ClusterExtension `name`.
    pub(crate) fn spec(&self, name: &str) -> Value {
        let mut catalog = json!({
            "packageName": package(name), "upgradeConstraintPolicy": self.policy,
            "selector": {"matchLabels": {"model": name}},
        });
        if let Some(version) = &self.version {
            catalog["version"] = version.as_str().into();
        }
        if !self.channels.is_empty() {
            catalog["channels"] = self.channels.clone().into();
        }
        let mut spec = json!({"namespace": name, "source": {"sourceType": "Catalog", "catalog": catalog}});
        let inline = match &self.config {
            Config::None => None,
            Config::Env(value) => {
                Some(json!({"deploymentConfig": {"env": [{"name": "MODEL", "value": value}]}}))
            }
            Config::Invalid => Some(json!({"nobodyKnows": true})),
        };
        if let Some(inline) = inline {
            spec["config"] = json!({"configType": "Inline", "inline": inline});
        }
        if let Some(minutes) = self.deadline {
            spec["progressDeadlineMinutes"] = minutes.into();
        }
        if self.unchecked {
            spec["install"] = json!({"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}});
        }
        spec
    }

    /// Annotations of the ClusterExtension. `null` removes one.
    pub(crate) fn annotations(&self) -> Value {
        json!({
            "ext.olm.operatorframework.io/paused": self.paused.then_some("true"),
            "ext.olm.operatorframework.io/uninstall-policy": self.uninstall,
        })
    }

    /// Value of the environment variable in the configuration.
    pub(crate) fn env(&self) -> Option<&str> {
        match &self.config {
            Config::Env(value) => Some(value),
            _ => None,
        }
    }
}
