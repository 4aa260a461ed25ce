//! Image references of the operator's containers and of `spec.relatedImages`
//! (docs/design/cli.md#bundle-validation, docs/design/cli.md#lint-rules).

use std::collections::BTreeSet;

use olm_bundle::pointer::{list, text};
use olm_version::{names, quote};

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
            let message = format!("{} is not an image reference: {expected}", quote(image));
            findings.add(&rule::IMG_2, location, message);
        } else if !image.contains('@') {
            let message = format!("{} has a tag: use a digest", quote(image));
            findings.add(&rule::IMG_1, location, message);
        }
    }
}

/// Reports whether `text` is `[registry/]repository[:tag][@digest]` by the grammar of container engines.
pub(crate) fn is_reference(text: &str) -> bool {
    let (named, digest) = text.split_once('@').map_or((text, None), |(named, digest)| (named, Some(digest)));
    let (name, tag) = match named.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (named, None),
    };
    let is_registry_like = |first: &str| {
        first.contains(['.', ':']) || first == "localhost" || first.contains(|c: char| c.is_ascii_uppercase())
    };
    let (registry, path) = match name.split_once('/') {
        Some((first, rest)) if is_registry_like(first) => (Some(first), rest),
        _ => (None, name),
    };
    name.len() <= 255
        && !(name.len() == 64 && names::is_lower_hex(name))
        && registry.is_none_or(|registry| names::is_registry(registry) || is_ipv6_registry(registry))
        && path.split('/').all(names::is_repository_segment)
        && tag.is_none_or(names::is_tag)
        && digest.is_none_or(names::is_digest)
}

/// Accepts `[address]` and `[address]:port`.
fn is_ipv6_registry(text: &str) -> bool {
    text.strip_prefix('[').and_then(|rest| rest.split_once(']')).is_some_and(|(address, port)| {
        !address.is_empty()
            && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            && (port.is_empty() || port.strip_prefix(':').is_some_and(names::is_number))
    })
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
