//! `policy.json`: requirements that an image must meet (containers-policy.json(5)).
//!
//! The parser is strict, as the format demands: an unknown or duplicate key makes the whole file malformed.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::identity::Identity;
use super::scope::scopes;
use crate::Reference;

/// Requirement of an image. All requirements of a list must be met.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RequirementForm")]
pub(super) enum Requirement {
    /// Requirement that every image meets.
    AcceptAnything,
    /// Requirement that no image meets.
    Reject,
    /// A signature by one of the keys.
    Signed { keys: Vec<KeySource>, identity: Identity },
    /// Known kind that is not implemented. No image meets it.
    Unsupported(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeySource {
    Path(PathBuf),
    /// PEM text in the policy itself.
    Data(Vec<u8>),
}

/// Parsed `policy.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    default: Requirements,
    /// Requirements by scope, for the transport `docker` (registries).
    docker: BTreeMap<String, Requirements>,
}

impl Policy {
    /// Parses a whole file.
    ///
    /// # Errors
    /// The fault and its position.
    pub(super) fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let mut form: PolicyForm = serde_json::from_slice(text)?;
        let docker = form.transports.0.remove("docker").unwrap_or_default();
        Ok(Self { default: form.default, docker: docker.0 })
    }

    /// Requirements of the most specific scope that matches `image`.
    pub(super) fn requirements(&self, image: &Reference) -> &[Requirement] {
        let scoped = scopes(image).iter().find_map(|scope| self.docker.get(scope));
        &scoped.or_else(|| self.docker.get("")).unwrap_or(&self.default).0
    }

