//! Safe direction of each annotation that users set: the effect of an unknown value
//! (docs/design/additions.md#annotations).

use std::fmt::{self, Display};

use olm_api::annotations;

/// Effect of an unknown value of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// No value is unknown.
    AnyValue,
    /// None: the annotation permits or adds something.
    NoEffect,
    /// That of this value, the most protective one.
    CountsAs(&'static str),
    /// Nothing new is installed.
    HoldsUpgrades,
}

use OnUnknown::{AnyValue, CountsAs, HoldsUpgrades, NoEffect};

/// Every annotation of ClusterExtensions and ClusterCatalogs, sorted by key.
pub const SAFE_VALUES: [(&str, OnUnknown); 23] = [
    (annotations::EXT_ADOPT, HoldsUpgrades),
    (annotations::EXT_ADOPT_RELEASE, HoldsUpgrades),
    (annotations::EXT_AGGREGATE_API_ROLES, NoEffect),
    (annotations::EXT_APPROVAL, CountsAs("ManualUpgrades")),
    (annotations::EXT_APPROVE_PERMISSION_INCREASE, CountsAs("true")),
    (annotations::EXT_APPROVED, NoEffect),
    (annotations::EXT_CRD_CHECK, CountsAs("Strict")),
    (annotations::EXT_DEPENDENCY_MODE, CountsAs("Check")),
    (annotations::EXT_EXCLUDE_SKIPPED, CountsAs("true")),
    (annotations::EXT_IGNORE_DEPENDENCIES, NoEffect),
    (annotations::EXT_IGNORE_DEPENDENTS, NoEffect),
    (annotations::EXT_IGNORE_OPERATOR_CONDITION, NoEffect),
    (annotations::EXT_IMAGE_TEMPLATE, HoldsUpgrades),
    (annotations::EXT_ON_FAILURE, NoEffect),
    (annotations::EXT_PAUSED, CountsAs("true")),
    (annotations::EXT_REFRESH_REQUESTED_AT, AnyValue),
    (annotations::EXT_RENEW_WEBHOOK_CERTIFICATES_AT, AnyValue),
    (annotations::EXT_REPLACE_IMMUTABLE, NoEffect),
    (annotations::EXT_RETRY_REQUESTED_AT, AnyValue),
    (annotations::EXT_UNINSTALL_POLICY, CountsAs("BlockIfInUse")),
    (annotations::EXT_UPGRADE_GROUP, NoEffect),
    (annotations::EXT_UPGRADE_SCOPE, CountsAs("patch")),
    (annotations::EXT_UPGRADE_WINDOW, HoldsUpgrades),
];

/// `true` if users set annotations with this key.
pub(crate) fn is_known(key: &str) -> bool {
    SAFE_VALUES.iter().any(|(known, _)| *known == key)
}

impl OnUnknown {
    /// Effect of an unknown value of the annotation `key`.
    pub fn of(key: &str) -> Self {
        SAFE_VALUES.iter().find(|(known, _)| *known == key).map_or(NoEffect, |(_, effect)| *effect)
    }
}

impl Display for OnUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyValue => write!(f, "accepts any value"),
            NoEffect => write!(f, "has no effect"),
            CountsAs(value) => write!(f, "counts as {value}"),
            HoldsUpgrades => write!(f, "holds upgrades"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_page_lists_effect_of_unknown_values() {
        let page = include_str!("../../../docs/reference/annotations.md");
        let users = page.split("## Written by the servers").next().unwrap();
        let row = |line: &str| -> Option<(String, String)> {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let key = cells.next()?.strip_suffix('`')?;
            Some((format!("{}{key}", annotations::EXT_PREFIX), cells.last()?.to_owned()))
        };
        let mut rows: Vec<(String, String)> = users.lines().filter_map(row).collect();
        rows.sort();
        let cell = |effect: OnUnknown| match effect {
            AnyValue => "any value |".to_owned(),
            NoEffect => "no effect |".to_owned(),
            CountsAs(value) => format!("as `{value}` |"),
            HoldsUpgrades => "holds upgrades |".to_owned(),
        };
        assert_eq!(rows, SAFE_VALUES.map(|(key, effect)| (key.to_owned(), cell(effect))));
    }
}
