//! Approvals (docs/design/approvals.md#approval): changes that wait until the digest of their plan is approved, or
//! until a window opens. Pure: the time is a parameter.

use std::str::FromStr;

use jiff::Timestamp;
use olm_resolve::{UnknownValue, named};

use crate::windows::{UpgradeWindows, WindowState};

/// Changes that wait for an approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalMode {
    /// None, as in the reference.
    #[default]
    Automatic,
    /// Changes of the installed bundle.
    ManualUpgrades,
    /// Every new revision.
    Manual,
}

impl FromStr for ApprovalMode {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        let values = [
            ("Automatic", Self::Automatic),
            ("ManualUpgrades", Self::ManualUpgrades),
            ("Manual", Self::Manual),
        ];
        named(text, &values)
    }
}

/// Approvals and upgrade windows of one extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalRules {
    /// Changes that wait.
    pub mode: ApprovalMode,
    /// Digest of the approved plan.
    pub approved: Option<String>,
    /// `true` if changes that grant more permissions wait, too.
    pub permission_increase: bool,
    /// Windows outside of which changes wait.
    pub windows: UpgradeWindows,
    /// `true` if the OperatorCondition of the operator prevents nothing.
    pub ignore_operator_condition: bool,
}

/// Change that a new revision makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftChange {
    /// Digest of the plan.
    pub digest: String,
    /// `true` if there is no active revision yet.
    pub is_first: bool,
    /// `true` if the bundle has another digest than that of the newest revision.
    pub changes_bundle: bool,
    /// `true` if an earlier revision had this lower version.
    pub is_rollback: bool,
    /// `true` if the objects grant permissions that those of the newest revision do not grant.
    pub gains_permissions: bool,
    /// Reason for which the operator of the newest revision must not be replaced.
    pub blocker: Option<String>,
}

impl DraftChange {
    /// Reports whether another bundle replaces the newest one.
    pub fn is_upgrade(&self) -> bool {
        self.changes_bundle && !self.is_first
    }
}

/// Cause of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldCause {
    /// The plan is not approved.
    ApprovalRequired,
    /// The plan needs no approval, or has it, but all windows are closed.
    OutsideWindow {
        /// Next opening, if any.
        opens: Option<Timestamp>,
    },
    /// The change has a blocker (docs/design/approvals.md#operator-conditions).
    OperatorNotUpgradeable,
}

impl ApprovalRules {
    /// Reports whether an annotation can hold a change.
    pub fn can_hold(&self) -> bool {
        self.mode != ApprovalMode::Automatic || self.permission_increase || !self.windows.is_empty()
    }

    /// The same rules with this plan as the approved one.
    pub fn approving(&self, digest: &str) -> Self {
        Self { approved: Some(digest.to_owned()), ..self.clone() }
    }

    /// Cause for which the change is held at the time `now`. `None` if its revision may be created.
    pub fn hold(&self, change: &DraftChange, now: Timestamp) -> Option<HoldCause> {
        let upgrades = change.is_upgrade();
        let requires_approval = match self.mode {
            ApprovalMode::Automatic => false,
            ApprovalMode::ManualUpgrades => upgrades,
            ApprovalMode::Manual => true,
        };
        let increases = self.permission_increase && change.gains_permissions && !change.is_first;
        let is_approved = self.approved.as_ref() == Some(&change.digest);
        if (requires_approval || increases) && !is_approved {
            return Some(HoldCause::ApprovalRequired);
        }
        let waits_for_window = (upgrades || self.mode == ApprovalMode::Manual) && !change.is_rollback;
        match self.windows.state(now) {
            WindowState::Closed { opens } if waits_for_window => Some(HoldCause::OutsideWindow { opens }),
            _ if upgrades && change.blocker.is_some() && !self.ignore_operator_condition => {
                Some(HoldCause::OperatorNotUpgradeable)
            }
            _ => None,
        }
    }
}

