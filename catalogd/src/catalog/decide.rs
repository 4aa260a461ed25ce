//! The next step of a reconcile (docs/design/catalogd.md#reconcile-order). Pure and total.

use std::time::Duration;

use jiff::Timestamp;
use olm_api::cluster_catalog::{AvailabilityMode, ImageSource};
use olm_api::conditions::{reasons, types};
use olm_api::{ClusterCatalog, annotations, finalizers, labels};
use tokio::time::Instant;

use super::reference::{Resolution, effective_reference, image, served_reference};

const NO_CONTENT: &str = "no stored content found for this catalog";

/// The leader's last success with a catalog. Held in memory only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpackRecord {
    /// UID of the object. A recreated object of the same name does not match.
    pub uid: Option<String>,
    /// Generation that was resolved.
    pub generation: i64,
    /// First time that this process served the content: `status.lastUnpacked`.
    pub unpacked_at: Timestamp,
    /// Time of the last poll. Monotonic, so that a step of the wall clock does not move the next poll.
    pub last_poll: Option<Instant>,
    /// Value of the refresh annotation that was served last.
    pub refresh: Option<String>,
    /// Reference that was resolved. `None` if the content was kept because the image template has no reference.
    pub reference: Option<String>,
}

/// Inputs of [`decide`].
#[derive(Clone, Copy, Debug)]
pub struct ObservedCatalog<'a> {
    /// The object.
    pub catalog: &'a ClusterCatalog,
    /// Reference of the image template, if the catalog has one. Followers do not need it.
    pub template: Option<&'a Resolution>,
    /// Digest reference of the image whose content this replica holds.
    pub held: Option<&'a str>,
    /// `true` if the present signature policy has accepted that content.
    pub verified: bool,
    /// The leader's record of that content.
    pub record: Option<&'a UnpackRecord>,
    /// `true` if this replica leads.
    pub leading: bool,
    /// Time of the decision.
    pub now: Instant,
}

/// The next step for a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Do nothing.
    Nothing,
    /// Availability mode `Unavailable`: remove the content, write the status, remove our finalizer.
    Withdraw,
    /// Being deleted: remove the content, write the status, remove our finalizer.
    Finalize,
    /// Add our finalizer and the name label. The update causes the next reconcile.
    Adopt,
    /// Report a terminal error with this message: the spec cannot be carried out.
    Refuse(String),
    /// Resolve the image and pull it unless its content is held.
    Unpack {
        /// The reference to resolve.
        image: String,
        /// Reason for the log.
        reason: &'static str,
    },
    /// Verify the held content by the signature policy, then take this step.
    Verify(Box<NextStep>),
    /// Write the status of served content, and requeue after the time.
    Publish(Option<Duration>),
    /// Follower: pull the content of this digest reference.
    Mirror(String),
    /// Follower: remove the content. Writes no status.
    Drop,
}

/// Chooses the next step. The checks stand in the order of docs/design/catalogd.md#reconcile-order.
pub fn decide(observed: ObservedCatalog<'_>) -> NextStep {
    let catalog = observed.catalog;
    if !observed.leading {
        return follow(catalog, observed.held);
    }
    let is_ours = has_finalizer(catalog);
    if catalog.spec.availability_mode == Some(AvailabilityMode::Unavailable) {
        return NextStep::Withdraw;
    }
    if catalog.metadata.deletion_timestamp.is_some() {
        return if is_ours { NextStep::Finalize } else { NextStep::Nothing };
    }
    if !is_ours || !has_name_label(catalog) {
        return NextStep::Adopt;
    }
    let image = match image(catalog) {
        Ok(image) => image,
        Err(message) => return NextStep::Refuse(message),
    };
    let record = observed.record.filter(|record| record.uid == catalog.metadata.uid);
    let next = match observed.template {
        Some(Err(_)) if observed.held.is_some() => NextStep::Publish(None),
        Some(Err(_)) => {
            let image = effective_reference(catalog, &image.ref_, observed.template).to_owned();
            NextStep::Unpack { image, reason: NO_CONTENT }
        }
        Some(Ok(reference)) => poll(&observed, image, reference, record),
        None => poll(&observed, image, &image.ref_, record),
    };
    let is_unverified = observed.held.is_some() && !observed.verified;
    if is_unverified { NextStep::Verify(Box::new(next)) } else { next }
}

/// Unpacks `reference` if there is a reason for it. `image` has the interval of its polls.
fn poll(
    observed: &ObservedCatalog<'_>,
    image: &ImageSource,
    reference: &str,
    record: Option<&UnpackRecord>,
) -> NextStep {
    let catalog = observed.catalog;
    let due = poll_due(image, record, observed.now);
    let reason = match observed.held {
        None => NO_CONTENT,
        Some(held) if !is_resolved_for_generation(catalog, held, record) => {
            "catalog generation differs from observed generation"
        }
        Some(_) if !is_resolved_from(observed, reference, record) => {
            "image template was added, changed or removed"
        }
        Some(_) if refresh_is_due(catalog, record) => "refresh was requested",
        Some(_) if due == Some(Duration::ZERO) => "poll duration has elapsed",
        Some(_) => return NextStep::Publish(due),
    };
    NextStep::Unpack { image: reference.to_owned(), reason }
}

