//! `olm rbac grant` and `olm rbac who` with the answers of a real API server.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
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

    objects_of_others_are_not_changed(&fixture).await;
    users_grant_only_what_they_may_do(&fixture).await;
    missing_subjects_are_reported(&fixture).await;
}

async fn who_lists_holders_by_scope(fixture: &Fixture) {
    let ann =
        "User ann pipe-system view pipes.example.com RoleBinding pipe-apis-view:user:ann Role pipe-apis-view";
    let devs = "Group devs * edit pipes.example.com ClusterRoleBinding pipe-apis-edit:group:devs ClusterRole \
                pipe-apis-edit";
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
        "apis": ["pipes.example.com"], "binding": "RoleBinding pipe-apis-view:user:ann",
        "role": "Role pipe-apis-view"});
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
    assert!(roles.get_opt("pipe-apis-view").await.unwrap().is_none());
}

async fn objects_of_others_are_not_changed(fixture: &Fixture) {
    let roles: Api<Role> = Api::namespaced(fixture.client(), NAMESPACE);
    let role = serde_json::from_value(json!({"metadata": {"name": "pipe-apis-admin"}})).unwrap();
    roles.create(&PostParams::default(), &role).await.unwrap();
    let args = ["rbac", "grant", "pipe", "--to", "user:ann", "--role", "admin", "-n", NAMESPACE];
    let ran = fixture.olm(&args).await;
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("Role \"pipe-apis-admin\" exists, and has no label"), "{}", ran.stderr);
    roles.delete("pipe-apis-admin", &DeleteParams::default()).await.unwrap();
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
        assert_eq!(ran.code, 1);
        ran.stderr.contains("you can grant only access that you have").then_some(())
    })
    .await;
    bind("pipes").await;
    until_allowed(fixture, "bea", "create", NAMESPACE).await;
    let ran = as_user(fixture, "bea", &named).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    until_allowed(fixture, "eve", "create", NAMESPACE).await;

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
        (&["rbac", "who", "pipe", "--api", "pipes"], 2, "expected the name of a CustomResourceDefinition"),
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
