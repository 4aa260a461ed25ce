//! Rights of a stolen token of catalogd, with the rights of an install file and both servers running: it writes no
//! Secrets, webhook configurations or Roles, and reads only named Secrets.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use olm_servers::{Catalog, NAMESPACE, Programs, Server, ServerFixture, Workloads, eventually, extension};
use serde_json::{Value, json};

use crate::fixture::{apply, documents};
use crate::hardened::kubeconfig_of;
use crate::impersonation::bundle;

const ACCOUNT: &str = "catalogd-controller-manager";
const CONFIGURATION: &str = "catalogd-mutating-webhook-configuration";
const BUILTIN: [&str; 4] =
    ["--cert-management=builtin", "--tls-cert=", "--tls-key=", "--metrics-bind-address=0"];

#[tokio::test(flavor = "multi_thread")]
async fn stolen_catalogd_token_writes_nothing_with_install_yaml() {
    let (fixture, _servers) = start("install.yaml").await;
    writes_are_refused(&fixture).await;
    pull_secrets_are_readable_by_name(&fixture).await;

    // operator-controller trusts the certificate that it has issued.
    let _workloads = Workloads::start(fixture.client());
    let published = fixture.publish(&bundle("1.0.0")).unwrap();
    fixture.serve("packages", &Catalog::default().chain(&[published])).await.unwrap();
    fixture.create_namespace("apps").await.unwrap();
    let body = serde_json::from_value(extension("lamp", "apps", "lamp", None)).unwrap();
    fixture.extensions().create(&PostParams::default(), &body).await.unwrap();
    fixture.until_installed("lamp", "1.0.0").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stolen_catalogd_token_writes_nothing_with_hardened_yaml() {
    let (fixture, _servers) = start("hardened.yaml").await;
    writes_are_refused(&fixture).await;
    pull_secrets_are_readable_by_name(&fixture).await;
}

/// Starts both servers with the rights of `file` and built-in certificates, catalogd first.
async fn start(file: &str) -> (ServerFixture, [Server; 2]) {
    let fixture = ServerFixture::start(Programs::beside(crate::PROGRAM).unwrap()).await.unwrap();
    for object in documents(file) {
        let kind = object["kind"].as_str().unwrap();
        let kinds = [
            "Role",
            "RoleBinding",
            "ServiceAccount",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ];
        if kinds.iter().any(|of| kind.trim_start_matches("Cluster") == *of) {
            apply(&fixture.client(), &object).await;
        }
    }
    let account = kubeconfig_of(&fixture, ACCOUNT);
    let mut catalogd = fixture.launch_catalogd(&[&[account.as_str()], &BUILTIN[..]].concat()).unwrap();
    let waits = async || catalogd.log().contains("holds no serving certificate yet").then_some(());
    eventually("catalogd waits for its certificate", waits).await;
    let account = kubeconfig_of(&fixture, "operator-controller-controller-manager");
    let mut controller = fixture.launch_controller(&[&[account.as_str()], &BUILTIN[..]].concat()).unwrap();
    controller.ready().await.unwrap();
    catalogd.ready().await.unwrap();
    (fixture, [catalogd, controller])
}

/// Client with the rights of catalogd's ServiceAccount.
async fn stolen(fixture: &ServerFixture) -> Client {
    let flag = kubeconfig_of(fixture, ACCOUNT);
    let kubeconfig = Kubeconfig::read_from(flag.trim_start_matches("--kubeconfig=")).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn refused<T>(result: Result<T, kube::Error>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403)
}

async fn writes_are_refused(fixture: &ServerFixture) {
    let all: Api<Secret> = Api::namespaced(fixture.client(), NAMESPACE);
    let client = stolen(fixture).await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let controller = "operator-controller-controller-manager";
    let token = json!({"type": "kubernetes.io/service-account-token", "metadata": {"name": "token",
        "annotations": {"kubernetes.io/service-account.name": controller}}});
    let release = json!({"type": "operatorframework.io/index.v1", "metadata": {"name": "sh.helm.release.v1.demo.v1",
        "labels": {"name": "demo", "owner": "operator-controller", "status": "deployed", "version": "1",
                   "type": "index"}}});
    let post = PostParams::default();
    for secret in [token, release] {
        assert!(refused(secrets.create(&post, &serde_json::from_value(secret).unwrap()).await));
    }
    let (patch, merge) = (PatchParams::default(), |value: Value| Patch::Merge(value));
    let data = merge(json!({"data": {"tls.crt": ""}}));
    assert!(refused(secrets.patch("catalogd-service-cert", &patch, &data).await));

    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client());
    let written = async || {
        let webhooks = configurations.get(CONFIGURATION).await.unwrap().webhooks.unwrap();
        webhooks[0].client_config.ca_bundle.clone()
    };
    let bundle = eventually("the CA is in the webhook configuration", written).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let everything = json!({"webhooks": [{"name": "inject-metadata-name.olm.operatorframework.io",
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]}]});
    assert!(refused(configurations.patch(CONFIGURATION, &patch, &Patch::Strategic(everything)).await));

    let roles: Api<Role> = Api::namespaced(client.clone(), NAMESPACE);
    let more = merge(json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]}));
    assert!(refused(roles.patch("catalogd-pull-secrets", &patch, &more).await));
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let admin = json!({"metadata": {"name": "admin"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "cluster-admin"}});
    assert!(refused(bindings.create(&post, &serde_json::from_value(admin).unwrap()).await));
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let holder = merge(json!({"spec": {"holderIdentity": "catalogd"}}));
    assert!(refused(leases.patch("9c4404e7.operatorframework.io", &patch, &holder).await));

    // catalogd reads its own certificate, without the key of the CA.
    let own = secrets.get("catalogd-service-cert").await.unwrap().data.unwrap();
    assert_eq!(own.keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
    assert_eq!(own["ca.crt"], bundle);
    let authority = all.get("olmv1-ca").await.unwrap().data.unwrap();
    assert_ne!(own["tls.key"], authority["tls.key"]);
    for other in ["olmv1-ca", "operator-controller-service-cert"] {
        assert!(refused(secrets.get(other).await), "{other}");
    }
    assert!(refused(secrets.list(&ListParams::default()).await));
}

/// operator-controller maintains the Role that names the pull Secrets of the ServiceAccount.
async fn pull_secrets_are_readable_by_name(fixture: &ServerFixture) {
    let all: Api<Secret> = Api::namespaced(fixture.client(), NAMESPACE);
    for name in ["pull", "other"] {
        let secret = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        all.create(&PostParams::default(), &secret).await.unwrap();
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client(), NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(stolen(fixture).await, NAMESPACE);
    assert!(refused(secrets.get("pull").await));
    let name = async |names: Value| {
        let patch = Patch::Merge(json!({"imagePullSecrets": names}));
        accounts.patch(ACCOUNT, &PatchParams::default(), &patch).await.unwrap();
    };
    name(json!([{"name": "pull"}])).await;
    eventually("the pull secret is readable", async || secrets.get("pull").await.ok()).await;
    let one = ListParams::default().fields("metadata.name=pull");
    assert_eq!(secrets.list(&one).await.unwrap().items.len(), 1, "list by name, as a watch does");
    assert!(refused(secrets.get("other").await) && refused(secrets.list(&ListParams::default()).await));
    name(json!([])).await;
    let taken = async || refused(secrets.get("pull").await).then_some(());
    eventually("no Secret is readable", taken).await;
    assert!(refused(secrets.get("other").await));
}
