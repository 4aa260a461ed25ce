//! Image that a signature must be for: the `signedIdentity` of a requirement in `policy.json`.

use serde::Deserialize;

use crate::{Digest, Reference, Selector};

/// Required relation between the image named by a signature and the pulled image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum Identity {
    /// The same reference.
    MatchExact {},
    /// The same reference, or for an image pulled by digest any reference to the same repository.
    MatchRepoDigestOrExact {},
    /// The same repository.
    MatchRepository {},
    /// This reference.
    ExactReference { docker_reference: Exact },
    /// This repository.
    ExactRepository { docker_repository: Named },
    /// `matchRepoDigestOrExact`, after `prefix` of the pulled image's name is replaced with `signedPrefix`.
    #[serde(rename = "remapIdentity")]
    Remap { prefix: Prefix, signed_prefix: Prefix },
}

impl Default for Identity {
    fn default() -> Self {
        Self::MatchRepoDigestOrExact {}
    }
}

impl Identity {
    /// `true` if a signature that names `signed` applies to `image`.
    pub(super) fn accepts(&self, image: &Reference, signed: &str) -> bool {
        let Ok(signed) = Named::try_from(signed.to_owned()) else {
            return false;
        };
        let name = image.name();
        match self {
            Self::MatchExact {} => signed.is(&name, image.selector()),
            Self::MatchRepoDigestOrExact {} => signed.covers(&name, image.selector()),
            Self::MatchRepository {} => signed.name == name,
            Self::ExactReference { docker_reference } => signed == docker_reference.0,
            Self::ExactRepository { docker_repository } => signed.name == docker_repository.name,
            Self::Remap { prefix, signed_prefix } => {
                let rest =
                    name.strip_prefix(&prefix.0).filter(|rest| rest.is_empty() || rest.starts_with('/'));
                let mapped = rest.map(|rest| format!("{}{rest}", signed_prefix.0));
                signed.covers(mapped.as_ref().unwrap_or(&name), image.selector())
            }
        }
    }
}

/// Reference in a signature or policy: tag and digest are optional, and Docker's registry may be omitted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Named {
    /// Registry and repository in full form.
    name: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Named {
    fn is(&self, name: &str, selector: &Selector) -> bool {
        self.name == name
            && match selector {
                Selector::Tag(tag) => self.tag.as_ref() == Some(tag) && self.digest.is_none(),
                Selector::Digest(digest) => self.tag.is_none() && self.digest.as_ref() == Some(digest),
            }
    }

    fn covers(&self, name: &str, selector: &Selector) -> bool {
        match selector {
            Selector::Tag(_) => self.is(name, selector),
            // The digest itself is checked elsewhere.
            Selector::Digest(_) => !self.is_bare() && self.name == name,
        }
    }

    fn is_bare(&self) -> bool {
        self.tag.is_none() && self.digest.is_none()
    }
}

impl TryFrom<String> for Named {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let malformed =
            |error: &dyn ToString| format!("{text:?} is not an image reference: {}", error.to_string());
        let (tagged, digest) = match text.split_once('@') {
            None => (text.as_str(), None),
            Some((tagged, digest)) => (tagged, Some(digest.parse().map_err(|error| malformed(&error))?)),
        };
        let slash = tagged.rfind('/').unwrap_or_default();
        let (name, tag) = match tagged[slash..].split_once(':') {
            None => (tagged, None),
            Some((last, tag)) => (&tagged[..slash + last.len()], Some(tag)),
        };
        let name = full_name(name);
        let probe = format!("{name}:{}", tag.unwrap_or("latest"));
        probe.parse::<Reference>().map_err(|error| malformed(&error))?;
        Ok(Self { name, tag: tag.map(str::to_owned), digest })
    }
}

/// Name with the registry `docker.io` and the namespace `library` added if omitted.
fn full_name(name: &str) -> String {
    const DOCKER: &str = "docker.io";
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if first == "localhost" || first.contains(['.', ':']) => (first, path),
        _ => (DOCKER, name),
    };
    match registry {
        DOCKER | "index.docker.io" if path.contains('/') => format!("{DOCKER}/{path}"),
        DOCKER | "index.docker.io" => format!("{DOCKER}/library/{path}"),
        _ => name.to_owned(),
    }
}

/// [`Named`] with a tag or a digest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Named")]
pub(super) struct Exact(Named);

impl TryFrom<Named> for Exact {
    type Error = String;

    fn try_from(named: Named) -> Result<Self, Self::Error> {
        if named.is_bare() {
            return Err(format!("\"dockerReference\" of {} contains neither a tag nor a digest", named.name));
        }
        Ok(Self(named))
    }
}

