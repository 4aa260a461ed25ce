//! `--acknowledge`: records that the bundles of an extension do not block the next version
//! (docs/design/operations.md#acknowledgements).

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use olm_api::cluster_upgrade_status::{Acknowledgement, VerdictResult};
use olm_api::{ClusterUpgradeStatus, names};
use olm_cli_core::change::{self, DryRun, FIELD_MANAGER};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_platform::{MinorVersion, Verdict};
use olm_version::quote;
use serde_json::json;

/// Acknowledgements of all bundles of `extension` that block the next version.
///
/// # Errors
/// None of them blocks, or the next version is not known.
pub(super) fn acknowledgements(
    verdict: &Verdict,
    extension: &str,
    comment: Option<&str>,
) -> Result<Vec<Acknowledgement>, CliError> {
    let next = verdict.platform.as_ref().and_then(|platform| platform.next);
    let next = next.ok_or_else(|| {
        CliError::no_candidate(
            "the next version is not known: specify the current one with --platform-version",
        )
    })?;
    let blocks = |result: &VerdictResult| matches!(result, VerdictResult::Blocking | VerdictResult::Invalid);
    let rows = verdict.extensions.iter().filter(|row| row.name == extension && blocks(&row.result));
    let mut all: Vec<Acknowledgement> = rows
        .map(|row| Acknowledgement {
            extension: extension.to_owned(),
            bundle: row.bundle.clone(),
            platform_version: next.to_string(),
            comment: comment.map(str::to_owned),
        })
        .collect();
    all.dedup();
    if all.is_empty() {
        let name = quote(extension);
        return Err(CliError::no_candidate(format!("no bundle of ClusterExtension {name} blocks {next}")));
    }
    Ok(all)
}

/// Returns the list with `new` added. Earlier entries for the same bundle and version are replaced. Entries for versions
/// below `next`, the stored next version, are removed: the platform has passed them, and the list has a limit.
pub(super) fn with(
    old: &[Acknowledgement],
    new: &[Acknowledgement],
    next: Option<&str>,
) -> Vec<Acknowledgement> {
    let minor = |version: &str| version.parse::<MinorVersion>().ok();
    let next = next.and_then(minor);
    let is_passed = |one: &Acknowledgement| {
        minor(&one.platform_version).zip(next).is_some_and(|(version, next)| version < next)
    };
    let key =
        |one: &Acknowledgement| (one.extension.clone(), one.bundle.clone(), one.platform_version.clone());
    let is_replaced = |one: &Acknowledgement| new.iter().any(|new| key(new) == key(one));
    let kept = old.iter().filter(|one| !is_replaced(one) && !is_passed(one));
    kept.chain(new).cloned().collect()
}

/// Writes the list to `stored`.
///
/// # Errors
/// The API server refuses it or does not answer. Another writer changed the object in the meantime.
pub(super) async fn write(
    cluster: &ClusterConnection,
    stored: &ClusterUpgradeStatus,
    list: &[Acknowledgement],
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<String, CliError> {
    let name = names::CLUSTER_UPGRADE_STATUS_NAME;
    let note = match dry_run {
        None => "",
        Some(DryRun::Client) => " (dry run)",
        Some(DryRun::Server) => " (server dry run)",
    };
    if dry_run != Some(DryRun::Client) {
        let patch = json!({
            "metadata": {"uid": stored.uid(), "resourceVersion": stored.resource_version()},
            "spec": {"acknowledgements": list},
        });
        let parameters = PatchParams {
            dry_run: dry_run.is_some(),
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api: Api<ClusterUpgradeStatus> = Api::all(cluster.client().clone());
        let patch = Patch::Merge(&patch);
        let changed = api.patch(name, &parameters, &patch);
        change::call(&format!("change ClusterUpgradeStatus {}", quote(name)), changed, session).await?;
    }
    Ok(format!("clusterupgradestatus.{}/{name} changed{note}", names::EXT_GROUP))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bundle: &str, version: &str, comment: Option<&str>) -> Acknowledgement {
        Acknowledgement {
            extension: "kiwi".to_owned(),
            bundle: bundle.to_owned(),
            platform_version: version.to_owned(),
            comment: comment.map(str::to_owned),
        }
    }

    #[test]
    fn new_acknowledgement_replaces_only_its_own_entry() {
        let old = [one("kiwi.v1", "4.18", None), one("kiwi.v1", "4.19", None), one("kiwi.v2", "4.19", None)];
        let new = [one("kiwi.v1", "4.19", Some("tested"))];
        let expected = [old[0].clone(), old[2].clone(), new[0].clone()];
        assert_eq!(with(&old, &new, None), expected);
        assert_eq!(with(&[], &new, Some("4.19")), new);
    }

    // docs/design/operations.md#acknowledgements
    #[test]
    fn entries_for_passed_versions_are_removed() {
        let old = [one("kiwi.v1", "4.9", None), one("kiwi.v1", "4.20", None), one("kiwi.v1", "other", None)];
        let new = [one("kiwi.v2", "4.19", None)];
        let expected = [old[1].clone(), old[2].clone(), new[0].clone()];
        assert_eq!(with(&old, &new, Some("4.19")), expected);
    }
}
