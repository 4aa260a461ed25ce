//! Build provenance of the program of an image: an in-toto statement with an SLSA predicate. It depends only on
//! source and settings, not on time or paths, so that equal builds yield equal images.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::digest_of;

/// Source and tools of a build.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// Cargo profile, such as `release`.
    pub profile: &'a str,
    /// Output of `rustc --version`.
    pub rustc: &'a str,
    /// Content of `Cargo.lock`.
    pub lock: &'a [u8],
    /// Git commit of the source. `None` if unknown.
    pub revision: Option<&'a str>,
    /// `true` if the source has uncommitted changes.
    pub modified: bool,
}

/// Returns the statement about `program`, which was built as `name`.
///
/// # Errors
/// The revision is not the full hash of a commit.
pub fn provenance(name: &str, program: &[u8], build: &Build<'_>) -> Result<Value> {
    let mut from = vec![
        json!({"name": "Cargo.lock", "digest": {"sha256": digest_of(build.lock).trim_start_matches("sha256:")}}),
    ];
    if let Some(revision) = build.revision {
        let is_hash =
            [40, 64].contains(&revision.len()) && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(is_hash, "the revision {revision:?} is no full hash of a git commit");
        let mut source = json!({"name": "source", "digest": {"gitCommit": revision}});
        if build.modified {
            source["annotations"] = json!({"modified": true});
        }
        from.insert(0, source);
    }
    // Versions of the build tools, by name.
    let version = BTreeMap::from([("rustc", build.rustc.trim().trim_start_matches("rustc "))]);
    Ok(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest_of(program).trim_start_matches("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://olm.example/hack/image/v1",
                "externalParameters": {"package": name, "profile": build.profile},
                "resolvedDependencies": from,
            },
            "runDetails": {"builder": {"id": "https://olm.example/hack/image", "version": version}},
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";

    fn build(revision: Option<&str>) -> Build<'_> {
        Build {
            profile: "release",
            rustc: "rustc 1.95.0 (59807616e 2026-04-14)\n",
            lock: b"lock",
            revision,
            modified: false,
        }
    }

    #[test]
    fn statement_names_source_compiler_and_program() {
        let stated = provenance("catalogd", b"elf", &build(Some(REVISION))).unwrap();
        assert_eq!(
            stated,
            json!({
                "_type": "https://in-toto.io/Statement/v1",
                "subject": [{"name": "catalogd", "digest": {
                    "sha256": "780d84b20d7ae7e6292919399348bdbf96025270136198083fc8a4da398b5ca9"}}],
                "predicateType": "https://slsa.dev/provenance/v1",
                "predicate": {
                    "buildDefinition": {
                        "buildType": "https://olm.example/hack/image/v1",
                        "externalParameters": {"package": "catalogd", "profile": "release"},
                        "resolvedDependencies": [
                            {"name": "source", "digest": {"gitCommit": REVISION}},
                            {"name": "Cargo.lock", "digest": {
                                "sha256": "0c030586945fe504b604ecc2e875c38ede400cd5cd73da9730302162e6b02c6f"}},
                        ],
                    },
                    "runDetails": {"builder": {"id": "https://olm.example/hack/image",
                        "version": {"rustc": "1.95.0 (59807616e 2026-04-14)"}}},
                },
            })
        );
    }

    #[test]
    fn statement_marks_modified_or_unknown_source() {
        let from = |build: &Build<'_>| {
            let stated = provenance("catalogd", b"elf", build).unwrap();
            stated["predicate"]["buildDefinition"]["resolvedDependencies"].clone()
        };
        let modified = Build { modified: true, ..build(Some(REVISION)) };
        assert_eq!(from(&modified)[0]["annotations"], json!({"modified": true}));
        assert_eq!(from(&build(None))[0]["name"], "Cargo.lock");
        let error = provenance("catalogd", b"elf", &build(Some("main"))).unwrap_err().to_string();
        assert_eq!(error, "the revision \"main\" is no full hash of a git commit");
    }
}
