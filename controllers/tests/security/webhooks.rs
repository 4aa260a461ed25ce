//! Webhooks of other bundles between operator-controller and its objects.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, PostParams};
use olm_api::ClusterObjectSet;
use olm_servers::{
    Catalog, NAMESPACE, Programs, ServerFixture, Verdict, Webhook, Workloads, eventually, extension,
};
use serde_json::{Value, json};

use crate::impersonation::{bundle, until_message};

// docs/design/apply.md#packing-into-secrets
#[tokio::test(flavor = "multi_thread")]
async fn content_that_a_webhook_changed_is_not_installed() {
    let fixture = ServerFixture::start(Programs::beside(crate::PROGRAM).unwrap()).await.unwrap();
    let _workloads = Workloads::start(fixture.client());
    let _servers = [fixture.start_catalogd().await.unwrap(), fixture.start_controller().await.unwrap()];
    let more = json!([{"op": "add", "path": "/data/more", "value": "bW9yZQ=="}]);
    let webhook = Webhook::start(Verdict::Change(more)).await.unwrap();
    let mut configuration: Value = webhook.configuration("secrets", NAMESPACE);
    configuration["kind"] = json!("MutatingWebhookConfiguration");
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["secrets"]);
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client());
    let configuration = serde_json::from_value(configuration).unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(fixture.client(), NAMESPACE);
    let probe: Secret =
        serde_json::from_value(json!({"metadata": {"name": "probe"}, "data": {"a": ""}})).unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let intercepted = async || {
        let created = secrets.create(&dry_run, &probe).await.ok()?;
        created.data?.contains_key("more").then_some(())
    };
    eventually("the webhook is called", intercepted).await;

    let published = fixture.publish(&bundle("1.0.0")).unwrap();
    fixture.serve("packages", &Catalog::default().chain(&[published])).await.unwrap();
    fixture.create_namespace("apps").await.unwrap();
    let lamp = serde_json::from_value(extension("lamp", "apps", "lamp", None)).unwrap();
    fixture.extensions().create(&PostParams::default(), &lamp).await.unwrap();
    let message = until_message(&fixture, "an admission webhook has changed it").await;
    assert!(message.contains("creating ref Secret"), "{message}");
    let sets: Api<ClusterObjectSet> = Api::all(fixture.client());
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());
    webhook.say(Verdict::Admit);
    fixture.until_installed("lamp", "1.0.0").await.unwrap();
}
