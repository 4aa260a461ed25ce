//! What the test has asked for and done so far: all that the model predicts from, besides what history has left on the
//! cluster. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::universe::package;

/// Whether catalogs choose the next version or the user does.
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
    /// An environment variable for the Deployment.
    Env(String),
    /// A key that no bundle knows.
    Invalid,
}

/// What becomes of definitions and custom resources when an extension goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum UninstallPolicy {
    Delete,
    #[serde(rename = "KeepCRDs")]
    KeepCrds,
    BlockIfInUse,
}

/// What a ClusterExtension asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) version: Option<String>,
    pub(crate) channels: Vec<String>,
    pub(crate) policy: Policy,
    pub(crate) config: Config,
    pub(crate) deadline: Option<i32>,
    /// Definitions are not checked.
    pub(crate) unchecked: bool,
    pub(crate) paused: bool,
    pub(crate) uninstall: Option<UninstallPolicy>,
}

/// A ClusterCatalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub(crate) exists: bool,
    /// Indexes into [`crate::universe::VERSIONS`].
    pub(crate) offered: BTreeSet<usize>,
    pub(crate) priority: i32,
}

/// Everything about one extension.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    /// Name of the extension and its namespace.
    pub(crate) name: String,
    /// `None` while there is none, or it is being deleted.
    pub(crate) wish: Option<Wish>,
    /// By letter.
    pub(crate) catalogs: BTreeMap<char, Catalog>,
    /// Whether Deployments become available.
    pub(crate) healthy: bool,
    /// Whether the namespace shall exist.
    pub(crate) namespace: bool,
    /// UIDs of objects that are not the product's, with what they hold.
    pub(crate) foreign: BTreeMap<String, Value>,
    /// UIDs of objects that hang on a finalizer of ours.
    pub(crate) held: BTreeSet<String>,
    /// UIDs of objects that were made to look like nobody's.
    pub(crate) stripped: BTreeSet<String>,
    /// An owner was deleted and left its dependents behind.
    pub(crate) orphaned: bool,
    /// Custom resources by UID, each with the plural of its kind.
    pub(crate) instances: BTreeMap<String, String>,
}

impl Intent {
    /// Nothing is installed; catalog `a` offers everything up to 1.1.0.
    pub(crate) fn new(name: &str) -> Self {
        let catalog = |exists| Catalog { exists, offered: BTreeSet::from([0, 1, 2]), priority: 0 };
        Self {
            name: name.to_owned(),
            wish: None,
            catalogs: BTreeMap::from([('a', catalog(true)), ('b', catalog(false))]),
            healthy: true,
            namespace: true,
            foreign: BTreeMap::new(),
            held: BTreeSet::new(),
            stripped: BTreeSet::new(),
            orphaned: false,
            instances: BTreeMap::new(),
        }
    }

    /// The catalogs that exist, with their letters.
    pub(crate) fn market(&self) -> Vec<(char, &Catalog)> {
        self.catalogs.iter().filter(|(_, catalog)| catalog.exists).map(|(letter, c)| (*letter, c)).collect()
    }
}

impl Wish {
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

    /// Annotations of the ClusterExtension; `null` where there shall be none.
    pub(crate) fn annotations(&self) -> Value {
        json!({
            "ext.olm.operatorframework.io/paused": self.paused.then_some("true"),
            "ext.olm.operatorframework.io/uninstall-policy": self.uninstall,
        })
    }

    /// Value of the environment variable that the configuration asks for.
    pub(crate) fn env(&self) -> Option<&str> {
        match &self.config {
            Config::Env(value) => Some(value),
            _ => None,
        }
    }
}
