//! Split of roles and bindings into permissions of the operator's service accounts and other objects
//! (docs/design/cli.md#permissions-of-a-generated-bundle).

use std::collections::BTreeSet;

use olm_bundle::pointer::{list, text};
use serde_json::{Value, json};

use super::objects::{Input, Object, may_share};
use super::summary::Report;

/// Prefix of the labels that add the rules of a ClusterRole to another one.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";
const AUTH_READER: &str = "extension-apiserver-authentication-reader";
const AUTH_DELEGATOR: &str = "system:auth-delegator";
/// Fields of a ServiceAccount that OLM does not create.
const ACCOUNT_FIELDS: [&str; 4] =
    ["/imagePullSecrets", "/secrets", "/metadata/annotations", "/automountServiceAccountToken"];

/// Service account of a Deployment, or one that the command line names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Account {
    pub(super) name: String,
    namespace: String,
}

impl Account {
    /// Account of the pods of a Deployment.
    pub(super) fn of(deployment: &Object) -> Self {
        let name = text(&deployment.value, "/spec/template/spec/serviceAccountName");
        let name = if name.is_empty() { "default" } else { name };
        Self { name: name.to_owned(), namespace: deployment.namespace().to_owned() }
    }

    fn is(&self, name: &str, namespace: &str) -> bool {
        self.name == name && may_share(&self.namespace, namespace)
    }
}

/// Names of the service accounts that an object is or binds.
pub(super) fn account_names(object: &Object) -> Vec<&str> {
    let is_account = |subject: &&Value| text(subject, "/kind") == "ServiceAccount";
    let subjects = list(&object.value, "/subjects").iter().filter(is_account);
    let own = Some(object.name()).filter(|_| object.kind() == "ServiceAccount");
    own.into_iter().chain(subjects.map(|subject| text(subject, "/name"))).collect()
}

/// Permissions in the ClusterServiceVersion, and the objects that remain.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    /// `permissions`, for the watched namespaces.
    pub(super) namespaced: Vec<Value>,
    /// `clusterPermissions`
    pub(super) cluster: Vec<Value>,
    pub(super) shipped: Vec<Object>,
}

/// Splits the roles, bindings and service accounts of the input. The rights of the accounts of Deployments and of those
/// with the names `more` become permissions. `api_servers` are the accounts of Deployments that serve an aggregated API.
pub(super) fn split(
    input: &Input,
    more: &[String],
    api_servers: &BTreeSet<Account>,
    report: &mut Report,
) -> Permissions {
    let split = Split { input, api_servers, accounts: accounts(input, more) };
    let mut result = Permissions::default();
    let (mut taken, mut kept) = (BTreeSet::new(), BTreeSet::new());
    let mut granted: BTreeSet<(String, bool, String)> = BTreeSet::new();
    for binding in &input.bindings {
        let role = split.role(binding);
        let position = role.map(|(position, _)| position);
        let (ours, others): (Vec<&Value>, Vec<&Value>) =
            list(&binding.value, "/subjects").iter().partition(|subject| split.account(subject).is_some());
        let accounts: BTreeSet<&Account> = ours.iter().filter_map(|subject| split.account(subject)).collect();
        if accounts.is_empty() || !others.is_empty() {
            kept.extend(position);
            result.shipped.push(split.remainder(binding, &others, report));
        }
        let Some(first) = accounts.first() else { continue };
        taken.extend(position);
        if split.is_created(binding, &accounts) {
            report.skip(binding, "OLM creates it for the server of an APIService");
            continue;
        }
        let rules = match split.rules(binding, role.map(|(_, role)| role), &first.name) {
            Ok(rules) => rules,
            Err(problem) => {
                report.problem(problem);
                continue;
            }
        };
        let is_cluster = binding.kind() == "ClusterRoleBinding";
        for account in accounts {
            if !is_cluster && !may_share(split.home(account, &ours), binding.namespace()) {
                report.note(format!(
                    "{} grants rights in another namespace than that of the ServiceAccount; as a permission of the \
                     bundle it applies to the watched namespaces",
                    binding.label()
                ));
            }
            if granted.insert((account.name.clone(), is_cluster, rules.to_string())) {
                let list = if is_cluster { &mut result.cluster } else { &mut result.namespaced };
                list.push(json!({"serviceAccountName": account.name, "rules": rules}));
            }
        }
    }
    let roles = input.roles.iter().enumerate();
    let is_shipped = |position: &usize, role: &Object| {
        !taken.contains(position) || kept.contains(position) || is_aggregated(role)
    };
    result
        .shipped
        .extend(roles.filter(|(place, role)| is_shipped(place, role)).map(|(_, role)| role.clone()));
    split.accounts(&mut result, report);
    let by_account = |permission: &Value| text(permission, "/serviceAccountName").to_owned();
    result.namespaced.sort_by_key(by_account);
    result.cluster.sort_by_key(by_account);
    result
}