/// Registry, or registry with the first segments of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Prefix(String);

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(prefix: String) -> Result<Self, Self::Error> {
        // Valid if it starts a valid name. The two additional segments satisfy Docker's registry.
        match format!("{prefix}/a/a:a").parse::<Reference>() {
            Ok(_) => Ok(Self(prefix)),
            Err(_) => {
                Err(format!("prefix {prefix:?} is neither a registry nor the start of a repository's name"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(json: &str) -> Identity {
        serde_json::from_str(json).unwrap()
    }

    /// Row: identity, reference of the image, reference in the signature, `true` if accepted.
    fn compare(rows: &[(&str, &str, &str, bool)]) {
        for &(identity_json, image, signed, expected) in rows {
            let accepted = identity(identity_json).accepts(&image.parse().unwrap(), signed);
            assert_eq!(accepted, expected, "{identity_json} {image} {signed}");
        }
    }

    /// Reference with a digest of this digit only.
    fn app_by_digest(tag: &str, digit: &str) -> String {
        format!("r.io/ns/app{tag}@sha256:{}", digit.repeat(64))
    }

    #[test]
    fn match_identities_accept_references_of_the_image() {
        let (by_digest, tag_and_digest) = (app_by_digest("", "0"), app_by_digest(":v1", "0"));
        let ones = app_by_digest("", "1");
        let exact = r#"{"type":"matchExact"}"#;
        let default = r#"{"type":"matchRepoDigestOrExact"}"#;
        let repository = r#"{"type":"matchRepository"}"#;
        compare(&[
            (exact, "r.io/ns/app:v1", "r.io/ns/app:v1", true),
            (exact, "r.io/ns/app:v1", "r.io/ns/app:v2", false),
            (exact, "r.io/ns/app:v1", "r.io/ns/app", false),
            (exact, "r.io/ns/app:v1", &tag_and_digest, false),
            (exact, &by_digest, &by_digest, true),
            (exact, &by_digest, "r.io/ns/app:v1", false),
            (exact, &by_digest, &ones, false),
            (default, "r.io/ns/app:v1", "r.io/ns/app:v1", true),
            (default, "r.io/ns/app:v1", "r.io/ns/app:v2", false),
            (default, "r.io/ns/app:v1", "r.io/ns/app", false),
            (default, "r.io/ns/app:v1", &by_digest, false),
            (default, &by_digest, "r.io/ns/app:any", true),
            (default, &by_digest, &ones, true),
            (default, &by_digest, "r.io/ns/app", false),
            (default, &by_digest, "r.io/ns/other:any", false),
            (repository, "r.io/ns/app:v1", "r.io/ns/app", true),
            (repository, "r.io/ns/app:v1", "r.io/ns/app:v2", true),
            (repository, "r.io/ns/app:v1", "r.io/ns/app2", false),
            (repository, "r.io/ns/app:v1", "r.io/ns/app:", false),
            (repository, "r.io/ns/app:v1", "", false),
            (repository, "docker.io/library/busybox:v1", "busybox", true),
            (repository, "docker.io/library/busybox:v1", "index.docker.io/library/busybox:v1", true),
            (repository, "docker.io/ns/app:v1", "ns/app", true),
        ]);
    }

    #[test]
    fn exact_and_remap_identities_accept_references_of_another_repository() {
        let by_digest = app_by_digest("", "0");
        let remap = |prefix: &str, signed: &str| {
            format!(r#"{{"type":"remapIdentity","prefix":"{prefix}","signedPrefix":"{signed}"}}"#)
        };
        let reference = r#"{"type":"exactReference","dockerReference":"vendor.io/app:v2"}"#;
        let exact_repository = r#"{"type":"exactRepository","dockerRepository":"vendor.io/app"}"#;
        let (namespace, whole, host) = (
            remap("r.io/ns", "vendor.io"),
            remap("r.io/ns/app", "vendor.io/x"),
            remap("r.io", "vendor.io:5000/m"),
        );
        let (part, docker) = (remap("r.io/n", "vendor.io"), remap("r.io/ns", "docker.io"));
        compare(&[
            (reference, "r.io/ns/app:v1", "vendor.io/app:v2", true),
            (reference, "r.io/ns/app:v1", "vendor.io/app:v1", false),
            (reference, "vendor.io/app:v2", "r.io/ns/app:v1", false),
            (exact_repository, "r.io/ns/app:v1", "vendor.io/app:any", true),
            (exact_repository, "r.io/ns/app:v1", "vendor.io/app", true),
            (exact_repository, "r.io/ns/app:v1", "r.io/ns/app:v1", false),
            (&namespace, "r.io/ns/app:v1", "vendor.io/app:v1", true),
            (&namespace, "r.io/ns/app:v1", "vendor.io/app:v2", false),
            (&namespace, "r.io/ns/app:v1", "r.io/ns/app:v1", false),
            (&namespace, &by_digest, "vendor.io/app:any", true),
            (&namespace, "other.io/app:v1", "other.io/app:v1", true),
            (&whole, "r.io/ns/app:v1", "vendor.io/x:v1", true),
            (&host, "r.io/ns/app:v1", "vendor.io:5000/m/ns/app:v1", true),
            (&host, "r.io:5000/ns/app:v1", "vendor.io:5000/m/ns/app:v1", false),
            (&part, "r.io/ns/app:v1", "r.io/ns/app:v1", true),
            // Names in Docker's registry must be in full form.
            (&docker, "r.io/ns/app:v1", "docker.io/app:v1", false),
        ]);
    }

    #[test]
    fn malformed_identity_is_an_error() {
        for json in [
            r#"{}"#,
            r#"{"type":"matchAnything"}"#,
            r#"{"type":"matchExact","prefix":"r.io"}"#,
            r#"{"type":"exactReference"}"#,
            r#"{"type":"exactReference","dockerReference":"r.io/app"}"#,
            r#"{"type":"exactReference","dockerReference":"r.io/APP:v1"}"#,
            r#"{"type":"exactReference","dockerReference":"r.io/app:v1","dockerReference":"r.io/app:v1"}"#,
            r#"{"type":"exactRepository","dockerRepository":""}"#,
            r#"{"type":"exactRepository","dockerRepository":"r.io/app@sha256:0"}"#,
            r#"{"type":"remapIdentity","prefix":"r.io"}"#,
            r#"{"type":"remapIdentity","prefix":"","signedPrefix":"r.io"}"#,
            r#"{"type":"remapIdentity","prefix":"r.io/a:v1","signedPrefix":"r.io"}"#,
            r#"{"type":"remapIdentity","prefix":"r.io/","signedPrefix":"r.io"}"#,
        ] {
            assert!(serde_json::from_str::<Identity>(json).is_err(), "{json}");
        }
    }
}
