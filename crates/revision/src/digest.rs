//! Digests of phases, and their comparison with the recorded ones (docs/design/apply.md#content-and-digests).
//!
//! Pure. A revision whose content differs from its recorded digests must not be applied.

use olm_api::cluster_object_set::ObservedPhase;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::{Numbers, canonical_json, write_text};

/// Input of the digest of a phase: `{"name":…,"objects":[…]}`.
pub fn phase_text<'a>(name: &str, objects: impl IntoIterator<Item = (&'a Value, Numbers)>) -> String {
    let mut text = String::from("{\"name\":");
    write_text(&mut text, name);
    text.push_str(",\"objects\":[");
    for (index, (object, numbers)) in objects.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&canonical_json(object, numbers));
    }
    text.push_str("]}");
    text
}

/// Digest of [`phase_text`]: `sha256:` and 64 hex digits.
pub fn phase_digest<'a>(name: &str, objects: impl IntoIterator<Item = (&'a Value, Numbers)>) -> String {
    sha256(&phase_text(name, objects))
}

pub(crate) fn sha256(text: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
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
