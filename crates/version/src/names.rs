//! Grammar of names: DNS labels and the parts of image references.

/// Reports whether `text` is an RFC 1123 label, of any length.
pub fn is_dns_label(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !(text.is_empty() || text.starts_with('-') || text.ends_with('-'))
}

/// Reports whether `text` is the registry of an image reference, `host[:port]`.
pub fn is_registry(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    host.split('.').all(|label| is_dns_label(&label.to_ascii_lowercase())) && port.is_none_or(is_number)
}

/// Reports whether `text` consists of decimal digits.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reports whether `text` is one segment of a repository: runs of lower-case letters and digits, joined by one of
/// `.`, `_`, `__` or any number of `-`.
pub fn is_repository_segment(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut joints = text.split(alphanumeric);
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && joints.all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

/// Reports whether `text` is a tag.
pub fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

/// Reports whether `text` is a digest in the loose form that references allow. [`check_digest`] is strict.
pub fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        is_algorithm(algorithm, true) && hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Checks for parts of letters and digits, joined by one of `+`, `.`, `_`, `-`. In references (`loose`) a part
/// starts with a letter and may contain capitals.
fn is_algorithm(text: &str, loose: bool) -> bool {
    text.split(['+', '.', '_', '-']).all(|part| {
        let start = part.bytes().next().is_some_and(|byte| !loose || byte.is_ascii_alphabetic());
        start
            && part
                .bytes()
                .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || (loose && b.is_ascii_uppercase()))
    })
}

/// Fault of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// An algorithm other than sha256, sha384 and sha512.
    #[error("unsupported digest algorithm")]
    Algorithm,
    /// More or fewer digits than the algorithm produces.
    #[error("invalid checksum digest length")]
    Length,
    /// Not `algorithm:hex` in lower case.
    #[error("invalid checksum digest format")]
    Format,
}

/// Checks that `text` is a digest of a supported algorithm: `sha256:…`, `sha384:…` or `sha512:…` with lower-case
/// hex of full length.
///
/// # Errors
/// See [`DigestError`].
pub fn check_digest(text: &str) -> Result<(), DigestError> {
    let (algorithm, hex) = text.split_once(':').ok_or(DigestError::Format)?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ if is_algorithm(algorithm, false) => return Err(DigestError::Algorithm),
        _ => return Err(DigestError::Format),
    };
    if hex.len() != length {
        return Err(DigestError::Length);
    }
    if is_lower_hex(hex) { Ok(()) } else { Err(DigestError::Format) }
}

/// Reports whether `text` consists of lower-case hex digits.
pub fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
