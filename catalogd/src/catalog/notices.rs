//! Events about a catalog (docs/design/additions.md#events): new content, and failed attempts. Pure. An Event
//! follows from the transition between two statuses, so a restart repeats none.

use olm_api::ClusterCatalogStatus;
use olm_api::conditions::{self, reasons, types};

/// Event reason: the catalog serves other content than before.
pub const UPDATED: &str = "CatalogUpdated";
/// Event reason: new content could not be unpacked. Older content may still be served.
pub const UNAVAILABLE: &str = "CatalogUnavailable";

/// Event reason: the image template of the catalog resolves to another reference than before.
pub const TEMPLATE_RESOLVED: &str = "ImageTemplateResolved";

/// An Event with its note.
#[derive(Debug, PartialEq, Eq)]
pub enum Notice {
    /// Event with reason [`UPDATED`].
    Updated(String),
    /// Event with reason [`UNAVAILABLE`].
    Unavailable(String),
}

/// The Event for the transition from `old` to `next`, if any.
pub fn notice(old: Option<&ClusterCatalogStatus>, next: &ClusterCatalogStatus) -> Option<Notice> {
    if let Some(cause) = failure(next) {
        let is_reported = old.and_then(failure) == Some(cause);
        return (!is_reported).then(|| Notice::Unavailable(cause.to_owned()));
    }
    let image = served(next)?;
    let is_reported = old.and_then(served) == Some(image);
    (!is_reported).then(|| Notice::Updated(format!("content of {image} is served")))
}

/// `true` if the last attempt succeeded, so that a later failure is reported again.
pub fn is_over(next: &ClusterCatalogStatus) -> bool {
    failure(next).is_none()
}

/// Message of the last attempt, if it failed.
fn failure(status: &ClusterCatalogStatus) -> Option<&str> {
    let progressing = conditions::find(&status.conditions, types::PROGRESSING)?;
    let failed = [reasons::RETRYING, reasons::BLOCKED].contains(&progressing.reason.as_str());
    failed.then_some(progressing.message.as_str())
}

/// Digest reference of the image, if it is served.
fn served(status: &ClusterCatalogStatus) -> Option<&str> {
    let resolved = status.resolved_source.as_ref()?;
    conditions::is_true(&status.conditions, types::SERVING).then_some(resolved.image.ref_.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(reason: &str, message: &str, image: Option<&str>) -> ClusterCatalogStatus {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let serving = if image.is_some() { "True" } else { "False" };
        let mut status = json!({"conditions": [condition("Progressing", "True", reason, message),
            condition("Serving", serving, "R", "")]});
        if let Some(image) = image {
            status["resolvedSource"] = json!({"type": "Image", "image": {"ref": image}});
        }
        serde_json::from_value(status).unwrap()
    }

    // docs/design/additions.md#events
    #[test]
    fn event_is_published_only_on_status_transition() {
        let first = status("Succeeded", "", Some("r/c@sha256:1"));
        let second = status("Succeeded", "", Some("r/c@sha256:2"));
        let stuck = status("Retrying", "no route", Some("r/c@sha256:1"));
        let blocked = status("Blocked", "no route", None);
        let off = status("Succeeded", "", None);
        let updated = |digest: u8| Some(Notice::Updated(format!("content of r/c@sha256:{digest} is served")));
        let unavailable = || Some(Notice::Unavailable("no route".to_owned()));
        for (old, next, expect) in [
            (None, &first, updated(1)),
            (Some(&first), &first, None),
            (Some(&first), &second, updated(2)),
            (Some(&first), &stuck, unavailable()),
            (Some(&stuck), &stuck, None),
            (Some(&stuck), &blocked, None),
            (Some(&stuck), &first, None),
            (Some(&stuck), &second, updated(2)),
            (Some(&first), &off, None),
            (None, &blocked, unavailable()),
        ] {
            assert_eq!(notice(old, next), expect, "{old:?} {next:?}");
        }
        assert!(is_over(&first) && is_over(&off) && !is_over(&stuck) && !is_over(&blocked));
    }
}
