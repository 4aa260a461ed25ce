//! Parser for `WWW-Authenticate` challenges of registries.

use std::collections::HashMap;

/// Authentication scheme that a registry requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// User name and password in every request.
    Basic,
    /// Token from the server at `realm`. `scope` is set only if the previous token had an insufficient scope.
    Bearer { realm: String, service: String, scope: Option<String> },
}

/// Chooses a supported challenge from the values of `WWW-Authenticate` headers. Bearer is preferred to Basic.
pub(crate) fn parse<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut chosen = None;
    for header in headers {
        let header = header.trim();
        let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            chosen = Some(Challenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer") {
            let mut parameters = parameters(rest);
            if let Some(realm) = parameters.remove("realm") {
                let is_insufficient = parameters.get("error").is_some_and(|it| it == "insufficient_scope");
                let scope = parameters.remove("scope").filter(|_| is_insufficient);
                let service = parameters.remove("service").unwrap_or_default();
                return Some(Challenge::Bearer { realm, service, scope });
            }
        }
    }
    chosen
}

/// Parses `key=value, key="quoted \" value"`, keys in lower case. Stops at the first malformed pair.
fn parameters(mut text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        let Some((key, rest)) = text.split_once('=') else {
            return found;
        };
        let value;
        if let Some(quoted) = rest.trim_start().strip_prefix('"') {
            let Some(unquoted) = unquote(quoted) else {
                return found;
            };
            (value, text) = unquoted;
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            (value, text) = (rest[..end].trim().to_owned(), &rest[end..]);
        }
        found.insert(key.trim().to_ascii_lowercase(), value);
    }
}

/// Text up to the closing quote, and the rest after it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bearer(realm: &str, service: &str) -> Option<Challenge> {
        Some(Challenge::Bearer { realm: realm.to_owned(), service: service.to_owned(), scope: None })
    }

    #[test]
    fn bearer_is_preferred_to_basic() {
        for (headers, expected) in [
            (
                &[r#"Bearer realm="https://a/token",service="s",scope="x,y""#][..],
                bearer("https://a/token", "s"),
            ),
            (&["bearer realm=https://a/token, service=s"], bearer("https://a/token", "s")),
            (&[r#"Bearer service="a \" b",realm="r""#], bearer("r", "a \" b")),
            (&["Basic realm=\"x\"", "Bearer realm=\"r\""], bearer("r", "")),
            (&["BASIC"], Some(Challenge::Basic)),
            (&["Bearer service=\"s\""], None),
            (&["Bearer realm=\"open"], None),
            (&["Negotiate"], None),
            (&[], None),
        ] {
            assert_eq!(parse(headers.iter().copied()), expected, "{headers:?}");
        }
    }

    #[test]
    fn scope_is_kept_after_insufficient_scope() {
        let header = r#"Bearer realm="r",scope="repository:x:pull",error="insufficient_scope""#;
        let Some(Challenge::Bearer { scope, .. }) = parse([header].into_iter()) else {
            panic!("no bearer challenge");
        };
        assert_eq!(scope.as_deref(), Some("repository:x:pull"));
    }

    proptest! {
        #[test]
        fn any_header_parses_without_panic(header in "(Bearer )?.{0,40}") {
            parse([header.as_str()].into_iter());
        }

        #[test]
        fn quoted_value_round_trips(realm in "[ -~]{0,30}") {
            let quoted = realm.replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(parse([format!("Bearer realm=\"{quoted}\"").as_str()].into_iter()), bearer(&realm, ""));
        }
    }
}
