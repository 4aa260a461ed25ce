//! Waits of the revision controller.

use std::time::Duration;

use jiff::SignedDuration;

/// Durations that only tests change.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Duration of one minute of a progress deadline.
    pub minute: SignedDuration,
    /// Maximum retry delay after a failure: its end, such as a webhook that answers again, triggers no event.
    pub longest_retry: Duration,
    /// Maximum duration of an ordered removal. Garbage collection deletes the rest.
    pub teardown: SignedDuration,
    /// Time that a removal waits for custom resources without a running operator.
    pub operator: Duration,
    /// Time for which a revision leaves missing objects to a newer active one.
    pub recreation: Duration,
    /// Time for which a Deployment is unready before its pods are read, and interval of these reads.
    pub unready: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            minute: SignedDuration::from_mins(1),
            longest_retry: Duration::from_secs(60),
            teardown: SignedDuration::from_mins(2),
            operator: Duration::from_secs(10),
            recreation: Duration::from_secs(30),
            unready: Duration::from_secs(30),
        }
    }
}
