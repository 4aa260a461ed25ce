//! `olm rbac grant` and `olm rbac who` with the answers of a real API server.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use olm_control_plane::eventually;
use serde_json::{Value, json};

use super::fixture::{Fixture, compare};
use crate::fixture::Ran;

const NAMESPACE: &str = "pipe-system";
const VIEW: [&str; 9] = ["rbac", "grant", "pipe", "--to", "user:ann", "--role", "view", "-n", NAMESPACE];

#[tokio::test(flavor = "multi_thread")]
async fn granted_access_is_effective_and_listed() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    manifests_are_printed_without_a_write(&fixture).await;

    let ran = fixture.olm(&VIEW).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("grant.txt", &ran.stdout);
    until_allowed(&fixture, "ann", "list", NAMESPACE).await;
    assert!(!allowed(&fixture, "ann", "create", NAMESPACE).await);
    assert!(!allowed(&fixture, "ann", "list", "default").await);
    let ran = fixture.olm(&[&VIEW[..], &["-o", "name"]].concat()).await;
    assert_eq!(ran.stdout.lines().count(), 2, "{}", ran.stdout);
    let ran = fixture.olm(&VIEW).await;
    assert_eq!(ran.stdout.matches(" unchanged\n").count(), 2, "{}", ran.stdout);

    let everywhere = ["rbac", "grant", "pipe", "--to", "group:devs", "--role", "edit", "--all-namespaces"];
    let ran = fixture.olm(&everywhere).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    who_lists_holders_by_scope(&fixture).await;

    grants_of_other_subjects_are_unchanged(&fixture).await;
    aggregated_apis_can_be_granted(&fixture).await;
    objects_of_others_are_not_changed(&fixture).await;
    users_grant_only_what_they_may_do(&fixture).await;
    missing_subjects_are_reported(&fixture).await;
}

async fn who_lists_holders_by_scope(fixture: &Fixture) {
    let ann = "User ann pipe-system view pipes.example.com RoleBinding pipe-apis-view:user:ann Role \
         pipe-apis-view:user:ann";
    let devs = "Group devs * edit pipes.example.com ClusterRoleBinding pipe-apis-edit:group:devs ClusterRole \
                pipe-apis-edit:group:devs";
    let masters = "Group system:masters * admin pipes.example.com ClusterRoleBinding cluster-admin ClusterRole \
                   cluster-admin";
    for (args, is_within) in [
        (&["rbac", "who", "pipe"][..], true),
        (&["rbac", "who", "pipe", "-n", NAMESPACE], true),
        (&["rbac", "who", "pipe", "-n", "default"], false),
    ] {
        let ran = fixture.olm(args).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        let rows = rows(&ran);
        let has = |row: &str| rows.iter().any(|one| one == row);
        assert!(has(masters) && has(devs) && has(ann) == is_within, "{args:?}: {}", ran.stdout);
        assert!(!ran.stdout.contains("system:controller"), "{}", ran.stdout);
        assert!(ran.stdout.ends_with("of Kubernetes components not shown; show them with --all\n"));
    }
    let ran = fixture.olm(&["rbac", "who", "pipe", "--all"]).await;
    assert!(rows(&ran).iter().any(|row| row.contains("system:controller")), "{}", ran.stdout);
    let ran = fixture.olm(&["rbac", "who", "pipe", "-n", NAMESPACE, "-o", "json"]).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&report["kind"], &report["unreadable"]), (&json!("APIAccess"), &json!([])));
    let ann = json!({"subject": {"kind": "User", "name": "ann"}, "namespace": NAMESPACE, "access": "view",
        "apis": ["pipes.example.com"], 
        "binding": {"kind": "RoleBinding", "name": "pipe-apis-view:user:ann"},
        "role": {"kind": "Role", "name": "pipe-apis-view:user:ann"}});
    assert!(report["holders"].as_array().unwrap().contains(&ann), "{report}");
}

/// Rows of a table, with single blanks.
fn rows(ran: &Ran) -> Vec<String> {
    let row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    ran.stdout.lines().map(row).collect()
}