/// The next step of a follower: hold exactly the content that the status names. Without a status it keeps what it has: a
/// former leader may not have seen the one that it wrote.
fn follow(catalog: &ClusterCatalog, held: Option<&str>) -> NextStep {
    match served_reference(catalog) {
        Some(reference) if held == Some(reference) => NextStep::Nothing,
        Some(reference) => NextStep::Mirror(reference.to_owned()),
        None if held.is_some() && catalog.condition(types::SERVING).is_some() => NextStep::Drop,
        None => NextStep::Nothing,
    }
}

/// `true` if the current generation was resolved to the held image, by this process or, according to the status, by
/// an earlier one.
fn is_resolved_for_generation(catalog: &ClusterCatalog, held: &str, record: Option<&UnpackRecord>) -> bool {
    if let Some(record) = record {
        return Some(record.generation) == catalog.metadata.generation;
    }
    served_reference(catalog) == Some(held)
        && catalog.condition(types::PROGRESSING).is_some_and(|condition| {
            condition.reason == reasons::SUCCEEDED
                && condition.observed_generation == catalog.metadata.generation
        })
}

/// `true` if the held content was resolved from `reference`. The status does not have the reference, so an earlier
/// process proves that only for a catalog that has, and had, no template.
fn is_resolved_from(observed: &ObservedCatalog<'_>, reference: &str, record: Option<&UnpackRecord>) -> bool {
    match record {
        Some(record) => record.reference.as_deref() == Some(reference),
        None => {
            let had_template = observed.catalog.condition(types::IMAGE_TEMPLATE_RESOLVED).is_some();
            observed.template.is_none() && !had_template
        }
    }
}

/// Value of the refresh annotation, if set.
pub fn refresh_requested(catalog: &ClusterCatalog) -> Option<&str> {
    catalog.metadata.annotations.as_ref()?.get(annotations::EXT_REFRESH_REQUESTED_AT).map(String::as_str)
}

/// `true` if a refresh was requested and not made yet. Without a record the times decide: requested after the
/// content was unpacked.
fn refresh_is_due(catalog: &ClusterCatalog, record: Option<&UnpackRecord>) -> bool {
    let Some(requested) = refresh_requested(catalog) else {
        return false;
    };
    match record {
        Some(record) => record.refresh.as_deref() != Some(requested),
        None => {
            let unpacked = catalog.status.as_ref().and_then(|status| status.last_unpacked.as_ref());
            requested.parse::<Timestamp>().is_ok_and(|at| unpacked.is_none_or(|unpacked| at > unpacked.0))
        }
    }
}

/// Time left until the next poll, zero if it is due. `None` if the image is not polled.
fn poll_due(image: &ImageSource, record: Option<&UnpackRecord>, now: Instant) -> Option<Duration> {
    let interval = poll_interval(image)?;
    let Some(last) = record.and_then(|record| record.last_poll) else {
        return Some(Duration::ZERO);
    };
    Some(interval.saturating_sub(now.saturating_duration_since(last)))
}

/// `pollIntervalMinutes`, capped at what timers support.
pub fn poll_interval(image: &ImageSource) -> Option<Duration> {
    const LONGEST_MINUTES: u64 = 150_000_000;
    let minutes = u64::try_from(image.poll_interval_minutes?).unwrap_or(1).clamp(1, LONGEST_MINUTES);
    Some(Duration::from_secs(minutes * 60))
}

/// `true` if the object carries our finalizer.
pub fn has_finalizer(catalog: &ClusterCatalog) -> bool {
    let finalizers = catalog.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|finalizer| finalizer == finalizers::DELETE_SERVER_CACHE)
}

