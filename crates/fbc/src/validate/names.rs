//! Validation of package names and image references (docs/design/catalogd.md#validation).

/// Faults of an RFC 1123 label, in upstream's words.
pub(super) fn label_problems(text: &str) -> Vec<&'static str> {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_label = |text: &str| {
        !text.is_empty() && text.bytes().all(inside) && !text.starts_with('-') && !text.ends_with('-')
    };
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push("must be no more than 63 characters");
    }
    if !is_label(text) {
        problems.push(if text.split('.').all(is_label) {
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
    if text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
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
    let well_formed = (is_domain(domain) || is_component(domain))
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !well_formed {
        return Some(FORMAT.to_owned());
    }
    let library = if domain == "docker.io" && !path.contains('/') { "library/".len() } else { 0 };
    if domain.len() + 1 + library + path.len() > 255 {
        return Some("repository name must not be more than 255 characters".to_owned());
    }
    digest.and_then(digest_problem).map(str::to_owned)
}

fn is_domain(text: &str) -> bool {
    let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.split('.').all(is_label)
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Checks for runs of lower-case letters and digits, joined by one of `.`, `_`, `__` or any number of `-`.
fn is_component(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut joints = text.split(alphanumeric);
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && joints.all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

/// Checks the form of a digest with any algorithm.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    algorithm.split(['+', '.', '_', '-']).all(|part| {
        part.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric())
    }) && hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Fault of a digest with a valid form.
fn digest_problem(text: &str) -> Option<&'static str> {
    let (algorithm, hex) = text.split_once(':')?;
    if algorithm.bytes().any(|b| b.is_ascii_uppercase()) {
        return Some("invalid checksum digest format");
    }
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Some("unsupported digest algorithm"),
    };
    if hex.len() != length {
        return Some("invalid checksum digest length");
    }
    hex.bytes().any(|b| b.is_ascii_uppercase()).then_some("invalid checksum digest format")
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
