//! Permissions of the operator, and roles of users.

use serde_json::{Value, json};

use super::{Composer, group, hash, list, owner, text};

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";
pub(super) const V1: &str = "rbac.authorization.k8s.io/v1";
/// Verbs of each role of the users of an API.
const USERS: [(&str, &[&str]); 3] = [
    ("admin", &["*"]),
    ("edit", &["create", "update", "patch", "delete"]),
    ("view", &["get", "list", "watch"]),
];

impl Composer<'_> {
    /// ServiceAccounts, and the roles of `permissions` and `clusterPermissions`.
    pub(super) fn permissions(&mut self) {
        let namespace = self.origin.namespace;
        let install = self.csv["spec"]["install"]["spec"].clone();
        let (narrow, wide) = (list(&install["permissions"]), list(&install["clusterPermissions"]));
        let mut accounts: Vec<&str> =
            narrow.iter().chain(wide).map(|entry| text(&entry["serviceAccountName"])).collect();
        accounts.sort_unstable();
        accounts.dedup();
        for account in accounts.into_iter().filter(|account| *account != "default") {
            self.add(
                "catalog",
                json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": account, "namespace": namespace, "labels": self.labels(true, None),
                    "ownerReferences": [self.owner()]}}),
            );
        }
        for entry in wide {
            self.cluster_role("catalog", entry);
        }
        for entry in narrow {
            let owner = self.owner();
            self.role(entry, namespace, &owner);
            if self.origin.targets.is_empty() {
                let mut wide = entry.clone();
                if let Some(rules) = wide["rules"].as_array_mut() {
                    rules.push(json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}));
                }
                self.cluster_role("olm", &wide);
            }
            for tenant in self.tenants(&[]) {
                let is_copy = |object: &&Value| {
                    object["kind"] == super::CSV && object["metadata"]["namespace"] == tenant.as_str()
                };
                let copy = self.objects.iter().find(is_copy).map(|copy| text(&copy["metadata"]["uid"]));
                let owner = owner_of_copy(&owner, copy.unwrap_or_default());
                self.role(entry, &tenant, &owner);
            }
        }
    }

    /// Role and RoleBinding of an entry of `permissions`.
    fn role(&mut self, entry: &Value, namespace: &str, owner: &Value) {
        let name = format!("{}-{}", self.name, hash(entry));
        let is_copy = namespace != self.origin.namespace;
        let mut labels = self.labels(!is_copy, Some(namespace));
        labels["olm.permissions.hash"] = json!(hash(entry));
        if is_copy {
            labels["olm.copiedFrom"] = json!(self.origin.namespace);
        }
        let metadata =
            json!({"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]});
        self.pair("catalog", "Role", &metadata, entry);
    }

    /// ClusterRole and ClusterRoleBinding of an entry.
    fn cluster_role(&mut self, manager: &str, entry: &Value) {
        let mut labels = self.labels(true, Some(self.origin.namespace));
        labels["olm.permissions.hash"] = json!(hash(entry));
        let metadata = json!({"name": format!("{}-{}", self.name, hash(entry)), "labels": labels});
        self.pair(manager, "ClusterRole", &metadata, entry);
    }

    fn pair(&mut self, manager: &str, kind: &str, metadata: &Value, entry: &Value) {
        let reference = json!({"apiGroup": GROUP, "kind": kind, "name": metadata["name"]});
        let subject = json!({"kind": "ServiceAccount", "name": entry["serviceAccountName"],
            "namespace": self.origin.namespace});
        self.add(
            manager,
            json!({"apiVersion": V1, "kind": kind, "metadata": metadata, "rules": entry["rules"]}),
        );
        self.add(
            manager,
            json!({"apiVersion": V1, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": reference, "subjects": [subject]}),
        );
    }

    /// Roles of the users of each owned CRD, and those of the OperatorGroup.
    pub(super) fn user_roles(&mut self) {
        let mut selectors = vec![Vec::new(); USERS.len()];
        for api in list(&self.csv["spec"]["customresourcedefinitions"]["owned"]).to_vec() {
            let (crd, version) = (text(&api["name"]).to_owned(), text(&api["version"]).to_owned());
            let resource = crd.split('.').next().unwrap_or_default();
            let is_crd = |object: &&Value| {
                object["kind"] == "CustomResourceDefinition" && object["metadata"]["name"] == crd.as_str()
            };
            let uid =
                self.objects.iter().find(is_crd).map(|found| text(&found["metadata"]["uid"]).to_owned());
            let of_crd = owner(
                "apiextensions.k8s.io/v1",
                "customresourcedefinition",
                &crd,
                &uid.unwrap_or_default(),
                false,
            );
            let key = hash(&json!([group(&api), api["version"], api["kind"]]));
            let label = |role: &str| format!("olm.opgroup.permissions/aggregate-to-{key}-{role}");
            let mut make = |name: String, role: &str, rule: Value| {
                self.add(
                    "olm",
                    json!({"apiVersion": V1, "kind": "ClusterRole", "rules": [rule],
                    "metadata": {"name": format!("{crd}-{version}-{name}"), "ownerReferences": [of_crd],
                        "labels": {"olm.managed": "true", (label(role)): "true",
                            (format!("rbac.authorization.k8s.io/aggregate-to-{role}")): "true"}}}),
                );
            };
            for (place, (role, verbs)) in USERS.iter().enumerate() {
                make(
                    (*role).to_owned(),
                    role,
                    json!({"apiGroups": [group(&api)], "resources": [resource], "verbs": verbs}),
                );
                selectors[place].push(json!({"matchLabels": {(label(role)): "true"}}));
            }
            make(
                "crdview".to_owned(),
                "view",
                json!({"apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"], "resourceNames": [crd], "verbs": ["get"]}),
            );
        }
        let namespace = self.origin.namespace;
        for ((role, _), selectors) in USERS.iter().zip(selectors) {
            let name = format!("olm.og.{namespace}.{role}-{}", hash(&json!(selectors)));
            self.add(
                "olm",
                json!({"apiVersion": V1, "kind": "ClusterRole", "rules": [],
                "aggregationRule": {"clusterRoleSelectors": selectors},
                "metadata": {"name": name, "labels": {"olm.managed": "true", "olm.owner": namespace,
                    "olm.owner.kind": "OperatorGroup", "olm.owner.namespace": namespace}}}),
            );
        }
    }
}

fn owner_of_copy(owner: &Value, uid: &str) -> Value {
    let mut owner = owner.clone();
    owner["uid"] = json!(uid);
    owner
}
