//! `/healthz` and `/readyz` (docs/design/operations.md#probes).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use olm_runtime::workers::Workers;
use parking_lot::Mutex;

/// Run time after which a reconcile counts as stuck. Every wait within a reconcile has a deadline, and all together
/// are shorter.
const STUCK: Duration = Duration::from_secs(30 * 60);

/// Named readiness checks, each with its failure reason, or `None` if it succeeds.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    checks: Arc<Mutex<BTreeMap<&'static str, Option<&'static str>>>>,
}

impl Readiness {
    /// Adds or updates a check as failing because of `reason`.
    pub fn not_ready(&self, check: &'static str, reason: &'static str) {
        self.set(check, Some(reason));
    }

    /// Marks a check as succeeding.
    pub fn ready(&self, check: &'static str) {
        self.set(check, None);
    }

    fn set(&self, check: &'static str, reason: Option<&'static str>) {
        let before = self.checks.lock().insert(check, reason);
        if let (Some(reason), true) = (reason, before != Some(reason)) {
            tracing::debug!(check, reason, "readiness check failed");
        }
    }

    fn snapshot(&self) -> Checks {
        let mut checks = self.checks.lock().clone();
        checks.insert("readyz", None);
        checks
    }
}

/// The routes of both probes, each also with a path per check.
pub fn router(readiness: Readiness, workers: Workers) -> Router {
    routes("healthz", move || liveness(&workers)).merge(routes("readyz", move || readiness.snapshot()))
}

fn routes(endpoint: &'static str, checks: impl Fn() -> Checks + Clone + Send + Sync + 'static) -> Router {
    let all = checks.clone();
    let whole = async move |RawQuery(query): RawQuery| probe_response(&all(), query.as_deref());
    let one = async move |Path(check): Path<String>| check_response(endpoint, &checks(), &check);
    Router::new()
        .route(&format!("/{endpoint}"), get(whole))
        .route(&format!("/{endpoint}/{{check}}"), get(one))
}

type Checks = BTreeMap<&'static str, Option<&'static str>>;

/// The liveness checks. An answer shows that the runtime works. A reconcile that does not end within [`STUCK`]
/// never will.
fn liveness(workers: &Workers) -> Checks {
    let stuck = (workers.longest() >= STUCK).then_some("a reconcile has been running for 30 minutes");
    Checks::from([("healthz", None), ("workers", stuck)])
}

/// The answer of a probe. Its last line is that of the reference, which is the same for both probes.
fn probe_response(checks: &Checks, query: Option<&str>) -> Response {
    let parameters = || query.unwrap_or_default().split('&');
    let is_verbose = parameters().any(|one| one == "verbose" || one.starts_with("verbose="));
    let excluded: Vec<&str> = parameters().filter_map(|one| one.strip_prefix("exclude=")).collect();
    let mut lines = String::new();
    let mut failed = false;
    for (name, reason) in checks {
        if excluded.contains(name) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if reason.is_none() {
            lines.push_str(&format!("[+]{name} ok\n"));
        } else {
            failed = true;
            lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
        }
    }
    match (failed, is_verbose) {
        (true, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}healthz check failed\n")),
        (false, true) => (StatusCode::OK, format!("{lines}healthz check passed\n")),
        (false, false) => (StatusCode::OK, "ok".to_owned()),
    }
    .into_response()
}

fn check_response(endpoint: &str, checks: &Checks, name: &str) -> Response {
    match checks.get(name) {
        Some(None) => (StatusCode::OK, "ok".to_owned()),
        Some(Some(reason)) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
        }
        None => (StatusCode::NOT_FOUND, format!("404 page not found: no check of /{endpoint}\n")),
    }
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 16).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    // docs/design/operations.md#probes
    #[tokio::test(start_paused = true)]
    async fn stuck_reconcile_fails_liveness_only() {
        let workers = Workers::default();
        let router = router(Readiness::default(), workers.clone());
        let busy = workers.begin("c");
        tokio::time::advance(STUCK - Duration::from_secs(1)).await;
        assert_eq!(ask(&router, "/healthz").await, (200, "ok".to_owned()));
        tokio::time::advance(Duration::from_secs(1)).await;
        let stuck = "[+]healthz ok\n[-]workers failed: reason withheld\nhealthz check failed\n";
        assert_eq!(ask(&router, "/healthz").await, (500, stuck.to_owned()));
        assert_eq!(ask(&router, "/readyz").await.0, 200);
        drop(busy);
        assert_eq!(ask(&router, "/healthz/workers").await, (200, "ok".to_owned()));
    }

    // Case operations-a22
    #[tokio::test]
    async fn probes_answer_as_in_the_reference() {
        let readiness = Readiness::default();
        let router = router(readiness.clone(), Workers::default());
        readiness.not_ready("catalog-server", "catalog server not yet started");
        let rows = [
            ("/healthz", 200, "ok"),
            (
                "/readyz",
                500,
                "[-]catalog-server failed: reason withheld\n[+]readyz ok\nhealthz check failed\n",
            ),
            ("/readyz?exclude=catalog-server", 200, "ok"),
            ("/readyz/catalog-server", 500, "internal server error: catalog server not yet started\n"),
            ("/readyz/readyz", 200, "ok"),
            ("/readyz/none", 404, "404 page not found: no check of /readyz\n"),
        ];
        for (path, status, body) in rows {
            assert_eq!(ask(&router, path).await, (status, body.to_owned()), "{path}");
        }
        readiness.ready("catalog-server");
        assert_eq!(ask(&router, "/readyz").await, (200, "ok".to_owned()));
        let verbose = "[+]catalog-server ok\n[+]readyz ok\nhealthz check passed\n";
        assert_eq!(ask(&router, "/readyz?verbose").await, (200, verbose.to_owned()));
    }
}
