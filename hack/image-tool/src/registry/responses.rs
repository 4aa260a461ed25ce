//! Responses of the registry.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use oci_distribution::manifest::OCI_IMAGE_INDEX_MEDIA_TYPE;
use serde_json::json;

use super::{Content, TOKEN, failure};
use crate::digest_of;

impl Content {
    pub(super) fn respond(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Response {
        if path == "/token" {
            return axum::Json(json!({ "token": TOKEN })).into_response();
        }
        let Some(path) = path.strip_prefix("/v2/") else {
            return failure(StatusCode::NOT_FOUND, "NOT_FOUND", "no such path");
        };
        if path.is_empty() {
            return axum::Json(json!({})).into_response();
        }
        if let Some((repository, upload)) = path.split_once("/blobs/uploads/") {
            return self.upload(method, repository, upload, query, body);
        }
        if let Some((_, digest)) = path.split_once("/blobs/") {
            return self.blob(digest, headers);
        }
        if let Some((repository, digest)) = path.split_once("/referrers/").filter(|_| self.has_referrers) {
            return self.referrers(repository, digest);
        }
        let Some((repository, reference)) = path.split_once("/manifests/") else {
            return failure(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "repository name not known to registry");
        };
        if method == Method::PUT {
            let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let digest = self.add_manifest(repository, reference, media_type.unwrap_or_default(), body);
            return created(&format!("/v2/{repository}/manifests/{digest}"));
        }
        self.manifest(repository, reference)
    }

    fn manifest(&self, repository: &str, reference: &str) -> Response {
        let key = (repository.to_owned(), reference.to_owned());
        if let Some((media_type, bytes)) = self.manifests.get(&key) {
            let headers = [
                (header::CONTENT_TYPE.as_str(), media_type.clone()),
                ("docker-content-digest", digest_of(bytes)),
            ];
            return (headers, bytes.clone()).into_response();
        }
        if self.manifests.keys().any(|(known, _)| known == repository) {
            failure(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "manifest unknown")
        } else {
            failure(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "repository name not known to registry")
        }
    }

    /// Index of the manifests with the subject `digest`.
    fn referrers(&self, repository: &str, digest: &str) -> Response {
        let mut entries = BTreeMap::new();
        for ((known, _), (media_type, bytes)) in &self.manifests {
            let manifest: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
            if known == repository && manifest["subject"]["digest"] == digest {
                let entry = json!({
                    "mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len(),
                    "artifactType": manifest["artifactType"], "annotations": manifest["annotations"],
                });
                entries.insert(digest_of(bytes), entry);
            }
        }
        let entries: Vec<_> = entries.into_values().collect();
        let index =
            json!({ "schemaVersion": 2, "mediaType": OCI_IMAGE_INDEX_MEDIA_TYPE, "manifests": entries });
        ([(header::CONTENT_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE)], index.to_string()).into_response()
    }

    fn blob(&self, digest: &str, headers: &HeaderMap) -> Response {
        let Some(bytes) = self.blobs.get(digest) else {
            return failure(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "blob unknown to registry");
        };
        let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
        let start = range
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok())
            .filter(|start| *start < bytes.len());
        match start {
            None => bytes.clone().into_response(),
            Some(start) => {
                let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
                (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], bytes.slice(start..))
                    .into_response()
            }
        }
    }

    /// Each blob is one PUT. The upload session has no state.
    fn upload(
        &mut self,
        method: &Method,
        repository: &str,
        upload: &str,
        query: &str,
        body: Bytes,
    ) -> Response {
        if method == Method::POST && upload.is_empty() {
            let location = format!("/v2/{repository}/blobs/uploads/session");
            return (StatusCode::ACCEPTED, [(header::LOCATION, location)]).into_response();
        }
        let digest = digest_of(&body);
        if method != Method::PUT || query.replace("%3A", ":") != format!("digest={digest}") {
            return failure(StatusCode::BAD_REQUEST, "DIGEST_INVALID", "digest does not match the body");
        }
        self.blobs.insert(digest.clone(), body);
        created(&format!("/v2/{repository}/blobs/{digest}"))
    }
}

fn created(location: &str) -> Response {
    (StatusCode::CREATED, [(header::LOCATION, location)]).into_response()
}
