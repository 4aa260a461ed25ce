//! A real API server with an extension on it, the revision controller that applies its objects, and the provider.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::http::header::CONNECTION;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, labels};
use olm_bundle::{BUILTIN_CA_ANNOTATION, Injection, InjectionKind, injections};
use olm_control_plane::ControlPlane;
pub(super) use olm_control_plane::eventually;
use olm_controller_core::RevisionCache;
use olm_revision_controller::Pace;
use olm_runtime::Component;
use olm_runtime::events::Events;
use olm_runtime::metrics::Metrics;
use olm_servers::RunningController;
use olm_serving::certificate::PemPair;
use olm_serving::https::{HttpServer, RustlsConfig};
use olm_serving::serving_certificate::{CertificateSource, ServingCertificate};
use olm_serving::tls_profile::{ProfileName, TlsProfile, TlsVersion};
use olm_webhook_certificates::{Times, WebhookCertificates, resource};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(super) const NAMESPACE: &str = "ns";
pub(super) const SYSTEM: &str = "olmv1-system";
pub(super) const LEAF: &str = "d-service-cert";
pub(super) const CA: &str = "d-service-ca";
pub(super) const CRD: &str = "widgets.example.com";

pub(super) struct Fixture {
    plane: ControlPlane,
    cache: RevisionCache,
}