/// Asks the API server whether a user may do something with pipes in a namespace.
async fn allowed(fixture: &Fixture, user: &str, verb: &str, namespace: &str) -> bool {
    let review = json!({"spec": {"user": user, "resourceAttributes":
        {"group": "example.com", "resource": "pipes", "verb": verb, "namespace": namespace}}});
    let api: Api<SubjectAccessReview> = Api::all(fixture.client());
    let review = serde_json::from_value(review).unwrap();
    api.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

async fn until_allowed(fixture: &Fixture, user: &str, verb: &str, namespace: &str) {
    let what = format!("{user} may {verb}");
    eventually(&what, async || allowed(fixture, user, verb, namespace).await.then_some(())).await;
}

/// Runs `olm` as this user.
async fn as_user(fixture: &Fixture, user: &str, args: &[&str]) -> Ran {
    let text = std::fs::read_to_string(fixture.path("kubeconfig")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"]["as"] = json!(user);
    let path = fixture.path(user);
    std::fs::write(&path, config.to_string()).unwrap();
    fixture.olm(&[args, &["--kubeconfig", path.to_str().unwrap()]].concat()).await
}

async fn manifests_are_printed_without_a_write(fixture: &Fixture) {
    let ran = fixture.olm(&[&VIEW[..], &["--dry-run=client", "-o", "yaml"]].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("grant.yaml", &ran.stdout);
    let ran = fixture.olm(&[&VIEW[..], &["--dry-run=server"]].concat()).await;
    assert!(ran.stdout.contains(" created (server dry run)"), "{}{}", ran.stdout, ran.stderr);
    let roles: Api<Role> = Api::namespaced(fixture.client(), NAMESPACE);
    assert!(roles.get_opt("pipe-apis-view:user:ann").await.unwrap().is_none());
}

/// A cluster-scoped API of the extension makes two: ann's grant has both, bob's one.
async fn grants_of_other_subjects_are_unchanged(fixture: &Fixture) {
    let owner = json!({"olm.operatorframework.io/owner-kind": "ClusterExtension",
        "olm.operatorframework.io/owner-name": "pipe"});
    let crd = json!({"metadata": {"name": "pumps.example.com", "labels": owner},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Pump", "plural": "pumps"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let crds: Api<CustomResourceDefinition> = Api::all(fixture.client());
    crds.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();
    let grant = ["rbac", "grant", "pipe", "--role", "view", "--to"];
    for args in [
        &["user:cat", "--all-namespaces"][..],
        &["user:dan", "--all-namespaces", "--api", "pipes.example.com"],
    ] {
        let ran = fixture.olm(&[&grant[..], args].concat()).await;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    for (user, resources) in [("cat", &["pipes", "pumps"][..]), ("dan", &["pipes"])] {
        let role = roles.get(&format!("pipe-apis-view:user:{user}")).await.unwrap();
        assert_eq!(role.rules.unwrap()[0].resources.as_deref().unwrap(), resources);
    }
    let cluster_scoped = [&grant[..], &["user:dan", "-n", NAMESPACE, "--api", "pumps.example.com"]].concat();
    let ran = fixture.olm(&cluster_scoped).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.contains("cannot be granted in a namespace: pumps.example.com"), "{}", ran.stderr);
    crds.delete("pumps.example.com", &DeleteParams::default()).await.unwrap();
}

/// An APIService of the extension. A CRD answers for the group, because nothing runs in this cluster.
async fn aggregated_apis_can_be_granted(fixture: &Fixture) {
    let services: Api<APIService> = Api::all(fixture.client());
    let name = "v1.example.com";
    let labels = |kind: Option<&str>, name: Option<&str>| {
        json!({"metadata": {"labels": {"olm.operatorframework.io/owner-kind": kind,
            "olm.operatorframework.io/owner-name": name}}})
    };
    let own = labels(Some("ClusterExtension"), Some("served"));
    services.patch(name, &PatchParams::default(), &Patch::Merge(own)).await.unwrap();
    let args = ["rbac", "grant", "served", "--to", "user:ann", "--role", "view", "-n", NAMESPACE];
    eventually("the aggregated API is announced", async || {
        let ran = fixture.olm(&[&args[..], &["--dry-run=client"]].concat()).await;
        ran.stdout.contains("APIs:               pipes.example.com\n").then_some(())
    })
    .await;
    services.patch(name, &PatchParams::default(), &Patch::Merge(labels(None, None))).await.unwrap();
}

async fn objects_of_others_are_not_changed(fixture: &Fixture) {
    let roles: Api<Role> = Api::namespaced(fixture.client(), NAMESPACE);
    let role = serde_json::from_value(json!({"metadata": {"name": "pipe-apis-admin:user:ann"}})).unwrap();
    roles.create(&PostParams::default(), &role).await.unwrap();
    let args = ["rbac", "grant", "pipe", "--to", "user:ann", "--role", "admin", "-n", NAMESPACE];
    let ran = fixture.olm(&args).await;
    assert_eq!(ran.code, 3);
    assert!(
        ran.stderr.contains("Role \"pipe-apis-admin:user:ann\" exists, and has no label"),
        "{}",
        ran.stderr
    );
    roles.delete("pipe-apis-admin:user:ann", &DeleteParams::default()).await.unwrap();
}

/// The namespace administrator may write roles and bindings in the namespace.
async fn users_grant_only_what_they_may_do(fixture: &Fixture) {
    let bindings: Api<RoleBinding> = Api::namespaced(fixture.client(), NAMESPACE);
    let bind = async |role: &str| {
        let binding = json!({"metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bea"}]});
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    };
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
        "verbs": ["get", "list", "create", "update", "patch"]}]);
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    for (name, rules) in [
        ("access-manager", rules),
        (
            "pipes",
            json!([{"apiGroups": ["example.com"],
        "resources": ["pipes"], "verbs": ["*"]}]),
        ),
    ] {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    }
    bind("access-manager").await;
    let grant = ["rbac", "grant", "pipe", "--to", "user:eve", "--role", "edit", "-n", NAMESPACE];
    let ran = as_user(fixture, "bea", &grant).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("name them instead, such as --api lamps.example.com"), "{}", ran.stderr);
    let named = [&grant[..], &["--api", "pipes.example.com"]].concat();
    eventually("grant is refused", async || {
        let ran = as_user(fixture, "bea", &named).await;
        ran.stderr.contains("you can grant only access that you have").then_some(())
    })
    .await;
    bind("pipes").await;
    until_allowed(fixture, "bea", "create", NAMESPACE).await;
    // Without verb bind, the API server cannot check a binding to a role that it does not store.
    let ran = as_user(fixture, "bea", &[&named[..], &["--dry-run=server"]].concat()).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("note: the API server did not validate the binding"), "{}", ran.stderr);
    assert!(ran.stdout.contains(" created (server dry run)\n"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with(" created (dry run)\n"), "{}", ran.stdout);
    let ran = as_user(fixture, "bea", &named).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    until_allowed(fixture, "eve", "create", NAMESPACE).await;

    users_list_only_what_they_may_read(fixture).await;
}

