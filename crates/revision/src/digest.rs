//! Digests of phases, and their comparison with the recorded ones (docs/design/apply.md#content-and-digests).
//!
//! Pure. A revision whose content differs from its recorded digests must not be applied.

use olm_api::cluster_object_set::ObservedPhase;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::{Numbers, canonical_json};

/// Input of the digest of a phase: `{"name":…,"objects":[…]}`.
pub fn phase_text<'a>(name: &str, objects: impl IntoIterator<Item = (&'a Value, Numbers)>) -> String {
    let texts = objects.into_iter().map(|(object, numbers)| canonical_json(object, numbers));
    let objects = texts.collect::<Vec<_>>().join(",");
    format!("{{\"name\":{},\"objects\":[{objects}]}}", canonical_json(&name.into(), Numbers::Exact))
}

/// Digest of [`phase_text`]: `sha256:` and 64 hex digits.
pub fn phase_digest<'a>(name: &str, objects: impl IntoIterator<Item = (&'a Value, Numbers)>) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(phase_text(name, objects))))
}

/// Message of the Blocked condition if `current` differs from `stored`, else `None`. Phases are matched by name.
pub fn changed_content(stored: &[ObservedPhase], current: &[ObservedPhase]) -> Option<String> {
    if stored.len() != current.len() {
        return Some(format!(
            "number of phases has changed (expected {} phases, got {})",
            stored.len(),
            current.len()
        ));
    }
    let changed: Vec<String> = current
        .iter()
        .filter_map(|now| {
            let then = stored.iter().find(|then| then.name == now.name && then.digest != now.digest)?;
            Some(format!("phase \"{}\" (expected digest {}, got {})", now.name, then.digest, now.digest))
        })
        .collect();
    (!changed.is_empty()).then(|| {
        format!(
            "resolved content of {} phase(s) has changed: {}; \
             a referenced object source may have been deleted and recreated with different content",
            changed.len(),
            changed.join("; ")
        )
    })
}
