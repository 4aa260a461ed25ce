//! Request paths and queries (docs/design/catalogd.md#order-of-checks, docs/design/catalogd.md#metas). Pure.

use olm_fbc::MetaSelector;

/// An endpoint of a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/api/v1/all`
    All,
    /// `/api/v1/metas`
    Metas,
    /// `/api/v1/graphql`
    GraphQl,
}

/// Result of parsing a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// An endpoint of the catalog of this name, which may be invalid.
    Catalog(Endpoint, String),
    /// Redirect to the path without empty and dot segments.
    Redirect(String),
    /// No route.
    Unknown,
}

/// Parses the undecoded path of the request line.
pub fn route(path: &str) -> Route {
    let cleaned = clean(path);
    if cleaned != path {
        return Route::Redirect(cleaned);
    }
    let endpoint = match path.split('/').collect::<Vec<_>>()[..] {
        ["", "catalogs", name, "api", "v1", "all"] => Some((Endpoint::All, name)),
        ["", "catalogs", name, "api", "v1", "metas"] => Some((Endpoint::Metas, name)),
        ["", "catalogs", name, "api", "v1", "graphql"] => Some((Endpoint::GraphQl, name)),
        _ => None,
    };
    match endpoint {
        Some((endpoint, name)) if !name.is_empty() => Route::Catalog(endpoint, decode_lossy(name)),
        _ => Route::Unknown,
    }
}

/// The path without `//`, `/.` and `/..`. A trailing slash is preserved.
fn clean(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let is_directory = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
    let end = if is_directory && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

/// The query of a `/metas` request, or `None` if it has an unknown parameter.
pub fn selector(query: &str) -> Option<MetaSelector> {
    let (mut schema, mut package, mut name) = (None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // A malformed pair is treated as absent.
        let (Some(key), Some(value)) = (decode_form(key), decode_form(value)) else {
            continue;
        };
        let slot = match key.as_str() {
            "schema" => &mut schema,
            "package" => &mut package,
            "name" => &mut name,
            _ => return None,
        };
        slot.get_or_insert(value);
    }
    Some(MetaSelector {
        schema: schema.unwrap_or_default(),
        package: package.unwrap_or_default(),
        name: name.unwrap_or_default(),
    })
}

fn decode_form(text: &str) -> Option<String> {
    String::from_utf8(percent_decode(&text.replace('+', " "))?).ok()
}

/// Decodes a path segment. A malformed escape is kept and makes an invalid name.
fn decode_lossy(text: &str) -> String {
    match percent_decode(text) {
        Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        None => text.to_owned(),
    }
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
        decoded.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(decoded)
}

/// Violations of the rules for a catalog name. Empty if valid.
pub fn name_problems(name: &str) -> Vec<&'static str> {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push("must be no more than 253 characters");
    }
    if !name.split('.').all(is_label) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        );
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_map_to_endpoints_or_redirects() {
        let catalog = |endpoint, name: &str| Route::Catalog(endpoint, name.to_owned());
        let redirect = |path: &str| Route::Redirect(path.to_owned());
        let rows = [
            ("/catalogs/a/api/v1/all", catalog(Endpoint::All, "a")),
            ("/catalogs/a.b/api/v1/metas", catalog(Endpoint::Metas, "a.b")),
            ("/catalogs/a%2Fb/api/v1/all", catalog(Endpoint::All, "a/b")),
            ("/catalogs/a%zz/api/v1/all", catalog(Endpoint::All, "a%zz")),
            ("/catalogs/Bad_Name/api/v1/all", catalog(Endpoint::All, "Bad_Name")),
            ("/catalogs/a/api/v1/all/", Route::Unknown),
            ("/catalogs/a", Route::Unknown),
            ("/", Route::Unknown),
            ("/catalogs/a/api/v1/graphql", catalog(Endpoint::GraphQl, "a")),
            ("/catalogs/a/api/v1/graphql/", Route::Unknown),
            ("//catalogs/a/api/v1/all", redirect("/catalogs/a/api/v1/all")),
            ("/catalogs/b/../a/api/v1/all", redirect("/catalogs/a/api/v1/all")),
            ("/catalogs//api/v1/all", redirect("/catalogs/api/v1/all")),
            ("/a/./", redirect("/a/")),
            ("/..", redirect("/")),
        ];
        for (path, expect) in rows {
            assert_eq!(route(path), expect, "{path}");
        }
    }

    // docs/design/catalogd.md#metas; case catalogd-52
    #[test]
    fn metas_query_accepts_known_parameters_only() {
        let of = |schema: &str, package: &str, name: &str| {
            Some(MetaSelector {
                schema: schema.to_owned(),
                package: package.to_owned(),
                name: name.to_owned(),
            })
        };
        let rows = [
            ("", of("", "", "")),
            ("schema=", of("", "", "")),
            ("schema=olm.package&name=foo", of("olm.package", "", "foo")),
            ("schema=a&schema=b", of("a", "", "")),
            ("name=a%20b+c", of("", "", "a b c")),
            ("package", of("", "", "")),
            ("schema=a;b", of("", "", "")),
            ("schema=%zz&name=x", of("", "", "x")),
            ("foo", None),
            ("foo=1", None),
            ("Schema=x", None),
            ("schema=a&version=1", None),
        ];
        for (query, expect) in rows {
            assert_eq!(selector(query), expect, "{query}");
        }
    }

    #[test]
    fn catalog_names_are_rfc_1123_subdomains() {
        for name in ["a", "a.b-c", "0", &"a".repeat(253)] {
            assert_eq!(name_problems(name), [""; 0], "{name}");
        }
        for name in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a/b", "ä"] {
            assert_eq!(name_problems(name).len(), 1, "{name}");
        }
        assert_eq!(name_problems(&"A".repeat(254)).len(), 2);
    }

    proptest! {
        #[test]
        fn path_cleaning_is_idempotent(path in "(/|/\\.|/\\.\\.|/a|/b%2f){0,8}") {
            let once = clean(&path);
            prop_assert_eq!(clean(&once), once);
        }

        #[test]
        fn parsers_accept_any_text_without_panic(query in ".*", path in ".*") {
            let _ = selector(&query);
            let _ = route(&path);
        }
    }
}