/// Accounts of Deployments, and those with the names `more` in any namespace.
fn accounts(input: &Input, more: &[String]) -> BTreeSet<Account> {
    let mut accounts: BTreeSet<Account> = input.deployments.iter().map(Account::of).collect();
    let is_known = |name: &&String| accounts.iter().any(|account| account.name == **name);
    let named: Vec<&String> = more.iter().filter(|name| !is_known(name)).collect();
    accounts.extend(named.into_iter().map(|name| Account { name: name.clone(), namespace: String::new() }));
    accounts
}

fn is_aggregated(role: &Object) -> bool {
    let labels = role.value.pointer("/metadata/labels").and_then(Value::as_object);
    labels.is_some_and(|labels| labels.keys().any(|key| key.starts_with(AGGREGATE)))
}

struct Split<'a> {
    input: &'a Input,
    accounts: BTreeSet<Account>,
    api_servers: &'a BTreeSet<Account>,
}

impl<'a> Split<'a> {
    /// Account of a Deployment that a subject names.
    fn account(&self, subject: &Value) -> Option<&Account> {
        let (name, namespace) = (text(subject, "/name"), text(subject, "/namespace"));
        let is_account = text(subject, "/kind") == "ServiceAccount";
        self.accounts.iter().find(|account| is_account && account.is(name, namespace))
    }

    /// Namespace of an account. That of a named one is in the subject that refers to it.
    fn home<'s>(&self, account: &'s Account, subjects: &[&'s Value]) -> &'s str {
        match account.namespace.as_str() {
            "" => {
                let subject = subjects.iter().find(|subject| self.account(subject) == Some(account));
                subject.map_or("", |subject| text(subject, "/namespace"))
            }
            namespace => namespace,
        }
    }

    /// Role of a binding, with its position in the input.
    fn role(&self, binding: &Object) -> Option<(usize, &'a Object)> {
        let (kind, name) = (text(&binding.value, "/roleRef/kind"), text(&binding.value, "/roleRef/name"));
        let is_role = |role: &Object| {
            role.kind() == kind && role.name() == name && may_share(role.namespace(), binding.namespace())
        };
        self.input.roles.iter().enumerate().find(|(_, role)| is_role(role))
    }

    /// Reports whether OLM creates the binding for an aggregated API.
    fn is_created(&self, binding: &Object, accounts: &BTreeSet<&Account>) -> bool {
        let role = text(&binding.value, "/roleRef/name");
        [AUTH_READER, AUTH_DELEGATOR].contains(&role)
            && accounts.iter().all(|account| self.api_servers.contains(account))
    }

    /// Rules that a binding grants to `account`.
    fn rules(&self, binding: &Object, role: Option<&Object>, account: &str) -> Result<Value, String> {
        let at = format!("{}: {}", binding.origin, binding.label());
        let name = text(&binding.value, "/roleRef/name");
        let Some(role) = role else {
            let everything = json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
            ]);
            let reviews = json!([
                {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
                {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
            ]);
            return match name {
                "cluster-admin" => Ok(everything),
                AUTH_DELEGATOR => Ok(reviews),
                _ => Err(format!(
                    "{at}: binds ServiceAccount {account} to {} {name}, which the input lacks; add \
                     its manifest with --from, because a bundle contains the rules",
                    text(&binding.value, "/roleRef/kind")
                )),
            };
        };
        if role.value.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
            let why =
                "has an aggregationRule, which a bundle cannot contain for the operator; list the rules";
            return Err(format!("{}: {}: {why}", role.origin, role.label()));
        }
        Ok(Value::from(list(&role.value, "/rules")))
    }

