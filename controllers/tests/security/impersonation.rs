//! Feature gate `ServiceAccountImpersonation`: an extension creates only what its ServiceAccount may create.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use olm_api::conditions::find;
use olm_bundle::rights::{Rights, Scoped};
use olm_bundle::{Certificates, RenderOptions, render};
use olm_servers::{Bundle, Catalog, Programs, ServerFixture, Workloads, eventually, extension};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NAMESPACE: &str = "apps";
const ACCOUNT: &str = "installer";
const USER: &str = "system:serviceaccount:apps:installer";

/// Bundle whose operator reads the Secrets of the cluster.
pub(crate) fn bundle(version: &str) -> Bundle {
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]});
    Bundle::sample("lamp", version)
        .manifest(
            "reader.yaml",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "lamp-reader"}, "rules": [rule]}),
        )
        .manifest(
            "auth.yaml",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "lamp-auth"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
                "subjects": [{"kind": "ServiceAccount", "name": "lamp", "namespace": NAMESPACE}]}),
        )
}

/// Rights required to install the bundle.
pub(crate) fn rights(version: &str) -> Rights {
    rights_with(version, false)
}

/// Rights required to install the bundle, also with roles for the users of its APIs.
pub(crate) fn rights_with(version: &str, aggregate_api_roles: bool) -> Rights {
    let files: BTreeMap<String, Vec<u8>> = bundle(version).files();
    let options = RenderOptions {
        install_namespace: NAMESPACE,
        config: None,
        certificates: Certificates::CertManager,
        single_own_namespace: false,
        deployment_config: false,
        multi_watch_namespaces: false,
        owned_api_services: false,
        selected_namespaces: None,
        operator_condition: false,
        aggregate_api_roles,
    };
    let bundle = olm_bundle::BundleContent::load(&files).unwrap();
    Rights::of(&render(&bundle, &options).unwrap())
}

pub(crate) async fn create<T>(api: Api<T>, object: Value)
where
    T: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

pub(crate) fn of<T>(client: &Client, namespace: &str) -> Api<T>
where
    T: Resource<Scope = NamespaceResourceScope>,
    T::DynamicType: Default,
{
    Api::namespaced(client.clone(), namespace)
}

