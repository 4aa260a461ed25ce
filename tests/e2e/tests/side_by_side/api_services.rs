//! Bundles with aggregated APIs and built-in certificates (docs/design/bundles.md#aggregated-apis).

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{GetParams, ListParams, Request};
use olm_e2e::{Forward, PATIENCE, Scenario, eventually};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use sample_operator::aggregated::{SALUTATIONS, VERSION};
use sample_operator::content::Sample;
use serde_json::{Value, json};

/// Port of the Service, as in the bundle.
const PORT: u16 = 5443;
/// Interval between calls during a renewal.
const ROUND: Duration = Duration::from_millis(50);
/// Time limit of a renewal, as for webhooks.
const RENEWAL: Duration = Duration::from_secs(180);
/// Finalizer that holds an object while a test looks at the others.
const HOLD: &str = "e2e.olm.example/hold";

/// Objects of the installed package, by their generated names.
struct Installed<'a> {
    scenario: &'a Scenario,
    service: String,
    name: String,
    api_services: Api<APIService>,
}

impl<'a> Installed<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        let (service, name) =
            (format!("{}-service", scenario.name), format!("{VERSION}.{}", scenario.sample.group));
        Self { scenario, service, name, api_services: scenario.cluster.all() }
    }

    /// Answer of the API server to `kubectl get --raw /apis/GROUP/PATH`.
    async fn raw(&self, path: &str) -> Result<Value> {
        let group = format!("/apis/{}", self.scenario.sample.group);
        let request = Request::new(group).get(path, &GetParams::default())?;
        Ok(self.scenario.cluster.client.request(request).await?)
    }

    /// Discovers the API and lists its objects, each in a separate TLS handshake between the servers.
    async fn call(&self) -> Result<()> {
        let found = self.raw(VERSION).await?;
        ensure!(found["resources"][0]["kind"] == "Salutation", "{found}");
        let listed = self.raw(&format!("{VERSION}/salutations")).await?;
        let items = listed["items"].as_array().context("no items")?;
        let words: Vec<&str> = items.iter().filter_map(|item| item["words"].as_str()).collect();
        ensure!(words == SALUTATIONS.map(|(_, words)| words), "{listed}");
        Ok(())
    }

    /// CA certificates that the API server trusts.
    async fn trusted(&self) -> Result<Vec<CertificateDer<'static>>> {
        let spec = self.api_services.get(&self.name).await?.spec.context("no spec")?;
        ensure!(spec.insecure_skip_tls_verify != Some(true), "certificates are not verified");
        let bundle = spec.ca_bundle.context("no caBundle")?.0;
        Ok(CertificateDer::pem_slice_iter(&bundle).collect::<Result<_, _>>()?)
    }

    /// Waits until the API answers. The API server learns late that a new APIService is available.
    async fn until_answers(&self) -> Result<()> {
        eventually("the aggregated API answers", PATIENCE, async || self.call().await).await
    }
}