impl Fixture {
    pub(super) async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.apply_crds(&olm_api::crds::crds()).await.unwrap();
        let fixture = Self { plane, cache: RevisionCache::new() };
        let (cache, client) = (fixture.cache.clone(), fixture.client());
        // Stops with the runtime of the test.
        tokio::spawn(async move { cache.follow(client, CancellationToken::new()).await });
        for name in [NAMESPACE, SYSTEM] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            Api::<k8s_openapi::api::core::v1::Namespace>::all(fixture.client())
                .create(&PostParams::default(), &serde_json::from_value(namespace).unwrap())
                .await
                .unwrap();
        }
        fixture
    }

    pub(super) fn client(&self) -> Client {
        self.plane.client()
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub(super) fn extensions(&self) -> Api<ClusterExtension> {
        Api::all(self.client())
    }

    pub(super) async fn extension(&self, name: &str) -> ClusterExtension {
        let extension = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
            "spec": {"namespace": NAMESPACE, "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}},
        });
        let extension = serde_json::from_value(extension).unwrap();
        self.extensions().create(&PostParams::default(), &extension).await.unwrap()
    }

    pub(super) fn provider(&self, times: Times) -> WebhookCertificates {
        let events = Events::new(self.client(), Component::OperatorController);
        WebhookCertificates::new(self.client(), self.cache.clone(), SYSTEM, events, times)
    }

    /// Starts the controller of the provider.
    pub(super) fn run(&self, provider: &WebhookCertificates) -> RunningController {
        let provider = provider.clone();
        RunningController::start(|metrics, stop| async move { provider.run(false, metrics, stop).await })
    }

    /// Starts the controller that applies revisions.
    pub(super) fn run_revisions(&self) -> RunningController {
        let (client, cache) = (self.client(), RevisionCache::new());
        RunningController::start(|metrics, stop| async move {
            let following = cache.follow(client.clone(), stop.clone());
            let (pace, system) = (Pace::default(), SYSTEM.to_owned());
            let running =
                olm_revision_controller::run(pace, false, client, cache.clone(), system, metrics, stop);
            tokio::join!(following, running);
        })
    }

    /// Creates active revision `number`, with a phase for each list of objects.
    pub(super) async fn revise(&self, extension: &ClusterExtension, number: i64, phases: &[Vec<Value>]) {
        let phase = |(index, objects): (usize, &Vec<Value>)| {
            let objects: Vec<Value> = objects.iter().map(|object| json!({"object": object})).collect();
            json!({"name": format!("p{index}"), "objects": objects})
        };
        self.make_revision(extension, number, phases.iter().enumerate().map(phase).collect()).await;
    }

    /// Creates active revision `number` whose content is missing.
    pub(super) async fn revise_without_content(&self, extension: &ClusterExtension, number: i64) {
        let phase = json!({"name": "p", "objects": [{"ref": {"name": "lost", "key": "k"}}]});
        self.make_revision(extension, number, vec![phase]).await;
    }

    async fn make_revision(&self, extension: &ClusterExtension, number: i64, phases: Vec<Value>) {
        let name = extension.name_any();
        let set = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {
                "name": format!("{name}-{number}"),
                "labels": {labels::OWNER_KIND: labels::OWNER_KIND_EXTENSION, labels::OWNER_NAME: name},
                "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                    "name": name, "uid": extension.uid(), "controller": true}],
            },
            "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent",
                "phases": phases},
        });
        let sets: Api<ClusterObjectSet> = Api::all(self.client());
        let set = sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
        self.cache.until_contains(&set).await;
    }

    pub(super) async fn archive(&self, name: &str) {
        let patch = Patch::Merge(json!({"spec": {"lifecycleState": "Archived"}}));
        let sets: Api<ClusterObjectSet> = Api::all(self.client());
        let set = sets.patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.cache.until_contains(&set).await;
    }

    pub(super) async fn until_archived(&self, name: &str) {
        let sets: Api<ClusterObjectSet> = Api::all(self.client());
        eventually(&format!("{name} archived"), async || {
            let set = sets.get(name).await.unwrap();
            let archived = set.status?.conditions.into_iter().find(|c| c.reason == "Archived");
            archived.map(drop)
        })
        .await;
    }

    pub(super) async fn request_renewal(&self, extension: &str, value: &str) {
        let metadata = json!({"annotations": {annotations::EXT_RENEW_WEBHOOK_CERTIFICATES_AT: value}});
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.extensions().patch(extension, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn live(&self, kind: InjectionKind, name: &str) -> Option<Value> {
        let object = self.objects(kind).get_opt(name).await.unwrap();
        object.map(|object| serde_json::to_value(object).unwrap())
    }

    pub(super) fn objects(&self, kind: InjectionKind) -> Api<DynamicObject> {
        Api::all_with(self.client(), &resource(kind))
    }

    /// Patches an object like a user.
    pub(super) async fn edit(&self, kind: InjectionKind, name: &str, patch: Value) {
        let params = PatchParams { field_manager: Some("user".to_owned()), ..PatchParams::default() };
        let patch = Patch::<Value>::Json(serde_json::from_value(patch).unwrap());
        self.objects(kind).patch(name, &params, &patch).await.unwrap();
    }

    pub(super) async fn pair(&self, name: &str) -> Option<(PemPair, Vec<u8>)> {
        let data = self.secrets().get_opt(name).await.unwrap()?.data?;
        let value = |key: &str| data[key].0.clone();
        Some((PemPair { certificate: value("tls.crt"), key: value("tls.key") }, value("ca.crt")))
    }

    /// Writes a pair into a Secret, like another provider.
    pub(super) async fn issue(&self, name: &str, pair: &PemPair) {
        let data =
            json!({"tls.crt": STANDARD.encode(&pair.certificate), "tls.key": STANDARD.encode(&pair.key)});
        let patch = Patch::Merge(json!({ "data": data }));
        self.secrets().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Annotates a Secret with its own name.
    pub(super) async fn mark(&self, name: &str, key: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: name}}}));
        self.secrets().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn events(&self) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let text = |event: Event| {
            format!("{}: {}", event.reason.unwrap_or_default(), event.note.unwrap_or_default())
        };
        events.items.into_iter().map(text).collect()
    }

    pub(super) async fn remove_secret(&self, name: &str) {
        self.secrets().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Sends a dry run of a ConfigMap that the webhook has to admit.
    pub(super) async fn call(&self) -> Result<(), String> {
        let probe = json!({"metadata": {"generateName": "probe-", "labels": {"probe": "yes"}}});
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let probes: Api<ConfigMap> = Api::namespaced(self.client(), NAMESPACE);
        let probe = serde_json::from_value(probe).unwrap();
        probes.create(&params, &probe).await.map(drop).map_err(|error| error.to_string())
    }
}

