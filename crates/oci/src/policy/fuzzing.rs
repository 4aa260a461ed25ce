//! Doors for the fuzz targets; see [`crate::fuzzing`].

use super::attachments::Attachments;
use super::document::{Policy, Requirement};
use super::identity::Identity;
use super::key::Key;
use super::signature::Payload;
use crate::Reference;

/// Reads a policy; how many requirements `image` must meet, and whether signatures that name `signed` could meet one.
#[must_use]
pub fn policy(text: &[u8], image: &Reference, signed: &str) -> Option<(usize, bool)> {
    let policy = Policy::parse(text).ok()?;
    let requirements = policy.requirements(image);
    let met = requirements.iter().any(|requirement| match requirement {
        Requirement::Signed { identity, .. } => identity.accepts(image, signed),
        _ => false,
    });
    Some((requirements.len(), met))
}

/// Reads a file of `registries.d`; whether signatures of `image` are looked up.
#[must_use]
pub fn registries_d(text: &[u8], image: &Reference) -> Option<bool> {
    let mut attachments = Attachments::default();
    attachments.add("fuzz.yaml", text).ok()?;
    Some(attachments.enabled(image))
}

/// Reads a public key, a payload, and the name of the image that a signature is for; whether each could be read.
#[must_use]
pub fn signature(text: &[u8], image: &Reference) -> [bool; 3] {
    let named = std::str::from_utf8(text).is_ok_and(|text| Identity::MatchRepository {}.accepts(image, text));
    [Key::parse(text).is_ok(), Payload::parse(text).is_ok(), named]
}