    /// Binding for the subjects that are not accounts of Deployments.
    fn remainder(&self, binding: &Object, subjects: &[&Value], report: &mut Report) -> Object {
        let accounts = subjects.iter().filter(|subject| text(subject, "/kind") == "ServiceAccount");
        for account in accounts {
            let (name, namespace) = (text(account, "/name"), text(account, "/namespace"));
            let is_shipped = |one: &Object| one.name() == name && may_share(one.namespace(), namespace);
            if self.input.accounts.iter().any(is_shipped) {
                report.note(format!(
                    "{} grants rights to ServiceAccount {name} only in namespace {namespace}, because an installation in \
                     another namespace does not change it; to grant them in the namespace of the installation: \
                     --service-account {name}",
                    binding.label()
                ));
            }
        }
        let mut binding = binding.clone();
        if binding.value.get("subjects").is_some() {
            binding.value["subjects"] = subjects.iter().map(|subject| (*subject).clone()).collect();
        }
        binding
    }

    /// Keeps the service accounts that are not created from permissions, and adds empty permissions for accounts
    /// without any, because OLM creates only accounts with permissions.
    fn accounts(&self, result: &mut Permissions, report: &mut Report) {
        for object in &self.input.accounts {
            if !self.accounts.iter().any(|account| account.is(object.name(), object.namespace())) {
                result.shipped.push(object.clone());
                continue;
            }
            report.skip(object, "OLM creates the service accounts with permissions");
            let lost = ACCOUNT_FIELDS.iter().filter(|field| object.value.pointer(field).is_some());
            let lost: Vec<String> = lost.map(|field| field[1..].replace('/', ".")).collect();
            if !lost.is_empty() {
                report.note(format!("{}: OLM does not set {}", object.label(), lost.join(", ")));
            }
        }
        let has =
            |name: &str, list: &[Value]| list.iter().any(|one| text(one, "/serviceAccountName") == name);
        for account in &self.accounts {
            let name = account.name.as_str();
            if name != "default" && !has(name, &result.namespaced) && !has(name, &result.cluster) {
                result.cluster.push(json!({"serviceAccountName": name, "rules": []}));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, namespace: &str, name: &str, fields: Value) -> Object {
        let mut value = json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}});
        value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Object { origin: "f".into(), is_sample: false, value }
    }

    fn role(kind: &str, name: &str) -> Object {
        object(kind, "", name, json!({"rules": [{"verbs": [name]}]}))
    }

    fn binding(kind: &str, role_kind: &str, role: &str, subjects: &[(&str, &str)]) -> Object {
        let subject = |(name, namespace): &(&str, &str)| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        let subjects: Vec<Value> = subjects.iter().map(subject).collect();
        let fields = json!({"roleRef": {"kind": role_kind, "name": role}, "subjects": subjects});
        object(kind, "ns", &format!("{role}-binding"), fields)
    }

    fn input(roles: Vec<Object>, bindings: Vec<Object>) -> Input {
        let pod = json!({"spec": {"template": {"spec": {"serviceAccountName": "op"}}}});
        Input {
            deployments: vec![object("Deployment", "ns", "d", pod)],
            accounts: vec![
                object("ServiceAccount", "ns", "op", json!({"imagePullSecrets": []})),
                object("ServiceAccount", "ns", "job", json!({})),
            ],
            roles,
            bindings,
            ..Input::default()
        }
    }

    /// Permissions of the operator and names of the other objects.
    fn summary(permissions: &Permissions) -> (Vec<String>, Vec<String>, Vec<String>) {
        let rule = |one: &Value| format!("{} {}", text(one, "/serviceAccountName"), one["rules"]);
        let names = permissions.shipped.iter().map(Object::label);
        (
            permissions.namespaced.iter().map(rule).collect(),
            permissions.cluster.iter().map(rule).collect(),
            names.collect(),
        )
    }

    #[test]
    fn bound_roles_become_permissions_and_others_stay() {
        let operator = [("op", "ns")];
        let roles = vec![
            role("Role", "leader"),
            role("ClusterRole", "manager"),
            role("ClusterRole", "shared"),
            role("ClusterRole", "editor"),
        ];
        let bindings = vec![
            binding("RoleBinding", "Role", "leader", &operator),
            binding("ClusterRoleBinding", "ClusterRole", "manager", &operator),
            binding("RoleBinding", "ClusterRole", "shared", &[("op", "ns"), ("job", "ns")]),
        ];
        let mut report = Report::default();
        let (namespaced, cluster, shipped) =
            summary(&split(&input(roles, bindings), &[], &BTreeSet::new(), &mut report));
        assert_eq!(namespaced, [r#"op [{"verbs":["leader"]}]"#, r#"op [{"verbs":["shared"]}]"#]);
        assert_eq!(cluster, [r#"op [{"verbs":["manager"]}]"#]);
        let expected = [
            "RoleBinding ns/shared-binding",
            "ClusterRole shared",
            "ClusterRole editor",
            "ServiceAccount ns/job",
        ];
        assert_eq!(shipped, expected);
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.notes[1], "ServiceAccount ns/op: OLM does not set imagePullSecrets");
    }

    #[test]
    fn rights_of_a_named_account_become_permissions() {
        let roles = vec![role("ClusterRole", "shared"), role("Role", "own")];
        let bindings = vec![
            binding("ClusterRoleBinding", "ClusterRole", "shared", &[("op", "ns"), ("job", "ns")]),
            binding("RoleBinding", "Role", "own", &[("job", "ns")]),
        ];
        let mut report = Report::default();
        let (namespaced, cluster, shipped) =
            summary(&split(&input(roles, bindings), &["job".to_owned()], &BTreeSet::new(), &mut report));
        assert_eq!(namespaced, [r#"job [{"verbs":["own"]}]"#]);
        assert_eq!(cluster, [r#"job [{"verbs":["shared"]}]"#, r#"op [{"verbs":["shared"]}]"#]);
        assert_eq!((shipped.as_slice(), report.problems.as_slice()), (&[][..], &[][..]));
    }

    #[test]
    fn subject_of_another_namespace_is_not_the_operator() {
        let bindings = vec![binding("ClusterRoleBinding", "ClusterRole", "manager", &[("op", "elsewhere")])];
        let mut report = Report::default();
        let input = input(vec![role("ClusterRole", "manager")], bindings);
        let (namespaced, cluster, shipped) = summary(&split(&input, &[], &BTreeSet::new(), &mut report));
        // OLM creates only accounts with permissions.
        assert_eq!((namespaced, cluster), (vec![], vec!["op []".to_owned()]));
        assert_eq!(shipped.len(), 3);
    }

    #[test]
    fn binding_to_unknown_cluster_role_outside_input_is_reported() {
        let operator = [("op", "ns")];
        for (role, is_api_server, rules, problems) in [
            ("cluster-admin", false, 1, 0),
            ("system:auth-delegator", false, 1, 0),
            ("system:auth-delegator", true, 1, 0),
            ("view", true, 1, 1),
        ] {
            let input = input(vec![], vec![binding("ClusterRoleBinding", "ClusterRole", role, &operator)]);
            let accounts = input.deployments.iter().filter(|_| is_api_server).map(Account::of).collect();
            let mut report = Report::default();
            let permissions = split(&input, &[], &accounts, &mut report);
            let found = (permissions.cluster.len(), report.problems.len());
            assert_eq!(found, (rules, problems), "{role} {is_api_server}");
            let is_empty = permissions.cluster[0]["rules"] == json!([]);
            assert_eq!(is_empty, is_api_server, "{role}");
        }
    }
}