    /// All keys of the policy.
    pub(super) fn keys(&self) -> impl Iterator<Item = &KeySource> {
        let requirements = self.docker.values().chain([&self.default]).flat_map(|list| &list.0);
        let keys = requirements.filter_map(|requirement| match requirement {
            Requirement::Signed { keys, .. } => Some(keys),
            _ => None,
        });
        keys.flatten()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyForm {
    default: Requirements,
    #[serde(default)]
    transports: Unique<Unique<Requirements>>,
}

/// Non-empty list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<Requirement>")]
struct Requirements(Vec<Requirement>);

impl TryFrom<Vec<Requirement>> for Requirements {
    type Error = &'static str;

    fn try_from(list: Vec<Requirement>) -> Result<Self, Self::Error> {
        if list.is_empty() { Err("a list of requirements must not be empty") } else { Ok(Self(list)) }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
enum RequirementForm {
    InsecureAcceptAnything {},
    Reject {},
    SignedBy(SignedByForm),
    SignedBaseLayer {
        #[serde(rename = "baseLayerIdentity")]
        _base_layer_identity: Identity,
    },
    SigstoreSigned(SigstoreForm),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SignedByForm {
    #[serde(rename = "keyType")]
    _key_type: KeyType,
    key_path: Option<String>,
    key_paths: Option<Vec<String>>,
    key_data: Option<Base64>,
    #[serde(default, rename = "signedIdentity")]
    _signed_identity: Identity,
}

#[derive(Deserialize)]
enum KeyType {
    #[serde(rename = "GPGKeys")]
    GpgKeys,
    #[serde(rename = "signedByGPGKeys")]
    SignedByGpgKeys,
    #[serde(rename = "X509Certificates")]
    X509Certificates,
    #[serde(rename = "signedByX509CAs")]
    SignedByX509Cas,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SigstoreForm {
    key_path: Option<String>,
    key_paths: Option<Vec<String>>,
    key_data: Option<Base64>,
    key_datas: Option<Vec<Base64>>,
    fulcio: Option<IgnoredAny>,
    pki: Option<IgnoredAny>,
    rekor_public_key_path: Option<IgnoredAny>,
    rekor_public_key_paths: Option<IgnoredAny>,
    rekor_public_key_data: Option<IgnoredAny>,
    rekor_public_key_datas: Option<IgnoredAny>,
    #[serde(default)]
    signed_identity: Identity,
}

impl TryFrom<RequirementForm> for Requirement {
    type Error = String;

    fn try_from(form: RequirementForm) -> Result<Self, Self::Error> {
        match form {
            RequirementForm::InsecureAcceptAnything {} => Ok(Self::AcceptAnything),
            RequirementForm::Reject {} => Ok(Self::Reject),
            RequirementForm::SignedBaseLayer { .. } => Ok(Self::Unsupported("signedBaseLayer".to_owned())),
            RequirementForm::SignedBy(form) => {
                let sources = sources(form.key_path, form.key_paths, form.key_data, None)?;
                exactly_one(sources.len(), "signedBy: exactly one of keyPath, keyPaths and keyData")?;
                Ok(Self::Unsupported("signedBy".to_owned()))
            }
            RequirementForm::SigstoreSigned(form) => form.requirement(),
        }
    }
}

impl SigstoreForm {
    fn requirement(self) -> Result<Requirement, String> {
        let mut sources = sources(self.key_path, self.key_paths, self.key_data, self.key_datas)?;
        let others = [("fulcio", self.fulcio.is_some()), ("pki", self.pki.is_some())];
        let others: Vec<_> = others.into_iter().filter(|(_, present)| *present).collect();
        exactly_one(
            sources.len() + others.len(),
            "sigstoreSigned: exactly one of keyPath, keyPaths, keyData, keyDatas, fulcio and pki",
        )?;
        let rekor = [
            self.rekor_public_key_path,
            self.rekor_public_key_paths,
            self.rekor_public_key_data,
            self.rekor_public_key_datas,
        ];
        let rekor = rekor.iter().flatten().count();
        if rekor > 1 {
            return Err("sigstoreSigned: at most one of rekorPublicKeyPath, rekorPublicKeyPaths, \
                        rekorPublicKeyData and rekorPublicKeyDatas may be given"
                .to_owned());
        }
        let unsupported =
            others.first().map(|(field, _)| *field).or_else(|| (rekor > 0).then_some("rekorPublicKey"));
        Ok(match unsupported {
            Some(field) => Requirement::Unsupported(format!("sigstoreSigned with {field}")),
            None => Requirement::Signed {
                keys: sources.pop().unwrap_or_default(),
                identity: self.signed_identity,
            },
        })
    }
}

/// Lists of keys given by the fields. Valid policies have at most one.
fn sources(
    path: Option<String>,
    paths: Option<Vec<String>>,
    data: Option<Base64>,
    datas: Option<Vec<Base64>>,
) -> Result<Vec<Vec<KeySource>>, String> {
    let file = |path: String| KeySource::Path(path.into());
    let text = |data: Base64| KeySource::Data(data.0);
    if paths.as_ref().is_some_and(Vec::is_empty) || datas.as_ref().is_some_and(Vec::is_empty) {
        return Err("a list of keys must not be empty".to_owned());
    }
    let given = [
        path.filter(|path| !path.is_empty()).map(|path| vec![file(path)]),
        paths.map(|paths| paths.into_iter().map(file).collect()),
        data.map(|data| vec![text(data)]),
        datas.map(|datas| datas.into_iter().map(text).collect()),
    ];
    Ok(given.into_iter().flatten().collect())
}

fn exactly_one(given: usize, required: &str) -> Result<(), String> {
    if given == 1 { Ok(()) } else { Err(format!("{required} must be given, not {given}")) }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Base64(Vec<u8>);

impl TryFrom<String> for Base64 {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        BASE64_STANDARD.decode(text).map(Self).map_err(|error| format!("expected base64: {error}"))
    }
}

/// JSON object without duplicate keys.
pub(super) struct Unique<V>(pub(super) BTreeMap<String, V>);

impl<V> Default for Unique<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Unique<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut entries = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if entries.contains_key(&key) {
                        return Err(M::Error::custom(format!("duplicate key {key:?}")));
                    }
                    let value = map.next_value()?;
                    entries.insert(key, value);
                }
                Ok(Unique(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requirements(policy: &str, image: &str) -> Vec<Requirement> {
        let policy = Policy::parse(policy.as_bytes()).unwrap();
        policy.requirements(&image.parse().unwrap()).to_vec()
    }

    #[test]
    fn only_most_specific_scope_applies() {
        let mark = |name: &str| format!(r#"[{{"type":"sigstoreSigned","keyPath":"/{name}"}}]"#);
        let scopes = [
            "r.example.com:5000/ns/app:v1",
            "r.example.com:5000/ns/app",
            "r.example.com:5000/ns",
            "r.example.com:5000",
            "*.example.com",
            "",
        ];
        let docker: Vec<_> = scopes.iter().map(|scope| format!("{scope:?}:{}", mark(scope))).collect();
        let policy = format!(
            r#"{{"default":{},"transports":{{"docker-daemon":{{"":[{{"type":"reject"}}]}},"docker":{{{}}}}}}}"#,
            mark("default"),
            docker.join(",")
        );
        for (image, scope) in [
            ("r.example.com:5000/ns/app:v1", "r.example.com:5000/ns/app:v1"),
            ("r.example.com:5000/ns/app:v2", "r.example.com:5000/ns/app"),
            ("r.example.com:5000/ns/app2:v1", "r.example.com:5000/ns"),
            ("r.example.com:5000/nsx/app:v1", "r.example.com:5000"),
            ("r.example.com/ns/app:v1", "*.example.com"),
            ("s.r.example.com:1/ns/app:v1", "*.example.com"),
            ("example.com/ns/app:v1", ""),
        ] {
            let keys = vec![KeySource::Path(format!("/{scope}").into())];
            let expected = vec![Requirement::Signed { keys, identity: Identity::default() }];
            assert_eq!(requirements(&policy, image), expected, "{image}");
        }
        let without = r#"{"default":[{"type":"reject"}],"transports":{"docker":{"r.io":[{"type":"insecureAcceptAnything"}]}}}"#;
        assert_eq!(requirements(without, "other.io/a:v1"), [Requirement::Reject]);
        assert_eq!(requirements(without, "r.io/a:v1"), [Requirement::AcceptAnything]);
    }

    #[test]
    fn each_requirement_type_is_parsed() {
        let unsupported = |kind: &str| Requirement::Unsupported(kind.to_owned());
        let signed = |keys: Vec<KeySource>| Requirement::Signed { keys, identity: Identity::default() };
        for (json, expected) in [
            (r#"{"type":"insecureAcceptAnything"}"#, Requirement::AcceptAnything),
            (r#"{"type":"reject"}"#, Requirement::Reject),
            (r#"{"type":"sigstoreSigned","keyPath":"/k"}"#, signed(vec![KeySource::Path("/k".into())])),
            (
                r#"{"keyPaths":["/k","/l"],"type":"sigstoreSigned"}"#,
                signed(vec![KeySource::Path("/k".into()), KeySource::Path("/l".into())]),
            ),
            (r#"{"type":"sigstoreSigned","keyData":"a2V5"}"#, signed(vec![KeySource::Data(b"key".to_vec())])),
            (
                r#"{"type":"sigstoreSigned","keyDatas":["a2V5",""]}"#,
                signed(vec![KeySource::Data(b"key".to_vec()), KeySource::Data(Vec::new())]),
            ),
            (
                r#"{"type":"sigstoreSigned","keyPath":"/k","signedIdentity":{"type":"matchRepository"}}"#,
                Requirement::Signed {
                    keys: vec![KeySource::Path("/k".into())],
                    identity: Identity::MatchRepository {},
                },
            ),
            (
                r#"{"type":"signedBy","keyType":"GPGKeys","keyPath":"/k","signedIdentity":{"type":"matchExact"}}"#,
                unsupported("signedBy"),
            ),
            (
                r#"{"type":"signedBaseLayer","baseLayerIdentity":{"type":"matchExact"}}"#,
                unsupported("signedBaseLayer"),
            ),
            (
                r#"{"type":"sigstoreSigned","fulcio":{"caPath":"/c"},"rekorPublicKeyPath":"/r"}"#,
                unsupported("sigstoreSigned with fulcio"),
            ),
            (
                r#"{"type":"sigstoreSigned","pki":{"caRootsPath":"/c"}}"#,
                unsupported("sigstoreSigned with pki"),
            ),
            (
                r#"{"type":"sigstoreSigned","keyPath":"/k","rekorPublicKeyData":"a2V5"}"#,
                unsupported("sigstoreSigned with rekorPublicKey"),
            ),
        ] {
            assert_eq!(
                requirements(&format!(r#"{{"default":[{json}]}}"#), "r.io/a:v1"),
                [expected],
                "{json}"
            );
        }
    }

    #[test]
    fn malformed_policy_is_an_error() {
        let reject = r#"[{"type":"reject"}]"#;
        let signed = |rest: &str| format!(r#"{{"default":[{{"type":"sigstoreSigned"{rest}}}]}}"#);
        for (policy, problem) in [
            (String::new(), "EOF while parsing a value"),
            ("[]".to_owned(), "invalid length 0"),
            ("{}".to_owned(), "missing field `default`"),
            (r#"{"default":[]}"#.to_owned(), "a list of requirements must not be empty"),
            (r#"{"default":[{"type":"reject"}],"x":1}"#.to_owned(), "unknown field `x`"),
            (format!(r#"{{"default":{reject},"default":{reject}}}"#), "duplicate field `default`"),
            (format!(r#"{{"default":{reject}}} x"#), "trailing characters"),
            (format!(r#"{{"default":{reject},"transports":null}}"#), "invalid type: null"),
            (
                format!(r#"{{"default":{reject},"transports":{{"docker":{{"a":{reject},"a":{reject}}}}}}}"#),
                "duplicate key \"a\"",
            ),
            (
                format!(r#"{{"default":{reject},"transports":{{"docker":{{}},"docker":{{}}}}}}"#),
                "duplicate key \"docker\"",
            ),
            (
                format!(r#"{{"default":{reject},"transports":{{"atomic":{{"":[]}}}}}}"#),
                "a list of requirements must not be empty",
            ),
            (r#"{"default":[{}]}"#.to_owned(), "missing field `type`"),
            (r#"{"default":[{"type":"accept"}]}"#.to_owned(), "unknown variant `accept`"),
            (r#"{"default":[{"type":"reject","x":1}]}"#.to_owned(), "unknown field `x`"),
            (r#"{"default":[{"type":"insecureAcceptAnything","keyPath":"/k"}]}"#.to_owned(), "unknown field"),
            (r#"{"default":[{"type":"reject","type":"reject"}]}"#.to_owned(), "duplicate field `type`"),
            (
                r#"{"default":[{"type":"signedBy","keyType":"PGP","keyPath":"/k"}]}"#.to_owned(),
                "unknown variant `PGP`",
            ),
            (r#"{"default":[{"type":"signedBy","keyType":"GPGKeys"}]}"#.to_owned(), "must be given, not 0"),
            (signed(""), "must be given, not 0"),
            (signed(r#","keyPath":"""#), "must be given, not 0"),
            (signed(r#","keyPath":"/k","keyData":"a2V5""#), "must be given, not 2"),
            (signed(r#","keyPath":"/k","fulcio":{}"#), "must be given, not 2"),
            (signed(r#","keyPath":"/k","keyPath":"/k""#), "duplicate field `keyPath`"),
            (signed(r#","keyPaths":[]"#), "a list of keys must not be empty"),
            (signed(r#","keyData":"!""#), "expected base64"),
            (signed(r#","keyPath":"/k","KeyPath":"/k""#), "unknown field `KeyPath`"),
            (
                signed(r#","keyPath":"/k","rekorPublicKeyPath":"/r","rekorPublicKeyData":"""#),
                "at most one of rekorPublicKeyPath",
            ),
            (signed(r#","keyPath":"/k","signedIdentity":null"#), "null"),
            (signed(r#","keyPath":"/k","signedIdentity":{"type":"any"}"#), "unknown variant `any`"),
        ] {
            let error = Policy::parse(policy.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(problem), "{policy}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic(text in ".{0,80}|[\\[\\]{}:,\"a-z]{0,80}") {
            let _ = Policy::parse(text.as_bytes());
        }
    }
}
