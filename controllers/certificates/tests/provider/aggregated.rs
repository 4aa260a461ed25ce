//! An aggregated API: the API server verifies its server with the injected bundle.

use std::time::Instant;

use olm_api::names::WEBHOOK_CERTIFICATES_MANAGER;
use olm_bundle::InjectionKind::{ApiService, Validating};
use olm_serving::issue::count;
use serde_json::{Value, json};

use super::fixture::{
    CA, Fixture, LEAF, Webhook, api_service, carried, configuration, eventually, needed, service,
};
use super::{LAG, QUICK, managers};

const GROUP: &str = "sky.example.com";
const NAME: &str = "v1.sky.example.com";

impl Fixture {
    /// Calls the API through the API server.
    async fn discover(&self) -> Result<(), String> {
        let found = self.client().list_api_group_resources(&format!("{GROUP}/v1")).await;
        found.map(drop).map_err(|error| error.to_string())
    }

    /// Number of watches on a resource, as the API server counts them.
    async fn watches(&self, resource: &str) -> Option<u64> {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let metrics = self.client().request_text(request).await.unwrap();
        let of_resource = format!("resource=\"{resource}\"");
        let mut lines = metrics.lines().filter(|line| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains(&of_resource)
                && line.contains("verb=\"WATCH\"")
        });
        lines.next()?.rsplit_once(' ')?.1.parse().ok()
    }

    async fn until_available(&self) -> Value {
        eventually("the APIService is available", async || {
            let live = self.live(ApiService, NAME).await?;
            let conditions = live["status"]["conditions"].as_array()?;
            let available =
                conditions.iter().any(|one| one["type"] == "Available" && one["status"] == "True");
            available.then_some(live)
        })
        .await
    }
}

// docs/design/bundles.md#aggregated-apis
#[tokio::test(flavor = "multi_thread")]
async fn aggregated_api_answers_before_during_and_after_a_renewal() {
    let fixture = Fixture::start().await;
    let server = Webhook::start_api(GROUP);
    let extension = fixture.extension("demo").await;
    let phases = [vec![service()], vec![api_service(GROUP, server.port())]];
    let provider = fixture.provider(QUICK);
    provider.ensure(&extension, &needed(&phases)).await.unwrap();
    let (first, bundle) = fixture.pair(LEAF).await.unwrap();
    server.serve(&first).await;
    let (keeping, applying) = (fixture.run(&provider), fixture.run_revisions());
    fixture.revise(&extension, 1, &phases).await;
    let live = fixture.until_available().await;
    assert_eq!(carried(&live), Some(bundle.clone()));
    assert_eq!(managers(&live, "f:caBundle"), [WEBHOOK_CERTIFICATES_MANAGER]);
    assert_eq!(live["spec"].get("insecureSkipTLSVerify"), None);
    eventually("the API answers", async || fixture.discover().await.ok()).await;

    // An edited bundle, and drift that the engine corrects without touching the bundle.
    fixture
        .edit(
            ApiService,
            NAME,
            json!([
                {"op": "replace", "path": "/spec/caBundle", "value": "eA=="},
                {"op": "replace", "path": "/spec/versionPriority", "value": 16},
            ]),
        )
        .await;
    eventually("both edits are reverted", async || {
        let live = fixture.live(ApiService, NAME).await?;
        (live["spec"]["versionPriority"] == 15 && carried(&live)? == bundle).then_some(())
    })
    .await;
    fixture.objects(ApiService).delete(NAME, &kube::api::DeleteParams::default()).await.unwrap();
    eventually("the deleted APIService is back", async || {
        let again = fixture.live(ApiService, NAME).await?;
        (again["metadata"]["uid"] != live["metadata"]["uid"] && carried(&again)? == bundle).then_some(())
    })
    .await;
    fixture.until_available().await;
    eventually("the API answers again", async || fixture.discover().await.ok()).await;

    renewal_fails_no_call(&fixture, &server).await;
    keeping.stop().await;
    applying.stop().await;
}

// An account without gate OwnedAPIServices needs no right to watch them.
#[tokio::test(flavor = "multi_thread")]
async fn api_services_are_watched_once_one_needs_a_certificate() {
    let fixture = Fixture::start().await;
    let watches = async |resource: &str| fixture.watches(resource).await.unwrap_or_default();
    let of_api_server = watches("apiservices").await;
    let webhooks = watches("validatingwebhookconfigurations").await;
    let extension = fixture.extension("demo").await;
    let provider = fixture.provider(QUICK);
    let webhook = [vec![service(), configuration(Validating, "v.example.com", 443)]];
    provider.ensure(&extension, &needed(&webhook)).await.unwrap();
    let keeping = fixture.run(&provider);
    let is_more = async || (watches("validatingwebhookconfigurations").await > webhooks).then_some(());
    eventually("webhook configurations are watched", is_more).await;
    fixture.remove_secret(CA).await;
    eventually("the CA is restored", async || fixture.pair(CA).await.map(drop)).await;
    assert_eq!(watches("apiservices").await, of_api_server);

    provider.ensure(&extension, &needed(&[vec![service(), api_service(GROUP, 443)]])).await.unwrap();
    let is_more = async || (watches("apiservices").await > of_api_server).then_some(());
    eventually("APIServices are watched", is_more).await;
    keeping.stop().await;
}

/// Both CAs are trusted before the new certificate is served, by a pod that sees it late.
async fn renewal_fails_no_call(fixture: &Fixture, server: &Webhook) {
    let (first, _) = fixture.pair(LEAF).await.unwrap();
    fixture.request_renewal("demo", "2026-01-01T00:00:00Z").await;
    let mut appeared: Option<Instant> = None;
    let mut is_served = false;
    eventually("only the new CA is trusted", async || {
        assert_eq!(fixture.discover().await, Ok(()));
        let (leaf, _) = fixture.pair(LEAF).await?;
        if leaf != first && appeared.get_or_insert_with(Instant::now).elapsed() >= LAG && !is_served {
            server.serve(&leaf).await;
            is_served = true;
        }
        let (_, bundle) = fixture.pair(CA).await?;
        let live = fixture.live(ApiService, NAME).await?;
        (is_served && count(&bundle) == 1 && carried(&live)? == bundle).then_some(())
    })
    .await;
    assert_eq!(fixture.discover().await, Ok(()));
}
