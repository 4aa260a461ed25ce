//! All rights of the accounts of each install file, and of `hardened.yaml` with each additional file: every verb on
//! every discovered kind that one of the account's rules grants, as the API server lists them, compared with
//! `data/rights.txt`. `WRITE_RIGHTS=1` rewrites that file.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authorization::v1::{ResourceRule, SelfSubjectRulesReview, SubjectAccessReview};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use olm_control_plane::{Options, eventually};
use olm_manifests::{INSTALLATIONS, objects, of_kind, path, text};
use serde_json::{Value, json};

use super::{SERVER_SIDE, Server, data};

const HARDENED: &str = "hardened.yaml";
const BESIDE_HARDENED: [&str; 3] =
    ["hardened-api-services.yaml", "hardened-escalate.yaml", "hardened-impersonation.yaml"];
const AGGREGATED: &str = "/metadata/labels/ext.olm.operatorframework.io~1aggregate-to-operator-controller";

/// Rights that API discovery does not list.
const SPECIAL: [(&str, &str, &[&str]); 8] = [
    ("", "users", &["impersonate"]),
    ("", "groups", &["impersonate"]),
    ("", "serviceaccounts", &["impersonate"]),
    ("authentication.k8s.io", "userextras", &["impersonate"]),
    ("authentication.k8s.io", "uids", &["impersonate"]),
    ("certificates.k8s.io", "signers", &["approve", "attest", "sign"]),
    ("rbac.authorization.k8s.io", "roles", &["bind", "escalate"]),
    ("rbac.authorization.k8s.io", "clusterroles", &["bind", "escalate"]),
];
/// Checked namespaces in addition to those of the install file. `""` is the whole cluster.
const NAMESPACES: [&str; 4] = ["", "default", "kube-system", "openshift-config"];

/// A verb on a kind, for one name or all, in a namespace or the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    namespace: String,
    group: String,
    /// Resource, with its subresource.
    resource: String,
    name: String,
    verb: String,
}

/// Group, resource, `true` if namespaced, and verbs of a kind.
type Kind = (String, String, bool, Vec<String>);

async fn kinds(client: &Client) -> Vec<Kind> {
    let mut lists = vec![(String::new(), client.list_core_api_resources("v1").await.unwrap())];
    for group in client.list_api_groups().await.unwrap().groups {
        let version = group.preferred_version.unwrap().group_version;
        lists.push((group.name, client.list_api_group_resources(&version).await.unwrap()));
    }
    let found = lists.into_iter().flat_map(|(group, list)| {
        let kinds = move |found: APIResource| {
            // Not discovered: the right to set an owner reference with `blockOwnerDeletion`.
            let finalizers = (!found.name.contains('/')).then(|| {
                let name = format!("{}/finalizers", found.name);
                (group.clone(), name, found.namespaced, vec!["update".to_owned()])
            });
            finalizers.into_iter().chain([(group.clone(), found.name, found.namespaced, found.verbs)])
        };
        list.resources.into_iter().flat_map(kinds)
    });
    let special = SPECIAL.iter().map(|(group, resource, verbs)| {
        let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        ((*group).to_owned(), (*resource).to_owned(), true, verbs)
    });
    found.chain(special).collect()
}

/// Resource names in the rules of the cluster, each list with the resources of its rule.
async fn names(client: &Client) -> Vec<(Vec<String>, Vec<String>)> {
    let all = ListParams::default();
    let roles: Api<Role> = Api::all(client.clone());
    let cluster_roles: Api<ClusterRole> = Api::all(client.clone());
    let roles = roles.list(&all).await.unwrap().items.into_iter().filter_map(|role| role.rules);
    let cluster_roles = cluster_roles.list(&all).await.unwrap().items.into_iter();
    let rules = roles.chain(cluster_roles.filter_map(|role| role.rules)).flatten();
    rules
        .map(|rule: PolicyRule| (rule.resource_names.unwrap_or_default(), rule.resources.unwrap_or_default()))
        .collect()
}

/// Reports whether the API server grants a right on all objects of a resource, which has no subresource.
async fn allowed(client: &Client, account: (&str, &str), right: &Right) -> bool {
    let (namespace, name) = account;
    let review = json!({"spec": {
        "user": format!("system:serviceaccount:{namespace}:{name}"),
        "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"],
        "resourceAttributes": {"namespace": right.namespace, "group": right.group, "resource": right.resource,
            "verb": right.verb}}});
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let review = serde_json::from_value(review).unwrap();
    reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

