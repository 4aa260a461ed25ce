//! Third-party webhooks: one for admission, one for conversion.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// Response of a [`Webhook`] to every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is allowed.
    Admit,
    /// The request is denied with this message.
    Reject(String),
    /// The request is allowed with this JSON patch.
    Change(Value),
    /// No response.
    Hang,
}

/// Running admission webhook. Stopped on drop.
pub struct Webhook {
    verdict: Arc<Mutex<Verdict>>,
    server: Server,
}

/// Running webhook that converts custom resources only by their `apiVersion`. Stopped on drop.
pub struct Converter {
    /// Keys whose conversions fail.
    failing: Arc<Mutex<BTreeSet<String>>>,
    server: Server,
}

/// HTTPS server on a free port of 127.0.0.1. Stopped on drop.
struct Server {
    certificate: String,
    port: u16,
    running: axum_server::Handle<SocketAddr>,
}

impl Webhook {
    /// Starts the webhook on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port is free, or no certificate can be generated.
    pub async fn start(verdict: Verdict) -> Result<Self> {
        let verdict = Arc::new(Mutex::new(verdict));
        let app = Router::new().route("/", post(review)).with_state(Arc::clone(&verdict));
        Ok(Self { verdict, server: Server::start(app).await? })
    }

    /// Sets the response from now on.
    pub fn say(&self, verdict: Verdict) {
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = verdict;
    }

    /// ValidatingWebhookConfiguration that calls the webhook, with a timeout of one second, for all creations and
    /// updates in the namespace.
    #[must_use]
    pub fn configuration(&self, name: &str, namespace: &str) -> Value {
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": ["*"], "scope": "Namespaced"});
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": format!("{name}.servers.example"), "sideEffects": "None", "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "rules": [rule],
                "namespaceSelector": selector,
                "clientConfig": self.server.client_config(""),
            }],
        })
    }
}

impl Converter {
    /// Starts the webhook on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port is free, or no certificate can be generated.
    pub async fn start() -> Result<Self> {
        let failing = Arc::default();
        let app = Router::new().route("/{about}", post(convert)).with_state(Arc::clone(&failing));
        Ok(Self { failing, server: Server::start(app).await? })
    }

    /// `spec.conversion` of a CustomResourceDefinition with this webhook. `about` is a key for [`Converter::fail`].
    #[must_use]
    pub fn conversion(&self, about: &str) -> Value {
        let client_config = self.server.client_config(about);
        json!({"strategy": "Webhook",
            "webhook": {"clientConfig": client_config, "conversionReviewVersions": ["v1"]}})
    }

    /// Sets whether conversions with the key `about` fail from now on.
    pub fn fail(&self, about: &str, fails: bool) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if fails {
            failing.insert(about.to_owned());
        } else {
            failing.remove(about);
        }
    }
}

impl Server {
    async fn start(app: Router) -> Result<Self> {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let tls = RustlsConfig::from_pem(certificate.clone().into(), key.into()).await?;
        let running = axum_server::Handle::new();
        let server = axum_server::from_tcp_rustls(listener, tls)?.handle(running.clone());
        tokio::spawn(server.serve(app.into_make_service()));
        Ok(Self { certificate, port, running })
    }

    /// Client configuration of the API server for this path.
    fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/{path}", self.port),
            "caBundle": ByteString(self.certificate.clone().into_bytes())})
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.shutdown();
    }
}

async fn convert(
    State(failing): State<Arc<Mutex<BTreeSet<String>>>>,
    Path(about): Path<String>,
    Json(review): Json<Value>,
) -> Json<Value> {
    let request = &review["request"];
    let fails = failing.lock().unwrap_or_else(PoisonError::into_inner).contains(&about);
    let result = if fails { json!({"status": "Failure"}) } else { json!({"status": "Success"}) };
    let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
    for object in &mut objects {
        object["apiVersion"] = request["desiredAPIVersion"].clone();
    }
    let response = json!({"uid": request["uid"], "result": result, "convertedObjects": objects});
    Json(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}))
}

async fn review(State(verdict): State<Arc<Mutex<Verdict>>>, Json(review): Json<Value>) -> Json<Value> {
    let verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let uid = &review["request"]["uid"];
    let response = match verdict {
        Verdict::Admit => json!({"uid": uid, "allowed": true}),
        Verdict::Reject(why) => {
            json!({"uid": uid, "allowed": false, "status": {"code": 403, "message": why}})
        }
        Verdict::Change(patch) => {
            let patch = ByteString(patch.to_string().into_bytes());
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch})
        }
        Verdict::Hang => std::future::pending().await,
    };
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}