fn is_available(service: Option<&APIService>) -> bool {
    let conditions = service.and_then(|service| service.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Available" && one.status == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_api_answers_until_it_is_uninstalled() -> Result<()> {
    let scenario = Scenario::of("api-services", Sample::aggregated, &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let installed = Installed::of(&scenario);
    ensure!(is_available(Some(&installed.api_services.get(&installed.name).await?)), "installed too early");
    installed.until_answers().await?;
    direct_client_is_refused(&installed).await?;
    edited_api_service_is_restored(&installed).await?;
    renewed_without_a_failed_call(&installed).await?;
    removed_before_its_server(&installed).await?;
    scenario.finish().await
}

/// The server accepts only the front proxy of the cluster, because it believes the user in the headers.
async fn direct_client_is_refused(installed: &Installed<'_>) -> Result<()> {
    let namespace = &installed.scenario.name;
    let forward = Forward::to_service(namespace, &installed.service, PORT).await?;
    let host = format!("{}.{namespace}.svc", installed.service);
    let roots = installed.trusted().await?;
    // The server can be reached, and its certificate is valid.
    forward.certificate(&host, &roots).await?;
    let mut trusted = RootCertStore::empty();
    for root in roots {
        trusted.add(root)?;
    }
    let config = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    let path = format!("/apis/{}/{VERSION}", installed.scenario.sample.group);
    let request = format!("GET {path} HTTP/1.0\r\nX-Remote-User: admin\r\n\r\n");
    match forward.ask(&host, config, &request).await {
        Ok(answer) => ensure!(answer.is_empty(), "{answer}"),
        Err(error) => ensure!(is_refusal(&error), "{error:?}"),
    }
    Ok(())
}

/// Reports whether the server closed the connection because the client has no certificate.
fn is_refusal(error: &anyhow::Error) -> bool {
    let Some(error) = error.downcast_ref::<io::Error>() else { return false };
    let source = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    source == Some(&rustls::Error::AlertReceived(AlertDescription::CertificateRequired))
        || matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// The test neither deletes the APIService nor its CA, because an unavailable APIService delays the deletion of
/// namespaces in other tests. The tests of the certificate provider do.
async fn edited_api_service_is_restored(installed: &Installed<'_>) -> Result<()> {
    let (cluster, api, name) = (&installed.scenario.cluster, &installed.api_services, &installed.name);
    let before = installed.trusted().await?;
    cluster.merge(api, name, json!({"spec": {"versionPriority": 16}})).await?;
    let restored = |service: Option<&APIService>| {
        let spec = service.and_then(|service| service.spec.as_ref());
        spec.is_some_and(|spec| spec.version_priority == 15)
    };
    cluster.wait(api, name, "priority restored", restored).await?;
    ensure!(installed.trusted().await? == before, "the CA differs");
    installed.call().await
}

/// CA and certificate are renewed on demand during continuous calls. Every call succeeds.
async fn renewed_without_a_failed_call(installed: &Installed<'_>) -> Result<()> {
    let scenario = installed.scenario;
    let host = format!("{}.{}.svc", installed.service, scenario.name);
    let forward = Forward::to_service(&scenario.name, &installed.service, PORT).await?;
    let old = forward.certificate(&host, &installed.trusted().await?).await?;
    let mut rounds = 0;
    let calls = async {
        let mut again = tokio::time::interval(ROUND);
        loop {
            again.tick().await;
            if let Err(error) = installed.call().await {
                break error.context("calling the aggregated API during the renewal");
            }
            rounds += 1;
        }
    };
    let renewal = async {
        scenario.annotate(json!({"renew-webhook-certificates-at": "e2e"})).await?;
        eventually("a new certificate is served", RENEWAL, async || {
            let shown = forward.certificate(&host, &installed.trusted().await?).await?;
            ensure!(shown != old, "the server uses the old certificate");
            Ok(())
        })
        .await
    };
    tokio::select! {
        failed = calls => return Err(failed),
        renewed = renewal => renewed?,
    }
    ensure!(rounds > 10, "only {rounds} rounds of calls");
    installed.call().await
}

/// While the APIService exists, the Deployment, Service and bindings of its server do, too.
async fn removed_before_its_server(installed: &Installed<'_>) -> Result<()> {
    let scenario = installed.scenario;
    let (cluster, namespace) = (&scenario.cluster, scenario.name.as_str());
    let (api, name) = (&installed.api_services, &installed.name);
    let (deployments, services) =
        (cluster.within::<Deployment>(namespace), cluster.within::<Service>(namespace));
    let (readers, delegators) =
        (cluster.within::<RoleBinding>("kube-system"), cluster.all::<ClusterRoleBinding>());
    let reader = format!("{}.{namespace}-auth-reader", installed.service);
    let delegator = format!("{}.{namespace}-auth-delegator", installed.service);
    cluster.merge(api, name, json!({"metadata": {"finalizers": [HOLD]}})).await?;
    cluster.delete(&scenario.extensions(), namespace).await?;
    let is_deleting = |service: Option<&APIService>| {
        service.is_some_and(|service| service.metadata.deletion_timestamp.is_some())
    };
    cluster.wait(api, name, "being deleted", is_deleting).await?;
    ensure!(
        deployments.get(namespace).await?.metadata.deletion_timestamp.is_none(),
        "the Deployment is deleted"
    );
    services.get(&installed.service).await?;
    readers.get(&reader).await?;
    delegators.get(&delegator).await?;
    cluster.merge(api, name, json!({"metadata": {"finalizers": null}})).await?;
    cluster.wait_gone(&scenario.extensions(), namespace).await?;
    cluster.wait_gone(api, name).await?;
    cluster.wait_gone(&deployments, namespace).await?;
    cluster.wait_gone(&services, &installed.service).await?;
    cluster.wait_gone(&readers, &reader).await?;
    cluster.wait_gone(&delegators, &delegator).await?;
    let ours = ListParams::default().labels("ext.olm.operatorframework.io/webhook-certificate");
    eventually("the certificates are deleted", PATIENCE, async || {
        let left = cluster.within::<Secret>(namespace).list(&ours).await?.items;
        ensure!(left.is_empty(), "{} Secrets are left", left.len());
        Ok(())
    })
    .await
}
