//! `olm apis` for users with different permissions (docs/design/cli.md#apis-of-a-namespace).

use olm_control_plane::eventually;
use serde_json::{Value, json};

use super::fixture::{Fixture, olm};

const TEAM: &str = "my-team";
const RBAC: &str = "rbac.authorization.k8s.io";

fn owned() -> Value {
    json!({"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": "lamp"})
}

fn crd(kind: &str, scope: &str, labels: Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com"), "labels": labels},
        "spec": {"group": "example.com", "scope": scope, "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    })
}

fn deployment(namespace: &str, targets: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "lamp", "namespace": namespace, "labels": owned(), "ownerReferences": [
            {"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "lamp-1",
                "uid": "11111111-2222-3333-4444-555555555555", "controller": true}]},
        "spec": {"selector": {"matchLabels": {"app": "lamp"}}, "template": {
            "metadata": {"labels": {"app": "lamp"}, "annotations": {"olm.targetNamespaces": targets}},
            "spec": {"containers": [{"name": "main", "image": "r.example/lamp"}]}}},
    })
}

/// Gives the user these verbs on all resources of `group` in the namespace.
async fn bind(fixture: &Fixture, user: &str, group: &str, verbs: &[&str]) {
    let name = format!("{user}-{}", group.replace('.', "-"));
    let (api_version, metadata) = (format!("{RBAC}/v1"), json!({"name": name, "namespace": TEAM}));
    let rules = json!([{"apiGroups": [group], "resources": ["*"], "verbs": verbs}]);
    fixture
        .create(&json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules}))
        .await;
    fixture
        .create(&json!({"apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
            "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name}}))
        .await;
}

fn extension() -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "lamp"},
        "spec": {"namespace": "pipe-system", "source": {"sourceType": "Catalog",
            "catalog": {"packageName": "lamp"}}},
    })
}

async fn start() -> Fixture {
    let fixture = Fixture::start().await;
    fixture.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})).await;
    for (kind, scope, labels) in
        [("Lamp", "Namespaced", owned()), ("Grid", "Cluster", owned()), ("Stone", "Namespaced", json!({}))]
    {
        fixture.create(&crd(kind, scope, labels)).await;
    }
    let extension = extension();
    fixture.create(&extension).await;
    let bundle = json!({"bundle": {"name": "lamp.v1.0.0", "version": "1.0.0"}});
    fixture.set_status(&extension, json!({"install": bundle})).await;
    fixture
}

/// Lines of the table with single blanks, once `line` is among them: permissions and discovery become active with a delay.
async fn table(fixture: &Fixture, user: Option<&str>, line: &str) -> Vec<String> {
    let args = ["apis", "-n", TEAM];
    eventually(line, async || {
        let ran = match user {
            Some(user) => fixture.olm_as(user, &args).await,
            None => fixture.olm(&args).await,
        };
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        let lines = ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let lines: Vec<String> = lines.collect();
        lines.iter().any(|one| one == line).then_some(lines)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn apis_shows_to_each_user_what_the_user_may_read_and_do() {
    let fixture = start().await;
    let has = |lines: &[String], line: &str| {
        assert!(lines.iter().any(|one| one == line), "no {line:?} in {lines:#?}");
    };

    // A cluster administrator, and an operator that watches another namespace.
    let lines = table(&fixture, None, "lamp 1.0.0 no operator Lamp example.com v1 Namespaced admin").await;
    has(&lines, "lamp 1.0.0 - Grid example.com v1 Cluster admin");
    assert_eq!(lines.len(), 3, "{lines:#?}");
    fixture.create(&deployment("pipe-system", "pipe-system")).await;
    table(&fixture, None, "lamp 1.0.0 no Lamp example.com v1 Namespaced admin").await;

    // An administrator of the namespace: a Role gives nothing on cluster-scoped kinds.
    bind(&fixture, "ann", "example.com", &["*"]).await;
    let lines = table(&fixture, Some("ann"), "unknown - unknown Lamp example.com v1 Namespaced admin").await;
    has(&lines, "unknown - - Grid example.com v1 Cluster none");
    has(&lines, "unknown - unknown Stone example.com v1 Namespaced admin");
    for right in
        ["clusterextensions.olm.operatorframework.io", "customresourcedefinitions.apiextensions.k8s.io"]
    {
        assert!(lines.iter().any(|line| line.starts_with(&format!("list {right}: "))), "{lines:#?}");
    }
    // The Deployment in the namespace names the operator and what it watches.
    bind(&fixture, "ann", "apps", &["get", "list"]).await;
    fixture.create(&deployment(TEAM, "a,my-team")).await;
    table(&fixture, Some("ann"), "lamp - yes - - - - -").await;

    // A viewer who may read extensions and CRDs of the cluster.
    bind(&fixture, "vic", "example.com", &["get", "list", "watch"]).await;
    let readable = [
        "olm.operatorframework.io/clusterextensions",
        "apiextensions.k8s.io/customresourcedefinitions",
        "apiregistration.k8s.io/apiservices",
    ];
    fixture.allow("vic", &readable).await;
    let lines = table(&fixture, Some("vic"), "lamp 1.0.0 unknown Lamp example.com v1 Namespaced view").await;
    has(&lines, "lamp 1.0.0 - Grid example.com v1 Cluster none");
    has(&lines, "list deployments.apps: whether the namespace is watched is unknown for lamp");
    has(&lines, "olm rbac grant lamp --to user:NAME --role edit -n my-team --api lamps.example.com");
    fixture.set_status(&extension(), json!({"targetNamespaces": [TEAM]})).await;
    let lines = table(&fixture, Some("vic"), "lamp 1.0.0 yes Lamp example.com v1 Namespaced view").await;
    assert!(!lines.iter().any(|line| line.contains("You lack permissions")), "{lines:#?}");

    let ran = fixture.olm(&["apis", "-n", "my-taem", "-o", "json"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (4, "error: there is no namespace \"my-taem\"\n"));
    let ran = fixture.olm(&["apis", "-n", TEAM, "-o", "json"]).await;
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&found["kind"], &found["missing"]), (&json!("NamespaceApis"), &json!([])));
    assert_eq!(found["operators"][0]["apis"][0]["allowed"]["verbs"], json!(["*"]));
}

#[test]
fn apis_help_has_examples() {
    super::fixture::compare("apis-help.txt", &olm(&["apis", "--help"]).stdout);
}
