//! Delays of reconciles that no event repeats.

use std::time::Duration;

/// Requeue delay of a result that depends on other objects of the cluster, whether or not a watch reports a change.
pub(super) const REQUEUE_DELAY: Duration = Duration::from_secs(20);
/// Requeue delay after a conflict (409) with a revision. Events of a revision without owner reach no extension.
pub(super) const CONFLICT_RETRY: Duration = Duration::from_millis(200);
/// Delay between two verifications of an image that the signature policy does not accept.
pub(super) const VERIFY_DELAY: Duration = Duration::from_secs(300);
