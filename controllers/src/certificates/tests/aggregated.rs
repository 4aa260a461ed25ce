//! An aggregated API: the API server verifies its server with the injected bundle.

use std::time::Instant;

use olm_api::names::WEBHOOK_CERTIFICATES_MANAGER;
use olm_bundle::InjectionKind::ApiService;
use olm_serving::issue::count;
use serde_json::{Value, json};

use super::fixture::{CA, Fixture, LEAF, Webhook, api_service, carried, eventually, needed, service};
use super::{LAG, QUICK, managers};

const GROUP: &str = "sky.example.com";
const NAME: &str = "v1.sky.example.com";

impl Fixture {
    /// Calls the API through the API server.
    async fn discover(&self) -> Result<(), String> {
        let found = self.client().list_api_group_resources(&format!("{GROUP}/v1")).await;
        found.map(drop).map_err(|error| error.to_string())
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
