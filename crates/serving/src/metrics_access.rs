//! Access to `/metrics`: the API server authenticates a bearer token (TokenReview), or a client certificate is used
//! where configured, and authorizes the user (SubjectAccessReview on the path). Answers are cached briefly, and few
//! reviews run at once: a flood of invalid tokens costs the API server little, and does not affect known clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use olm_runtime::cluster::within;
use olm_runtime::metrics::{Metrics, OPENMETRICS, PROMETHEUS_TEXT};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::client_authority::user_of;
use crate::flags::MetricsAuth;
use crate::https::ClientCertificate;

const REVIEW_DEADLINE: Duration = Duration::from_secs(10);
const KNOWN_TOKEN: Duration = Duration::from_secs(60);
const UNKNOWN_TOKEN: Duration = Duration::from_secs(10);
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);
/// Maximum number of entries of each cache.
const CACHE_LIMIT: usize = 1024;
/// Concurrent reviews of clients that the API server has authenticated before, and of all others.
const REVIEWS: usize = 2;
/// Maximum wait for a review to start.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The route `/metrics`, restricted by `access`.
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
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        // The route rejects other methods. Authorizing each one would take a review.
        return next.run(request).await;
    }
    let bearer = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty())
        .map(|(_, token)| token.trim());
    let certificate =
        request.extensions().get::<ClientCertificate>().and_then(|presented| presented.0.as_ref());
    let certificate_user = certificate.and_then(user_of);
    let verb = request.method().as_str().to_lowercase();
    match access.check(certificate_user, bearer, &verb, request.uri().path()).await {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Status and text of a rejected request.
type ErrorResponse = (StatusCode, String);

/// Answers of the API server by digest of the request, each with its expiry time.
#[derive(Debug, Default)]
struct Cache<V>(Mutex<HashMap<[u8; 32], (Instant, V)>>);

impl<V: Clone> Cache<V> {
    fn get(&self, key: &[u8; 32]) -> Option<V> {
        let entries = self.0.lock();
        entries.get(key).filter(|(until, _)| Instant::now() < *until).map(|(_, value)| value.clone())
    }

    /// `true` if an answer is or was cached, even if it has expired.
    fn has_seen(&self, key: &[u8; 32]) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Adds an answer. In a full cache it replaces the one that expires first.
    fn insert(&self, key: [u8; 32], valid: Duration, value: V) {
        let mut entries = self.0.lock();
        if entries.len() >= CACHE_LIMIT
            && let Some(first) = entries.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| *key)
        {
            entries.remove(&first);
        }
        entries.insert(key, (Instant::now() + valid, value));
    }
}

/// Authentication and authorization by the API server, with caches.
#[derive(Debug)]
pub struct MetricsAccess {
    auth: MetricsAuth,
    reviews: Api<TokenReview>,
    accesses: Api<SubjectAccessReview>,
    /// Users of valid tokens. Invalid ones have a cache of their own, so that they do not evict users.
    users: Cache<UserInfo>,
    invalid: Cache<()>,
    rights: Cache<bool>,
    known_permits: Semaphore,
    unknown_permits: Semaphore,
}

impl MetricsAccess {
    /// A checker that uses `client`, which needs the right to create both kinds of review.
    pub fn new(client: Client, auth: MetricsAuth) -> Self {
        Self {
            auth,
            reviews: Api::all(client.clone()),
            accesses: Api::all(client),
            users: Cache::default(),
            invalid: Cache::default(),
            rights: Cache::default(),
            known_permits: Semaphore::new(REVIEWS),
            unknown_permits: Semaphore::new(REVIEWS),
        }
    }

    /// Authenticates and authorizes a request. `certificate_user` is the user of the client's certificate.
    async fn check(
        &self,
        certificate_user: Option<UserInfo>,
        token: Option<&str>,
        verb: &str,
        path: &str,
    ) -> Result<(), ErrorResponse> {
        let unauthorized = || (StatusCode::UNAUTHORIZED, "Unauthorized\n".to_owned());
        let certificate_user = certificate_user.filter(|_| self.auth != MetricsAuth::Token);
        let token = token.filter(|_| self.auth != MetricsAuth::Mtls);
        let user = match (certificate_user, token) {
            (Some(user), _) => Some(user),
            (None, Some(token)) => self.user(token).await?,
            (None, None) => None,
        };
        let user = user.ok_or_else(unauthorized)?;
        let name = user.username.clone().unwrap_or_default();
        if self.allowed(user, verb, path).await? {
            return Ok(());
        }
        Err((StatusCode::FORBIDDEN, format!("Authorization denied for user {name}\n")))
    }