/// Rules that bind the account in a namespace. In one without RoleBindings, these are the rules of the whole cluster.
async fn rules(account: &Client, namespace: &str) -> Vec<ResourceRule> {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(account.clone());
    let namespace = if namespace.is_empty() { "no-role-bindings" } else { namespace };
    let review = serde_json::from_value(json!({"spec": {"namespace": namespace}})).unwrap();
    let status = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    assert!(!status.incomplete, "{:?}", status.evaluation_error);
    status.resource_rules
}

/// Reports whether the rule grants the right.
fn grants(rule: &ResourceRule, right: &Right) -> bool {
    let lists =
        |list: &[String], all: &[&str]| list.iter().any(|one| one == "*" || all.contains(&one.as_str()));
    let subresource = right.resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
    let names = rule.resource_names.as_deref().unwrap_or_default();
    lists(&rule.verbs, &[&right.verb])
        && lists(rule.api_groups.as_deref().unwrap_or_default(), &[&right.group])
        && lists(
            rule.resources.as_deref().unwrap_or_default(),
            &[&right.resource, subresource.as_deref().unwrap_or_default()],
        )
        && (names.is_empty() || names.contains(&right.name))
}

/// All rights of an account: the cluster-wide ones, then those limited to a namespace or a name.
async fn rights(server: &Server, account: (&str, &str), own: &BTreeSet<String>) -> BTreeSet<Right> {
    let client = server.plane.client();
    let (kinds, names) = (kinds(&client).await, names(&client).await);
    let (namespace, name) = account;
    let user = format!("system:serviceaccount:{namespace}:{name}");
    let account = server.plane.client_of(&user, &[]).await.unwrap();
    let every = |namespace: &str, of: &dyn Fn(&str) -> Vec<String>| -> Vec<Right> {
        let kinds = kinds.iter().filter(|(_, _, namespaced, _)| namespace.is_empty() || *namespaced);
        let rights = kinds.flat_map(|(group, resource, _, verbs)| {
            let names = of(resource).into_iter();
            names.flat_map(move |name| {
                verbs.iter().map(move |verb| Right {
                    namespace: namespace.to_owned(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                })
            })
        });
        rights.collect()
    };
    let unnamed = |_: &str| vec![String::new()];
    let named = |resource: &str| -> Vec<String> {
        let of = names.iter().filter(|(_, of)| of.iter().any(|of| of == resource || of.contains('*')));
        let all: BTreeSet<String> = of.flat_map(|(names, _)| names.iter().cloned()).collect();
        all.into_iter().collect()
    };
    let mut found: BTreeSet<Right> = BTreeSet::new();
    let namespaces: BTreeSet<&str> = NAMESPACES.into_iter().chain(own.iter().map(String::as_str)).collect();
    for namespace in namespaces {
        let rules = rules(&account, namespace).await;
        for of in [&unnamed as &dyn Fn(&str) -> Vec<String>, &named] {
            let wider = |right: &Right| {
                let everywhere = Right { namespace: String::new(), ..right.clone() };
                let unnamed = |right: &Right| Right { name: String::new(), ..right.clone() };
                [unnamed(&everywhere), everywhere, unnamed(right)].iter().any(|wider| found.contains(wider))
            };
            let mut granted = every(namespace, of);
            granted.retain(|right| !wider(right) && rules.iter().any(|rule| grants(rule, right)));
            found.extend(granted);
        }
    }
    found
}

/// One line per namespace, resource and list of verbs.
fn lines(rights: &BTreeSet<Right>) -> String {
    let mut verbs: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for right in rights {
        let group = if right.group.is_empty() { String::new() } else { format!(".{}", right.group) };
        let name = if right.name.is_empty() { String::new() } else { format!("={}", right.name) };
        let place = if right.namespace.is_empty() { "cluster" } else { &right.namespace };
        let kind = format!("{}{group}{name}", right.resource);
        verbs.entry((place.to_owned(), kind)).or_default().push(&right.verb);
    }
    let mut lines: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for ((place, kind), verbs) in verbs {
        lines.entry((place, verbs.join(","))).or_default().push(kind);
    }
    lines
        .into_iter()
        .map(|((place, verbs), kinds)| format!("{place}: {verbs}: {}\n", kinds.join(" ")))
        .collect()
}

/// Waits until the authorizer has seen all applied objects, by applying one more role.
async fn settle(server: &Server, file: &str) {
    let meta = |kind: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": "sentinel", "namespace": "default"}})
    };
    let name = file.replace('.', "-");
    let rules = json!([{"apiGroups": ["sentinel"], "resources": [name], "verbs": ["get"]}]);
    for (role, namespace) in [("Role", "default"), ("ClusterRole", "kube-system")] {
        let (mut of, mut binding) = (meta(role), meta(&format!("{role}Binding")));
        of["rules"] = rules.clone();
        let account = format!("sentinel-{name}");
        binding["roleRef"] =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "sentinel"});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": account, "namespace": "default"}]);
        for mut object in [of, binding] {
            if role == "ClusterRole" {
                object["metadata"].as_object_mut().unwrap().remove("namespace");
            }
            server.kubectl(&["apply", "--server-side", "-f", "-"], &object.to_string());
        }
        let right = Right {
            namespace: namespace.to_owned(),
            group: "sentinel".to_owned(),
            resource: name.clone(),
            name: String::new(),
            verb: "get".to_owned(),
        };
        let client = server.plane.client();
        let seen = async || allowed(&client, ("default", &account), &right).await.then_some(());
        eventually("the authorizer has seen the applied objects", seen).await;
    }
}

