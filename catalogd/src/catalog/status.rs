//! The status for an outcome (docs/design/api.md#clustercatalog-conditions,
//! docs/design/catalogd.md#catalog-conditions). Pure.

use jiff::Timestamp;
use olm_api::cluster_catalog::{CatalogSourceType, CatalogUrls, ResolvedCatalogSource, ResolvedImageSource};
use olm_api::conditions::{self, Status, reasons, types};
use olm_api::{ClusterCatalog, ClusterCatalogStatus, Time};
use olm_runtime::message::sanitize;

use super::reference::Resolution;

const UNPACKED: &str = "Successfully unpacked and stored content from resolved source";
const SERVING: &str = "Serving desired content from resolved source";
const SWITCHED_OFF: &str = "Catalog availability mode is set to Unavailable";

/// Outcome of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The desired content is served.
    Served {
        /// Digest reference of the image.
        canonical: &'a str,
        /// Base URL of the catalog's endpoints.
        base_url: &'a str,
        /// First time that this process served this content.
        unpacked_at: Timestamp,
    },
    /// The attempt failed. Content served before stays available.
    Failed {
        /// Condition message.
        message: &'a str,
        /// `true` if only a change of the spec can help.
        terminal: bool,
    },
    /// The signature policy rejects the image, and no other content is held.
    Rejected(&'a str),
    /// The content was removed because the availability mode is `Unavailable`.
    Withdrawn,
    /// The content was removed because the catalog is being deleted.
    Removed,
}

/// Verdict of the signature policy about the image of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// The policy demands no signature, or no content is required.
    NotDemanded,
    /// No new verdict.
    Unchanged,
    /// The served image, by digest, is signed.
    Accepted(String),
    /// The policy rejects the image. Condition message.
    Rejected(String),
    /// Policy or signatures cannot be read. Condition message.
    Unknown(String),
}

/// Sets the condition `SignatureVerified`, or removes it (docs/design/additions.md#signature-policy).
pub fn set_signature(
    status: &mut ClusterCatalogStatus,
    signature: &Signature,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (value, reason, message) = match signature {
        Signature::Unchanged => return,
        Signature::NotDemanded => {
            return conditions::remove(&mut status.conditions, types::SIGNATURE_VERIFIED);
        }
        Signature::Accepted(image) => {
            let message = format!("image {image} is signed as the signature policy requires");
            (Status::True, reasons::VERIFIED, message)
        }
        Signature::Rejected(message) => (Status::False, reasons::REJECTED, sanitize(message)),
        Signature::Unknown(message) => (Status::Unknown, reasons::VERIFICATION_FAILED, sanitize(message)),
    };
    let type_ = types::SIGNATURE_VERIFIED;
    conditions::set(&mut status.conditions, type_, value, reason, &message, generation, now);
}

/// The status after `outcome`, equal to the old one if nothing changed. Conditions of other writers are preserved
/// (docs/design/api.md#conditions; case api-39). A `template` without reference blocks progress, although content is
/// served.
pub fn next(
    catalog: &ClusterCatalog,
    outcome: &Outcome<'_>,
    template: Option<&Resolution>,
    now: Timestamp,
) -> ClusterCatalogStatus {
    let mut status = catalog.status.clone().unwrap_or_default();
    let generation = catalog.metadata.generation;
    let set = |status: &mut ClusterCatalogStatus, type_, value, reason, message| {
        conditions::set(&mut status.conditions, type_, value, reason, message, generation, now);
    };
    match outcome {
        Outcome::Served { canonical, base_url, unpacked_at } => {
            let (value, reason, message) = match template {
                Some(Err(error)) if error.is_syntax() => (Status::False, reasons::BLOCKED, error.to_string()),
                Some(Err(error)) => (Status::True, reasons::RETRYING, error.to_string()),
                _ => (Status::True, reasons::SUCCEEDED, UNPACKED.to_owned()),
            };
            set(&mut status, types::PROGRESSING, value, reason, &message);
            set(&mut status, types::SERVING, Status::True, reasons::AVAILABLE, SERVING);
            status.resolved_source = Some(ResolvedCatalogSource {
                type_: CatalogSourceType::Image,
                image: ResolvedImageSource { ref_: (*canonical).to_owned() },
            });
            status.urls = Some(CatalogUrls { base: (*base_url).to_owned() });
            status.last_unpacked = Some(Time(*unpacked_at));
        }
        Outcome::Failed { message, terminal } => {
            let (value, reason) =
                if *terminal { (Status::False, reasons::BLOCKED) } else { (Status::True, reasons::RETRYING) };
            set(&mut status, types::PROGRESSING, value, reason, &sanitize(message));
        }
        Outcome::Rejected(message) => {
            clear(&mut status);
            let message = sanitize(message);
            set(&mut status, types::PROGRESSING, Status::True, reasons::RETRYING, &message);
            // A catalog that was never served has no Serving condition.
            if conditions::find(&status.conditions, types::SERVING).is_some() {
                set(&mut status, types::SERVING, Status::False, reasons::UNAVAILABLE, &message);
            }
        }
        Outcome::Withdrawn => {
            clear(&mut status);
            set(&mut status, types::PROGRESSING, Status::True, reasons::SUCCEEDED, SWITCHED_OFF);
            let reason = reasons::USER_SPECIFIED_UNAVAILABLE;
            set(&mut status, types::SERVING, Status::False, reason, SWITCHED_OFF);
        }
        Outcome::Removed => {
            clear(&mut status);
            set(&mut status, types::SERVING, Status::False, reasons::UNAVAILABLE, "");
        }
    }
    status
}