/// Grants the ServiceAccount in `home` these rights, with one role of its name per scope.
pub(crate) async fn grant(client: &Client, home: &str, account: &str, rights: &Scoped) {
    for (scope, rules) in rights {
        let kind = if scope.is_some() { "Role" } else { "ClusterRole" };
        let metadata = json!({"name": account, "namespace": scope});
        let role = json!({"metadata": metadata, "rules": rules});
        let binding = json!({"metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}]});
        if let Some(namespace) = scope {
            create(of::<Role>(client, namespace), role).await;
            create(of::<RoleBinding>(client, namespace), binding).await;
        } else {
            create(Api::<ClusterRole>::all(client.clone()), role).await;
            create(Api::<ClusterRoleBinding>::all(client.clone()), binding).await;
        }
    }
}

/// Message of the extension's condition Progressing if it has this reason.
fn message_with_reason(extension: &olm_api::ClusterExtension, reason: &str) -> Option<String> {
    let progressing = find(&extension.status.as_ref()?.conditions, "Progressing")?;
    (progressing.reason == reason).then(|| progressing.message.clone())
}

/// Waits until the extension `lamp` has the reason Retrying and a message that contains `part`. Returns the message.
pub(crate) async fn until_message(fixture: &ServerFixture, part: &str) -> String {
    let holds = |extension: &olm_api::ClusterExtension| {
        message_with_reason(extension, "Retrying").is_some_and(|message| message.contains(part))
    };
    let extension = fixture.until("lamp", part, holds).await.unwrap();
    message_with_reason(&extension, "Retrying").unwrap()
}

// docs/design/additions.md#service-account-impersonation; case operations-a53
#[tokio::test(flavor = "multi_thread")]
async fn extension_is_applied_with_the_rights_of_its_service_account() {
    let fixture = ServerFixture::start(Programs::beside(crate::PROGRAM).unwrap()).await.unwrap();
    let _workloads = Workloads::start(fixture.client());
    let _catalogd = fixture.start_catalogd().await.unwrap();
    let mut controller =
        fixture.launch_controller(&["--feature-gates=ServiceAccountImpersonation=true"]).unwrap();
    controller.ready().await.unwrap();
    fixture.create_namespace(NAMESPACE).await.unwrap();
    let versions = ["1.0.0", "1.1.0"].map(|version| fixture.publish(&bundle(version)).unwrap());
    fixture.serve("packages", &Catalog::default().chain(&versions)).await.unwrap();
    let mut body = extension("lamp", NAMESPACE, "lamp", Some("1.0.0"));
    body["spec"]["serviceAccount"] = json!({"name": ACCOUNT});
    fixture
        .extensions()
        .create(&PostParams::default(), &serde_json::from_value(body).unwrap())
        .await
        .unwrap();

    no_revision_is_created_before_all_rights_exist(&fixture).await;
    required_permissions_suffice(&fixture).await;
    revoked_permissions_are_refused_by_the_api_server(&fixture).await;
    removal_deletes_objects_and_content(&fixture).await;
}

async fn no_revision_is_created_before_all_rights_exist(fixture: &ServerFixture) {
    let missing = until_message(fixture, "not found").await;
    let said = "with version \"1.0.0\": service account \"installer\" not found in namespace \"apps\"";
    assert!(missing.ends_with(said), "{missing}");
    create(of::<ServiceAccount>(&fixture.client(), NAMESPACE), json!({"metadata": {"name": ACCOUNT}})).await;
    let missing = until_message(fixture, "requires the following permissions").await;
    for part in [
        "service account \"apps/installer\" requires the following permissions to manage the extension: ",
        "Namespace:\"apps\" APIGroups:[apps] Resources:[deployments] Verbs:[create]",
        "Namespace:\"apps\" APIGroups:[apps] Resources:[deployments] ResourceNames:[lamp] Verbs:[delete,get,patch]",
        "Namespace:\"\" APIGroups:[] Resources:[secrets] Verbs:[get,list]",
        "APIGroups:[rbac.authorization.k8s.io] Resources:[clusterroles] ResourceNames:[system:auth-delegator] Verbs:[bind]",
        "APIGroups:[olm.operatorframework.io] Resources:[clusterobjectsets/finalizers] Verbs:[update]",
    ] {
        assert!(missing.contains(part), "{part}: {missing}");
    }
    assert_eq!(fixture.revisions().list(&Default::default()).await.unwrap().items.len(), 0);
}

async fn required_permissions_suffice(fixture: &ServerFixture) {
    grant(&fixture.client(), NAMESPACE, ACCOUNT, &rights("1.0.0").exact()).await;
    fixture.until_installed("lamp", "1.0.0").await.unwrap();
    let set = fixture.revisions().get("lamp-1").await.unwrap();
    let account = &set.metadata.annotations.unwrap()["ext.olm.operatorframework.io/service-account"];
    assert_eq!(account, "apps/installer");
}

async fn revoked_permissions_are_refused_by_the_api_server(fixture: &ServerFixture) {
    let client = fixture.client();
    let roles: Api<Role> = of(&client, NAMESPACE);
    let role = roles.get(ACCOUNT).await.unwrap();
    roles.delete(ACCOUNT, &DeleteParams::default()).await.unwrap();
    let settings: Api<ConfigMap> = of(&client, NAMESPACE);
    let patch = Patch::Merge(json!({"data": {"version": "mine"}}));
    // The API server's authorizer observes role changes with a delay, possibly between a read and a write.
    let denied = format!("User {USER:?} cannot get resource \"configmaps\"");
    let refused = async || {
        settings.patch("lamp-settings", &PatchParams::default(), &patch).await.unwrap();
        let set = fixture.revisions().get("lamp-1").await.unwrap();
        let status = set.status?;
        let message = find(&status.conditions, "Progressing")?.message.clone();
        message.contains(&denied).then_some(())
    };
    eventually(&denied, refused).await;
    let metadata = json!({"name": ACCOUNT, "namespace": NAMESPACE});
    create(roles, json!({"metadata": metadata, "rules": role.rules})).await;
    let repaired = async || {
        let data = settings.get("lamp-settings").await.unwrap().data.unwrap();
        (data["version"] == "1.0.0").then_some(())
    };
    eventually("the object is repaired", repaired).await;
}

async fn removal_deletes_objects_and_content(fixture: &ServerFixture) {
    fixture.remove("lamp").await.unwrap();
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    assert!(roles.get_opt("lamp-reader").await.unwrap().is_none());
    let left: Api<Secret> = of(&fixture.client(), "olmv1-system");
    let owned = kube::api::ListParams::default().labels("olm.operatorframework.io/owner-name=lamp");
    let gone = async || left.list(&owned).await.unwrap().items.is_empty().then_some(());
    eventually("all content is deleted", gone).await;
}
