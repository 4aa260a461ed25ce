//! Migration plan of a package: what becomes of each object. Written by `olm migrate plan`, executed by
//! `olm migrate apply`.

use olm_cli_core::object_access::ObjectId;
use olm_plan::objects::ObjectChange;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of a single object, or the number of objects, for messages.
pub(crate) fn named(objects: &[ObjectId]) -> String {
    match objects {
        [object] => object.to_string(),
        _ => olm_cli_core::output::counted(objects.len(), "object"),
    }
}

/// Object with the reason for which it is deleted or stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Reasoned {
    #[serde(flatten)]
    pub(crate) object: ObjectId,
    pub(crate) reason: String,
}

/// Deployment whose pod template changes: one rolling restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Restart {
    #[serde(flatten)]
    pub(crate) object: ObjectId,
    /// Changed fields of the pod template, as paths such as `spec.template.spec.containers[manager].image`.
    pub(crate) fields: Vec<String>,
    /// Cause, such as another Secret with the certificates of webhooks.
    pub(crate) reason: String,
}

/// Migration of one package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PackagePlan {
    pub(crate) package: String,
    /// Namespace of the Subscription and of the operator.
    pub(crate) namespace: String,
    /// Name of the Subscription.
    pub(crate) subscription: String,
    pub(crate) csv: String,
    pub(crate) version: String,
    pub(crate) channel: String,
    /// ClusterCatalogs to create before. Empty if one serves the bundle.
    pub(crate) catalogs: Vec<Value>,
    /// ClusterExtension pinned to the installed version, with the digest of the objects to adopt.
    pub(crate) extension: Value,
    /// The same without pin and digest: the state after the migration.
    pub(crate) opened: Value,
    /// RBAC objects that give users the permissions that roles of the OperatorGroup gave them.
    pub(crate) grants: Vec<Value>,
    /// Rendered objects that exist, and are adopted.
    pub(crate) adopted: Vec<ObjectId>,
    /// Rendered objects that do not exist, and are created.
    pub(crate) created: Vec<ObjectId>,
    /// Objects of classic OLM that are deleted once the extension is installed.
    pub(crate) removed: Vec<Reasoned>,
    /// Objects that stay, such as OperatorGroup, OperatorCondition and token Secrets.
    pub(crate) left: Vec<Reasoned>,
    /// Deployments whose pod template changes.
    pub(crate) restarts: Vec<Restart>,
    /// Differences between the running objects and the rendered ones, as `olm diff` prints them.
    pub(crate) differences: Vec<ObjectChange>,
    /// Packages that must be migrated before, as `namespace/package`: dependents.
    pub(crate) after: Vec<String>,
    /// Rules of the decisions that the user has accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) accepted: Vec<String>,
    /// Settings of classic OLM without equivalent, and what the administrator should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

impl PackagePlan {
    /// Argument of the commands for exactly this package: `namespace/package`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.package)
    }

    /// Keeps the version of the extension after the migration, too. It has no channel then, which may have dropped the version.
    pub(crate) fn keep_pinned(&mut self) {
        self.opened["spec"] = self.extension["spec"].clone();
    }

    /// Reports whether the version of the extension is kept after the migration.
    pub(crate) fn is_pinned(&self) -> bool {
        self.opened["spec"] == self.extension["spec"]
    }
}