/// Each installation alone, and with each file applied in addition.
fn files() -> Vec<(&'static str, &'static str)> {
    let beside = |file| if file == HARDENED { &BESIDE_HARDENED[..] } else { &[] };
    let with = |file| std::iter::once(file).chain(beside(file).iter().copied()).map(move |of| (file, of));
    INSTALLATIONS.into_iter().flat_map(with).collect()
}

/// Waits until the aggregated role has, or no longer has, the rules of the ClusterRoles of `file`.
async fn aggregate(client: &Client, file: &str, present: bool) {
    let api: Api<ClusterRole> = Api::all(client.clone());
    let labeled = |role: &&Value| role.pointer(AGGREGATED).is_some();
    let all = objects(file);
    let roles: Vec<&Value> = of_kind(&all, "ClusterRole").into_iter().filter(labeled).collect();
    let expected: Vec<&Value> = roles.iter().flat_map(|role| role["rules"].as_array().unwrap()).collect();
    eventually("the role is aggregated", async || {
        let rules = json!(api.get("operator-controller-content-role").await.unwrap().rules);
        let rules = rules.as_array().map(Vec::as_slice).unwrap_or_default();
        expected.iter().all(|rule| rules.contains(rule) == present).then_some(())
    })
    .await;
}

/// Content of `rights.txt`: a section for each list of rights, with the accounts that have it.
async fn report(server: &Server) -> String {
    let client = server.plane.client();
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for (installation, file) in files() {
        server.apply(&path(file), SERVER_SIDE);
        let all = objects(installation);
        if installation == HARDENED {
            aggregate(&client, file, true).await;
        }
        settle(server, file).await;
        let own: BTreeSet<String> = of_kind(&all, "ServiceAccount").iter().map(namespace_of).collect();
        let of_any_account = rights(server, ("default", "nobody"), &own).await;
        for account in of_kind(&all, "ServiceAccount") {
            let name = text(account, "/metadata/name");
            let account = (text(account, "/metadata/namespace"), name);
            let everything = Right {
                namespace: String::new(),
                group: "*".to_owned(),
                resource: "*".to_owned(),
                name: String::new(),
                verb: "*".to_owned(),
            };
            let found = if allowed(&client, account, &everything).await {
                "cluster: everything\n".to_owned()
            } else {
                lines(&rights(server, account, &own).await.difference(&of_any_account).cloned().collect())
            };
            let of = format!("{} of {file}", name.trim_end_matches("-controller-manager"));
            match sections.iter_mut().find(|(rights, _)| *rights == found) {
                Some((_, accounts)) => accounts.push(of),
                None => sections.push((found, vec![of])),
            }
        }
        if file != installation {
            server.kubectl(&["delete", "-f", path(file).to_str().unwrap()], "");
            aggregate(&client, file, false).await;
        }
    }
    sections.iter().map(|(rights, of)| format!("# {}\n{rights}\n", of.join(", "))).collect()
}

fn namespace_of(object: &&Value) -> String {
    text(object, "/metadata/namespace").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_have_the_listed_rights_and_no_others() {
    let server = Server::start_with(Options { controllers: &["clusterrole-aggregation-controller"] }).await;
    server.apply(&path("operator-conditions.yaml"), SERVER_SIDE);
    let found = report(&server).await;
    let file = data("rights.txt");
    if std::env::var_os("WRITE_RIGHTS").is_some() {
        std::fs::write(&file, &found).unwrap();
    }
    let listed = std::fs::read_to_string(&file).unwrap();
    let lacks = |one: &str, other: &str| -> Vec<String> {
        one.lines().filter(|line| !other.lines().any(|of| of == *line)).map(str::to_owned).collect()
    };
    let (more, less) = (lacks(&found, &listed), lacks(&listed, &found));
    assert!(found == listed, "{}:\nnot listed: {more:#?}\nmissing: {less:#?}", file.display());
    let catalogd: Vec<&str> = listed.split("\n\n").filter(|one| one.starts_with("# catalogd")).collect();
    assert!(!catalogd.is_empty() && catalogd.iter().all(|one| !one.contains("everything")));
}
