//! Selection of ClusterCatalogs by `spec.source.catalog.selector` (docs/design/resolution.md#algorithm).

use std::collections::BTreeMap;

use olm_version::{aggregate, quote};

/// Validated label selector.
///
/// The default selects every catalog, as does a selector without any requirement.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use olm_resolve::{CatalogSelector, Expression};
///
/// let values = ["gold".to_owned()];
/// let expression = Expression { key: "tier", operator: "NotIn", values: &values };
/// let selector = CatalogSelector::new(&BTreeMap::new(), [expression])?;
/// assert!(selector.matches(&BTreeMap::new()));
/// assert!(!selector.matches(&BTreeMap::from([("tier".to_owned(), "gold".to_owned())])));
/// # Ok::<(), olm_resolve::SelectorError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogSelector {
    requirements: Vec<Requirement>,
}

/// Element of `matchExpressions` as written.
#[derive(Debug, Clone, Copy)]
pub struct Expression<'a> {
    /// Label key.
    pub key: &'a str,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'a str,
    /// Values of `In` and `NotIn`.
    pub values: &'a [String],
}

/// Validation error of a selector, with the texts of the Kubernetes API machinery
/// (docs/design/resolution.md#resolution-errors).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator is none of the four.
    #[error("{} is not a valid label selector operator", quote(.0))]
    UnknownOperator(String),
    /// All errors of the first invalid requirement.
    #[error("{}", aggregate(.0).unwrap_or_default())]
    Invalid(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl CatalogSelector {
    /// Validates a selector given as `matchLabels` and `matchExpressions`.
    ///
    /// # Errors
    /// The first requirement with an unknown operator, a malformed key or value, or values that do not suit the
    /// operator.
    pub fn new<'a>(
        match_labels: impl IntoIterator<Item = (&'a String, &'a String)>,
        match_expressions: impl IntoIterator<Item = Expression<'a>>,
    ) -> Result<Self, SelectorError> {
        let labels = match_labels.into_iter().map(|(key, value)| Expression {
            key,
            operator: "In",
            values: std::slice::from_ref(value),
        });
        let expressions = labels.chain(match_expressions);
        Ok(Self { requirements: expressions.map(Requirement::parse).collect::<Result<_, _>>()? })
    }

    /// `true` if `labels` meet every requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl Requirement {
    fn parse(Expression { key, operator, values }: Expression<'_>) -> Result<Self, SelectorError> {
        let test = match operator {
            "In" => Test::In(values.to_vec()),
            "NotIn" => Test::NotIn(values.to_vec()),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            unknown => return Err(SelectorError::UnknownOperator(unknown.to_owned())),
        };
        let needs_values = matches!(test, Test::In(_) | Test::NotIn(_));
        let mut faults = key_fault(key);
        if needs_values && values.is_empty() {
            let fault = "for 'in', 'notin' operators, values set can't be empty";
            faults.push(format!("values: Invalid value: null: {fault}"));
        } else if !needs_values && !values.is_empty() {
            let fault = "values set must be empty for exists and does not exist";
            faults.push(format!("values: Invalid value: {}: {fault}", serde_json::Value::from(values)));
        }
        faults.extend(value_faults(key, values));
        if faults.is_empty() {
            Ok(Self { key: key.to_owned(), test })
        } else {
            Err(SelectorError::Invalid(faults))
        }
    }
}

const MAX_NAME_BYTES: usize = 63;
const MAX_SUBDOMAIN_BYTES: usize = 253;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
    or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Joins all errors of a key, if there are any.
fn key_fault(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            let fault = format!(
                "a qualified name {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            );
            return vec![format!("key: Invalid value: {}: {fault}", quote(key))];
        }
    };
    let mut reasons = Vec::new();
    if let Some(prefix) = prefix {
        let prefix_faults = if prefix.is_empty() {
            vec!["must be non-empty".to_owned()]
        } else {
            length_and_form(prefix, MAX_SUBDOMAIN_BYTES, is_subdomain(prefix), SUBDOMAIN_RULE)
        };
        reasons.extend(prefix_faults.iter().map(|fault| format!("prefix part {fault}")));
    }
    if name.is_empty() {
        reasons.push("name part must be non-empty".to_owned());
    }
    let name_faults = length_and_form(name, MAX_NAME_BYTES, is_name(name), NAME_RULE);
    reasons.extend(name_faults.iter().map(|fault| format!("name part {fault}")));
    if reasons.is_empty() {
        return Vec::new();
    }
    vec![format!("key: Invalid value: {}: {}", quote(key), reasons.join("; "))]
}

