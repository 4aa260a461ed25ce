//! Webhooks of `greetings`: one sets a default, one rejects greetings without a name, and one converts between v1 and
//! v2, where the same field is called `name` and `who`. Pure: [`router`] only reads and writes JSON.
//!
//! Both admission webhooks receive only v2: the API server converts for them.

use axum::http::header::CONNECTION;
use axum::http::{HeaderName, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::core::Status;
use kube::core::conversion::{ConversionRequest, ConversionResponse, ConversionReview};
use serde_json::{Value, json};

/// Default salutation.
pub const SALUTATION: &str = "Hello";
/// Error message for a greeting without a name.
pub const NOBODY: &str = "spec.who must name somebody: it is blank";

/// Closes the connection after every response, so that each call requires a new handshake: a certificate that the API
/// server does not trust is noticed at the next call.
const CLOSE: [(HeaderName, &str); 1] = [(CONNECTION, "close")];

/// Router with the three webhooks, at the paths in the bundle.
pub fn router() -> Router {
    Router::new()
        .route("/mutate", post(async |Json(review): Json<Value>| (CLOSE, Json(default_salutation(&review)))))
        .route("/validate", post(async |Json(review): Json<Value>| (CLOSE, Json(validate(&review)))))
        .route("/convert", post(convert))
}

async fn convert(
    Json(review): Json<ConversionReview>,
) -> Result<impl axum::response::IntoResponse, StatusCode> {
    let request = ConversionRequest::from_review(review).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok((CLOSE, Json(converted(request).into_review())))
}

/// Review with a response that sets a missing `spec.salutation`.
fn default_salutation(review: &Value) -> Value {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if review["request"]["object"]["spec"]["salutation"].is_null() {
        let patch = json!([{"op": "add", "path": "/spec/salutation", "value": SALUTATION}]);
        response["patchType"] = "JSONPatch".into();
        response["patch"] = BASE64_STANDARD.encode(patch.to_string()).into();
    }
    admission(response)
}

/// Review with a response that rejects a greeting without a name.
fn validate(review: &Value) -> Value {
    let who = review["request"]["object"]["spec"]["who"].as_str().unwrap_or_default();
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if who.trim().is_empty() {
        response["allowed"] = false.into();
        response["status"] = json!({"code": 422, "reason": "Invalid", "message": NOBODY});
    }
    admission(response)
}

fn admission(response: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// Converts all objects to the desired version, or returns the error of one.
fn converted(mut request: ConversionRequest) -> ConversionResponse {
    let objects = std::mem::take(&mut request.objects);
    let desired = request.desired_api_version.clone();
    let response = ConversionResponse::for_request(request);
    match objects.into_iter().map(|object| in_version(object, &desired)).collect() {
        Ok(objects) => response.success(objects),
        Err(why) => response.failure(Status::failure(&why, "BadRequest")),
    }
}

/// Renames the field of the greeting for `api_version` (group and version).
fn in_version(mut object: Value, api_version: &str) -> Result<Value, String> {
    let (from, to) = match api_version.rsplit_once('/').map(|(_, version)| version) {
        Some("v1") => ("who", "name"),
        Some("v2") => ("name", "who"),
        _ => return Err(format!("greetings have versions v1 and v2, not {api_version}")),
    };
    if let Some(spec) = object["spec"].as_object_mut()
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.to_owned(), value);
    }
    object["apiVersion"] = api_version.into();
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(spec: Value) -> Value {
        json!({"request": {"uid": "u1", "object": {"apiVersion": "g/v2", "kind": "Greeting", "spec": spec}}})
    }

    #[test]
    fn missing_salutation_is_set() {
        let answered = default_salutation(&review(json!({"who": "world"})));
        assert_eq!(answered["response"]["uid"], "u1");
        let patch = BASE64_STANDARD.decode(answered["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch, json!([{"op": "add", "path": "/spec/salutation", "value": "Hello"}]));
        let answered = default_salutation(&review(json!({"who": "world", "salutation": "Good day"})));
        assert_eq!(answered["response"], json!({"uid": "u1", "allowed": true}));
    }

    #[test]
    fn greeting_without_a_name_is_rejected() {
        assert_eq!(validate(&review(json!({"who": "world"})))["response"]["allowed"], true);
        for spec in [json!({"who": " "}), json!({})] {
            let answered = validate(&review(spec));
            assert_eq!(answered["response"]["allowed"], false);
            assert_eq!(answered["response"]["status"]["message"], NOBODY);
        }
    }

    #[test]
    fn field_is_renamed_in_both_directions() {
        let convert = |version: &str, object: Value| {
            let request = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "request": {"uid": "u2", "desiredAPIVersion": version, "objects": [object]}});
            let review: ConversionReview = serde_json::from_value(request).unwrap();
            let answered = converted(ConversionRequest::from_review(review).unwrap()).into_review();
            serde_json::to_value(answered.response.unwrap()).unwrap()
        };
        let old = json!({"apiVersion": "g/v1", "kind": "Greeting", "metadata": {"name": "a"}, "spec": {"name": "b"}});
        let new = json!({"apiVersion": "g/v2", "kind": "Greeting", "metadata": {"name": "a"}, "spec": {"who": "b"}});
        let answered = convert("g/v2", old.clone());
        assert_eq!((&answered["uid"], &answered["result"]["status"]), (&json!("u2"), &json!("Success")));
        assert_eq!(answered["convertedObjects"], json!([new]));
        assert_eq!(convert("g/v1", new)["convertedObjects"], json!([old.clone()]));
        let refused = convert("g/v3", old);
        assert_eq!(refused["result"]["status"], "Failure");
        assert_eq!(refused["result"]["message"], "greetings have versions v1 and v2, not g/v3");
    }
}
