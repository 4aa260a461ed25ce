//! Icons of packages. Their content is hostile input: raster images are decoded with limits and encoded again, and SVG
//! images with active content are refused (docs/design/console.md#icons).

use std::collections::HashSet;
use std::io::Cursor;
use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use image::{ImageFormat, ImageReader, Limits};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::page::PageError;
use crate::visit::Visit;

/// Largest encoded icon, in bytes.
const SIZE_LIMIT: usize = 1 << 20;
/// Largest width and height of a raster image, in pixels.
const PIXEL_LIMIT: u32 = 2048;
/// Largest memory of the decoder, in bytes.
const MEMORY_LIMIT: u64 = 32 << 20;
/// Width and height of a served raster image.
const SERVED_PIXELS: u32 = 128;
/// Decodes one image at a time, because each may need [`MEMORY_LIMIT`].
static DECODER: Semaphore = Semaphore::const_new(1);
/// Policy of a response with an SVG image, for a browser that opens it as a document.
const SVG_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// Icon of an `olm.package` object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Icon {
    base64data: String,
    mediatype: String,
}

/// Image that a browser may show.
#[derive(Debug, PartialEq, Eq)]
enum Image {
    Png(Vec<u8>),
    Svg(String),
}

/// Icon that the `olm.package` object declares.
pub(super) fn declared(object: &[u8]) -> Option<Icon> {
    #[derive(Deserialize)]
    struct Object {
        icon: Option<Icon>,
    }
    let object: Object = serde_json::from_slice(object).ok()?;
    object.icon.filter(|icon| !icon.base64data.is_empty() && icon.base64data.len() <= 2 * SIZE_LIMIT)
}

/// Serves the icon of a package.
///
/// # Errors
/// The package has no icon that can be shown.
pub(super) async fn serve(
    Visit { console, visitor }: Visit,
    Path((catalog, package)): Path<(String, String)>,
) -> Result<Response, PageError> {
    let content = console.library.content(&catalog, &console, &visitor).await?;
    let turn = DECODER.acquire().await;
    let decoded = tokio::task::spawn_blocking(move || {
        let content = Arc::clone(&content);
        let object = content.package_object(&package).ok().flatten();
        object.as_deref().and_then(declared).and_then(|icon| decode(&icon))
    });
    let image = decoded.await.ok().flatten();
    drop(turn);
    let image =
        image.ok_or_else(|| PageError::new(StatusCode::NOT_FOUND, "the package has no usable icon"))?;
    let keep = (CACHE_CONTROL, "private, max-age=3600");
    Ok(match image {
        Image::Png(bytes) => ([keep, (CONTENT_TYPE, "image/png")], bytes).into_response(),
        Image::Svg(text) => {
            let headers = [keep, (CONTENT_TYPE, "image/svg+xml"), (CONTENT_SECURITY_POLICY, SVG_POLICY)];
            (headers, text).into_response()
        }
    })
}

fn decode(icon: &Icon) -> Option<Image> {
    let data: String = icon.base64data.split_whitespace().collect();
    let bytes = BASE64_STANDARD.decode(data).ok().filter(|bytes| bytes.len() <= SIZE_LIMIT)?;
    match icon.mediatype.trim() {
        "image/svg+xml" => svg(bytes).map(Image::Svg),
        _ => raster(&bytes).map(Image::Png),
    }
}

/// Decodes PNG or JPEG, whatever the declared media type, and encodes it as a small PNG.
fn raster(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().ok()?;
    if !matches!(reader.format(), Some(ImageFormat::Png | ImageFormat::Jpeg)) {
        return None;
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(PIXEL_LIMIT);
    limits.max_image_height = Some(PIXEL_LIMIT);
    limits.max_alloc = Some(MEMORY_LIMIT);
    reader.limits(limits);
    let image = reader.decode().ok()?;
    let small = match image.width().max(image.height()) > SERVED_PIXELS {
        true => image.thumbnail(SERVED_PIXELS, SERVED_PIXELS),
        false => image,
    };
    let mut encoded = Cursor::new(Vec::new());
    small.into_rgba8().write_to(&mut encoded, ImageFormat::Png).ok()?;
    Some(encoded.into_inner())
}

/// Checks that an SVG image has no script and refers to nothing outside of it. A browser that shows it in an `img`
/// element ignores both anyway.
fn svg(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    let options = roxmltree::ParsingOptions { allow_dtd: true, nodes_limit: 20_000, ..Default::default() };
    if text.contains("<!ENTITY") {
        return None;
    }
    let document = roxmltree::Document::parse_with_options(&text, options).ok()?;
    let is_svg = document.root_element().has_tag_name(("http://www.w3.org/2000/svg", "svg"));
    let is_active = document.descendants().any(|node| {
        node.is_pi() && node.pi().is_some_and(|pi| pi.target == "xml-stylesheet")
            || is_active_element(node.tag_name().name())
            || node.attributes().any(|attribute| is_active_attribute(attribute.name(), attribute.value()))
            || node.tag_name().name().eq_ignore_ascii_case("style") && node.text().is_some_and(loads)
    });
    (is_svg && !is_active && !has_nested_use(&document)).then_some(text)
}

/// Reports whether a `use` element refers, or with an encoded name may refer, to an element that contains another one.
/// Few nested ones would draw billions of elements.
fn has_nested_use(document: &roxmltree::Document<'_>) -> bool {
    let uses: Vec<_> =
        document.descendants().filter(|node| node.tag_name().name().eq_ignore_ascii_case("use")).collect();
    let mut containing = HashSet::new();
    let mut names = HashSet::new();
    for node in &uses {
        for outer in node.ancestors().take_while(|outer| containing.insert(outer.id())) {
            names.extend(outer.attribute("id"));
        }
    }
    let mut attributes = uses.iter().flat_map(|node| node.attributes());
    attributes.any(|attribute| {
        let target = attribute.value().trim().strip_prefix('#');
        attribute.name() == "href"
            && target.is_some_and(|target| names.contains(target) || target.contains('%'))
    })
}

fn is_active_element(name: &str) -> bool {
    [
        "script",
        "foreignobject",
        "iframe",
        "object",
        "embed",
        "audio",
        "video",
        "handler",
        "listener",
        "set",
        "animate",
    ]
    .iter()
    .any(|active| name.eq_ignore_ascii_case(active))
}

fn is_active_attribute(name: &str, value: &str) -> bool {
    let value = value.trim();
    let refers = name.eq_ignore_ascii_case("href") || name.eq_ignore_ascii_case("src");
    let is_inside =
        value.starts_with('#') || value.starts_with("data:image/png") || value.starts_with("data:image/jpeg");
    name.to_ascii_lowercase().starts_with("on") || refers && !is_inside || !refers && loads(value)
}

/// Reports whether a style or attribute loads something from outside of the document.
fn loads(style: &str) -> bool {
    let style = style.to_ascii_lowercase();
    let outside = |rest: &str| !rest.trim_start_matches([' ', '\'', '"']).starts_with('#');
    style.contains("@import") || style.contains('\\') || style.split("url(").skip(1).any(outside)
}