fn value_faults<'a>(key: &'a str, values: &'a [String]) -> impl Iterator<Item = String> + 'a {
    values.iter().enumerate().filter_map(move |(index, value)| {
        let reasons = length_and_form(value, MAX_NAME_BYTES, value.is_empty() || is_name(value), VALUE_RULE);
        let text =
            || format!("values[{index}][{key}]: Invalid value: {}: {}", quote(value), reasons.join("; "));
        (!reasons.is_empty()).then(text)
    })
}

fn length_and_form(text: &str, limit: usize, well_formed: bool, rule: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > limit {
        faults.push(format!("must be no more than {limit} bytes"));
    }
    if !well_formed {
        faults.push(rule.to_owned());
    }
    faults
}

fn is_name(text: &str) -> bool {
    let alphanumeric = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    alphanumeric(text.bytes().next())
        && alphanumeric(text.bytes().next_back())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        is_name(label) && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::{CatalogSelector, Expression, NAME_RULE, VALUE_RULE};
    use std::collections::BTreeMap;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn selector(
        labels: &[(&str, &str)],
        expressions: &[(&str, &str, &[&str])],
    ) -> Result<CatalogSelector, String> {
        let values: Vec<Vec<String>> = expressions
            .iter()
            .map(|(_, _, values)| values.iter().map(|v| (*v).to_owned()).collect())
            .collect();
        let expressions = expressions.iter().zip(&values).map(|(&(key, operator, _), values)| Expression {
            key,
            operator,
            values,
        });
        CatalogSelector::new(&map(labels), expressions).map_err(|e| e.to_string())
    }

    #[test]
    fn selector_matches_if_all_requirements_are_met() {
        let gold = map(&[("tier", "gold"), ("zone", "eu")]);
        let none = map(&[]);
        for (labels, expressions, on_gold, on_none) in [
            (&[][..], &[][..], true, true), // Case resolution-28
            (&[("tier", "gold")], &[], true, false),
            (&[("tier", "silver")], &[], false, false),
            (&[], &[("tier", "In", &["gold", "silver"][..])][..], true, false),
            (&[], &[("tier", "NotIn", &["gold"])], false, true),
            (&[], &[("tier", "Exists", &[])], true, false),
            (&[], &[("tier", "DoesNotExist", &[])], false, true),
            (&[("zone", "eu")], &[("tier", "NotIn", &["gold"])], false, false),
        ] {
            let selector = selector(labels, expressions).unwrap();
            assert_eq!(selector.matches(&gold), on_gold, "{selector:?}");
            assert_eq!(selector.matches(&none), on_none, "{selector:?}");
        }
    }

    // docs/design/resolution.md#resolution-errors; case resolution-27
    #[test]
    fn selector_errors_are_worded_like_the_api_machinery() {
        let long = "a".repeat(64);
        for (labels, expressions, message) in [
            (
                &[][..],
                &[("k", "Bad", &["x"][..])][..],
                r#""Bad" is not a valid label selector operator"#.to_owned(),
            ),
            (
                &[],
                &[("k", "In", &[])],
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
                    .to_owned(),
            ),
            (
                &[],
                &[("k", "Exists", &["a"])],
                r#"values: Invalid value: ["a"]: values set must be empty for exists and does not exist"#
                    .to_owned(),
            ),
            (&[("k", "-")], &[], format!(r#"values[0][k]: Invalid value: "-": {VALUE_RULE}"#)),
            (
                &[],
                &[("k", "In", &["ok", &long])],
                format!(r#"values[1][k]: Invalid value: "{long}": must be no more than 63 bytes"#),
            ),
            (&[("_k", "v")], &[], format!(r#"key: Invalid value: "_k": name part {NAME_RULE}"#)),
            (
                &[("/", "v")],
                &[],
                format!(
                    r#"key: Invalid value: "/": prefix part must be non-empty; name part must be non-empty; name part {NAME_RULE}"#
                ),
            ),
            (
                &[("_k", "_")],
                &[],
                format!(
                    r#"[key: Invalid value: "_k": name part {NAME_RULE}, values[0][_k]: Invalid value: "_": {VALUE_RULE}]"#
                ),
            ),
        ] {
            assert_eq!(selector(labels, expressions), Err(message));
        }
    }
}
