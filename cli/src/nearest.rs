//! Nearest existing name for a misspelled one.

/// Share of the characters that may differ: one in three.
const SHARE: usize = 3;

/// Name among `names` that `wrong` is most similar to, or `None` if all differ too much. Upper and lower case do not
/// matter.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
