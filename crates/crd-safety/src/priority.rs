//! Order of Kubernetes version names by priority: `foo`, `bar`, `v1alpha1`, `v1beta1`, `v1`, `v2`.

use std::cmp::Reverse;

/// Sort key from lower to higher priority: names of another form first, in reverse byte order, then alpha, beta and
/// stable versions, each by number (docs/design/apply.md#crd-findings).
pub(crate) fn key(name: &str) -> (Option<(Stage, i64, i64)>, Reverse<&str>) {
    (parse(name), Reverse(name))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Alpha,
    Beta,
    Stable,
}

fn parse(name: &str) -> Option<(Stage, i64, i64)> {
    let rest = name.strip_prefix('v')?;
    let pre_release =
        [(Stage::Alpha, "alpha"), (Stage::Beta, "beta")].into_iter().find_map(|(stage, word)| {
            let (major, minor) = rest.split_once(word)?;
            Some((stage, major, minor))
        });
    match pre_release {
        Some((stage, major, minor)) => Some((stage, number(major)?, number(minor)?)),
        None => Some((Stage::Stable, number(rest)?, 0)),
    }
}

/// Parses digits without a sign. `None` if they overflow.
fn number(digits: &str) -> Option<i64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_names_sort_by_kubernetes_priority() {
        let ranked = [
            "zoo",
            "v99999999999999999999",
            "v1gamma1",
            "v1alpha",
            "foo",
            "bar",
            "v1alpha2",
            "v1alpha10",
            "v2alpha1",
            "v1beta1",
            "v1",
            "v2",
            "v10",
        ];
        let mut sorted = ranked;
        sorted.reverse();
        sorted.sort_by_key(|name| key(name));
        assert_eq!(sorted, ranked);
    }
}
