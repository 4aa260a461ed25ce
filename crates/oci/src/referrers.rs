//! Attachments of an image: manifests with it as their subject, such as a bill of materials.

use bytes::Bytes;
use olm_version::excerpt;
use serde::Deserialize;

use crate::Digest;
use crate::request_error::RequestError;
use crate::session::Session;

/// Annotation with the name of a file.
const TITLE: &str = "org.opencontainers.image.title";

/// Attachments of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Referrers {
    /// `true` if the registry has the referrers API. Otherwise an index under a tag lists the attachments.
    pub has_api: bool,
    /// Attachments in the order of the registry.
    pub entries: Vec<Referrer>,
}

/// Attachment of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referrer {
    /// Digest of its manifest.
    pub digest: Digest,
    /// Type, such as `application/spdx+json`. Empty if unknown.
    pub artifact_type: String,
    /// Name of the file, if any.
    pub title: Option<String>,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    digest: String,
    #[serde(default)]
    artifact_type: Option<String>,
    #[serde(default)]
    annotations: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Reads the attachments of the manifest `digest`.
pub(crate) async fn referrers(session: &Session, digest: &Digest) -> Result<Referrers, RequestError> {
    let (has_api, pages) = referrer_pages(session, digest).await?;
    let mut entries = Vec::new();
    for page in pages {
        entries.extend(parse(&page).map_err(|why| RequestError::fatal(why).within("reading referrers"))?);
    }
    Ok(Referrers { has_api, entries })
}

/// Indexes of the attachments of the manifest `digest`: the pages of the referrers API, and `true`, or the index of the
/// tag that replaces them.
///
/// # Errors
/// The registry does not respond, denies access, or sends too much. Only an unknown path shows that it has no API.
pub(crate) async fn referrer_pages(
    session: &Session,
    digest: &Digest,
) -> Result<(bool, Vec<Bytes>), RequestError> {
    let pages = session.referrers(digest).await.map_err(|error| error.within("reading referrers"))?;
    if let Some(pages) = pages {
        return Ok((true, pages));
    }
    let tag = referrers_tag(digest);
    match session.manifest(&tag).await {
        Ok(index) => Ok((false, vec![index])),
        Err(error) if error.not_found => Ok((false, Vec::new())),
        Err(error) => Err(error.within(&format!("reading tag {tag}"))),
    }
}

/// Tag of the index of the referrers of `subject`, in registries without the referrers API.
pub fn referrers_tag(subject: &Digest) -> String {
    // At most 64 characters of the digest, so that the tag is valid.
    subject.as_str().replace(':', "-").chars().take(subject.algorithm().len() + 65).collect()
}

fn parse(index: &[u8]) -> Result<Vec<Referrer>, String> {
    let index: Index = serde_json::from_slice(index).map_err(|_| "expected an OCI image index".to_owned())?;
    let referrer = |entry: Entry| {
        let digest = entry.digest.parse();
        let title = entry.annotations.and_then(|all| Some(all.get(TITLE)?.as_str()?.to_owned()));
        Ok(Referrer {
            digest: digest.map_err(|error| format!("digest {:?}: {error}", excerpt(&entry.digest)))?,
            artifact_type: entry.artifact_type.unwrap_or_default(),
            title,
        })
    };
    index.manifests.into_iter().map(referrer).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn index_entries_are_read_with_their_type_and_title() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let text = format!(
            r#"{{"manifests":[{{"digest":"{digest}","artifactType":"a/b","annotations":{{"{TITLE}":"f","x":1}}}},{{"digest":"{digest}"}}]}}"#
        );
        let found = parse(text.as_bytes()).unwrap();
        let shown: Vec<_> =
            found.iter().map(|one| (one.artifact_type.as_str(), one.title.as_deref())).collect();
        assert_eq!(shown, [("a/b", Some("f")), ("", None)]);
        assert_eq!(parse(b"[]").unwrap_err(), "expected an OCI image index");
        let error = parse(br#"{"manifests":[{"digest":"1"}]}"#).unwrap_err();
        assert!(error.starts_with("digest \"1\": "), "{error}");
    }

    #[test]
    fn tag_of_referrers_has_limited_length() {
        for (algorithm, length) in [("sha256", 64), ("sha512", 128)] {
            let digest = format!("{algorithm}:{}", "0".repeat(length)).parse().unwrap();
            assert_eq!(referrers_tag(&digest), format!("{algorithm}-{}", "0".repeat(64)));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,60}", digest in "[ -~]{0,20}") {
            let _ = parse(text.as_bytes());
            let _ = parse(serde_json::json!({ "manifests": [{ "digest": digest }] }).to_string().as_bytes());
        }
    }
}
