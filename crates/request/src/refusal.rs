//! Refusal of content that was rolled back (docs/design/approvals.md#automatic-rollback). Pure.

use olm_api::{ClusterObjectSet, annotations};
use serde::{Deserialize, Serialize};

use crate::rules::ExtensionRules;

/// Content that was rolled back, as the restored revision records it in [`annotations::EXT_REFUSED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolledBackContent {
    /// Digest of the content.
    pub digest: String,
    /// Revision that had it.
    pub revision: String,
    /// Bundle of that revision.
    pub bundle: String,
    /// Version of the bundle.
    pub version: String,
    /// Value of [`annotations::EXT_RETRY_REQUESTED_AT`] when it was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_requested_at: Option<String>,
}

impl RolledBackContent {
    /// Refusal that the revision records. `None` if it cannot be read.
    pub fn of(set: &ClusterObjectSet) -> Option<Self> {
        serde_json::from_str(set.annotation(annotations::EXT_REFUSED)?).ok()
    }

    /// Reports whether the content is still refused: the rules ask for rollbacks, and no new attempt.
    pub fn holds(&self, rules: &ExtensionRules) -> bool {
        let retry = &rules.retry_requested_at;
        rules.rollback && (retry.is_none() || *retry == self.retry_requested_at)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusal_is_read_from_its_annotation() {
        let of = |text: &str| {
            let set = json!({"metadata": {"annotations": {annotations::EXT_REFUSED: text}}});
            RolledBackContent::of(&serde_json::from_value(set).unwrap())
        };
        let refusal = RolledBackContent { digest: "sha256:1".to_owned(), ..RolledBackContent::default() };
        let text = serde_json::to_string(&refusal).unwrap();
        assert_eq!(text, r#"{"digest":"sha256:1","revision":"","bundle":"","version":""}"#);
        assert_eq!(of(&text), Some(refusal));
        assert_eq!(of("sha256:1"), None);
    }

    #[test]
    fn only_new_retry_value_ends_refusal() {
        for (rollback, recorded, requested, holds) in [
            (true, None, None, true),
            (true, None, Some("1"), false),
            (true, Some("1"), Some("1"), true),
            (true, Some("1"), Some("2"), false),
            (true, Some("1"), None, true),
            (false, None, None, false),
        ] {
            let refusal = RolledBackContent {
                retry_requested_at: recorded.map(str::to_owned),
                ..RolledBackContent::default()
            };
            let retry_requested_at = requested.map(str::to_owned);
            let rules = ExtensionRules { rollback, retry_requested_at, ..ExtensionRules::default() };
            assert_eq!(refusal.holds(&rules), holds, "{rollback} {recorded:?} {requested:?}");
        }
    }
}