/// Digest in an annotation. `allowed` describes the allowed values.
///
/// # Errors
/// The text is not a digest.
pub(crate) fn digest(text: &str, allowed: &'static str) -> Result<String, UnknownValue> {
    let is_hex = |digits: &str| {
        digits.len() == 64 && digits.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    };
    match text.strip_prefix("sha256:") {
        Some(digits) if is_hex(digits) => Ok(text.to_owned()),
        _ => Err(UnknownValue { value: text.to_owned(), allowed: vec![allowed] }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: &str) -> DraftChange {
        DraftChange {
            digest: "sha256:a".to_owned(),
            is_first: kind == "first",
            changes_bundle: ["first", "upgrade", "rollback"].contains(&kind),
            is_rollback: kind == "rollback",
            gains_permissions: false,
            blocker: None,
        }
    }

    #[test]
    fn approval_mode_selects_the_changes_that_wait() {
        use ApprovalMode::{Automatic, Manual, ManualUpgrades};
        for (mode, held) in [
            (Automatic, &[][..]),
            (ManualUpgrades, &["upgrade", "rollback"]),
            (Manual, &["first", "upgrade", "rollback", "configuration"]),
        ] {
            for kind in ["first", "upgrade", "rollback", "configuration"] {
                let rules = ApprovalRules { mode, ..ApprovalRules::default() };
                let expected = held.contains(&kind).then_some(HoldCause::ApprovalRequired);
                assert_eq!(rules.hold(&change(kind), Timestamp::UNIX_EPOCH), expected, "{mode:?} {kind}");
                let approved = rules.approving("sha256:a");
                assert_eq!(approved.hold(&change(kind), Timestamp::UNIX_EPOCH), None, "{mode:?} {kind}");
                let another = ApprovalRules { approved: Some("sha256:b".to_owned()), ..rules };
                assert_eq!(another.hold(&change(kind), Timestamp::UNIX_EPOCH), expected, "{mode:?} {kind}");
            }
            let rules = ApprovalRules { mode, ..ApprovalRules::default() };
            assert_eq!(rules.can_hold(), !held.is_empty());
        }
    }

    #[test]
    fn permission_increase_waits_except_in_first_install() {
        let rules = ApprovalRules { permission_increase: true, ..ApprovalRules::default() };
        for (kind, gains, held) in [
            ("upgrade", true, true),
            ("configuration", true, true),
            ("first", true, false),
            ("upgrade", false, false),
        ] {
            let change = DraftChange { gains_permissions: gains, ..change(kind) };
            let expected = held.then_some(HoldCause::ApprovalRequired);
            assert_eq!(rules.hold(&change, Timestamp::UNIX_EPOCH), expected, "{kind} {gains}");
        }
        assert!(rules.can_hold());
    }

    #[test]
    fn closed_window_holds_upgrades_but_no_rollback() {
        use ApprovalMode::{Automatic, Manual, ManualUpgrades};
        let closed: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let opens: Timestamp = "2026-11-21T22:00:00Z".parse().unwrap();
        let outside = Some(HoldCause::OutsideWindow { opens: Some(opens) });
        for mode in [Automatic, ManualUpgrades, Manual] {
            for kind in ["first", "upgrade", "rollback", "configuration"] {
                let windows = "0 22 * * * 1h".parse().unwrap();
                let approved = Some("sha256:a".to_owned());
                let rules = ApprovalRules { mode, approved, windows, ..ApprovalRules::default() };
                let held = kind == "upgrade" || mode == Manual && kind != "rollback";
                let expected = if held { outside } else { None };
                assert_eq!(rules.hold(&change(kind), closed), expected, "{mode:?} {kind}");
                assert_eq!(rules.hold(&change(kind), opens), None, "{mode:?} {kind}");
                // An approval does not replace a window, and a window no approval.
                let unapproved = ApprovalRules { mode: Manual, approved: None, ..rules };
                let expected = Some(HoldCause::ApprovalRequired);
                assert_eq!(unapproved.hold(&change(kind), closed), expected);
                assert_eq!(unapproved.hold(&change(kind), opens), expected);
            }
        }
    }

    // docs/design/approvals.md#operator-conditions
    #[test]
    fn blocker_holds_other_bundles_after_approval_and_window() {
        let closed: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let opens: Timestamp = "2026-11-21T22:00:00Z".parse().unwrap();
        let blocked = |kind| DraftChange { blocker: Some("migrating".to_owned()), ..change(kind) };
        let rules = ApprovalRules::default();
        for (kind, held) in
            [("first", false), ("upgrade", true), ("rollback", true), ("configuration", false)]
        {
            let expected = held.then_some(HoldCause::OperatorNotUpgradeable);
            assert_eq!(rules.hold(&blocked(kind), closed), expected, "{kind}");
            let ignored = ApprovalRules { ignore_operator_condition: true, ..rules.clone() };
            assert_eq!(ignored.hold(&blocked(kind), closed), None, "{kind}");
        }
        let windows: UpgradeWindows = "0 22 * * * 1h".parse().unwrap();
        let mode = ApprovalMode::ManualUpgrades;
        let manual = ApprovalRules { mode, windows, ..ApprovalRules::default() };
        assert_eq!(manual.hold(&blocked("upgrade"), opens), Some(HoldCause::ApprovalRequired));
        let approved = ApprovalRules { approved: Some("sha256:a".to_owned()), ..manual };
        let outside = HoldCause::OutsideWindow { opens: Some(opens) };
        assert_eq!(approved.hold(&blocked("upgrade"), closed), Some(outside));
        assert_eq!(approved.hold(&blocked("upgrade"), opens), Some(HoldCause::OperatorNotUpgradeable));
    }

    #[test]
    fn text_without_sha256_digest_is_rejected() {
        let digits = "0123456789abcdef".repeat(4);
        assert_eq!(digest(&format!("sha256:{digits}"), "digests"), Ok(format!("sha256:{digits}")));
        for text in ["", "demo.v1.0.0", &digits, &format!("sha256:{}", &digits[1..]), &digits.to_uppercase()]
        {
            assert!(digest(text, "digests").is_err(), "{text}");
        }
    }
}
