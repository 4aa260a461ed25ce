//! Signature policy: whether an image may be used at all (docs/design/images.md#layers, weakness W15).
//!
//! `policy.json` says which requirements an image must meet, `registries.d` where signatures are looked up. Images are
//! accepted, rejected, or accepted if a known key signed them (a sigstore signature attached to the image). Everything else
//! that the format knows (GPG signatures, certificates, transparency logs) is recognised and refused: what cannot be checked
//! is not accepted. The same holds for a file that is malformed or cannot be read.
//!
//! ```text
//! policy.json ─ document ► requirements of an image (scope)
//!                             │ registries.d ─ attachments ► look for signatures?
//!                             ▼
//!                          signature ► key, identity ► accepted or a reason
//! ```
//!
//! Nothing is cached: the files are small and read again for every image, so that a change counts at once. Content that is
//! kept has a [`Verification`] with it, which tells whether the present policy has accepted it under its present name.

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
use crate::{CanonicalRef, Digest, Places, PullError, Reference};
use document::{KeySource, Requirement};
use files::Files;
use identity::Identity;
use key::Key;
use signature::Wanted;

/// Where the policy of this process comes from.
#[derive(Debug, Clone)]
pub struct PolicySource {
    /// Read in place of those in `folders`.
    file: Option<PathBuf>,
    /// Each may hold `policy.json` and `registries.d`; the first counts most.
    folders: Vec<PathBuf>,
    /// Whether nothing may be pulled without a policy.
    required: bool,
    /// Whether it has been logged that there is none; shared by all clones.
    warned: Arc<AtomicBool>,
}

/// Record of a signature policy that accepted an image; kept with the image's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Fingerprint of the policy, see [`PolicySource::fingerprint`].
    policy: String,
    /// Docker reference under which the image was verified.
    reference: String,
    digest: String,
    /// Whether the policy demands signatures.
    signed: bool,
}

impl Verification {
    /// The verified image.
    #[must_use]
    pub fn image(&self) -> Option<CanonicalRef> {
        Some(CanonicalRef { reference: self.reference.parse().ok()?, digest: self.digest.parse().ok()? })
    }

    /// Whether both are of one policy.
    #[must_use]
    pub fn is_of_same_policy(&self, other: &Self) -> bool {
        self.policy == other.policy
    }

    /// Whether the policy demands signatures of the image.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.signed
    }
}

/// The policy and the signatures were read, and refuse the image.
fn refused(reason: impl Display) -> PullError {
    unread(reason).rejected()
}

/// The policy or signatures cannot be read: no verdict.
fn unread(reason: impl Display) -> PullError {
    PullError::copying(format!("Source image rejected: {reason}"))
}

impl PolicySource {
    /// The policy in `file`, or where that is `None` in the first of `folders` that has a `policy.json`. Where there is no
    /// such file, everything is accepted, and a warning logged once; or nothing if a policy is `required`.
    #[must_use]
    pub fn new(file: Option<PathBuf>, folders: Vec<PathBuf>, required: bool) -> Self {
        Self { file, folders, required, warned: Arc::default() }
    }

    /// As the environment says: the file of `CONTAINERS_POLICY_JSON`, and [`Places::containers`].
    #[must_use]
    pub fn from_env(required: bool) -> Self {
        Self::of(std::env::var_os("CONTAINERS_POLICY_JSON"), Places::from_env(), required)
    }

    fn of(file: Option<OsString>, places: Places, required: bool) -> Self {
        let file = file.filter(|file| !file.is_empty()).map(PathBuf::from);
        Self::new(file, places.containers, required)
    }

    /// Changes whenever a file changes that bears on the verdict about any image: the policy, the keys that it names, and
    /// `registries.d`. Costs reading these files. Who keeps what was pulled can compare it to know when to check again.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        Files::read(self).fingerprint()
    }

    /// Whether there is a policy, be it right or not; without one every image is accepted, unless one is required.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.candidates().any(|path| files::exists(&path))
    }

    /// Whether `image` may be used. `own` is the digest of its manifest, which is another than the image is named by where that
    /// is an index; either may be signed. `source` is what the image is called where `session` leads to: for a mirror, another
    /// name. Both manifests have been verified. The verification is of the very policy that accepted the image, also where it
    /// changes meanwhile.
    ///
    /// # Errors
    /// It may not, or that could not be found out; worth a retry, as policies and signatures come and go.
    pub(crate) async fn check(
        &self,
        session: &Session,
        source: &Reference,
        image: &CanonicalRef,
        own: Digest,
    ) -> Result<Verification, PullError> {
        let mut digests = vec![own, image.digest().clone()];
        digests.dedup();
        let files = Files::read(self);
        self.judge(&files, session, source, image.reference(), &digests).await?;
        self.verification_by(&files, image)
    }

    /// The verification of `image`, valid where the signatures are good that it may say are demanded.
    ///
    /// # Errors
    /// The policy accepts no signature of the image, or cannot be read.
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

    /// The keys and identities of all signatures that `image` needs.
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

    async fn judge(
        &self,
        files: &Files,
        session: &Session,
        source: &Reference,
        image: &Reference,
        digests: &[Digest],
    ) -> Result<(), PullError> {
        let mut attached = None;
        for (keys, identity) in self.signed(files, image)? {
            let keys =
                keys.iter().map(|key| load(files, key)).collect::<Result<Vec<_>, _>>().map_err(unread)?;
            if !files.attachments().map_err(unread)?.enabled(source) {
                return Err(unread(format!(
                    "A signature was required, but no signature exists: \
                     registries.d does not set use-sigstore-attachments for {}",
                    source.name()
                )));
            }
            let attached = match &attached {
                Some(attached) => attached,
                None => attached.insert(signature::fetch(session, digests).await.map_err(unread)?),
            };
            let accepted = Wanted { keys: &keys, identity, image, digests }.among(attached);
            // A mirror may lack what the registry itself has.
            let is_unknown = attached.is_empty() && source.name() != image.name();
            accepted.map_err(|reason| if is_unknown { unread(reason) } else { refused(reason) })?;
        }
        Ok(())
    }

    fn without_policy(&self) -> Result<(), String> {
        if self.required {
            let looked: Vec<_> = self.candidates().map(|path| path.display().to_string()).collect();
            return Err(format!("a signature policy is required and there is none in {}", looked.join(", ")));
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("no signature policy found, using insecure policy: every image is accepted");
        }
        Ok(())
    }

    /// The files that may be the policy; the first that exists is.
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
