//! Who may read `/metrics`: whom the API server knows by a bearer token (TokenReview) or, where that is asked for, by a
//! client certificate, and allows (SubjectAccessReview on the path). Answers are remembered briefly (spec 06 §4.2).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::client_authority::user_of;
use crate::cluster::within;
use crate::flags::MetricsAuth;
use crate::https::ClientCertificate;
use crate::metrics::{Metrics, OPENMETRICS, PROMETHEUS_TEXT};

const REVIEW_DEADLINE: Duration = Duration::from_secs(10);
const KNOWN_TOKEN: Duration = Duration::from_secs(60);
const UNKNOWN_TOKEN: Duration = Duration::from_secs(10);
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);
/// Entries of each memory; it is emptied when full.
const MEMORY_LIMIT: usize = 1024;

/// The route `/metrics`, for clients that `access` admits.
pub fn router(metrics: Arc<Metrics>, access: MetricsAccess) -> Router {
    Router::new()
        .route("/metrics", get(exposition).with_state(metrics))
        .route_layer(from_fn_with_state(Arc::new(access), admit))
}

async fn exposition(State(metrics): State<Arc<Metrics>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (media_type, body) = if accept.contains("application/openmetrics-text") {
        (OPENMETRICS, metrics.openmetrics())
    } else {
        (PROMETHEUS_TEXT, metrics.prometheus_text())
    };
    ([(header::CONTENT_TYPE, media_type)], body).into_response()
}

async fn admit(State(access): State<Arc<MetricsAccess>>, request: Request, next: Next) -> Response {
    let bearer = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty())
        .map(|(_, token)| token.trim());
    let certificate = request.extensions().get::<ClientCertificate>().and_then(|shown| shown.0.as_ref());
    let shown = certificate.and_then(user_of);
    let verb = request.method().as_str().to_lowercase();
    match access.check(shown, bearer, &verb, request.uri().path()).await {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Why a request is refused: status and text of spec 06 §4.2.
#[derive(Debug, PartialEq, Eq)]
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], self.1).into_response()
    }
}

/// An answer with the time until which it is believed.
type Remembered<K, V> = Mutex<HashMap<K, (Instant, V)>>;

/// Asks the API server about tokens and rights, and remembers its answers.
#[derive(Debug)]
pub struct MetricsAccess {
    auth: MetricsAuth,
    reviews: Api<TokenReview>,
    accesses: Api<SubjectAccessReview>,
    tokens: Remembered<[u8; 32], Option<UserInfo>>,
    /// By digest of what was asked.
    rights: Remembered<[u8; 32], bool>,
}

impl MetricsAccess {
    /// Asks through `client`, which needs the right to create both kinds of review.
    pub fn new(client: Client, auth: MetricsAuth) -> Self {
        Self {
            auth,
            reviews: Api::all(client.clone()),
            accesses: Api::all(client),
            tokens: Mutex::default(),
            rights: Mutex::default(),
        }
    }

    /// `shown` is whom the client's certificate names.
    async fn check(
        &self,
        shown: Option<UserInfo>,
        token: Option<&str>,
        verb: &str,
        path: &str,
    ) -> Result<(), Refusal> {
        let unauthorized = || Refusal(StatusCode::UNAUTHORIZED, "Unauthorized\n".to_owned());
        let broken = |text: String| Refusal(StatusCode::INTERNAL_SERVER_ERROR, text);
        let shown = shown.filter(|_| self.auth != MetricsAuth::Token);
        let token = token.filter(|_| self.auth != MetricsAuth::Mtls);
        let user = match (shown, token) {
            (Some(user), _) => Some(user),
            (None, Some(token)) => self.user(token).await.map_err(|error| {
                tracing::error!(%error, "TokenReview failed");
                broken("Authentication failed\n".to_owned())
            })?,
            (None, None) => None,
        };
        let user = user.ok_or_else(unauthorized)?;
        let name = user.username.clone().unwrap_or_default();
        let allowed = self.allowed(user, verb, path).await.map_err(|error| {
            tracing::error!(%error, "SubjectAccessReview failed");
            broken(format!("Authorization for user {name} failed\n"))
        })?;
        if allowed {
            return Ok(());
        }
        Err(Refusal(StatusCode::FORBIDDEN, format!("Authorization denied for user {name}\n")))
    }

    /// The user of a token, or `None` where the API server does not know it.
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        let key = digest(token.as_bytes());
        if let Some(known) = recall(&self.tokens, &key) {
            return Ok(known);
        }
        let review = TokenReview {
            metadata: ObjectMeta::default(),
            spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
            status: None,
        };
        let answer = within(REVIEW_DEADLINE, self.reviews.create(&PostParams::default(), &review)).await?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let believed = if user.is_some() { KNOWN_TOKEN } else { UNKNOWN_TOKEN };
        remember(&self.tokens, key, believed, user.clone());
        Ok(user)
    }

    async fn allowed(&self, user: UserInfo, verb: &str, path: &str) -> Result<bool, kube::Error> {
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some(verb.to_owned()),
            }),
            resource_attributes: None,
        };
        // Certificates can give one name in different groups.
        let key = digest(&serde_json::to_vec(&spec).map_err(kube::Error::SerdeError)?);
        if let Some(known) = recall(&self.rights, &key) {
            return Ok(known);
        }
        let review = SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
        let answer = within(REVIEW_DEADLINE, self.accesses.create(&PostParams::default(), &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        remember(&self.rights, key, if allowed { ALLOWED } else { DENIED }, allowed);
        Ok(allowed)
    }
}

