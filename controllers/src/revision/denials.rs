//! Says which rights are missing for the objects of a revision (spec 06 §1.6, E41).

use olm_api::ClusterObjectSet;
use olm_revision::result::RevisionResult;
use olm_service::events::Events;

use super::drift::extension_of;

const REASON: &str = "PermissionMissing";

/// Tells what was denied in a pass over `set`, until it is allowed.
pub(super) fn tell(events: &Events, set: &ClusterObjectSet, result: &RevisionResult) {
    let Some(extension) = extension_of(set) else { return };
    let denials: Vec<&str> = result.denials().into_iter().collect();
    if !denials.is_empty() {
        events.warning(extension, REASON, denials.join("; "));
    } else if result.is_complete() {
        events.over(&extension, REASON);
    }
}
