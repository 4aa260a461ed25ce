//! Signature policy: decides whether an image may be used (docs/design/images.md#layers, weakness W15).
//!
//! `policy.json` lists the requirements of an image, `registries.d` the registries with attached signatures. Images
//! are accepted, rejected, or accepted if a known key signed them (a sigstore signature attached to the image). All
//! other features of the format (GPG signatures, certificates, transparency logs) are recognized and rejected: an
//! image that cannot be checked is not accepted. The same holds for a malformed or unreadable file.
//!
//! ```text
//! policy.json ─ document ► requirements of an image (scope)
//!                             │ registries.d ─ attachments ► look for signatures?
//!                             ▼
//!                          signature ► key, identity ► accepted or a reason
//! ```
//!
//! Nothing is cached: the files are small and reread for every image, so that a change takes effect at once. Stored
//! content has a [`Verification`], which shows whether the current policy accepted it under its current name.

mod attachments;
mod document;
mod files;
pub(crate) mod fuzzing;
mod identity;
mod key;
mod scope;
mod signature;

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::session::Session;
use crate::{CanonicalRef, Digest, PullError, Reference, RegistryPaths};
use document::{KeySource, Policy, Requirement};
use files::Files;
use identity::Identity;
use key::Key;
use signature::SignatureRequirement;

/// Start of the log record about a missing policy.
pub const NO_POLICY: &str = "no signature policy found";

/// Location of the signature policy of this process.
#[derive(Debug, Clone)]
pub struct PolicySource {
    /// Replaces those in `folders`.
    file: Option<PathBuf>,
    /// Folders that may hold `policy.json` and `registries.d`, highest precedence first.
    folders: Vec<PathBuf>,
    /// `true` if nothing may be pulled without a policy.
    required: bool,
    /// `true` once the absence of a policy has been logged. Shared by all clones.
    warned: Arc<AtomicBool>,
}

/// Record of a signature policy that accepted an image, stored with the content of the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Fingerprint of the policy, see [`PolicySource::fingerprint`].
    policy: String,
    /// Docker reference under which the image was verified.
    reference: String,
    digest: String,
    /// `true` if the policy requires signatures.
    signed: bool,
}

impl Verification {
    /// Verified image.
    pub fn image(&self) -> Option<CanonicalRef> {
        Some(CanonicalRef { reference: self.reference.parse().ok()?, digest: self.digest.parse().ok()? })
    }

    /// `true` if both records are of the same policy.
    pub fn is_of_same_policy(&self, other: &Self) -> bool {
        self.policy == other.policy
    }

    /// `true` if the policy requires signatures of the image.
    pub fn is_signed(&self) -> bool {
        self.signed
    }
}

/// Rejection: policy and signatures were readable.
fn refused(reason: impl Display) -> PullError {
    PullError { rejected: true, ..unread(reason) }
}

/// No verdict: the policy or the signatures cannot be read.
fn unread(reason: impl Display) -> PullError {
    PullError { unverified: true, ..PullError::copying(format!("Source image rejected: {reason}")) }
}

impl PolicySource {
    /// Policy in `file`, or if that is `None` in the first of `folders` with a `policy.json`. If no such file
    /// exists, every image is accepted and a warning is logged once, unless a policy is `required`.
    pub fn new(file: Option<PathBuf>, folders: Vec<PathBuf>, required: bool) -> Self {
        Self { file, folders, required, warned: Arc::default() }
    }

    /// Policy source of the environment: the file in `CONTAINERS_POLICY_JSON`, and [`RegistryPaths::containers`].
    pub fn from_env(required: bool) -> Self {
        Self::of(std::env::var_os("CONTAINERS_POLICY_JSON"), RegistryPaths::from_env(), required)
    }

    fn of(file: Option<OsString>, paths: RegistryPaths, required: bool) -> Self {
        let file = file.filter(|file| !file.is_empty()).map(PathBuf::from);
        Self::new(file, paths.containers, required)
    }

    /// Digest that changes with every relevant file: the policy, the keys that it names, and `registries.d`. Reads
    /// these files. Caches of pulled content compare it to decide when to check again.
    pub fn fingerprint(&self) -> String {
        Files::read(self).fingerprint()
    }

    /// `true` if a policy exists, whether valid or not. Without one every image is accepted, unless a policy is
    /// required.
    pub fn exists(&self) -> bool {
        self.candidates().any(|path| files::exists(&path))
    }

    /// Checks that the files can be used: the policy, all its keys, and `registries.d`.
    ///
    /// # Errors
    /// The first fault, with the name of the file.
    pub fn validate(&self) -> Result<(), String> {
        let files = Files::read(self);
        files.attachments()?;
        let policy = files.policy()?;
        policy.into_iter().flat_map(Policy::keys).try_for_each(|key| load(&files, key).map(drop))
    }

