//! Entry points for the fuzz targets of policies and signatures.

use super::attachments::Attachments;
use super::document::{Policy, Requirement};
use super::identity::Identity;
use super::key::Key;
use super::signature::Payload;
use crate::Reference;

/// Parses a policy. Returns the number of requirements of `image`, and `true` if signatures that name `signed`
/// could meet one.
pub fn policy(text: &[u8], image: &Reference, signed: &str) -> Option<(usize, bool)> {
    let policy = Policy::parse(text).ok()?;
    let requirements = policy.requirements(image);
    let met = requirements.iter().any(|requirement| match requirement {
        Requirement::Signed { identity, .. } => identity.accepts(image, signed),
        _ => false,
    });
    Some((requirements.len(), met))
}

/// Parses a file of `registries.d`. Returns `true` if signatures of `image` are looked up.
pub fn registries_d(text: &[u8], image: &Reference) -> Option<bool> {
    let mut attachments = Attachments::default();
    attachments.add("fuzz.yaml", text).ok()?;
    Some(attachments.enabled(image))
}

/// Parses `text` as a public key, as a payload, and as the image name of a signature. Returns the success of each.
pub fn signature(text: &[u8], image: &Reference) -> [bool; 3] {
    let named = std::str::from_utf8(text).is_ok_and(|text| Identity::MatchRepository {}.accepts(image, text));
    [Key::parse(text).is_ok(), Payload::parse(text).is_ok(), named]
}
