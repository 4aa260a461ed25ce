//! An admission webhook of somebody else.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// What a [`Webhook`] says to every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Admit,
    /// No, and why.
    Reject(String),
    /// Nothing.
    Hang,
}

/// A running webhook; gone when dropped.
pub struct Webhook {
    certificate: String,
    port: u16,
    verdict: Arc<Mutex<Verdict>>,
    server: axum_server::Handle<std::net::SocketAddr>,
}

impl Webhook {
    /// Starts it on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port or no certificate could be had.
    pub async fn start(verdict: Verdict) -> Result<Self> {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let tls = RustlsConfig::from_pem(certificate.clone().into(), key.into()).await?;
        let verdict = Arc::new(Mutex::new(verdict));
        let app = Router::new().route("/", post(review)).with_state(Arc::clone(&verdict));
        let server = axum_server::Handle::new();
        let running = axum_server::from_tcp_rustls(listener, tls)?.handle(server.clone());
        tokio::spawn(running.serve(app.into_make_service()));
        Ok(Self { certificate, port, verdict, server })
    }

    /// What it says from now on.
    pub fn say(&self, verdict: Verdict) {
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = verdict;
    }

    /// A ValidatingWebhookConfiguration that asks it, for one second, about everything that is made or changed in the
    /// namespace.
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
                "clientConfig": {"url": format!("https://127.0.0.1:{}/", self.port),
                    "caBundle": ByteString(self.certificate.clone().into_bytes())},
            }],
        })
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

async fn review(State(verdict): State<Arc<Mutex<Verdict>>>, Json(review): Json<Value>) -> Json<Value> {
    let verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let uid = &review["request"]["uid"];
    let response = match verdict {
        Verdict::Admit => json!({"uid": uid, "allowed": true}),
        Verdict::Reject(why) => {
            json!({"uid": uid, "allowed": false, "status": {"code": 403, "message": why}})
        }
        Verdict::Hang => std::future::pending().await,
    };
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}
