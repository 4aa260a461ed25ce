//! Syntax of names.

/// Reports whether `name` is a DNS-1123 subdomain.
pub(crate) fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Reports whether Kubernetes accepts `key` as an annotation key. Case is ignored.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let (prefix, name) =
        key.split_once('/').map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric();
    prefix.is_none_or(is_subdomain)
        && (1..=63).contains(&name.len())
        && name.bytes().all(|byte| is_word(&byte) || matches!(byte, b'-' | b'_' | b'.'))
        && name.as_bytes().first().is_some_and(is_word)
        && name.as_bytes().last().is_some_and(is_word)
}
