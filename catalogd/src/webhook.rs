//! The mutating admission webhook that keeps the name label on catalogs (spec 02 §E6, spec 01 §8.2).

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::StatusCode;
use olm_api::labels;
use serde_json::{Value, json};

const PATH: &str = "/mutate-olm-operatorframework-io-v1-clustercatalog";
const BODY_LIMIT: usize = 7 << 20;
/// As long as the API server waits for us.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// The webhook's only route.
pub fn router() -> Router {
    Router::new().route(PATH, post(review))
}

async fn review(body: Body) -> Response {
    let refused = |why: String| (StatusCode::BAD_REQUEST, why).into_response();
    match tokio::time::timeout(READ_DEADLINE, to_bytes(body, BODY_LIMIT)).await {
        Err(_) => refused("the request was not complete in time\n".to_owned()),
        Ok(Err(error)) => refused(format!("reading the request: {error}\n")),
        Ok(Ok(body)) => match serde_json::from_slice::<Value>(&body) {
            Ok(review) => axum::Json(answer(&review)).into_response(),
            Err(error) => refused(format!("not an AdmissionReview: {error}\n")),
        },
    }
}

/// The review with its response.
fn answer(review: &Value) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true});
    match patch(request) {
        Ok(None) => {}
        Ok(Some(patch)) => {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = BASE64_STANDARD.encode(patch.to_string()).into();
        }
        Err(why) => {
            response["allowed"] = false.into();
            response["status"] = json!({"code": 400, "message": why});
        }
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// The patch that sets the label, where it is missing or wrong.
fn patch(request: &Value) -> Result<Option<Value>, &'static str> {
    if request["operation"] == "DELETE" {
        return Ok(None);
    }
    let object = request["object"].as_object().ok_or("the request carries no object")?;
    let metadata = object.get("metadata").and_then(Value::as_object).ok_or("the object has no metadata")?;
    let Some(name) = metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
        // The name is made only after admission.
        return Ok(None);
    };
    let pointer = format!("/metadata/labels/{}", labels::METADATA_NAME.replace('~', "~0").replace('/', "~1"));
    match metadata.get("labels").and_then(Value::as_object) {
        Some(all) if all.get(labels::METADATA_NAME).and_then(Value::as_str) == Some(name) => Ok(None),
        Some(_) => Ok(Some(json!([{"op": "add", "path": pointer, "value": name}]))),
        None => Ok(Some(json!([
            {"op": "add", "path": "/metadata/labels", "value": {labels::METADATA_NAME: name}}
        ]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec 02 acceptance 59
    #[test]
    fn patches() {
        let key = labels::METADATA_NAME;
        let pointer = "/metadata/labels/olm.operatorframework.io~1metadata.name";
        let rows = [
            (
                json!({"operation": "CREATE", "object": {"metadata": {"name": "a"}}}),
                Ok(Some(json!([{"op": "add", "path": "/metadata/labels", "value": {key: "a"}}]))),
            ),
            (
                json!({"operation": "UPDATE", "object": {"metadata": {"name": "a", "labels": {"x": "y"}}}}),
                Ok(Some(json!([{"op": "add", "path": pointer, "value": "a"}]))),
            ),
            (
                json!({"operation": "UPDATE", "object": {"metadata": {"name": "a", "labels": {key: "b"}}}}),
                Ok(Some(json!([{"op": "add", "path": pointer, "value": "a"}]))),
            ),
            (
                json!({"operation": "UPDATE", "object": {"metadata": {"name": "a", "labels": {key: "a"}}}}),
                Ok(None),
            ),
            (json!({"operation": "CREATE", "object": {"metadata": {"generateName": "a-"}}}), Ok(None)),
            (json!({"operation": "DELETE"}), Ok(None)),
            (json!({"operation": "CREATE", "object": 1}), Err("the request carries no object")),
        ];
        for (request, expect) in rows {
            assert_eq!(patch(&request), expect, "{request}");
        }
        let review =
            json!({"request": {"uid": "u", "operation": "CREATE", "object": {"metadata": {"name": "a"}}}});
        let response = &answer(&review)["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("u"), &json!(true)));
        let patch = BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"add","path":"/metadata/labels","value":{"olm.operatorframework.io/metadata.name":"a"}}]"#);
        assert_eq!(answer(&json!({}))["response"]["allowed"], json!(false));
    }
}
