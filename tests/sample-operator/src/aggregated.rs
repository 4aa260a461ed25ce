//! An aggregated API with one kind that can be listed, `Salutation`.
//!
//! Requests come from the API server of the cluster, which proves itself with the certificate of its front proxy and
//! names the user in headers. The user's permission is delegated to a SubjectAccessReview. Names of front proxies are
//! not compared: every certificate of the request-header CA is accepted.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// Version of the API.
pub const VERSION: &str = "v1";
/// Salutations that the API lists.
pub const SALUTATIONS: [(&str, &str); 2] = [("english", "Hello"), ("german", "Guten Tag")];

/// ConfigMap in `kube-system` with which the API server tells aggregated servers how it authenticates.
const AUTHENTICATION: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "requestheader-client-ca-file";
const USER: &str = "x-remote-user";
const GROUP: &str = "x-remote-group";

/// Closes the connection after every response, so that each call requires a new handshake.
const CLOSE: [(HeaderName, &str); 1] = [(CONNECTION, "close")];

struct Server {
    client: Client,
    group: String,
}

/// Certificate authorities of the front proxy, as the cluster publishes them.
///
/// # Errors
/// The ConfigMap cannot be read, or has none: the API server runs without aggregation.
pub async fn front_proxy_authorities(client: &Client) -> Result<RootCertStore> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map =
        maps.get(AUTHENTICATION).await.with_context(|| format!("reading ConfigMap {AUTHENTICATION}"))?;
    let text = map.data.unwrap_or_default().remove(CLIENT_CA);
    let text = text.with_context(|| format!("ConfigMap {AUTHENTICATION} has no {CLIENT_CA}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        roots.add(certificate.with_context(|| format!("reading {CLIENT_CA}"))?)?;
    }
    Ok(roots)
}

/// Router of the API `group`.
pub fn router(client: Client, group: &str) -> Router {
    let path = format!("/apis/{group}/{VERSION}");
    let resources = resources(group);
    let salutations = salutations(group);
    let state = Arc::new(Server { client, group: group.to_owned() });
    Router::new()
        .route(&format!("{path}/salutations"), get(async move || (CLOSE, Json(salutations))))
        .layer(from_fn_with_state(state, authorize))
        // Discovery is open to all authenticated users, as in every cluster.
        .route(&path, get(async move || (CLOSE, Json(resources))))
}

fn resources(group: &str) -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{VERSION}"),
        "resources": [{
            "name": "salutations", "singularName": "salutation", "namespaced": false, "kind": "Salutation",
            "verbs": ["list"],
        }],
    })
}

fn salutations(group: &str) -> Value {
    let version = format!("{group}/{VERSION}");
    let item = |(language, words): (&str, &str)| json!({"apiVersion": version, "kind": "Salutation", "metadata": {"name": language}, "words": words});
    json!({
        "apiVersion": version, "kind": "SalutationList", "metadata": {},
        "items": SALUTATIONS.map(item),
    })
}

async fn authorize(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let refuse = |code: StatusCode, reason: &str, message: String| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
            "message": message, "code": code.as_u16()});
        (code, CLOSE, Json(status)).into_response()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(server.client.clone());
    let asked = review(&server.group, request.headers());
    match reviews.create(&PostParams::default(), &asked).await {
        Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => next.run(request).await,
        Ok(_) => {
            let user = asked.spec.user.unwrap_or_default();
            let message = format!("user {user:?} cannot list salutations in {}", server.group);
            refuse(StatusCode::FORBIDDEN, "Forbidden", message)
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", error.to_string()),
    }
}

/// Review of whether the user in these headers may list salutations.
fn review(group: &str, headers: &HeaderMap) -> SubjectAccessReview {
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let resource = ResourceAttributes {
        group: Some(group.to_owned()),
        version: Some(VERSION.to_owned()),
        resource: Some("salutations".to_owned()),
        verb: Some("list".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: headers.get(USER).map(text),
        groups: Some(headers.get_all(GROUP).iter().map(text).collect()),
        resource_attributes: Some(resource),
        ..SubjectAccessReviewSpec::default()
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn review_asks_for_the_user_in_the_headers() {
        let mut headers = HeaderMap::new();
        headers.insert(USER, "ann".parse().unwrap());
        headers.append(GROUP, "staff".parse().unwrap());
        headers.append(GROUP, "system:authenticated".parse().unwrap());
        let asked = serde_json::to_value(review("g.example", &headers)).unwrap();
        assert_eq!(
            asked["spec"],
            json!({
                "user": "ann", "groups": ["staff", "system:authenticated"],
                "resourceAttributes": {"group": "g.example", "resource": "salutations", "verb": "list", "version": "v1"},
            })
        );
    }

    #[test]
    fn list_has_the_kind_that_discovery_names() {
        let (resources, list) = (resources("g.example"), salutations("g.example"));
        assert_eq!(resources["groupVersion"], list["apiVersion"]);
        assert_eq!(list["items"][0]["kind"], resources["resources"][0]["kind"]);
        assert_eq!(list["items"][1]["words"], "Guten Tag");
    }
}
