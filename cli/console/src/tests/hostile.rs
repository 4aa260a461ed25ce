//! Attacks by the content of a catalog, and by requests (docs/design/console.md).

use std::io::Cursor;

use axum::http::{Method, StatusCode, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use image::{DynamicImage, ImageFormat};
use serde_json::{Value, json};

use super::{Rig, data};

const SCRIPT: &str = "\"'><script>window.attacked=1</script><img src=x onerror=window.attacked=1>";

/// Catalog of one package with this icon. Each text of the package is a script.
fn hostile(media_type: &str, icon: &[u8]) -> String {
    let package = json!({"schema": "olm.package", "name": "evil", "defaultChannel": SCRIPT, "description": SCRIPT,
        "icon": {"mediatype": media_type, "base64data": BASE64_STANDARD.encode(icon)}});
    let channel =
        json!({"schema": "olm.channel", "package": "evil", "name": SCRIPT, "entries": [{"name": "evil.v1"}]});
    let csv = json!({"displayName": SCRIPT, "provider": {"name": SCRIPT}, "keywords": [SCRIPT], "maturity": SCRIPT,
        "description": format!("# {SCRIPT}\n\n{SCRIPT}\n\n[a](javascript:window.attacked=1) ![b](https://evil.example/x)"),
        "links": [{"name": SCRIPT, "url": "javascript:window.attacked=1"}, {"name": "x", "url": SCRIPT}],
        "maintainers": [{"name": SCRIPT, "email": SCRIPT}], "minKubeVersion": SCRIPT,
        "annotations": {"description": SCRIPT, "categories": SCRIPT, "repository": "data:text/html,x",
            "capabilities": SCRIPT, "support": SCRIPT},
        "customresourcedefinitions": {"owned": [{"name": SCRIPT, "kind": SCRIPT, "version": SCRIPT, "description": SCRIPT}]}});
    let bundle = json!({"schema": "olm.bundle", "package": "evil", "name": "evil.v1", "image": SCRIPT, "properties": [
        {"type": "olm.package", "value": {"packageName": "evil", "version": "1.0.0"}},
        {"type": "olm.gvk", "value": {"group": SCRIPT, "kind": SCRIPT, "version": SCRIPT}},
        {"type": "olm.csv.metadata", "value": csv}], "relatedImages": [{"image": SCRIPT}]});
    let entries = json!([{"reference": {"schema": "olm.package"}, "message": SCRIPT}]);
    let deprecation = json!({"schema": "olm.deprecations", "package": "evil", "entries": entries});
    let documents: Vec<String> =
        [package, channel, bundle, deprecation].iter().map(Value::to_string).collect();
    documents.join("\n---\n")
}

async fn icon(media_type: &str, icon: &[u8]) -> super::Answer {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with_catalog(folder.path(), &hostile(media_type, icon)).await;
    rig.get("/catalogs/hostile/packages/evil/icon").await
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_catalog_is_never_markup() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with_catalog(folder.path(), &hostile("image/png", b"x")).await;
    let query = "/?q=%3Cscript%3Ewindow.attacked%3D1%3C/script%3E";
    for path in [
        "/",
        query,
        "/catalogs/hostile/packages/evil",
        "/catalogs/hostile/packages/%3Cscript%3Ewindow.attacked",
    ] {
        let page = rig.get(path).await.text.to_lowercase();
        for forbidden in [
            "<script>",
            "<img src=x",
            "onerror=window.attacked=1>",
            "href=\"javascript:",
            "evil.example",
            "href=\"data:",
        ] {
            assert!(!page.contains(forbidden), "{path} contains {forbidden}: {page}");
        }
        assert!(page.contains("&lt;script&gt;") || page.contains("no package matches"), "{path}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn svg_icon_with_active_content_is_refused() {
    let svg = |content: &str| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\">{content}</svg>"
        )
    };
    let entities = "<!DOCTYPE svg [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]><svg xmlns=\"http://www.w3.org/2000/svg\">&b;</svg>";
    for refused in [
        svg("<script>1</script>"),
        svg("<g onload=\"1\"/>"),
        svg("<a xlink:href=\"javascript:1\"/>"),
        svg("<image href=\"https://evil.example/x.png\"/>"),
        svg("<use href=\"data:image/svg+xml,x\"/>"),
        svg("<style>@import 'https://evil.example'</style>"),
        svg("<rect fill=\"url(https://evil.example/#x)\"/>"),
        svg("<rect style=\"fill:u\\72l(//evil.example)\"/>"),
        svg("<foreignObject/>"),
        svg("<g id=\"a\"><use href=\"#b\"/></g><use xlink:href=\"#a\"/>"),
        svg("<use id=\"a\" href=\"#a\"/>"),
        svg("<set attributeName=\"href\" to=\"javascript:1\"/>"),
        entities.to_owned(),
        "<html/>".to_owned(),
        svg("<g>"),
    ] {
        let answer = icon("image/svg+xml", refused.as_bytes()).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{refused}");
    }
    let good = svg(
        "<defs><g id=\"a\"/></defs><use href=\"#a\"/><rect fill=\"url(#a)\"/><style>.a{fill:#fff}</style>",
    );
    let answer = icon("image/svg+xml", good.as_bytes()).await;
    assert_eq!(answer.status, StatusCode::OK);
    let policy = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert_eq!(policy, "default-src 'none'; style-src 'unsafe-inline'; sandbox");
}

#[tokio::test(flavor = "multi_thread")]
async fn raster_icon_is_encoded_again_within_limits() {
    let encoded = |width, height, format| {
        let mut bytes = Cursor::new(Vec::new());
        DynamicImage::new_rgb8(width, height).write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    };
    let mut polyglot = encoded(300, 200, ImageFormat::Png);
    polyglot.extend_from_slice(b"<script>alert(1)</script>");
    for bytes in [&polyglot, &encoded(300, 200, ImageFormat::Jpeg)] {
        let answer = icon("text/html", bytes).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers[header::CONTENT_TYPE], "image/png");
        assert!(!answer.text.contains("<script>") && answer.text.len() < 4096);
    }
    for refused in [encoded(3000, 10, ImageFormat::Png), b"GIF89a".to_vec(), b"<svg/>".to_vec(), Vec::new()] {
        assert_eq!(icon("image/png", &refused).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn console_path_traversal_returns_client_error() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    for path in [
        "/catalogs/..%2F..%2Fetc/packages/passwd",
        "/catalogs/catalog/packages/..%2F..%2F..%2Fetc%2Fpasswd",
        "/catalogs/catalog/packages/lamp%00/icon",
        "/catalogs/catalog/packages/%FF",
        "/catalogs/other/packages/lamp",
        "/catalogs/%2E%2E/packages/lamp/install",
        "/catalogs/a%2Fb/packages/lamp/graph",
        "/catalogs/catalog/packages/lamp/installed?name=..",
        "/assets/../main.rs",
        "/assets/0/..%2F..%2Fmain.rs",
        "//evil.example/",
        "/catalogs/catalog/packages/lamp?version=%3Cscript%3E",
        "/catalogs/catalog/packages/lamp?channel=..",
    ] {
        let answer = rig.get(path).await;
        assert!(answer.status.is_client_error(), "{path}: {}", answer.status);
        assert!(!answer.text.contains("root:") && !answer.text.contains("<script>"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn console_invalid_extension_name_returns_client_error() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    for name in [
        "..",
        "..%2F..%2Fapi",
        "a%2Fb",
        "a%00",
        "%FF",
        "%3Cscript%3E",
        "a,metadata.name=b",
        "A",
        &"a".repeat(300),
    ] {
        for query in [
            "",
            "/why",
            "?fragment=1",
            "?fragment=1&seen=1.1",
            "/objects?object=..%2F..%2Fapi",
            "/apis",
            "/apis/..%2Fapi",
            "/apis/a.b/create",
            "/configuration",
            "/uninstalled",
        ] {
            let answer = rig.get(&format!("/extensions/{name}{query}")).await;
            assert!(answer.status.is_client_error(), "{name}{query}: {}", answer.status);
            assert!(!answer.text.contains("<script>") && answer.text.len() < 4096, "{}", answer.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changing_request_needs_origin_and_token() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    let (host, cookie) = (("host", "localhost:8000"), ("cookie", rig.cookie.as_str()));
    let (ours, site) = (("origin", "http://localhost:8000"), ("sec-fetch-site", "same-origin"));
    for (headers, body, expected) in [
        (vec![host, cookie], "", StatusCode::FORBIDDEN),
        (vec![host, cookie, ("origin", "https://evil.example")], "", StatusCode::FORBIDDEN),
        (vec![host, cookie, ("origin", "http://localhost:8001")], "", StatusCode::FORBIDDEN),
        (vec![host, cookie, ours, ("sec-fetch-site", "same-site")], "", StatusCode::FORBIDDEN),
        (vec![host, cookie, ours, site], "", StatusCode::FORBIDDEN),
        (vec![host, cookie, ours, site], "csrf=x", StatusCode::FORBIDDEN),
        (vec![host, ours, site], "csrf=x", StatusCode::UNAUTHORIZED),
    ] {
        for method in [Method::POST, Method::DELETE, Method::PUT] {
            let answer = rig.send(method.clone(), "/nowhere", &headers, body).await;
            assert_eq!(answer.status, expected, "{method} {headers:?} {body}");
        }
    }
    let large = "x".repeat(2 << 20);
    let answer = rig.send(Method::POST, "/nowhere", &[host, cookie, ours, site], &large).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}
