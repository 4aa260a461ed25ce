//! Parts of responses that several endpoints share.

use std::io;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::precondition::format_date;
use crate::content::Snapshot;
use crate::encoding::Encoding;

/// Media type of catalog content.
pub(super) const JSON_LINES: HeaderValue = HeaderValue::from_static("application/jsonl");
/// Header with the digest of the image that the content is from.
pub(super) const CATALOG_DIGEST: HeaderName = HeaderName::from_static("olm-catalog-digest");

/// An error response with the text of the reference (docs/design/catalogd.md#order-of-checks).
pub(super) fn error(status: StatusCode, text: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_LENGTH, HeaderValue::from(text.len() + 1)),
    ];
    (status, headers, format!("{text}\n")).into_response()
}

/// A response with content under construction.
#[derive(Clone)]
pub(super) struct ContentResponse {
    status: StatusCode,
    pub(super) headers: HeaderMap,
}

impl ContentResponse {
    /// A response with the headers that are common to all answers from this content.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self { status: StatusCode::OK, headers: HeaderMap::new() }
            .with(CATALOG_DIGEST, snapshot.digest())
            .with(header::LAST_MODIFIED, format_date(snapshot.modified))
            .tagged(snapshot, None)
    }

    /// Adds the tag of the representation, which differs by encoding.
    pub(super) fn tagged(self, snapshot: &Snapshot, encoding: Option<Encoding>) -> Self {
        let tag = &snapshot.tag;
        match encoding {
            None => self.with(header::ETAG, format!("\"{tag}\"")),
            Some(encoding) => self
                .with(header::ETAG, format!("\"{tag}-{}\"", encoding.name()))
                .with(header::CONTENT_ENCODING, encoding.name()),
        }
    }

    pub(super) fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Sets a header. The values are numbers, dates and tokens, which are always valid.
    pub(super) fn with(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.headers.insert(name, value);
        }
        self
    }

    pub(super) fn json_lines(self, length: u64) -> Self {
        self.with(header::CONTENT_TYPE, JSON_LINES).with(header::CONTENT_LENGTH, length)
    }

    pub(super) fn body(self, body: Body) -> io::Result<Response> {
        Ok((self.status, self.headers, body).into_response())
    }

    /// A response without body and `Content-Encoding`.
    pub(super) fn empty(mut self) -> Response {
        self.headers.remove(header::CONTENT_ENCODING);
        (self.status, self.headers).into_response()
    }
}
