//! OpenTelemetry traces of both servers, exported to a collector of the test.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

extern crate olm_tokio as tokio;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use kube::api::PostParams;
use olm_control_plane::ports::free_port;
use olm_servers::{Bundle, Catalog, Programs, ServerFixture, eventually, extension};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpListener;

const PROGRAM: &str = env!("CARGO_BIN_EXE_operator-controller");
/// The last export takes at most 3 s (docs/design/operations.md#traces); without this limit it would take OTLP's 10 s.
const STOPPED: Duration = Duration::from_secs(9);

/// An OTLP receiver.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Exported>>>);

#[derive(Clone, Debug)]
struct Exported {
    resource: BTreeMap<String, String>,
    attributes: BTreeMap<String, String>,
    span: Span,
}

impl Collector {
    /// Starts a receiver. Returns its endpoint, too.
    async fn start() -> (Self, String) {
        let (collector, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/traces", post(receive)).with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (collector, endpoint)
    }

    /// Waits for a span that satisfies `holds`.
    async fn span(&self, what: &str, holds: impl Fn(&Exported) -> bool) -> Exported {
        eventually(what, async || self.0.lock().iter().find(|&span| holds(span)).cloned()).await
    }

    /// Waits for a span of this name in the same trace.
    async fn related(&self, name: &str, to: &Exported) -> Exported {
        self.span(name, |other| other.span.name == name && other.span.trace_id == to.span.trace_id).await
    }
}

impl Exported {
    fn is(&self, service: &str, name: &str) -> bool {
        self.resource["service.name"] == service && self.span.name == name
    }

    fn is_of(&self, object: &str) -> bool {
        self.attributes.get("object").is_some_and(|name| name == object)
    }
}

async fn receive(State(collector): State<Collector>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    for group in request.resource_spans {
        let resource = texts(group.resource.unwrap_or_default().attributes);
        for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let (resource, attributes) = (resource.clone(), texts(span.attributes.clone()));
            collector.0.lock().push(Exported { resource, attributes, span });
        }
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("unexpected attribute {other:?}"),
    };
    let pair = |attribute: KeyValue| (attribute.key, text(attribute.value.and_then(|value| value.value)));
    attributes.into_iter().map(pair).collect()
}

async fn servers() -> ServerFixture {
    ServerFixture::start(Programs::beside(PROGRAM).unwrap()).await.unwrap()
}

/// Installs a package with one ConfigMap, which both servers take part in.
async fn install(servers: &ServerFixture) {
    let bundle = Bundle::new("traced", "1.0.0").config_map("traced", &[("version", "1.0.0")]);
    let bundle = servers.publish(&bundle).unwrap();
    servers.serve("traced", &Catalog::default().chain(&[bundle])).await.unwrap();
    servers.create_namespace("apps").await.unwrap();
    create_extension(servers, "traced").await;
    servers.until_installed("traced", "1.0.0").await.unwrap();
}

/// Creates an extension with the package of its name.
async fn create_extension(servers: &ServerFixture, name: &str) {
    let object = serde_json::from_value(extension(name, "apps", name, None)).unwrap();
    servers.extensions().create(&PostParams::default(), &object).await.unwrap();
}

// docs/design/operations.md#traces
#[tokio::test(flavor = "multi_thread")]
async fn spans_of_both_servers_reach_the_collector() {
    let ((collector, endpoint), servers) = (Collector::start().await, servers().await);
    let exporting = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
        ("NO_PROXY", "*".to_owned()),
    ];
    let named = [
        ("OTEL_SERVICE_NAME", "catalogs".to_owned()),
        ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=test".to_owned()),
    ];
    let mut catalogd = servers.launch_catalogd_in(&[&exporting[..], &named].concat(), &[]).unwrap();
    let pod = [("POD_NAME", "controller-1".to_owned())];
    let mut controller = servers.launch_controller_in(&[&exporting[..], &pod].concat(), &[]).unwrap();
    catalogd.ready().await.unwrap();
    controller.ready().await.unwrap();
    install(&servers).await;

    let pull = collector.span("pull of the bundle", |span| span.is("operator-controller", "pull")).await;
    assert!(pull.attributes["image"].contains("/bundles/traced@sha256:"), "{pull:?}");
    assert_eq!(pull.resource["k8s.pod.name"], "controller-1");
    let reconcile = collector.related("reconcile", &pull).await;
    assert!(reconcile.is_of("traced") && reconcile.span.parent_span_id.is_empty(), "{reconcile:?}");
    assert_eq!(reconcile.attributes["controller"], "controller-operator-cluster-extension-controller");
    assert_eq!(reconcile.attributes["reconcile_id"].len(), 36);
    assert_eq!(pull.span.parent_span_id, reconcile.span.span_id);
    collector.related("resolve", &pull).await;
    let phase = collector.span("phase", |span| span.is("operator-controller", "phase")).await;
    assert!(collector.related("reconcile", &phase).await.is_of("traced-1"), "{phase:?}");
    collector.span("rendering", |span| span.is("operator-controller", "render")).await;

    let pull = collector.span("pull of the catalog", |span| span.is("catalogs", "pull")).await;
    assert_eq!(pull.resource["k8s.cluster.name"], "test");
    assert!(collector.related("reconcile", &pull).await.is_of("traced"));
    collector.related("store", &pull).await;
    let request = collector.span("request", |span| span.is("catalogs", "request")).await;
    assert_eq!(request.attributes["http.request.method"], "GET");
    assert_eq!(request.attributes["http.response.status_code"], "200");

    create_extension(&servers, "missing").await;
    let is_failure = |span: &Exported| {
        let status = span.span.status.clone().unwrap_or_default();
        span.is("operator-controller", "reconcile") && status.message.contains("\"missing\"")
    };
    assert!(collector.span("failed reconcile", is_failure).await.is_of("missing"));
    catalogd.stop().await.unwrap();
    controller.stop().await.unwrap();
}

// docs/design/operations.md#traces
#[tokio::test(flavor = "multi_thread")]
async fn dead_collector_delays_neither_reconciles_nor_stop() {
    let servers = servers().await;
    // One accepts connections and never answers, the other refuses them.
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hangs = hanging.local_addr().unwrap();
    let refuses = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let exporting = |to| {
        [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{to}/v1/traces")),
            ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000".to_owned()),
            ("NO_PROXY", "*".to_owned()),
        ]
    };
    let mut catalogd = servers.launch_catalogd_in(&exporting(refuses), &[]).unwrap();
    let mut controller = servers.launch_controller_in(&exporting(hangs), &[]).unwrap();
    catalogd.ready().await.unwrap();
    controller.ready().await.unwrap();
    install(&servers).await;
    let failures = || catalogd.log().matches("\"traces not exported\"").count();
    eventually("the failure is logged", async || (failures() > 0).then_some(())).await;
    assert_eq!(failures(), 1);
    assert!(catalogd.log().contains("Connection refused"), "{}", catalogd.log());
    for server in [catalogd, controller] {
        let begun = Instant::now();
        server.stop().await.unwrap();
        assert!(begun.elapsed() < STOPPED, "stopped in {:?}", begun.elapsed());
    }
}

#[test]
fn invalid_variable_disables_traces_only() {
    // Another error ends the process after the start of logs.
    let ended = std::process::Command::new(PROGRAM)
        .args(["--metrics-bind-address=0"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[")
        .output()
        .unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("\"traces are disabled"), "{said}");
    assert!(said.contains("Error: metrics-bind-address requires"), "{said}");
}
