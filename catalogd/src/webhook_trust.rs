//! Keeps the CA of built-in certificates in the webhook configuration, where one is installed
//! (spec 06 §3.6).

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use olm_service::cluster::within_deadline;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const NAME: &str = "catalogd-mutating-webhook-configuration";
/// A configuration that is applied later or anew is found this soon.
const INTERVAL: Duration = Duration::from_secs(60);

/// Compares and patches until `stop`.
pub async fn keep(client: Client, mut bundle: watch::Receiver<Vec<u8>>, stop: CancellationToken) {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client);
    loop {
        let current = bundle.borrow_and_update().clone();
        if let Err(error) = write(&api, current).await {
            tracing::error!(%error, "CA of the webhook not written");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = bundle.changed() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

async fn write(api: &Api<MutatingWebhookConfiguration>, bundle: Vec<u8>) -> Result<(), kube::Error> {
    let Some(configuration) = within_deadline(api.get_opt(NAME)).await? else {
        return Ok(());
    };
    let bundle = ByteString(bundle);
    let outdated = configuration
        .webhooks
        .iter()
        .flatten()
        .filter(|webhook| webhook.client_config.ca_bundle.as_ref() != Some(&bundle))
        .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}));
    let outdated: Vec<_> = outdated.collect();
    if outdated.is_empty() || bundle.0.is_empty() {
        return Ok(());
    }
    let patch = Patch::Strategic(json!({ "webhooks": outdated }));
    within_deadline(api.patch(NAME, &PatchParams::default(), &patch)).await?;
    tracing::info!(configuration = NAME, "CA of the webhook written");
    Ok(())
}
