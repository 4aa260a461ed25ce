//! Leader election on a Lease, with the record and the timing of client-go, so that servers of either
//! implementation exclude each other (docs/design/operations.md#lease).
//!
//! A candidate measures by its own clock since it last observed a change of the record. Clocks are never compared.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::backoff::with_jitter;
use crate::cluster::within;
use crate::leadership::Leadership;

/// Largest part of the retry period that is added to the wait of a candidate.
const JITTER: f64 = 0.5;

/// Largest duration in the Lease of another holder that counts. A forged Lease must not prevent leadership for years.
const LONGEST_LEASE: Duration = Duration::from_secs(300);

/// The three durations of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time after which a Lease that is not renewed may be acquired by another candidate.
    pub lease_duration: Duration,
    /// Time for which a holder retries to renew before it stops leading.
    pub renew_deadline: Duration,
    /// Interval between two attempts.
    pub retry_period: Duration,
}

impl Timing {
    fn call_deadline(self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }
}

/// Result of an attempt on the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AttemptResult {
    /// This candidate holds the Lease.
    Held,
    /// Another candidate holds the Lease, and nobody else may acquire it within this time.
    HeldBy(String, Duration),
    /// 409: the Lease changed between our read and our write.
    Conflict,
}

/// The record that acquires or renews the Lease, or the holder to wait for and for how long. Pure. `unchanged_for` is
/// the time since the record last changed.
fn decide(
    record: &LeaseSpec,
    identity: &str,
    unchanged_for: Duration,
    timing: Timing,
    now: Timestamp,
) -> Result<LeaseSpec, (String, Duration)> {
    let holder = record.holder_identity.as_deref().unwrap_or_default();
    let valid_for = u64::try_from(record.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    let valid_for = Duration::from_secs(valid_for).min(LONGEST_LEASE.max(timing.lease_duration));
    let left = valid_for.saturating_sub(unchanged_for);
    if !holder.is_empty() && holder != identity && !left.is_zero() {
        return Err((holder.to_owned(), left));
    }
    let is_ours = holder == identity;
    let transitions = record.lease_transitions.unwrap_or(0);
    Ok(LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(i32::try_from(timing.lease_duration.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: record.acquire_time.clone().filter(|_| is_ours).or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if is_ours { transitions } else { transitions.saturating_add(1) }),
        ..LeaseSpec::default()
    })
}

/// One candidate for one Lease.
#[derive(Debug)]
pub struct Election {
    leases: Api<Lease>,
    events: Api<Event>,
    name: String,
    namespace: String,
    identity: String,
    timing: Timing,
    observed: Option<(LeaseSpec, Instant)>,
    /// The renew deadline after the start of the last write that succeeded: others see the write later than that.
    expires: watch::Sender<Instant>,
}

impl Election {
    /// A candidate. `client` must not retry by itself.
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, timing: Timing) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client, namespace),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            identity,
            timing,
            observed: None,
            expires: watch::Sender::new(Instant::now()),
        }
    }

    /// Waits until this candidate holds the Lease. [`Self::hold`] must follow.
    pub async fn acquire(&mut self) -> Leadership {
        tracing::info!(lease = self.name, identity = self.identity, "attempting to acquire leader lease");
        let mut other = String::new();
        loop {
            let mut wait = with_jitter(self.timing.retry_period, JITTER);
            match self.attempt().await {
                Ok(AttemptResult::Held) => break,
                Ok(AttemptResult::HeldBy(holder, left)) => {
                    wait = wait.min(left);
                    if holder != other {
                        tracing::info!(lease = self.name, holder, "lease is held by another process");
                        other = holder;
                    }
                }
                Ok(AttemptResult::Conflict) => {}
                Err(error) => tracing::error!(lease = self.name, %error, "failed to acquire lease"),
            }
            tokio::time::sleep(wait).await;
        }
        tracing::info!(lease = self.name, identity = self.identity, "successfully acquired lease");
        // Not awaited: the Lease must be renewed meanwhile.
        tokio::spawn(self.publish_event("became leader"));
        Leadership::new(self.expires.subscribe())
    }

    /// Renews the Lease. Returns when it is lost. An attempt that takes longer than the retry period, as with a slow
    /// admission webhook, is followed by the next one at once.
    pub async fn hold(&mut self) {
        let mut next = Instant::now() + self.timing.retry_period;
        loop {
            let deadline = *self.expires.borrow();
            let attempt = async {
                sleep_until(next).await;
                next = Instant::now() + self.timing.retry_period;
                self.attempt().await
            };
            match timeout_at(deadline, attempt).await {
                Ok(Ok(AttemptResult::Held | AttemptResult::Conflict)) => {}
                Ok(Ok(AttemptResult::HeldBy(holder, _))) => {
                    tracing::error!(lease = self.name, holder, "lost lease to another holder");
                    return;
                }
                Ok(Err(error)) => tracing::error!(lease = self.name, %error, "failed to renew lease"),
                Err(_) => {
                    tracing::error!(lease = self.name, "lost lease: not renewed within the renew deadline");
                    return;
                }
            }
        }
    }

    /// Releases the Lease so that a successor can acquire it at once.
    pub async fn release(&mut self) {
        match within(self.timing.call_deadline(), self.try_release()).await {
            Ok(()) => self.publish_event("stopped leading").await,
            Err(error) => tracing::error!(lease = self.name, %error, "failed to release lease"),
        }
    }

    /// Retries on conflict, because a cancelled renewal may still arrive and change the Lease.
    async fn try_release(&self) -> Result<(), kube::Error> {
        loop {
            let mut lease = self.leases.get(&self.name).await?;
            let held = lease.spec.get_or_insert_default();
            if held.holder_identity.as_deref() != Some(&self.identity) {
                return Ok(());
            }
            let now = MicroTime(now());
            *held = LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: held.lease_transitions,
                ..LeaseSpec::default()
            };
            match self.leases.replace(&self.name, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                other => return other.map(drop),
            }
        }
    }

    async fn attempt(&mut self) -> Result<AttemptResult, kube::Error> {
        let limit = self.timing.call_deadline();
        let found = within(limit, self.leases.get_opt(&self.name)).await?;
        // The first holder is not a transition.
        let vacant = || LeaseSpec { lease_transitions: Some(-1), ..LeaseSpec::default() };
        let record = found.as_ref().map_or_else(vacant, |lease| lease.spec.clone().unwrap_or_default());
        if self.observed.as_ref().is_none_or(|(observed, _)| *observed != record) {
            self.observed = Some((record.clone(), Instant::now()));
        }
        let unchanged_for = self.observed.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
        let spec = match decide(&record, &self.identity, unchanged_for, self.timing, now()) {
            Ok(spec) => Some(spec),
            Err((holder, left)) => return Ok(AttemptResult::HeldBy(holder, left)),
        };
        let params = PostParams::default();
        let started = Instant::now();
        let written = match found {
            Some(lease) => {
                let desired = Lease { spec, ..lease };
                within(limit, self.leases.replace(&self.name, &params, &desired)).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                within(limit, self.leases.create(&params, &Lease { metadata, spec })).await
            }
        };
        match written {
            Ok(lease) => {
                self.observed = Some((lease.spec.unwrap_or_default(), Instant::now()));
                self.expires.send_replace(started + self.timing.renew_deadline);
                Ok(AttemptResult::Held)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(AttemptResult::Conflict),
            Err(error) => Err(error),
        }
    }

    /// Writes the Event that client-go writes. Failures are only logged.
    fn publish_event(&self, what: &str) -> impl Future<Output = ()> + Send + use<> {
        let at = now();
        let (pod, _) = self.identity.split_once('_').unwrap_or((&self.identity, ""));
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", self.name, at.as_nanosecond())),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectRef::<Lease>::new(&self.name).within(&self.namespace).into(),
            reason: Some("LeaderElection".to_owned()),
            message: Some(format!("{} {what}", self.identity)),
            type_: Some("Normal".to_owned()),
            source: Some(EventSource { component: Some(self.identity.clone()), host: Some(pod.to_owned()) }),
            count: Some(1),
            first_timestamp: Some(Time(at)),
            last_timestamp: Some(Time(at)),
            ..Event::default()
        };
        let (events, limit) = (self.events.clone(), self.timing.call_deadline());
        async move {
            if let Err(error) = within(limit, events.create(&PostParams::default(), &event)).await {
                tracing::debug!(%error, "failed to write leader election event");
            }
        }
    }
}

