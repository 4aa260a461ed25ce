//! Selection of metas by a filtered query (docs/design/catalogd.md#index, docs/design/catalogd.md#metas).

/// Exact, case-sensitive values of the three fields that a query can filter by. Empty matches any value.
///
/// ```
/// let selector = olm_fbc::MetaSelector { package: "demo".to_owned(), ..Default::default() };
/// assert!(selector.matches("olm.channel", "demo", "stable"));
/// assert!(!selector.matches("olm.channel", "other", "stable"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaSelector {
    /// Schema to match.
    pub schema: String,
    /// Package to match.
    pub package: String,
    /// Name to match.
    pub name: String,
}

impl MetaSelector {
    /// `true` if the query selects the whole catalog.
    pub fn selects_all(&self) -> bool {
        self.schema.is_empty() && self.package.is_empty() && self.name.is_empty()
    }

    /// `true` if the query returns a meta with these fields. A meta without schema is returned only with the whole
    /// catalog.
    pub fn matches(&self, schema: &str, package: &str, name: &str) -> bool {
        let is_match = |selected: &str, found: &str| selected.is_empty() || selected == found;
        self.selects_all()
            || !schema.is_empty()
                && is_match(&self.schema, schema)
                && is_match(&self.package, package)
                && is_match(&self.name, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_matches_all_fields_exactly() {
        let cases = [
            (("", "", ""), ("", "p", "n"), true),
            (("", "p", ""), ("", "p", "n"), false), // no schema
            (("", "p", ""), ("s", "p", "n"), true),
            (("s", "", ""), ("s", "", ""), true),
            (("s", "", ""), ("S", "", ""), false),
            (("s", "p", "n"), ("s", "p", "n"), true),
            (("s", "p", "n"), ("s", "p", "m"), false),
            (("", "", "n"), ("s", "p", ""), false),
        ];
        for ((schema, package, name), meta, expected) in cases {
            let [schema, package, name] = [schema, package, name].map(str::to_owned);
            let selector = MetaSelector { schema, package, name };
            assert_eq!(selector.matches(meta.0, meta.1, meta.2), expected, "{selector:?} on {meta:?}");
        }
    }
}