    /// Checks whether the policy accepts `image`. `own` is the digest of its manifest, which differs from the
    /// digest of `image` if that is an index. Either may be signed. `source` is the name of the image at the
    /// registry of `session`, which differs for a mirror. Both manifests have been verified. The verification is of
    /// the policy that accepted the image, even if the files change meanwhile.
    ///
    /// # Errors
    /// A rejection, or a failure to decide. Both are worth a retry, since policies and signatures change.
    pub(crate) async fn check(
        &self,
        session: &Session,
        source: &Reference,
        image: &CanonicalRef,
        own: Digest,
    ) -> Result<Verification, PullError> {
        let mut digests = vec![own, image.digest().clone()];
        digests.dedup();
        let (files, image_name) = (Files::read(self), image.reference());
        let mut attached = None;
        for (keys, identity) in self.signed(&files, image_name)? {
            let keys =
                keys.iter().map(|key| load(&files, key)).collect::<Result<Vec<_>, _>>().map_err(unread)?;
            if !files.attachments().map_err(unread)?.enabled(source) {
                return Err(unread(format!(
                    "A signature was required, but no signature exists: \
                     registries.d does not set use-sigstore-attachments for {}",
                    source.name()
                )));
            }
            let attached = match &attached {
                Some(attached) => attached,
                None => attached.insert(signature::fetch(session, &digests).await.map_err(unread)?),
            };
            let requirement =
                SignatureRequirement { keys: &keys, identity, image: image_name, digests: &digests };
            // A mirror may lack signatures that the registry itself has.
            let is_unknown = attached.is_empty() && source.name() != image_name.name();
            let accepted = requirement.check(attached);
            accepted.map_err(|reason| if is_unknown { unread(reason) } else { refused(reason) })?;
        }
        self.verification_by(&files, image)
    }

    /// Verification of `image`. If it requires signatures, it is valid only after they have been checked.
    ///
    /// # Errors
    /// The policy rejects the image regardless of signatures, or cannot be read.
    pub(crate) fn verification(&self, image: &CanonicalRef) -> Result<Verification, PullError> {
        self.verification_by(&Files::read(self), image)
    }

    fn verification_by(&self, files: &Files, image: &CanonicalRef) -> Result<Verification, PullError> {
        Ok(Verification {
            policy: files.fingerprint(),
            reference: image.reference().to_string(),
            digest: image.digest().to_string(),
            signed: !self.signed(files, image.reference())?.is_empty(),
        })
    }

    /// Keys and identity of each signature that `image` needs.
    fn signed<'a>(
        &self,
        files: &'a Files,
        image: &Reference,
    ) -> Result<Vec<(&'a [KeySource], &'a Identity)>, PullError> {
        let Some(policy) = files.policy().map_err(unread)? else {
            self.without_policy().map_err(unread)?;
            return Ok(Vec::new());
        };
        self.warned.store(false, Ordering::Relaxed);
        let mut signed = Vec::new();
        for requirement in policy.requirements(image) {
            match requirement {
                Requirement::AcceptAnything => {}
                Requirement::Reject => {
                    let reason = format!("Running image docker://{image} is rejected by policy.");
                    return Err(refused(reason));
                }
                Requirement::Unsupported(kind) => {
                    return Err(refused(format!(
                        "policy requirement {kind} is not supported: use sigstoreSigned with a public key"
                    )));
                }
                Requirement::Signed { keys, identity } => signed.push((keys.as_slice(), identity)),
            }
        }
        Ok(signed)
    }

    fn without_policy(&self) -> Result<(), String> {
        if self.required {
            let looked: Vec<_> = self.candidates().map(|path| path.display().to_string()).collect();
            return Err(format!("a signature policy is required and there is none in {}", looked.join(", ")));
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("{NO_POLICY}, using insecure policy: every image is accepted");
        }
        Ok(())
    }

    /// Candidate paths of the policy. The first that exists is used.
    fn candidates(&self) -> impl Iterator<Item = PathBuf> {
        let in_folders = self.folders.iter().map(|folder| folder.join("policy.json"));
        self.file.clone().into_iter().chain(in_folders.filter(|_| self.file.is_none()))
    }
}

fn load(files: &Files, source: &KeySource) -> Result<Key, String> {
    match source {
        KeySource::Data(text) => {
            Key::parse(text).map_err(|error| format!("public key in the policy: {error}"))
        }
        KeySource::Path(path) => {
            let named = |error: &str| format!("public key {}: {error}", path.display());
            Key::parse(files.key(path).map_err(|error| named(&error))?).map_err(named)
        }
    }
}

#[cfg(test)]
mod tests;
