//! Image references of the operator's containers and of `spec.relatedImages`
//! (docs/design/additions.md#bundle-validation, docs/design/additions.md#lint-rules).

use std::collections::BTreeSet;

use olm_bundle::pointer::{list, text};
use olm_version::quote;

use crate::content::Object;
use crate::report::{Findings, Location};
use crate::rule;

/// Checks every image. An image used several times is reported once.
pub(crate) fn images(csv: &Object, findings: &mut Findings) {
    let related = csv.items("spec.relatedImages");
    let mut images: Vec<(&str, Location)> =
        related.map(|(location, related)| (text(related, "/image"), location.at("image"))).collect();
    for (location, deployment) in csv.items("spec.install.spec.deployments") {
        for containers in ["initContainers", "containers"] {
            let all = list(deployment, &format!("/spec/template/spec/{containers}")).iter().enumerate();
            images.extend(all.map(|(index, container)| {
                let field = format!("spec.template.spec.{containers}.{index}.image");
                (text(container, "/image"), location.clone().at(&field))
            }));
        }
    }
    let mut seen = BTreeSet::new();
    for (image, location) in images {
        if image.is_empty() {
            findings.add(&rule::IMG_2, location, "the image is missing");
        } else if !seen.insert(image) {
            // Reported at its first use.
        } else if !is_reference(image) {
            let expected = "expected registry/repository:tag or registry/repository@sha256:…";
            let message = format!("{} is no image reference: {expected}", quote(image));
            findings.add(&rule::IMG_2, location, message);
        } else if !image.contains('@') {
            findings.add(
                &rule::IMG_1,
                location,
                format!("{} is named by tag: name it by digest", quote(image)),
            );
        }
    }
}

/// Reports whether `text` is `[registry/]repository[:tag][@digest]` by the grammar of container engines.
fn is_reference(text: &str) -> bool {
    let (named, digest) = text.split_once('@').map_or((text, None), |(named, digest)| (named, Some(digest)));
    let (name, tag) = match named.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (named, None),
    };
    let (registry, path) = match name.split_once('/') {
        Some((first, rest)) if is_registry_like(first) => (Some(first), rest),
        _ => (None, name),
    };
    let is_identifier =
        name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    name.len() <= 255
        && !is_identifier
        && registry.is_none_or(is_registry)
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
}

fn is_registry_like(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'),
        None => host.split('.').all(is_part),
    };
    is_host && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Accepts lower case letters and digits, with `.`, `_`, `__` or hyphens between them.
fn is_component(component: &str) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends_well =
        component.as_bytes().first().is_some_and(is_word) && component.as_bytes().last().is_some_and(is_word);
    let mut separators = component.as_bytes().split(is_word).filter(|separator| !separator.is_empty());
    ends_well
        && separators.all(|separator| {
            matches!(separator, b"." | b"_" | b"__") || separator.iter().all(|byte| *byte == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
        && tag.bytes().next().is_some_and(is_word)
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let mut parts = algorithm.split(['-', '_', '+', '.']);
    parts.all(|part| {
        part.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }) && hex.len() >= 32
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_reference_grammar_is_enforced() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for good in [
            "busybox",
            "library/busybox:1",
            "registry.example.com/a/b_c/d__e/f--g.h:v1.0_x-y",
            "localhost:5000/a",
            "localhost/a",
            "[::1]:5000/a",
            "Registry/a",
            &format!("quay.io/a/b@{digest}"),
            &format!("quay.io/a/b:v1@{digest}"),
        ] {
            assert!(is_reference(good), "{good}");
        }
        for bad in [
            "https://quay.io/a/b",
            "quay.io/A/b",
            "quay.io/a/b:",
            "quay.io/a b",
            "quay.io//a",
            "quay.io/a-",
            "quay.io/a___b",
            "quay.io/a/b@sha256:123",
            "$(IMAGE)",
            "-a/b.c:x y",
            &"a".repeat(64),
            &format!("quay.io/{}", "a".repeat(256)),
        ] {
            assert!(!is_reference(bad), "{bad}");
        }
    }
}