fn has_name_label(catalog: &ClusterCatalog) -> bool {
    let label = catalog.metadata.labels.as_ref().and_then(|all| all.get(labels::METADATA_NAME));
    label.is_some() && label == catalog.metadata.name.as_ref()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use serde_json::{Value, json};

    const DIGEST: &str =
        "r.example/a/b@sha256:1111111111111111111111111111111111111111111111111111111111111111";

    /// A catalog served from [`DIGEST`], with `change` merged in.
    fn catalog(change: Value) -> ClusterCatalog {
        let mut object = json!({
            "metadata": {"name": "cat", "generation": 2, "finalizers": [finalizers::DELETE_SERVER_CACHE],
                "labels": {labels::METADATA_NAME: "cat"}},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example/a/b:v1"}}},
            "status": {
                "conditions": [
                    {"type": "Progressing", "status": "True", "reason": "Succeeded", "message": "",
                     "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "Serving", "status": "True", "reason": "Available", "message": "",
                     "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "resolvedSource": {"type": "Image", "image": {"ref": DIGEST}}}
        });
        merge(&mut object, change);
        serde_json::from_value(object).unwrap()
    }

    fn merge(target: &mut Value, change: Value) {
        match change {
            Value::Object(members) => {
                for (key, value) in members {
                    merge(&mut target[&key], value);
                }
            }
            Value::Null => {}
            other => *target = other,
        }
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + minute * 60).unwrap()
    }

    fn clock(minute: i64) -> Instant {
        static HOUR_AGO: LazyLock<Instant> = LazyLock::new(Instant::now);
        *HOUR_AGO + Duration::from_secs((60 + minute).unsigned_abs() * 60)
    }

    fn record(generation: i64, last_poll: Option<i64>) -> Option<UnpackRecord> {
        let (last_poll, reference) = (last_poll.map(clock), Some("r.example/a/b:v1".to_owned()));
        Some(UnpackRecord { uid: None, generation, unpacked_at: at(0), last_poll, refresh: None, reference })
    }

    fn observe<'a>(
        catalog: &'a ClusterCatalog,
        held: Option<&'a str>,
        verified: bool,
        record: Option<&'a UnpackRecord>,
    ) -> ObservedCatalog<'a> {
        ObservedCatalog { catalog, template: None, held, verified, record, leading: true, now: clock(0) }
    }

    fn unpack(reason: &'static str) -> NextStep {
        NextStep::Unpack { image: "r.example/a/b:v1".to_owned(), reason }
    }

    #[test]
    fn leader_adopts_unpacks_or_publishes_by_catalog_state() {
        let poll = json!({"spec": {"source": {"image": {"pollIntervalMinutes": 10}}}});
        let due = || unpack("poll duration has elapsed");
        let changed = || unpack("catalog generation differs from observed generation");
        let minutes = |n: u64| Some(Duration::from_secs(n * 60));
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let unavailable = json!({"spec": {"availabilityMode": "Unavailable"}});
        let rows = [
            ("new", json!({"metadata": {"finalizers": []}}), None, None, NextStep::Adopt),
            (
                "label wrong",
                json!({"metadata": {"labels": {labels::METADATA_NAME: "x"}}}),
                Some(DIGEST),
                None,
                NextStep::Adopt,
            ),
            ("nothing held", json!({}), None, None, unpack("no stored content found for this catalog")),
            ("restart, content held", json!({}), Some(DIGEST), None, NextStep::Publish(None)),
            ("restart, polled", poll.clone(), Some(DIGEST), None, due()),
            ("steady", poll.clone(), Some(DIGEST), record(2, Some(-3)), NextStep::Publish(minutes(7))),
            ("poll due", poll.clone(), Some(DIGEST), record(2, Some(-10)), due()),
            (
                "clock went back",
                poll.clone(),
                Some(DIGEST),
                record(2, Some(5)),
                NextStep::Publish(minutes(10)),
            ),
            ("interval added", poll, Some(DIGEST), record(2, None), due()),
            ("spec changed", json!({}), Some(DIGEST), record(1, None), changed()),
            (
                "changed while the server was down",
                json!({"metadata": {"generation": 3}}),
                Some(DIGEST),
                None,
                changed(),
            ),
            ("deleted", deleted, Some(DIGEST), record(2, None), NextStep::Finalize),
            ("unavailable", unavailable, Some(DIGEST), record(2, None), NextStep::Withdraw),
            (
                "no image",
                json!({"spec": {"source": {"type": "Http"}}}),
                None,
                None,
                NextStep::Refuse("terminal error: unknown source type \"Http\"".to_owned()),
            ),
        ];
        for (title, change, held, record, expect) in rows {
            let catalog = catalog(change);
            let record = record.as_ref();
            let observed = observe(&catalog, held, true, record);
            assert_eq!(decide(observed), expect, "{title}");
        }
    }

    // Case catalogd-42
    #[test]
    fn unavailable_mode_takes_precedence_over_catalog_deletion() {
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let observed = |catalog, held| observe(catalog, held, true, None);
        // Held content that the status does not name: an attempt before failed after storing it.
        let moved = catalog(json!({}));
        let expect = unpack("catalog generation differs from observed generation");
        assert_eq!(decide(observed(&moved, Some("r.example/a/b@sha256:2"))), expect);
        // Only finalizers of other controllers remain.
        let mut foreign = catalog(deleted.clone());
        foreign.metadata.finalizers = Some(vec!["example.org/x".to_owned()]);
        assert_eq!(decide(observed(&foreign, None)), NextStep::Nothing);
        // Unavailable is checked before deletion.
        let mut both = catalog(deleted);
        both.spec.availability_mode = Some(AvailabilityMode::Unavailable);
        assert_eq!(decide(observed(&both, None)), NextStep::Withdraw);
        let mut nil = catalog(json!({}));
        nil.spec.source.image = None;
        let message = "terminal error: error parsing ClusterCatalog \"cat\", image source is nil";
        assert_eq!(decide(observed(&nil, None)), NextStep::Refuse(message.to_owned()));
    }

    #[test]
    fn unverified_content_is_verified_before_next_step() {
        let verify = |next: NextStep| NextStep::Verify(Box::new(next));
        let polled = json!({"spec": {"source": {"image": {"pollIntervalMinutes": 5}}}});
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let rows = [
            (json!({}), Some(DIGEST), verify(NextStep::Publish(None))),
            (polled, Some(DIGEST), verify(unpack("poll duration has elapsed"))),
            (json!({}), None, unpack("no stored content found for this catalog")),
            (json!({"spec": {"availabilityMode": "Unavailable"}}), Some(DIGEST), NextStep::Withdraw),
            (deleted, Some(DIGEST), NextStep::Finalize),
        ];
        for (change, held, expect) in rows {
            let catalog = catalog(change);
            let (verified, record) = (false, None);
            let observed = observe(&catalog, held, verified, record);
            assert_eq!(decide(observed), expect);
        }
    }

    // docs/design/additions.md#annotations
    #[test]
    fn refresh_annotation_unpacks_once() {
        let asked = |value: &str| {
            let mut catalog =
                catalog(json!({"metadata": {"annotations": {annotations::EXT_REFRESH_REQUESTED_AT: value}}}));
            catalog.status.as_mut().unwrap().last_unpacked = Some(olm_api::Time(at(0)));
            catalog
        };
        let followed =
            |value: &str| UnpackRecord { refresh: Some(value.to_owned()), ..record(2, None).unwrap() };
        let refresh = unpack("refresh was requested");
        let rows = [
            ("x", record(2, None), &refresh),
            ("x", Some(followed("x")), &NextStep::Publish(None)),
            ("y", Some(followed("x")), &refresh),
            // After a restart the times decide.
            ("x", None, &NextStep::Publish(None)),
            ("1970-01-12T13:46:40Z", None, &NextStep::Publish(None)),
            ("1970-01-12T13:46:41Z", None, &refresh),
        ];
        for (value, record, expect) in rows {
            let catalog = asked(value);
            let (held, record) = (Some(DIGEST), record.as_ref());
            let observed = observe(&catalog, held, true, record);
            assert_eq!(&decide(observed), expect, "{value} {record:?}");
        }
    }

    #[test]
    fn recreated_catalog_ignores_record_of_old_uid() {
        let mut catalog = catalog(json!({"metadata": {"uid": "new"}}));
        catalog.status = None;
        let record = UnpackRecord { uid: Some("old".to_owned()), ..record(2, None).unwrap() };
        let (held, record) = (Some(DIGEST), Some(&record));
        let observed = observe(&catalog, held, true, record);
        assert_eq!(decide(observed), unpack("catalog generation differs from observed generation"));
    }

    #[test]
    fn follower_mirrors_served_digest_or_drops_content() {
        let other = "r.example/a/b@sha256:2";
        let serving = catalog(json!({}));
        let stopped = catalog(
            json!({"status": {"conditions": [{"type": "Serving", "status": "False", "reason": "Unavailable",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        );
        let unreported = ClusterCatalog { status: None, ..catalog(json!({})) };
        let rows = [
            (&serving, None, NextStep::Mirror(DIGEST.to_owned())),
            (&serving, Some(other), NextStep::Mirror(DIGEST.to_owned())),
            (&serving, Some(DIGEST), NextStep::Nothing),
            (&stopped, Some(DIGEST), NextStep::Drop),
            (&stopped, None, NextStep::Nothing),
            (&unreported, Some(DIGEST), NextStep::Nothing),
        ];
        for (catalog, held, expect) in rows {
            let observed = ObservedCatalog { leading: false, ..observe(catalog, held, false, None) };
            assert_eq!(decide(observed), expect);
        }
    }

    #[test]
    fn poll_interval_is_clamped() {
        let interval =
            |minutes| poll_interval(&ImageSource { ref_: String::new(), poll_interval_minutes: minutes });
        assert_eq!(interval(None), None);
        assert_eq!(interval(Some(1)), Some(Duration::from_secs(60)));
        assert_eq!(interval(Some(i64::MAX)), Some(Duration::from_secs(9_000_000_000)));
        assert_eq!(interval(Some(-1)), Some(Duration::from_secs(60)));
    }
}