async fn users_list_only_what_they_may_read(fixture: &Fixture) {
    let who = ["rbac", "who", "pipe", "-n", NAMESPACE, "--api", "pipes.example.com"];
    let ran = as_user(fixture, "bea", &who).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let rows = rows(&ran);
    assert!(
        rows.iter().any(|row| row.starts_with("User eve pipe-system edit pipes.example.com")),
        "{rows:?}"
    );
    let unknown = "User bea pipe-system unknown - RoleBinding pipes ClusterRole pipes";
    assert!(rows.iter().any(|row| row == unknown), "{rows:?}");
    assert!(
        ran.stdout.contains("\nThe list may be incomplete:\ncannot list ClusterRoleBindings: "),
        "{}",
        ran.stdout
    );
    let ran = as_user(fixture, "ann", &who).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("ask an administrator for the permission to list"), "{}", ran.stderr);
}

async fn missing_subjects_are_reported(fixture: &Fixture) {
    for (args, code, said) in [
        (&["rbac", "who", "nope"][..], 4, "there is no ClusterExtension \"nope\"; existing: pipe"),
        (&["rbac", "who", "pipe", "--api", "pipes"], 2, "expected RESOURCE.GROUP"),
        (&["rbac", "who", "a/b"], 2, "not a valid name of a ClusterExtension"),
        (&["rbac", "who", "nope", "--api", "pipes.example.com"], 4, "there is no ClusterExtension"),
        (
            &["rbac", "who", "pipe", "--api", "roles.rbac.authorization.k8s.io"],
            4,
            "extension pipe has no API roles.rbac.authorization.k8s.io; its APIs: pipes.example.com",
        ),
        (&["rbac", "grant", "pipe", "--to", "ann", "--role", "view", "-n", "a"], 2, "expected user:NAME"),
        (&["rbac", "grant", "pipe", "--to", "user:ann", "--role", "view"], 2, "--namespace <NAMESPACE>"),
        (
            &["rbac", "grant", "pipe", "--to", "user:ann", "--role", "root", "-n", "a"],
            2,
            "invalid value 'root'",
        ),
    ] {
        let ran = fixture.olm(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
}
