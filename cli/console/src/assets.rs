//! Embedded script, stylesheet and icon. Their addresses contain a digest, so that browsers keep them.

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::LazyLock;

use olm_cli_catalog::graph::svg;

use super::app::App;

pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "console.css",
        "text/css; charset=utf-8",
        format!("{}{}", include_str!("assets/console.css"), svg::RULES),
    )
});
pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console.js", "text/javascript; charset=utf-8", include_str!("assets/console.js"))
});
pub(super) static FAVICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("favicon.svg", "image/svg+xml", include_str!("assets/favicon.svg")));

/// Embedded file.
pub(super) struct Asset {
    name: &'static str,
    media_type: &'static str,
    content: String,
    path: String,
}

impl Asset {
    fn new(name: &'static str, media_type: &'static str, content: impl Into<String>) -> Self {
        let content = content.into();
        let digest = olm_pack::digest_of(content.as_bytes());
        let digest: String = digest.chars().skip("sha256:".len()).take(16).collect();
        Self { name, media_type, content, path: format!("/assets/{digest}/{name}") }
    }

    /// Path in the console.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

pub(super) fn routes() -> Router<App> {
    Router::new().route("/assets/{digest}/{name}", get(asset))
}

async fn asset(Path((_, name)): Path<(String, String)>) -> Response {
    let found = [&STYLE, &SCRIPT, &FAVICON].into_iter().find(|asset| asset.name == name);
    let Some(asset) = found else { return StatusCode::NOT_FOUND.into_response() };
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, asset.content.as_str()).into_response()
}
