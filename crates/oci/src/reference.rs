//! Image references: `registry[:port]/path:tag` or `registry[:port]/path@algorithm:hex`.
//!
//! Only names in full form are accepted ("canonical" in the messages). A missing registry is never guessed. Rules
//! and messages: docs/design/images.md#references.

use std::fmt;
use std::str::FromStr;

use olm_version::names::{self, DigestError};

/// Longest repository path, in bytes.
const MAX_PATH: usize = 255;

/// Parse error of an image reference. Always terminal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The text does not follow the grammar, or is a short name.
    #[error("error parsing image reference \"{text}\": {why}")]
    Syntax {
        /// The text as given.
        text: String,
        /// The violated rule.
        why: String,
    },
    /// Neither tag nor digest.
    #[error(
        "error creating reference: Docker reference {0} is not for an unknown digest case; tag or digest is needed"
    )]
    Bare(String),
    /// Both tag and digest.
    #[error(
        "error creating reference: Docker references with both a tag and digest are currently not supported"
    )]
    TagAndDigest,
}

/// Digest of a supported algorithm: `sha256:…`, `sha384:…` or `sha512:…` with lower-case hex of full length.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    /// Digest with these 64 lower-case hex digits.
    pub(crate) fn of_sha256(hex: &str) -> Self {
        Self(format!("sha256:{hex}"))
    }

    /// The digest as `algorithm:hex`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Algorithm: `sha256`, `sha384` or `sha512`.
    pub fn algorithm(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        names::check_digest(text)?;
        Ok(Self(text.to_owned()))
    }
}

/// Tag or digest of a reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// A name that can move.
    Tag(String),
    /// The content itself.
    Digest(Digest),
}

impl Selector {
    /// Tag or digest without its separator.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tag(tag) => tag,
            Self::Digest(digest) => digest.as_str(),
        }
    }
}

/// Parsed image reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    host: String,
    path: String,
    selector: Selector,
}

impl Reference {
    /// Registry as written, `host[:port]`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Repository within the registry.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// `host/path`, the reference without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.path)
    }

    /// Tag or digest.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, selector) = match &self.selector {
            Selector::Tag(tag) => (':', tag.as_str()),
            Selector::Digest(digest) => ('@', digest.as_str()),
        };
        write!(f, "{}/{}{mark}{selector}", self.host, self.path)
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, path, tag, digest) =
            split(text).map_err(|why| ReferenceError::Syntax { text: text.to_owned(), why })?;
        let selector = match (tag, digest) {
            (Some(_), Some(_)) => return Err(ReferenceError::TagAndDigest),
            (None, None) => return Err(ReferenceError::Bare(text.to_owned())),
            (Some(tag), None) => Selector::Tag(tag.to_owned()),
            (None, Some(digest)) => Selector::Digest(digest),
        };
        Ok(Self { host: host.to_owned(), path: path.to_owned(), selector })
    }
}

/// Resolved reference: the digest of the content, and the reference that was requested.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CanonicalRef {
    pub(crate) reference: Reference,
    pub(crate) digest: Digest,
}

impl CanonicalRef {
    /// Canonical form of a `reference` by digest. `None` for a tag, which must be resolved at its registry.
    pub fn from_digest(reference: &Reference) -> Option<Self> {
        match &reference.selector {
            Selector::Tag(_) => None,
            Selector::Digest(digest) => Some(Self { reference: reference.clone(), digest: digest.clone() }),
        }
    }

    /// Digest of the top-level manifest or index.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Reference that was resolved.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// `true` if the user specified the digest. Errors of the content are then permanent.
    pub fn is_pinned(&self) -> bool {
        matches!(self.reference.selector, Selector::Digest(_))
    }
}

/// Formats as `host/path@digest`.
impl fmt::Display for CanonicalRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.reference.host, self.reference.path, self.digest)
    }
}

/// Host, path, tag and digest.
type Parts<'a> = (&'a str, &'a str, Option<&'a str>, Option<Digest>);

fn split(text: &str) -> Result<Parts<'_>, String> {
    const FORMAT: &str = "invalid reference format";
    const CANONICAL: &str = "repository name must be canonical";
    if text.len() == 64 && names::is_lower_hex(text) {
        return Err("invalid repository name, cannot specify 64-byte hexadecimal strings".to_owned());
    }
    let first = text.split_once('/').filter(|(host, _)| is_registry_like(host));
    let remainder = first.map_or(text, |(_, remainder)| remainder);
    let path_end = remainder.find([':', '@']).unwrap_or(remainder.len());
    let path = &remainder[..path_end];
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("invalid reference format: repository name must be lowercase".to_owned());
    }
    let (name_and_tag, digest) = match remainder.split_once('@') {
        None => (remainder, None),
        Some((before, digest)) => (before, Some(digest)),
    };
    let tag = name_and_tag.get(path_end + 1..);
    let well_formed = first.is_none_or(|(host, _)| names::is_registry(host))
        && path.split('/').all(names::is_repository_segment)
        && tag.is_none_or(names::is_tag)
        && digest.is_none_or(names::is_digest);
    if !well_formed {
        return Err(FORMAT.to_owned());
    }
    if path.len() > MAX_PATH {
        return Err("repository name must not be more than 255 characters".to_owned());
    }
    let digest = digest.map(Digest::from_str).transpose().map_err(|error| error.to_string())?;
    match first {
        // Short names and aliases of Docker's registry are not canonical.
        None | Some(("index.docker.io", _)) => Err(CANONICAL.to_owned()),
        Some(("docker.io", _)) if !path.contains('/') => Err(CANONICAL.to_owned()),
        Some((host, _)) => Ok((host, path, tag, digest)),
    }
}