/// What clients send is remembered at a length that is ours.
fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn recall<K: Eq + std::hash::Hash, V: Clone>(memory: &Remembered<K, V>, key: &K) -> Option<V> {
    let memory = memory.lock();
    memory.get(key).filter(|(until, _)| Instant::now() < *until).map(|(_, value)| value.clone())
}

fn remember<K: Eq + std::hash::Hash, V>(memory: &Remembered<K, V>, key: K, believed: Duration, value: V) {
    let mut memory = memory.lock();
    if memory.len() >= MEMORY_LIMIT {
        memory.clear();
    }
    memory.insert(key, (Instant::now() + believed, value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::{ServiceExt, service_fn};

    /// An API server that knows `good` and `poor`, allows only the first, and fails for `broken`.
    fn client(asked: Arc<AtomicUsize>) -> Client {
        let service = service_fn(move |request: http::Request<kube::client::Body>| {
            let asked = Arc::clone(&asked);
            async move {
                asked.fetch_add(1, Ordering::Relaxed);
                let body = request.into_body().collect_bytes().await?;
                let mut review: serde_json::Value = serde_json::from_slice(&body)?;
                let token = review["spec"]["token"].as_str().map(str::to_owned);
                review["status"] = match token.as_deref() {
                    Some("broken") => return Err("gone".into()),
                    Some("unknown") => serde_json::json!({"authenticated": false}),
                    Some(name) => serde_json::json!({"authenticated": true, "user": {"username": name}}),
                    None => serde_json::json!({"allowed": review["spec"]["user"] == "good"
                        && review["spec"]["nonResourceAttributes"]
                            == serde_json::json!({"path": "/metrics", "verb": "get"})}),
                };
                let answer = http::Response::new(kube::client::Body::from(serde_json::to_vec(&review)?));
                Ok::<_, tower::BoxError>(answer)
            }
        });
        Client::new(service, "default")
    }

    // spec 02 acceptance 60, spec 06 A4, A5, A6
    #[tokio::test]
    async fn refusals() {
        let asked = Arc::new(AtomicUsize::new(0));
        let access = MetricsAccess::new(client(Arc::clone(&asked)), MetricsAuth::Token);
        let router = router(Arc::new(Metrics::new()), access);
        let rows = [
            (None, 401, "Unauthorized\n"),
            (Some("Basic x"), 401, "Unauthorized\n"),
            (Some("Bearer unknown"), 401, "Unauthorized\n"),
            (Some("Bearer poor"), 403, "Authorization denied for user poor\n"),
            (Some("Bearer broken"), 500, "Authentication failed\n"),
            (Some("Bearer good"), 200, ""),
            (Some("bearer  good"), 200, ""),
        ];
        for (authorization, status, expect) in rows {
            let mut request = axum::http::Request::get("/metrics");
            if let Some(value) = authorization {
                request = request.header(header::AUTHORIZATION, value);
            }
            let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{authorization:?}");
            let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
            if status == 200 {
                assert!(body.starts_with(b"# HELP"));
            } else {
                assert_eq!(body, expect.as_bytes());
            }
        }
        // spec 06 §4.1: nobody is asked who may read what there is not.
        for authorization in ["", "Bearer good"] {
            let request = axum::http::Request::get("/other").header(header::AUTHORIZATION, authorization);
            let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status().as_u16(), 404);
        }
        // unknown, poor twice, broken, good twice; the last request was answered from memory.
        assert_eq!(asked.load(Ordering::Relaxed), 6);
    }

    // spec 06 §4.2: client certificates
    #[tokio::test]
    async fn certificates_and_tokens() {
        use MetricsAuth::{Mtls, Token, TokenOrMtls};
        let rows = [
            (Token, Some("good"), None, Err(401)),
            (Token, Some("poor"), Some("good"), Ok(())),
            (Mtls, Some("good"), None, Ok(())),
            (Mtls, None, Some("good"), Err(401)),
            (Mtls, Some("poor"), Some("good"), Err(403)),
            (TokenOrMtls, Some("good"), Some("poor"), Ok(())),
            (TokenOrMtls, Some("poor"), Some("good"), Err(403)),
            (TokenOrMtls, None, Some("good"), Ok(())),
            (TokenOrMtls, None, None, Err(401)),
        ];
        for (auth, shown, token, expected) in rows {
            let access = MetricsAccess::new(client(Arc::default()), auth);
            let shown_user =
                shown.map(|name| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() });
            let checked = access.check(shown_user, token, "get", "/metrics").await;
            let checked = checked.map_err(|refusal| refusal.0.as_u16());
            assert_eq!(checked, expected, "{auth:?} {shown:?} {token:?}");
        }
    }
}
