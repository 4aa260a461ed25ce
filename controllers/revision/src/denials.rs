//! Reports missing rights for the objects of a revision (docs/design/operations.md#hardened-rights; case
//! operations-e41), and skipped objects (docs/design/namespaces.md#taken-permissions).

use std::collections::BTreeSet;

use olm_api::ClusterObjectSet;
use olm_revision::cluster::{ApiErrorReason, ClusterError};
use olm_revision::result::RevisionResult;
use olm_runtime::events::Events;

use super::drift::extension_of;

const REASON: &str = "PermissionMissing";
const TAKEN: &str = "ObjectsSkipped";

/// Publishes an Event about requests that were denied in a pass over `set` or its watches, until they are allowed.
/// Must be called only for the newest active revision of an extension, since the Event is deduplicated per extension.
pub(super) fn report(
    events: &Events,
    set: &ClusterObjectSet,
    result: &RevisionResult,
    unwatched: Option<&ClusterError>,
) {
    let Some(extension) = extension_of(set) else { return };
    let of_watches = unwatched.filter(|error| error.reason == ApiErrorReason::NotPermitted);
    let denials: BTreeSet<&str> =
        result.denials().into_iter().chain(of_watches.map(|error| error.message.as_str())).collect();
    if !denials.is_empty() {
        events.warning(extension, REASON, denials.into_iter().collect::<Vec<_>>().join("; "));
    } else if result.is_complete() && unwatched.is_none() {
        events.resolved(&extension, REASON);
    }
}

/// Publishes an Event about permissions in watched namespaces that other owners have, until they have none. Must be called
/// only for the newest active revision, as [`report`].
pub(super) fn report_taken(events: &Events, set: &ClusterObjectSet, result: &RevisionResult) {
    let Some(extension) = extension_of(set) else { return };
    match result.taken() {
        Some(lines) => events.warning(extension, TAKEN, lines),
        None if result.is_complete() => events.resolved(&extension, TAKEN),
        None => {}
    }
}
