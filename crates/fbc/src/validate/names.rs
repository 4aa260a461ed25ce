//! Validation of package names and image references (docs/design/catalogd.md#validation).

use olm_version::names;

/// Faults of an RFC 1123 label, in upstream's words.
pub(super) fn label_problems(text: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push("must be no more than 63 characters");
    }
    if !names::is_dns_label(text) {
        problems.push(if text.split('.').all(names::is_dns_label) {
            "must not contain dots"
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
             and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        });
    }
    problems
}

/// Fault of an image reference. Short names such as `busybox` are valid.
pub(super) fn image_problem(text: &str) -> Option<String> {
    const FORMAT: &str = "invalid reference format";
    if text.len() == 64 && names::is_lower_hex(text) {
        return Some(format!("invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"));
    }
    let (domain, rest) = match text.split_once('/') {
        Some(("index.docker.io", rest)) => ("docker.io", rest),
        Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => (first, rest),
        _ => ("docker.io", text),
    };
    let path = rest.split(':').next().unwrap_or_default();
    if path.to_lowercase() != path {
        return Some(format!("{FORMAT}: repository name must be lowercase"));
    }
    let (name, digest) = rest.split_once('@').map_or((rest, None), |(name, digest)| (name, Some(digest)));
    let (path, tag) = name.split_once(':').map_or((name, None), |(path, tag)| (path, Some(tag)));
    let well_formed = (names::is_registry(domain) || names::is_repository_segment(domain))
        && path.split('/').all(names::is_repository_segment)
        && tag.is_none_or(names::is_tag)
        && digest.is_none_or(names::is_digest);
    if !well_formed {
        return Some(FORMAT.to_owned());
    }
    let library = if domain == "docker.io" && !path.contains('/') { "library/".len() } else { 0 };
    if domain.len() + 1 + library + path.len() > 255 {
        return Some("repository name must not be more than 255 characters".to_owned());
    }
    Some(names::check_digest(digest?).err()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_image_reference_is_reported() {
        const FORMAT: &str = "invalid reference format";
        const LOWER: &str = "invalid reference format: repository name must be lowercase";
        let digest = format!("a/b@sha256:{}", "0".repeat(64));
        let short = format!("a/b@sha256:{}", "0".repeat(63));
        let upper = format!("a/b@sha256:{}", "A".repeat(64));
        let other = format!("a/b@md5:{}", "0".repeat(32));
        let long = "a/".repeat(124) + "b";
        let longer = "a/".repeat(125) + "b";
        let legacy = format!("index.docker.io/{}", "a".repeat(238));
        let hex = "a".repeat(64);
        let hex_problem =
            format!("invalid repository name ({hex}), cannot specify 64-byte hexadecimal strings");
        let cases = [
            ("busybox", ""),
            ("library/a:b", ""),
            ("localhost:5000/a/b", ""),
            ("Registry.Example/a", ""),
            ("a_b.c/d", ""),
            ("a--b/c__d.e", ""),
            (&digest, ""),
            (&short, "invalid checksum digest length"),
            (&upper, "invalid checksum digest format"),
            (&other, "unsupported digest algorithm"),
            ("Foo/bar", LOWER),
            ("LOCALHOST/a", LOWER),
            (&legacy, "repository name must not be more than 255 characters"),
            ("reg.example/Foo/bar:1", LOWER),
            ("Foo", LOWER),
            ("not ok", FORMAT),
            ("a//b", FORMAT),
            ("a:b:c", FORMAT),
            ("a:", FORMAT),
            ("a@sha256:00", FORMAT),
            ("a___b", FORMAT),
            ("-a/b", FORMAT),
            ("reg.example:x/b", FORMAT),
            ("https://a/b", FORMAT),
            (&long, "repository name must not be more than 255 characters"),
            (&longer, "repository name must not be more than 255 characters"),
            (&hex, &hex_problem),
        ];
        for (image, expected) in cases {
            assert_eq!(image_problem(image).unwrap_or_default(), expected, "{image}");
        }
        assert_eq!(image_problem(&("a/".repeat(122) + "b")), None);
    }

    #[test]
    fn invalid_label_is_reported() {
        assert!(label_problems("a-1").is_empty());
        assert_eq!(label_problems("a.b"), ["must not contain dots"]);
        assert_eq!(label_problems(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(label_problems(&"A".repeat(64)).len(), 2);
        for bad in ["", "-a", "a-", "A", "a_b", "a..b"] {
            assert!(label_problems(bad)[0].starts_with("a lowercase RFC 1123 label"), "{bad}");
        }
    }
}