/// Returns the bundle of an object.
pub(super) fn carried(object: &Value) -> Option<Vec<u8>> {
    let client = object
        .pointer("/webhooks/0/clientConfig")
        .or_else(|| object.pointer("/spec/conversion/webhook/clientConfig"))
        .or_else(|| object.get("spec"))?;
    Some(STANDARD.decode(client.get("caBundle")?.as_str()?).unwrap())
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {BUILTIN_CA_ANNOTATION: format!("{NAMESPACE}/{LEAF}")}})
}

/// Returns a rendered webhook configuration that matches probes only.
pub(super) fn configuration(kind: InjectionKind, name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.as_str(), "metadata": metadata(name),
        "webhooks": [{
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "d-service", "port": port, "path": "/x"}},
            "objectSelector": {"matchLabels": {"probe": "yes"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]}],
        }],
    })
}

/// Returns a CRD with or without conversion.
pub(super) fn crd(is_converted: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let mut object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CRD},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    if is_converted {
        object["metadata"] = metadata(CRD);
        object["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "d-service", "path": "/c", "port": 443}}}});
    }
    object
}

/// Returns a rendered APIService.
pub(super) fn api_service(group: &str, port: u16) -> Value {
    let name = format!("v1.{group}");
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata(&name),
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
            "service": {"namespace": NAMESPACE, "name": "d-service", "port": port},
        },
    })
}

/// Returns a Service that resolves to this machine.
pub(super) fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "d-service", "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    })
}

pub(super) fn needed(phases: &[Vec<Value>]) -> Vec<Injection> {
    injections(&phases.iter().flatten().collect::<Vec<_>>())
}

/// A webhook that admits everything, or an aggregated API, with a serving certificate from files, like a mounted
/// Secret.
pub(super) struct Webhook {
    certificate: ServingCertificate,
    files: TempDir,
    server: HttpServer,
}

impl Webhook {
    pub(super) fn start() -> Self {
        let admit = async |Json(review): Json<Value>| {
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let review =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            // Closes the connection, so that each call does a new handshake.
            ([(CONNECTION, "close")], Json(review))
        };
        Self::serving(Router::new().route("/x", post(admit)))
    }

    /// Starts a server of the API `<group>/v1`, which has no resources.
    pub(super) fn start_api(group: &str) -> Self {
        let version = format!("{group}/v1");
        let list =
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []});
        let discover = get(async move || ([(CONNECTION, "close")], Json(list)));
        Self::serving(Router::new().route(&format!("/apis/{version}"), discover))
    }

    fn serving(router: Router) -> Self {
        let files = tempfile::tempdir().unwrap();
        let source = CertificateSource::Files {
            certificate: files.path().join("tls.crt"),
            key: files.path().join("tls.key"),
        };
        let profile = TlsProfile::new(ProfileName::Intermediate, TlsVersion::Tls12, &[], &[]).unwrap();
        let certificate = ServingCertificate::new(source, profile, Arc::new(Metrics::new()));
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let tls = RustlsConfig::from_config(certificate.server_config(None).unwrap());
        let server = HttpServer::start(address, Some(tls), router).unwrap();
        Self { certificate, files, server }
    }

    pub(super) fn port(&self) -> u16 {
        self.server.address.port()
    }

    pub(super) async fn serve(&self, pair: &PemPair) {
        std::fs::write(self.files.path().join("tls.crt"), &pair.certificate).unwrap();
        std::fs::write(self.files.path().join("tls.key"), &pair.key).unwrap();
        self.certificate.load(None).await.unwrap();
    }
}
