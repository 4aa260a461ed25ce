//! Status of the ClusterUpgradeStatus (docs/design/operations.md#clusterupgradestatus).

use jiff::Timestamp;
use olm_api::ClusterUpgradeStatusStatus;
use olm_api::cluster_upgrade_status::{ExtensionVerdict, PlatformStatus};
use olm_api::conditions::{self, reasons, types};

use crate::verdict::{Verdict, is_blocker};

/// Maximum number of extensions in the status.
pub const MAX_EXTENSIONS: usize = 500;

/// Computes the status from `verdict` and the stored status `old`. Equal verdicts yield equal statuses at any time.
/// Before the first evaluation, the status of an earlier process is retained.
pub fn status(
    verdict: &Verdict,
    generation: Option<i64>,
    old: Option<&ClusterUpgradeStatusStatus>,
    now: Timestamp,
) -> ClusterUpgradeStatusStatus {
    let old_conditions = old.map(|old| old.conditions.as_slice()).unwrap_or_default();
    if let (reasons::INITIALIZING, Some(old), Some(_)) =
        (verdict.reason, old, conditions::find(old_conditions, types::UPGRADEABLE))
    {
        return old.clone();
    }
    let mut conditions = old_conditions.to_vec();
    let (reason, message) = (verdict.reason, &verdict.message);
    conditions::set(&mut conditions, types::UPGRADEABLE, verdict.status, reason, message, generation, now);
    let extensions = most_important(&verdict.extensions);
    let blocking = i32::try_from(verdict.blocking).unwrap_or(i32::MAX);
    ClusterUpgradeStatusStatus {
        conditions,
        platform: verdict.platform.as_ref().map(PlatformStatus::from),
        blocking_extensions: verdict.platform.as_ref().map(|_| blocking),
        truncated: extensions.len() < verdict.extensions.len(),
        extensions,
    }
}

/// Returns at most `MAX_EXTENSIONS` rows in their order. Blocking, invalid and acknowledged rows take precedence.
fn most_important(rows: &[ExtensionVerdict]) -> Vec<ExtensionVerdict> {
    let room = MAX_EXTENSIONS.saturating_sub(rows.iter().filter(|row| is_blocker(row)).count());
    let mut others = 0;
    let kept = rows.iter().filter(|row| {
        let is_other = !is_blocker(row);
        others += usize::from(is_other);
        !is_other || others <= room
    });
    kept.take(MAX_EXTENSIONS).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Facts, Platform};
    use crate::revision::ConstrainedRevision;
    use crate::verdict::evaluate;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn verdict(cluster: &str, values: &[&str]) -> Verdict {
        let revisions: Vec<ConstrainedRevision> = values
            .iter()
            .enumerate()
            .map(|(number, value)| {
                let text = format!("[{{\"type\":\"olm.maxOpenShiftVersion\",\"value\":{value}}}]");
                ConstrainedRevision {
                    extension: format!("e{number:04}"),
                    extension_uid: None,
                    bundle: format!("b{number}"),
                    version: String::new(),
                    declared: crate::property::declarations(&text, None),
                }
            })
            .collect();
        let cluster_version = cluster.parse().ok();
        let platform = Platform::of(&Facts { openshift_apis: true, cluster_version, ..Facts::default() });
        evaluate(&platform, &[], &revisions)
    }

    #[test]
    fn equal_verdicts_give_equal_statuses() {
        let first = status(&verdict("4.18", &["4.18"]), Some(1), None, at(10));
        assert_eq!(status(&verdict("4.18", &["4.18"]), Some(1), Some(&first), at(20)), first);
        let shown = first.platform.clone().unwrap();
        assert_eq!(shown.type_.as_str(), "OpenShift");
        assert_eq!(shown.current_version.as_deref(), Some("4.18"));
        assert_eq!(shown.next_version.as_deref(), Some("4.19"));
        assert_eq!(shown.source.unwrap().as_str(), "ClusterVersion");
        assert_eq!((first.blocking_extensions, first.truncated), (Some(1), false));
        // Case operations-a41: the transition time changes only together with the status.
        let transition = |status: &ClusterUpgradeStatusStatus| status.conditions[0].last_transition_time.0;
        let more = status(&verdict("4.18", &["4.18", "4.18"]), Some(1), Some(&first), at(30));
        assert_eq!((more.blocking_extensions, transition(&more)), (Some(2), at(10)));
        let clear = status(&verdict("4.18", &["4.19"]), Some(2), Some(&more), at(40));
        assert_eq!((clear.conditions[0].status.as_str(), transition(&clear)), ("True", at(40)));
        assert_eq!(clear.conditions[0].observed_generation, Some(2));
    }

    // Case operations-a49
    #[test]
    fn restart_retains_stored_verdict() {
        let stored = status(&verdict("4.18", &["4.18"]), Some(1), None, at(10));
        assert_eq!(status(&Verdict::initializing(), Some(1), Some(&stored), at(20)), stored);
        let first = status(&Verdict::initializing(), Some(1), None, at(20));
        assert_eq!((first.conditions[0].status.as_str(), first.platform), ("Unknown", None));
        assert_eq!(first.blocking_extensions, None);
    }

    #[test]
    fn truncated_list_keeps_blocking_and_invalid_rows() {
        let mut values = vec!["4.19"; 600];
        values[7] = "4.18";
        values[599] = "4";
        let status = status(&verdict("4.18", &values), None, None, at(0));
        assert_eq!((status.extensions.len(), status.truncated), (MAX_EXTENSIONS, true));
        assert!(status.extensions.is_sorted_by_key(|row| row.name.clone()));
        let results: Vec<_> = status.extensions.iter().map(|row| row.result.as_str()).collect();
        assert_eq!((results[7], results[499]), ("Blocking", "Invalid"));
        let blocking = super::status(&verdict("4.18", &["4.18"; 600]), None, None, at(0));
        assert_eq!((blocking.extensions.len(), blocking.blocking_extensions), (MAX_EXTENSIONS, Some(600)));
    }
}
