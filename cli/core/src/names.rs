//! Names: their form, lists of them for messages, and the nearest existing name for a misspelled one.

use std::borrow::Borrow;

use olm_version::names::is_dns_label;

/// Share of the characters that may differ: one in three.
const SHARE: usize = 3;

/// Reports whether `name` is a DNS label, as required for the names of packages (docs/design/catalogd.md#validation)
/// and namespaces.
pub fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_dns_label(name)
}

/// Names joined for a message, or `none`.
pub fn listed<S: Borrow<str>>(names: &[S]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Name among `names` that `wrong` is most similar to, or `None` if all differ too much. Upper and lower case do not
/// matter.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = wrong.to_lowercase();
    let distance = |name: &str| strsim::osa_distance(&lower, &name.to_lowercase());
    let allowed = (lower.chars().count() / SHARE).max(1);
    let near = names.into_iter().map(|name| (distance(name), name));
    near.filter(|(distance, _)| *distance <= allowed).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_name_must_be_dns_label() {
        for (name, expected) in [
            ("foo", true),
            ("foo-2", true),
            ("", false),
            ("Foo", false),
            ("foo.bar", false),
            ("-foo", false),
            ("foo-", false),
            ("../x", false),
        ] {
            assert_eq!(is_label(name), expected, "{name}");
        }
        assert!(is_label(&"a".repeat(63)) && !is_label(&"a".repeat(64)));
    }

    #[test]
    fn nearest_name_differs_in_at_most_a_third() {
        let names = ["watchNamespace", "watchNamespaces", "deploymentConfig", "env"];
        for (wrong, expected) in [
            ("watchNamespce", Some("watchNamespace")),
            ("watchnamespaces", Some("watchNamespaces")),
            ("watchNamesapces", Some("watchNamespaces")),
            ("watch_namespace", Some("watchNamespace")),
            ("deployConfig", Some("deploymentConfig")),
            ("evn", Some("env")),
            ("x", None),
            ("", None),
            ("resources", None),
            ("targetNamespaces", Some("watchNamespaces")),
        ] {
            assert_eq!(nearest(wrong, names), expected, "{wrong}");
        }
    }
}