    /// The user of a token, or `None` if the API server does not know it.
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, ErrorResponse> {
        let key = digest(token.as_bytes());
        let cached = || self.users.get(&key).map(Some).or_else(|| self.invalid.get(&key).map(|()| None));
        if let Some(known) = cached() {
            return Ok(known);
        }
        let is_user = self.users.has_seen(&key);
        let _permit =
            review_permit(if is_user { &self.known_permits } else { &self.unknown_permits }).await?;
        if let Some(known) = cached() {
            return Ok(known);
        }
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = within(REVIEW_DEADLINE, self.reviews.create(&PostParams::default(), &review)).await;
        let answer = answer.map_err(|error| {
            tracing::error!(%error, "TokenReview failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "Authentication failed\n".to_owned())
        })?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        match &user {
            Some(user) => self.users.insert(key, KNOWN_TOKEN, user.clone()),
            None => {
                self.users.0.lock().remove(&key);
                self.invalid.insert(key, UNKNOWN_TOKEN, ());
            }
        }
        Ok(user)
    }

    async fn allowed(&self, user: UserInfo, verb: &str, path: &str) -> Result<bool, ErrorResponse> {
        let name = user.username.clone().unwrap_or_default();
        let broken = |error: kube::Error| {
            tracing::error!(%error, "SubjectAccessReview failed");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("Authorization for user {name} failed\n"))
        };
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
        // The whole spec, because certificates can name the same user with different groups.
        let key = digest(&serde_json::to_vec(&spec).map_err(kube::Error::SerdeError).map_err(&broken)?);
        if let Some(known) = self.rights.get(&key) {
            return Ok(known);
        }
        let _permit = review_permit(&self.known_permits).await?;
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = within(REVIEW_DEADLINE, self.accesses.create(&PostParams::default(), &review)).await;
        let allowed = answer.map_err(broken)?.status.is_some_and(|status| status.allowed);
        self.rights.insert(key, if allowed { ALLOWED } else { DENIED }, allowed);
        Ok(allowed)
    }
}

/// A permit for a review.
///
/// # Errors
/// Status 429: no permit in time.
async fn review_permit(permits: &Semaphore) -> Result<SemaphorePermit<'_>, ErrorResponse> {
    let busy = || (StatusCode::TOO_MANY_REQUESTS, "Too many requests\n".to_owned());
    timeout(PERMIT_TIMEOUT, permits.acquire()).await.ok().and_then(Result::ok).ok_or_else(busy)
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
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

    #[tokio::test]
    async fn unauthenticated_or_unauthorized_requests_are_rejected() {
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
        // An unknown path is answered without a review.
        for authorization in ["", "Bearer good"] {
            let request = axum::http::Request::get("/other").header(header::AUTHORIZATION, authorization);
            let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status().as_u16(), 404);
        }
        // unknown, poor twice, broken, good twice. The last request was answered from the cache.
        assert_eq!(asked.load(Ordering::Relaxed), 6);
    }

    /// An API server that takes half a second for each token and knows `good`. `running` has the number of
    /// concurrent reviews, and its maximum.
    fn slow_client(running: Arc<[AtomicUsize; 2]>) -> Client {
        let service = service_fn(move |request: http::Request<kube::client::Body>| {
            let running = Arc::clone(&running);
            async move {
                let body = request.into_body().collect_bytes().await?;
                let mut review: serde_json::Value = serde_json::from_slice(&body)?;
                let now = running[0].fetch_add(1, Ordering::Relaxed) + 1;
                running[1].fetch_max(now, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(500)).await;
                running[0].fetch_sub(1, Ordering::Relaxed);
                let is_good = review["spec"]["token"] == "good";
                review["status"] = serde_json::json!({"authenticated": is_good, "allowed": true, "user": {"username": "good"}});
                let answer = http::Response::new(kube::client::Body::from(serde_json::to_vec(&review)?));
                Ok::<_, tower::BoxError>(answer)
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_invalid_tokens_does_not_delay_known_client() {
        let running = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let access = Arc::new(MetricsAccess::new(slow_client(Arc::clone(&running)), MetricsAuth::Token));
        let check = async |token: &str| access.check(None, Some(token), "get", "/metrics").await;
        assert_eq!(check("good").await, Ok(()));
        let busy = Arc::new(AtomicUsize::new(0));
        let mut flood = tokio::task::JoinSet::new();
        for client in 0..64 {
            let (access, busy) = (Arc::clone(&access), Arc::clone(&busy));
            flood.spawn(async move {
                for round in 0.. {
                    let token = format!("random {client} {round}");
                    let refused = access.check(None, Some(&token), "get", "/metrics").await.unwrap_err();
                    busy.fetch_add(
                        usize::from(refused.0 == StatusCode::TOO_MANY_REQUESTS),
                        Ordering::Relaxed,
                    );
                }
            });
        }
        // Longer than any answer is cached.
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let begun = Instant::now();
            assert_eq!(check("good").await, Ok(()));
            assert!(begun.elapsed() <= 2 * Duration::from_millis(501), "{:?}", begun.elapsed());
        }
        assert!(busy.load(Ordering::Relaxed) > 0, "some unknown clients must time out waiting for a review");
        let most = running[1].load(Ordering::Relaxed);
        assert!((2..=2 * REVIEWS).contains(&most), "{most} reviews at once");
        assert!(access.invalid.0.lock().len() <= CACHE_LIMIT && access.users.0.lock().len() == 1);
    }

    #[tokio::test]
    async fn metrics_auth_selects_certificate_or_token() {
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
        for (auth, certificate_user, token, expected) in rows {
            let access = MetricsAccess::new(client(Arc::default()), auth);
            let shown_user = certificate_user
                .map(|name| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() });
            let checked = access.check(shown_user, token, "get", "/metrics").await;
            let checked = checked.map_err(|error| error.0.as_u16());
            assert_eq!(checked, expected, "{auth:?} {certificate_user:?} {token:?}");
        }
    }
}