/// `true` if the first segment of a name is a registry, not part of the path.
fn is_registry_like(segment: &str) -> bool {
    segment == "localhost"
        || segment.bytes().any(|byte| matches!(byte, b'.' | b':') || byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHA256: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn error(text: &str) -> String {
        text.parse::<Reference>().unwrap_err().to_string()
    }

    #[test]
    fn canonical_references_are_parsed() {
        let digest = format!("r.example.com/a/b@{SHA256}");
        let long_tag = format!("r.io/a:{}", "t".repeat(128));
        for (text, host, path) in [
            ("docker.io/library/busybox:v1", "docker.io", "library/busybox"),
            ("docker.io/a/b/c:v1", "docker.io", "a/b/c"),
            ("localhost/a:v1", "localhost", "a"),
            ("reg:443/a/b:v1", "reg:443", "a/b"),
            ("127.0.0.1:5000/a__b/c-d--e.f:_1.2-x", "127.0.0.1:5000", "a__b/c-d--e.f"),
            ("Reg/a:v1", "Reg", "a"),
            (&digest, "r.example.com", "a/b"),
            (&long_tag, "r.io", "a"),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!((reference.host(), reference.path()), (host, path));
            assert_eq!(reference.to_string(), text);
        }
    }

    // Case catalogd-25
    #[test]
    fn invalid_reference_is_a_syntax_error() {
        const CANONICAL: &str = "repository name must be canonical";
        const FORMAT: &str = "invalid reference format";
        const LOWER: &str = "invalid reference format: repository name must be lowercase";
        let x = "x".repeat(300);
        for (text, why) in [
            ("busybox:latest", CANONICAL),
            ("docker.io/busybox:1", CANONICAL),
            ("foo/bar:v1", CANONICAL),
            ("index.docker.io/a/b:v1", CANONICAL),
            ("r.io/A/b:v1", LOWER),
            ("Foo:v1", LOWER),
            ("", FORMAT),
            ("https://r.io/a:v1", FORMAT),
            ("r.io/a:", FORMAT),
            ("r.io/a:.x", FORMAT),
            ("r.io/a b:v1", FORMAT),
            ("r.io//a:v1", FORMAT),
            ("r.io/a/:v1", FORMAT),
            ("r.io/a___b:v1", FORMAT),
            ("r.io/a..b:v1", FORMAT),
            ("r.io:/a:v1", FORMAT),
            ("r.io:x/a:v1", FORMAT),
            ("-r.io/a:v1", FORMAT),
            ("r..io/a:v1", FORMAT),
            ("r.io/a:v1:v2", FORMAT),
            ("r.io/a@sha256:abc", FORMAT),
            ("r.io/a@", FORMAT),
            ("r.io/ä:v1", FORMAT),
            (&format!("r.io/a:{}", "t".repeat(129)), FORMAT),
            (&format!("r.io/{x}:v1"), "repository name must not be more than 255 characters"),
            (&"a".repeat(64), "invalid repository name, cannot specify 64-byte hexadecimal strings"),
            (&format!("r.io/a@md5:{}", "0".repeat(32)), "unsupported digest algorithm"),
            (&format!("r.io/a@SHA256:{}", "0".repeat(64)), "invalid checksum digest format"),
            (&format!("r.io/a@sha256:{}", "0".repeat(63)), "invalid checksum digest length"),
            (&format!("r.io/a@sha256:{}", "A".repeat(64)), "invalid checksum digest format"),
            (&format!("r.io/a@sha512:{}", "0".repeat(64)), "invalid checksum digest length"),
        ] {
            assert_eq!(error(text), format!("error parsing image reference \"{text}\": {why}"));
        }
    }

    // Case catalogd-26
    #[test]
    fn reference_needs_exactly_one_of_tag_and_digest() {
        assert_eq!(
            error("r.example.com/a/b"),
            "error creating reference: Docker reference r.example.com/a/b is not for an unknown digest case; \
             tag or digest is needed"
        );
        assert_eq!(
            error(&format!("r.example.com/a/b:v1@{SHA256}")),
            "error creating reference: Docker references with both a tag and digest are currently not supported"
        );
    }

    #[test]
    fn only_reference_by_digest_is_canonical_unresolved() {
        let pinned: Reference = format!("r.io/a@{SHA256}").parse().unwrap();
        let canonical = CanonicalRef::from_digest(&pinned).unwrap();
        assert_eq!(canonical.to_string(), pinned.to_string());
        assert!(canonical.is_pinned());
        assert_eq!(CanonicalRef::from_digest(&"r.io/a:v1".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic(text in "[a-zA-Z0-9:/@._ -]{0,60}|.{0,20}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(reference.to_string(), text);
            }
        }

        #[test]
        fn well_formed_reference_round_trips(
            text in "([a-z0-9]{1,8}\\.)?(localhost|[a-z0-9]{1,5}\\.[a-z]{2,3})(:[0-9]{1,4})?(/[a-z0-9]{1,5}([._-][a-z0-9]{1,3})?){2,4}:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,20}"
        ) {
            prop_assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
    }
}