fn clear(status: &mut ClusterCatalogStatus) {
    status.resolved_source = None;
    status.urls = None;
    status.last_unpacked = None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn catalog(status: Value) -> ClusterCatalog {
        serde_json::from_value(json!({
            "metadata": {"name": "cat", "generation": 2},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example/a/b:v1"}}},
            "status": status,
        }))
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn condition(
        type_: &str,
        status: &str,
        reason: &str,
        message: &str,
        generation: i64,
        time: &str,
    ) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
               "observedGeneration": generation, "lastTransitionTime": time})
    }

    fn served(generation: i64) -> Value {
        let time = "2026-01-01T00:00:00Z";
        json!({
            "conditions": [
                condition("Progressing", "True", "Succeeded",
                    "Successfully unpacked and stored content from resolved source", generation, time),
                condition("Serving", "True", "Available",
                    "Serving desired content from resolved source", generation, time)],
            "resolvedSource": {"type": "Image", "image": {"ref": "r.example/a/b@sha256:1"}},
            "urls": {"base": "https://h/catalogs/cat"},
            "lastUnpacked": "2026-01-01T00:00:00Z",
        })
    }

    const SERVED: Outcome<'_> = Outcome::Served {
        canonical: "r.example/a/b@sha256:1",
        base_url: "https://h/catalogs/cat",
        unpacked_at: Timestamp::UNIX_EPOCH,
    };

    fn outcome_served() -> Outcome<'static> {
        match SERVED {
            Outcome::Served { canonical, base_url, .. } => {
                Outcome::Served { canonical, base_url, unpacked_at: at("2026-01-01T00:00:00Z") }
            }
            other => other,
        }
    }

    #[test]
    fn signature_verdict_determines_its_condition() {
        let later = "2026-02-02T00:00:00Z";
        let of = |value, reason, message| condition("SignatureVerified", value, reason, message, 2, later);
        let good = of("True", "Verified", "image r/a@sha256:1 is signed as the signature policy requires");
        let retry = "lookup x: read udp 10.0.0.1:4242->10.0.0.2:53: i/o timeout";
        for (signature, expected) in [
            (Signature::NotDemanded, None),
            (Signature::Unchanged, Some(of("False", "Before", ""))),
            (Signature::Accepted("r/a@sha256:1".to_owned()), Some(good)),
            (Signature::Rejected("no".to_owned()), Some(of("False", "Rejected", "no"))),
            (
                Signature::Unknown(retry.to_owned()),
                Some(of("Unknown", "VerificationFailed", "lookup x: i/o timeout")),
            ),
        ] {
            let mut status = served(2);
            status["conditions"].as_array_mut().unwrap().push(of("False", "Before", ""));
            let mut status = catalog(status).status.unwrap();
            set_signature(&mut status, &signature, Some(2), at(later));
            let found = conditions::find(&status.conditions, "SignatureVerified");
            let mut found = found.map(|one| serde_json::to_value(one).unwrap());
            // The time is that of the transition.
            if let (Some(found), Some(expected)) = (&mut found, &expected) {
                found["lastTransitionTime"] = expected["lastTransitionTime"].clone();
            }
            assert_eq!(found, expected, "{signature:?}");
            assert_eq!(status.conditions.len(), 2 + usize::from(expected.is_some()));
        }
    }

    // Cases catalogd-35, catalogd-37, catalogd-40, catalogd-45, api-31, api-35, api-36, api-37, api-38, api-39, api-40
    #[test]
    fn outcome_determines_conditions_and_status_fields() {
        let later = "2026-02-02T00:00:00Z";
        let mut failing = served(1);
        failing["conditions"][0] =
            condition("Progressing", "True", "Retrying", "lookup x: i/o timeout", 2, "2026-01-01T00:00:00Z");
        let mut blocked = served(1);
        blocked["conditions"][0] =
            condition("Progressing", "False", "Blocked", "terminal error: x", 2, later);
        let off = "Catalog availability mode is set to Unavailable";
        let withdrawn = json!({"conditions": [
            condition("Progressing", "True", "Succeeded", off, 2, "2026-01-01T00:00:00Z"),
            condition("Serving", "False", "UserSpecifiedUnavailable", off, 2, later)]});
        let removed = json!({"conditions": [
            served(1)["conditions"][0],
            condition("Serving", "False", "Unavailable", "", 2, later)]});
        let mut strange = served(2);
        strange["conditions"].as_array_mut().unwrap().push(condition("Healthy", "True", "A", "", 1, later));
        let retry = "lookup x: read udp 10.0.0.1:4242->10.0.0.2:53: i/o timeout";
        let mut strange_withdrawn = withdrawn.clone();
        strange_withdrawn["conditions"].as_array_mut().unwrap().push(strange["conditions"][2].clone());
        let rows = [
            ("first success", Value::Null, outcome_served(), {
                let mut status = served(2);
                status["conditions"][0]["lastTransitionTime"] = later.into();
                status["conditions"][1]["lastTransitionTime"] = later.into();
                status
            }),
            ("again", served(2), outcome_served(), served(2)),
            ("foreign condition", strange.clone(), outcome_served(), strange.clone()),
            ("foreign condition, switched off", strange, Outcome::Withdrawn, strange_withdrawn),
            ("new generation", served(1), outcome_served(), served(2)),
            ("update fails", served(1), Outcome::Failed { message: retry, terminal: false }, failing),
            (
                "update blocked",
                served(1),
                Outcome::Failed { message: "terminal error: x", terminal: true },
                blocked,
            ),
            ("switched off", served(1), Outcome::Withdrawn, withdrawn.clone()),
            ("still off", withdrawn.clone(), Outcome::Withdrawn, withdrawn),
            ("deleted", served(1), Outcome::Removed, removed),
        ];
        compare(rows.into());
    }

    #[test]
    fn rejection_and_first_failure_determine_conditions() {
        let later = "2026-02-02T00:00:00Z";
        compare(vec![
            (
                "rejected",
                served(1),
                Outcome::Rejected("no"),
                json!({"conditions": [
                    condition("Progressing", "True", "Retrying", "no", 2, "2026-01-01T00:00:00Z"),
                    condition("Serving", "False", "Unavailable", "no", 2, later)]}),
            ),
            (
                "first rejected",
                Value::Null,
                Outcome::Rejected("no"),
                json!({"conditions": [condition("Progressing", "True", "Retrying", "no", 2, later)]}),
            ),
            (
                "first failure",
                Value::Null,
                Outcome::Failed { message: "x", terminal: false },
                json!({"conditions": [condition("Progressing", "True", "Retrying", "x", 2, later)]}),
            ),
        ]);
    }

    /// Compares the next status at the later time.
    fn compare(rows: Vec<(&str, Value, Outcome<'_>, Value)>) {
        for (title, before, outcome, expect) in rows {
            let status = next(&catalog(before), &outcome, None, at("2026-02-02T00:00:00Z"));
            assert_eq!(serde_json::to_value(status).unwrap(), expect, "{title}");
        }
    }
}