fn now() -> Timestamp {
    // The API server stores microseconds, and the record that was read is compared with the one that was written.
    Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        lease_duration: Duration::from_secs(137),
        renew_deadline: Duration::from_secs(107),
        retry_period: Duration::from_secs(26),
    };

    fn record(holder: &str, seconds: i32, transitions: i32) -> LeaseSpec {
        let early = MicroTime(Timestamp::from_second(100).unwrap());
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(early.clone()),
            renew_time: Some(early),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn lease_is_acquired_when_expired_or_released() {
        let now = Timestamp::from_second(900).unwrap();
        // (record, seconds unchanged) → Ok((acquired at, transitions)) if acquired or renewed, else Err((holder, seconds
        // to wait))
        let rows = [
            (LeaseSpec::default(), 0, Ok((900, 1))),
            (record("me_1", 137, 3), 0, Ok((100, 3))),
            (record("me_1", 137, 3), 500, Ok((100, 3))),
            (record("other_2", 137, 3), 136, Err(("other_2", 1))),
            (record("other_2", 137, 3), 7, Err(("other_2", 130))),
            (record("other_2", 137, 3), 137, Ok((900, 4))),
            (record("other_2", 15, 3), 20, Ok((900, 4))),
            (record("other_2", i32::MAX, 3), 299, Err(("other_2", 1))),
            (record("other_2", i32::MAX, 3), 300, Ok((900, 4))),
            // Released.
            (record("", 1, 3), 0, Ok((900, 4))),
        ];
        for (record, unchanged, expect) in rows {
            let got = decide(&record, "me_1", Duration::from_secs(unchanged), TIMING, now);
            let got = got.map(|spec| {
                assert_eq!(spec.holder_identity.as_deref(), Some("me_1"));
                assert_eq!(spec.lease_duration_seconds, Some(137));
                assert_eq!(spec.renew_time, Some(MicroTime(now)));
                (spec.acquire_time.unwrap().0.as_second(), spec.lease_transitions.unwrap())
            });
            let expect =
                expect.map_err(|(holder, left): (&str, _)| (holder.to_owned(), Duration::from_secs(left)));
            assert_eq!(got, expect, "{record:?} unchanged for {unchanged} s");
        }
    }
}
