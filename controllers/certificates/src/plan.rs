//! Decides the next step for the certificates of one Service. Pure: the time and the facts are parameters.
//!
//! ```text
//! no CA, or it is due ► new CA, the old one stays trusted ► every object carries the bundle ► `settle` has passed
//!   ► serving certificate from the new CA ► no pod serves the old one ► the old CA is dropped
//! ```
//!
//! A serving certificate that clients do not accept is replaced at once: no working call can break.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Durations of the stages of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Delay after every object carries a CA until the CA signs: by then every API server has seen it.
    pub settle: Duration,
    /// Delay after the new certificate is in its Secret until the previous CA is dropped: by then every pod has seen
    /// it, although kubelets refresh volumes late.
    pub overlap: SignedDuration,
}

impl Times {
    /// Production values.
    pub const DEFAULT: Self =
        Self { settle: Duration::from_secs(30), overlap: SignedDuration::from_hours(24) };
}

/// Facts about the certificates of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The CA, if it can be used now.
    pub authority: Option<Authority>,
    /// The serving certificate, if the Secret holds one.
    pub leaf: Option<Leaf>,
    /// `true` if another provider issues the serving certificate.
    pub issued_by_others: bool,
    /// Value of the annotation that requests a renewal.
    pub renewal_request: Option<String>,
    /// Time for which all objects have carried the current bundle, if they do.
    pub carried_for: Option<Duration>,
}

/// Facts about a CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    /// Time of its replacement.
    pub due: Timestamp,
    /// Renewal request that was pending when it was created.
    pub fulfilled_request: Option<String>,
    /// `true` if the bundle holds earlier CAs.
    pub has_predecessors: bool,
    /// `true` if its Secret has our metadata and the bundle in it can be used as is.
    pub is_in_order: bool,
}

/// Facts about a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Time of its replacement.
    pub due: Timestamp,
    /// `true` if clients with the current bundle accept it.
    pub is_accepted: bool,
    /// `true` if the current CA signed it.
    pub is_of_current: bool,
    /// `true` if some clients may trust only the CA that signed it, so that it is kept until it is due.
    pub is_held: bool,
    /// Time since which it is in its Secret. `None` if the Secret lacks the time, the current bundle, or our
    /// metadata.
    pub in_order_since: Option<Timestamp>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create a CA. Trusted CAs stay trusted.
    NewAuthority(Cause),
    /// Rewrite the Secret of the CA around the CA that it holds.
    RepairAuthority,
    /// Create a serving certificate.
    NewLeaf,
    /// Rewrite the Secret of the serving certificate around the certificate that it holds.
    RepairLeaf,
    /// Trust only the current CA.
    DropOldAuthorities,
    /// Nothing before this time.
    Wait(Timestamp),
}

/// Cause of a new CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// There is no usable CA.
    Missing,
    /// It is due.
    Due,
    /// The annotation requests it.
    Asked,
}

/// Decides the next step. [`Step::Wait`] is valid while the facts do not change. Objects that start to carry the
/// bundle change the facts.
pub(super) fn next(facts: &Facts, times: &Times, now: Timestamp) -> Step {
    let Some(authority) = &facts.authority else {
        return Step::NewAuthority(Cause::Missing);
    };
    if !authority.is_in_order {
        return Step::RepairAuthority;
    }
    let leaf = facts.leaf.as_ref().filter(|leaf| leaf.is_accepted);
    // Renewals do not overlap: a CA that signed nothing yet would be wasted, and bundles would grow.
    if facts.issued_by_others || leaf.is_none_or(|leaf| leaf.is_of_current) {
        if facts.renewal_request.is_some() && facts.renewal_request != authority.fulfilled_request {
            return Step::NewAuthority(Cause::Asked);
        }
        if authority.due <= now {
            return Step::NewAuthority(Cause::Due);
        }
    }
    if facts.issued_by_others {
        return Step::Wait(authority.due);
    }
    let Some(leaf) = leaf else {
        return Step::NewLeaf;
    };
    let Some(since) = leaf.in_order_since.filter(|since| *since <= now) else {
        return Step::RepairLeaf;
    };
    if !leaf.is_of_current && leaf.is_held && now < leaf.due {
        return Step::Wait(leaf.due);
    }
    if !leaf.is_of_current {
        return match facts.carried_for.map(|carried| times.settle.saturating_sub(carried)) {
            Some(Duration::ZERO) => Step::NewLeaf,
            Some(left) => {
                Step::Wait(after(now, SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX)))
            }
            None => Step::Wait(Timestamp::MAX),
        };
    }
    if leaf.due <= now {
        return Step::NewLeaf;
    }
    let rest = authority.due.min(leaf.due);
    if !authority.has_predecessors {
        return Step::Wait(rest);
    }
    match after(since, times.overlap) {
        over if over <= now => Step::DropOldAuthorities,
        over => Step::Wait(over.min(rest)),
    }
}

fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-06-01T12:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Returns the facts of a Service that has been served for long and needs nothing.
    fn settled() -> Facts {
        Facts {
            authority: Some(Authority {
                due: at("2032-01-01T00:00:00Z"),
                fulfilled_request: None,
                has_predecessors: false,
                is_in_order: true,
            }),
            leaf: Some(Leaf {
                due: at("2026-07-01T00:00:00Z"),
                is_accepted: true,
                is_of_current: true,
                is_held: false,
                in_order_since: Some(at("2026-05-01T00:00:00Z")),
            }),
            issued_by_others: false,
            renewal_request: None,
            carried_for: Some(Duration::from_secs(3600)),
        }
    }

    fn decide(change: impl Fn(&mut Facts, &mut Authority, &mut Leaf)) -> Step {
        let mut facts = settled();
        let (mut authority, mut leaf) = (facts.authority.take().unwrap(), facts.leaf.take().unwrap());
        change(&mut facts, &mut authority, &mut leaf);
        let facts = Facts { authority: Some(authority), leaf: Some(leaf), ..facts };
        next(&facts, &Times::DEFAULT, at(NOW))
    }

    fn renewal_request(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn missing_certificate_is_created_at_once() {
        let none = Facts { authority: None, leaf: None, carried_for: None, ..settled() };
        assert_eq!(next(&none, &Times::DEFAULT, at(NOW)), Step::NewAuthority(Cause::Missing));
        let lost = Facts { authority: None, ..settled() };
        assert_eq!(next(&lost, &Times::DEFAULT, at(NOW)), Step::NewAuthority(Cause::Missing));
        let unserved = Facts { leaf: None, carried_for: None, ..settled() };
        assert_eq!(next(&unserved, &Times::DEFAULT, at(NOW)), Step::NewLeaf);
    }

    #[test]
    fn incomplete_secret_is_repaired() {
        assert_eq!(decide(|_, ca, _| ca.is_in_order = false), Step::RepairAuthority);
        assert_eq!(decide(|_, _, leaf| leaf.in_order_since = None), Step::RepairLeaf);
    }

    #[test]
    fn settled_service_waits_for_earliest_due_time() {
        assert_eq!(decide(|_, _, _| ()), Step::Wait(at("2026-07-01T00:00:00Z")));
        assert_eq!(
            decide(|_, ca, _| ca.due = at("2026-06-15T00:00:00Z")),
            Step::Wait(at("2026-06-15T00:00:00Z"))
        );
        // Objects without the bundle delay only a new CA.
        assert_eq!(decide(|facts, _, _| facts.carried_for = None), Step::Wait(at("2026-07-01T00:00:00Z")));
    }

    // Case additions-a44
    #[test]
    fn renewal_follows_its_stages() {
        assert_eq!(decide(|_, ca, _| ca.due = at(NOW)), Step::NewAuthority(Cause::Due));
        // The new CA is in the bundle. The leaf is that of the old CA, and its Secret lacks the bundle.
        let renewed = |since: Option<&str>, carried: Option<u64>| {
            decide(|facts, ca, leaf| {
                ca.has_predecessors = true;
                leaf.is_of_current = false;
                leaf.in_order_since = since.map(at);
                facts.carried_for = carried.map(Duration::from_secs);
            })
        };
        assert_eq!(renewed(None, None), Step::RepairLeaf);
        let since = Some("2026-06-01T11:59:59Z");
        assert_eq!(renewed(since, None), Step::Wait(Timestamp::MAX), "objects do not carry the bundle");
        assert_eq!(renewed(since, Some(0)), Step::Wait(at("2026-06-01T12:00:30Z")));
        assert_eq!(renewed(since, Some(29)), Step::Wait(at("2026-06-01T12:00:01Z")));
        assert_eq!(renewed(since, Some(30)), Step::NewLeaf);
        // The new leaf is in its Secret. Pods may still serve the old one.
        let overlapping = |since: &str| {
            decide(|_, ca, leaf| {
                ca.has_predecessors = true;
                leaf.in_order_since = Some(at(since));
            })
        };
        assert_eq!(overlapping(NOW), Step::Wait(at("2026-06-02T12:00:00Z")));
        assert_eq!(overlapping("2026-05-31T12:00:01Z"), Step::Wait(at("2026-06-01T12:00:01Z")));
        assert_eq!(overlapping("2026-05-31T12:00:00Z"), Step::DropOldAuthorities);
    }

    #[test]
    fn leaf_is_renewed_when_due_or_not_accepted() {
        let due = |leaf: &mut Leaf| leaf.due = at(NOW);
        assert_eq!(decide(|_, _, leaf| due(leaf)), Step::NewLeaf);
        assert_eq!(decide(|_, _, leaf| leaf.is_accepted = false), Step::NewLeaf);
        // Due during a renewal of the CA: it has a third of its life left and waits.
        let waiting = decide(|facts, ca, leaf| {
            due(leaf);
            leaf.is_of_current = false;
            ca.has_predecessors = true;
            facts.carried_for = Some(Duration::from_secs(10));
        });
        assert_eq!(waiting, Step::Wait(at("2026-06-01T12:00:20Z")));
        // Expired during a renewal: there is nothing to wait for.
        let expired = decide(|facts, _, leaf| {
            (leaf.is_accepted, leaf.is_of_current) = (false, false);
            facts.carried_for = None;
        });
        assert_eq!(expired, Step::NewLeaf);
    }

    #[test]
    fn certificate_of_classic_olm_is_kept_while_its_clients_may_need_it() {
        let held = |is_held: bool, due: &str| {
            decide(|facts, ca, leaf| {
                ca.has_predecessors = true;
                facts.carried_for = Some(Duration::from_secs(60));
                (leaf.is_of_current, leaf.is_held, leaf.due) = (false, is_held, at(due));
            })
        };
        assert_eq!(held(true, "2027-01-01T00:00:00Z"), Step::Wait(at("2027-01-01T00:00:00Z")));
        assert_eq!(held(true, NOW), Step::NewLeaf);
        assert_eq!(held(false, "2027-01-01T00:00:00Z"), Step::NewLeaf);
    }

    #[test]
    fn renewal_request_is_executed_once() {
        let asked = |asked: Option<String>, fulfilled_request: Option<String>| {
            decide(|facts, ca, _| {
                (facts.renewal_request, ca.fulfilled_request) = (asked.clone(), fulfilled_request.clone())
            })
        };
        let rest = Step::Wait(at("2026-07-01T00:00:00Z"));
        assert_eq!(asked(renewal_request("a"), None), Step::NewAuthority(Cause::Asked));
        assert_eq!(asked(renewal_request("b"), renewal_request("a")), Step::NewAuthority(Cause::Asked));
        assert_eq!(asked(renewal_request("a"), renewal_request("a")), rest);
        assert_eq!(asked(None, renewal_request("a")), rest, "the annotation was removed");
        // A renewal in progress delays the next one until its end.
        let busy = decide(|facts, ca, leaf| {
            (facts.renewal_request, ca.fulfilled_request) = (renewal_request("b"), renewal_request("a"));
            (ca.has_predecessors, leaf.is_of_current) = (true, false);
            facts.carried_for = Some(Duration::from_secs(29));
        });
        assert_eq!(busy, Step::Wait(at("2026-06-01T12:00:01Z")));
        let free = decide(|facts, ca, _| {
            (facts.renewal_request, ca.fulfilled_request, ca.has_predecessors) =
                (renewal_request("b"), renewal_request("a"), true);
        });
        assert_eq!(free, Step::NewAuthority(Cause::Asked));
    }

    #[test]
    fn certificate_of_other_provider_is_skipped() {
        let rest = Step::Wait(at("2032-01-01T00:00:00Z"));
        assert_eq!(decide(|facts, _, _| facts.issued_by_others = true), rest);
        for accepted in [true, false] {
            let step = decide(|facts, _, leaf| {
                facts.issued_by_others = true;
                (leaf.is_accepted, leaf.is_of_current, leaf.in_order_since) = (accepted, false, None);
                leaf.due = at("2020-01-01T00:00:00Z");
            });
            assert_eq!(step, rest);
        }
        let none = Facts { leaf: None, issued_by_others: true, ..settled() };
        assert_eq!(next(&none, &Times::DEFAULT, at(NOW)), rest);
    }

    #[test]
    fn clock_that_jumps_back_repairs_leaf_secret() {
        // The recorded time is now in the future. It is replaced by the current time.
        assert_eq!(
            decide(|_, _, leaf| leaf.in_order_since = Some(at("2030-01-01T00:00:00Z"))),
            Step::RepairLeaf
        );
    }
}
