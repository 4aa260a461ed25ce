//! Kinds of files that can be attached to an image. Pure.

use serde_json::Value;

/// Use of an attached file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Bill of materials.
    Sbom,
    /// Provenance.
    Provenance,
}

const SPDX: &str = "application/spdx+json";
const CYCLONE_DX: &str = "application/vnd.cyclonedx+json";
const STATEMENT: &str = "application/vnd.in-toto+json";
const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// Start of the media types of sigstore bundles.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

impl Use {
    /// Media type of `content`, a file for this use.
    ///
    /// # Errors
    /// The file is of another kind. The text names the supported ones.
    pub(super) fn media_type(self, content: &[u8]) -> Result<String, String> {
        let parsed: Value = serde_json::from_slice(content).map_err(|error| format!("no JSON: {error}"))?;
        let (found, expected) = match self {
            Self::Sbom => (sbom(&parsed).map(str::to_owned), "SPDX or CycloneDX"),
            Self::Provenance => {
                (provenance(&parsed), "an in-toto statement, a DSSE envelope or a sigstore bundle")
            }
        };
        found.ok_or_else(|| format!("expected {expected} in JSON"))
    }
}

fn sbom(document: &Value) -> Option<&'static str> {
    let is_spdx_3 = || document["@context"].as_str().is_some_and(|it| it.contains("spdx.org/rdf/3"));
    if document["bomFormat"] == "CycloneDX" {
        Some(CYCLONE_DX)
    } else if document["spdxVersion"].is_string() || is_spdx_3() {
        Some(SPDX)
    } else {
        None
    }
}

fn provenance(document: &Value) -> Option<String> {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    if text("_type").starts_with("https://in-toto.io/Statement/") {
        Some(STATEMENT.to_owned())
    } else if document["payload"].is_string() && text("payloadType") == STATEMENT {
        Some(ENVELOPE.to_owned())
    } else {
        Some(text("mediaType")).filter(|kind| kind.starts_with(BUNDLE)).map(str::to_owned)
    }
}

/// Use of a file with this media type, in words.
pub(super) fn name_of(media_type: &str) -> &'static str {
    match media_type {
        SPDX | CYCLONE_DX => "SBOM",
        STATEMENT | ENVELOPE => "provenance",
        bundle if bundle.starts_with(BUNDLE) => "provenance",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_document_is_detected() {
        const PROVENANCE: &str =
            "expected an in-toto statement, a DSSE envelope or a sigstore bundle in JSON";
        const SBOM: &str = "expected SPDX or CycloneDX in JSON";
        let bundle = "application/vnd.dev.sigstore.bundle.v0.3+json";
        for (text, sbom, provenance) in [
            (r#"{"spdxVersion":"SPDX-2.3"}"#, Ok(SPDX), Err(PROVENANCE)),
            (r#"{"@context":"https://spdx.org/rdf/3.0.1/spdx-context.jsonld"}"#, Ok(SPDX), Err(PROVENANCE)),
            (r#"{"bomFormat":"CycloneDX","specVersion":"1.6"}"#, Ok(CYCLONE_DX), Err(PROVENANCE)),
            (r#"{"_type":"https://in-toto.io/Statement/v1"}"#, Err(SBOM), Ok(STATEMENT)),
            (r#"{"payloadType":"application/vnd.in-toto+json","payload":"e30="}"#, Err(SBOM), Ok(ENVELOPE)),
            (r#"{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}"#, Err(SBOM), Ok(bundle)),
            ("[]", Err(SBOM), Err(PROVENANCE)),
        ] {
            let owned = |result: Result<&str, &str>| result.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(Use::Sbom.media_type(text.as_bytes()), owned(sbom), "{text}");
            assert_eq!(Use::Provenance.media_type(text.as_bytes()), owned(provenance), "{text}");
        }
        assert!(Use::Sbom.media_type(b"<xml/>").unwrap_err().starts_with("no JSON: "));
        let names = [SPDX, CYCLONE_DX, STATEMENT, bundle, "text/plain"].map(name_of);
        assert_eq!(names, ["SBOM", "SBOM", "provenance", "provenance", "other"]);
    }
}
