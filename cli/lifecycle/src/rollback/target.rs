//! Rollback target. Pure.

use olm_cli_core::error::CliError;
use olm_version::{Version, quote};

use crate::history::Record;

/// Highest number of revisions that a message names.
const NAMED: usize = 10;

/// Rollback target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RollbackTarget {
    /// Number of the revision with the bundle. `None` if no revision has it.
    pub(super) revision: Option<i64>,
    /// Name of the bundle, if known.
    pub(super) bundle: Option<String>,
    /// Version of the bundle.
    pub(super) version: String,
    /// Warning about the target.
    pub(super) warning: Option<String>,
}

/// Finds the revision that `to` specifies by number, name or version among the `records`, newest first, of the
/// extension `name`. Without `to`, finds the newest revision that has rolled out with another bundle than that of the
/// newest revision.
///
/// # Errors
/// There is none, it is the current one, or `to` is neither a revision nor a version.
pub(super) fn target(name: &str, to: Option<&str>, records: &[Record]) -> Result<RollbackTarget, CliError> {
    let Some(to) = to else {
        let found = records.iter().find(|record| record.rollback.possible);
        return found.map(of_record).ok_or_else(|| {
            CliError::no_candidate(format!(
                "{name} has no revision to roll back to; {}\nuse --to VERSION for another version in a catalog",
                revision_list(records)
            ))
        });
    };
    let number = to.strip_prefix(&format!("{name}-")).unwrap_or(to).parse::<i64>().ok();
    if let Some(number) = number {
        let found = records.iter().find(|record| record.revision == number);
        let record = found.ok_or_else(|| {
            CliError::no_candidate(format!("{name} has no revision {number}; {}", revision_list(records)))
        })?;
        // A revision that never rolled out is allowed if named explicitly.
        if let Some(why) = record.rollback.why_not.filter(|_| record.succeeded || record.version.is_empty()) {
            return Err(CliError::no_candidate(format!(
                "revision {number} cannot be a rollback target: {why}"
            )));
        }
        return Ok(of_record(record));
    }
    let version = to.strip_prefix('v').unwrap_or(to);
    if Version::parse(version).is_err() {
        return Err(CliError::usage(format!(
            "--to {}: expected the number of a revision, as `history` shows it, or a full version such as 1.2.3",
            quote(to)
        )));
    }
    let of_version = || records.iter().filter(|record| record.version == version);
    let found = of_version().find(|record| record.succeeded).or_else(|| of_version().next());
    Ok(match found {
        Some(record) => of_record(record),
        None => RollbackTarget { revision: None, bundle: None, version: version.to_owned(), warning: None },
    })
}

fn of_record(record: &Record) -> RollbackTarget {
    let never = format!("revision {} never rolled out while it was active", record.revision);
    RollbackTarget {
        revision: Some(record.revision),
        bundle: Some(record.bundle.clone()).filter(|bundle| !bundle.is_empty()),
        version: record.version.clone(),
        warning: (!record.succeeded).then_some(never),
    }
}

/// Revisions as text: `3 (pipe.v1.2.0, newest revision), …`
fn revision_list(records: &[Record]) -> String {
    let one = |record: &Record| {
        let why = record.rollback.why_not.map(|why| format!(", {why}")).unwrap_or_default();
        format!("{} ({}{why})", record.revision, record.bundle)
    };
    match records.iter().take(NAMED).map(one).collect::<Vec<_>>() {
        none if none.is_empty() => "it has no revisions".to_owned(),
        some => format!("revisions: {}", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use olm_api::ClusterObjectSet;
    use serde_json::json;

    use super::*;
    use crate::history;

    fn set(number: i64, version: &str, succeeded: bool, state: &str) -> ClusterObjectSet {
        let condition = |type_: &str, status: &str, reason: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-02T00:00:00Z"})
        };
        let reason = if state == "Archived" { "Archived" } else { "RollingOut" };
        serde_json::from_value(json!({
            "metadata": {"name": format!("pipe-{number}"), "uid": number.to_string(), "annotations": {
                "olm.operatorframework.io/bundle-name": format!("pipe.v{version}"),
                "olm.operatorframework.io/bundle-version": version}},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
            "status": {"conditions": [condition("Succeeded", if succeeded { "True" } else { "False" }, "Succeeded"),
                condition("Progressing", "True", reason)]},
        }))
        .unwrap()
    }

    #[test]
    fn target_is_found_by_number_name_or_version() {
        let records = history::records(&[
            set(1, "1.0.0", true, "Archived"),
            set(2, "1.1.0", false, "Archived"),
            set(3, "1.2.0", true, "Archived"),
            set(4, "1.2.0", true, "Active"),
        ]);
        for (to, expected) in [
            (None, Ok((Some(1), "1.0.0"))),
            (Some("1"), Ok((Some(1), "1.0.0"))),
            (Some("pipe-1"), Ok((Some(1), "1.0.0"))),
            (Some("2"), Ok((Some(2), "1.1.0"))),
            (Some("1.0.0"), Ok((Some(1), "1.0.0"))),
            (Some("v1.1.0"), Ok((Some(2), "1.1.0"))),
            (Some("0.9.0"), Ok((None, "0.9.0"))),
            (
                Some("3"),
                Err((
                    4,
                    "revision 3 cannot be a rollback target: same bundle as the newest revision, only the configuration differs",
                )),
            ),
            (Some("4"), Err((4, "revision 4 cannot be a rollback target: newest revision"))),
            (
                Some("7"),
                Err((
                    4,
                    "pipe has no revision 7; revisions: 4 (pipe.v1.2.0, newest revision), 3 (pipe.v1.2.0, same bundle as the newest revision, only the configuration differs), 2 (pipe.v1.1.0, never rolled out), 1 (pipe.v1.0.0)",
                )),
            ),
            (
                Some("1.x"),
                Err((
                    2,
                    "--to \"1.x\": expected the number of a revision, as `history` shows it, or a full version such as 1.2.3",
                )),
            ),
        ] {
            let found = target("pipe", to, &records);
            let found = found.as_ref().map(|target| (target.revision, target.version.as_str()));
            let found = found.map_err(|failure| (failure.exit_code(), failure.to_string()));
            assert_eq!(found, expected.map_err(|(code, text)| (code, text.to_owned())), "{to:?}");
        }
        let never = target("pipe", Some("2"), &records).unwrap();
        assert_eq!(never.warning.as_deref(), Some("revision 2 never rolled out while it was active"));
    }

    #[test]
    fn stuck_upgrade_rolls_back_to_installed_revision() {
        let records = history::records(&[set(1, "1.0.0", true, "Active"), set(2, "1.1.0", false, "Active")]);
        assert_eq!(target("pipe", None, &records).unwrap().revision, Some(1));
        let only = history::records(&[set(1, "1.0.0", true, "Active")]);
        let none = target("pipe", None, &only).unwrap_err();
        assert_eq!(
            (none.exit_code(), none.to_string().as_str()),
            (
                4,
                "pipe has no revision to roll back to; revisions: 1 (pipe.v1.0.0, newest revision)\nuse --to VERSION for another version in a catalog"
            )
        );
    }
}
