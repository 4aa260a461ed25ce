//! Image references with variables for the Kubernetes version of a cluster
//! (docs/design/catalogd.md#image-templates). Pure.

use std::fmt;
use std::str::FromStr;

use crate::{Reference, Selector};

/// Value of a variable that is not known. Part of the text that is checked for its syntax.
const MISSING: &str = "missing";

/// Kubernetes version of a cluster, as far as templates need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion {
    /// First number.
    pub major: u64,
    /// Second number.
    pub minor: u64,
    /// Third number. `None` if only the minor release is known.
    pub patch: Option<u64>,
}

/// Error for a text that is not a Kubernetes version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected <major>.<minor> or <major>.<minor>.<patch>, such as 1.31")]
pub struct NotAKubernetesVersion;

impl KubernetesVersion {
    /// Parses the `gitVersion` of an API server, such as `v1.31.4+k3s1`. Pre-release and build are ignored.
    ///
    /// # Errors
    /// It does not begin with three numbers.
    pub fn of_git_version(text: &str) -> Result<Self, NotAKubernetesVersion> {
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let version: Self = text[..end].parse()?;
        version.patch.map(|_| version).ok_or(NotAKubernetesVersion)
    }
}

impl FromStr for KubernetesVersion {
    type Err = NotAKubernetesVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number).ok_or(NotAKubernetesVersion)
        };
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let mut part = || parts.next().map(number).transpose();
        let version = (part()?, part()?, part()?);
        match (version, parts.next()) {
            ((Some(major), Some(minor), patch), None) => Ok(Self { major, minor, patch }),
            _ => Err(NotAKubernetesVersion),
        }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// Failure to resolve a template. The texts are those of classic OLM, except the one about another repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot construct catalog image reference, because {}", self.causes())]
pub struct ImageTemplateError {
    /// Variables of the template without a value, such as `{kube_minor_version}`.
    pub unresolved: Vec<&'static str>,
    syntax: Option<SyntaxError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SyntaxError {
    Improper,
    Digest,
    /// Another repository than this one.
    Repository(String),
}

impl ImageTemplateError {
    /// `true` if a change of the template is needed, whatever the version.
    pub fn is_syntax(&self) -> bool {
        self.syntax.is_some()
    }

    fn causes(&self) -> String {
        let quoted: Vec<_> = self.unresolved.iter().map(|name| format!("\"{name}\"")).collect();
        let unresolved = format!("variable(s) {} could not be resolved", quoted.join(", "));
        let improper = "one or more template(s) has improper syntax";
        let syntax = self.syntax.as_ref().map(|error| match error {
            SyntaxError::Improper => improper.to_owned(),
            SyntaxError::Digest => format!("{improper}: digest not allowed in template"),
            SyntaxError::Repository(name) => {
                format!("the template names another repository than {name} of spec.source.image.ref")
            }
        });
        let unresolved = (!quoted.is_empty()).then_some(unresolved);
        unresolved.into_iter().chain(syntax).collect::<Vec<_>>().join(" and ")
    }
}

/// Replaces the variables of `template`. Without `version` they have no value. `configured` is the reference whose tag
/// the template replaces, if the template belongs to a catalog.
///
/// # Errors
/// A variable has no value, the result is not a reference with a tag, the template has a digest, which would not follow
/// the version, or it changes more than the tag of `configured`.
pub fn resolve_template(
    template: &str,
    configured: Option<&str>,
    version: Option<KubernetesVersion>,
) -> Result<Reference, ImageTemplateError> {
    let variables = [
        ("{kube_major_version}", version.map(|version| version.major)),
        ("{kube_minor_version}", version.map(|version| version.minor)),
        ("{kube_patch_version}", version.and_then(|version| version.patch)),
    ];
    let (mut text, mut unresolved) = (template.to_owned(), Vec::new());
    for (name, value) in variables.into_iter().filter(|(name, _)| template.contains(name)) {
        if value.is_none() {
            unresolved.push(name);
        }
        text = text.replace(name, &value.map_or_else(|| MISSING.to_owned(), |value| value.to_string()));
    }
    let parsed: Result<Reference, _> = text.parse();
    let syntax = match &parsed {
        Ok(reference) if matches!(reference.selector(), Selector::Tag(_)) => {
            configured.and_then(|configured| other_repository(template, configured))
        }
        _ if text.contains('@') => Some(SyntaxError::Digest),
        _ => Some(SyntaxError::Improper),
    };
    match parsed {
        Ok(reference) if syntax.is_none() && unresolved.is_empty() => Ok(reference),
        _ => Err(ImageTemplateError { unresolved, syntax }),
    }
}

/// Error if `template` is not the repository of `configured`, without variables, and a tag.
fn other_repository(template: &str, configured: &str) -> Option<SyntaxError> {
    let parsed = configured.parse::<Reference>();
    let name = parsed.as_ref().map_or_else(|_| configured.to_owned(), Reference::name);
    let rest = template.strip_prefix(&name).filter(|_| parsed.is_ok());
    let is_same = rest.is_some_and(|rest| rest.starts_with(':'));
    (!is_same).then_some(SyntaxError::Repository(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Case additions-t01
    #[test]
    fn version_of_api_server_is_parsed_without_vendor_suffix() {
        let rows = [
            ("v1.31.4+k3s1", Some((1, 31, 4))),
            ("v1.30.2-gke.1587003", Some((1, 30, 2))),
            ("v1.28.0-2023.01.05", Some((1, 28, 0))),
            ("1.36.3", Some((1, 36, 3))),
            ("v1.31", None),
            ("v1.31+", None),
            ("v1.31.x", None),
            ("v1.31.4.5", None),
            ("v1.+31.4", None),
            ("v1..4", None),
            ("v1.99999999999999999999.0", None),
            ("", None),
        ];
        for (text, expected) in rows {
            let parsed = KubernetesVersion::of_git_version(text).ok();
            let parsed = parsed.and_then(|version| Some((version.major, version.minor, version.patch?)));
            assert_eq!(parsed, expected, "{text}");
        }
        let minor: KubernetesVersion = "1.31".parse().unwrap();
        assert_eq!((minor.patch, minor.to_string().as_str()), (None, "1.31"));
    }

    // Cases additions-t01, additions-t04
    #[test]
    fn template_resolves_or_names_what_is_wrong() {
        const IMPROPER: &str = "one or more template(s) has improper syntax";
        let digest = format!("r.example/c@sha256:{}", "1".repeat(64));
        let refused = format!("{IMPROPER}: digest not allowed in template");
        let both = format!("variable(s) \"{{kube_patch_version}}\" could not be resolved and {IMPROPER}");
        let full = Some("v1.31.4");
        let rows = [
            ("r.example/c:v{kube_major_version}.{kube_minor_version}", full, Ok("r.example/c:v1.31")),
            (
                "r.example:5000/{kube_minor_version}/c:{kube_minor_version}-{kube_patch_version}",
                full,
                Ok("r.example:5000/31/c:31-4"),
            ),
            ("r.example/c:v1", None, Ok("r.example/c:v1")),
            ("r.example/c:v{foo}", full, Err(IMPROPER)),
            ("r.example/c:{KUBE_MAJOR_VERSION}", full, Err(IMPROPER)),
            ("r.example/c:{{kube_major_version}}", full, Err(IMPROPER)),
            ("c:v{kube_major_version}", full, Err(IMPROPER)),
            ("r.example/c", full, Err(IMPROPER)),
            ("r.example/c:v1 ", full, Err(IMPROPER)),
            (&digest, full, Err(&refused)),
            ("r.example/c:v{kube_major_version}@sha256:12", full, Err(&refused)),
            (
                "r.example/c:{kube_minor_version}.{kube_major_version}",
                None,
                Err("variable(s) \"{kube_major_version}\", \"{kube_minor_version}\" could not be resolved"),
            ),
            (
                "r.example/c:{kube_patch_version}",
                Some("1.31"),
                Err("variable(s) \"{kube_patch_version}\" could not be resolved"),
            ),
            ("r.example/c:{kube_patch_version}-{foo}", Some("1.31"), Err(&both)),
        ];
        for (template, version, expected) in rows {
            let version = version.map(|text| text.parse().unwrap());
            let resolved = resolve_template(template, None, version);
            if let Err(error) = &resolved {
                assert_eq!(error.is_syntax(), error.to_string().contains("syntax"), "{template}");
            }
            let got = resolved.map(|reference| reference.to_string()).map_err(|error| error.to_string());
            let expected = expected.map(str::to_owned);
            let expected = expected
                .map_err(|cause| format!("cannot construct catalog image reference, because {cause}"));
            assert_eq!(got, expected, "{template}");
        }
    }

    #[test]
    fn template_changes_only_the_tag_of_the_configured_reference() {
        const NAME: &str = "r.example:5000/team/c";
        let (tag, digest) = (format!("{NAME}:v1"), format!("{NAME}@sha256:{}", "1".repeat(64)));
        let other =
            |name| format!("the template names another repository than {name} of spec.source.image.ref");
        let both =
            format!("variable(s) \"{{kube_minor_version}}\" could not be resolved and {}", other(NAME));
        let rows = [
            (tag.as_str(), "r.example:5000/team/c:v{kube_minor_version}", Ok("r.example:5000/team/c:v31")),
            (&digest, "r.example:5000/team/c:v{kube_minor_version}", Ok("r.example:5000/team/c:v31")),
            (&tag, "evil.example/team/c:v{kube_minor_version}", Err(other(NAME))),
            (&tag, "r.example:5000/team/c/x:v1", Err(other(NAME))),
            (&tag, "r.example:5000/team/cc:v1", Err(other(NAME))),
            (&tag, "r.example:5000/team:v1", Err(other(NAME))),
            (&tag, "r.example/team/c:v1", Err(other(NAME))),
            // The repository does not depend on the version, not even if it is the same one today.
            ("r.example/31/c:v1", "r.example/{kube_minor_version}/c:v1", Err(other("r.example/31/c"))),
            ("c", "r.example/c:v1", Err(other("c"))),
            ("r.example", "r.example:5000/c:v1", Err(other("r.example"))),
        ];
        for (configured, template, expected) in rows {
            let resolved = resolve_template(template, Some(configured), "1.31.4".parse().ok());
            assert!(resolved.as_ref().err().is_none_or(ImageTemplateError::is_syntax), "{template}");
            let got = resolved.map(|reference| reference.to_string()).map_err(|error| error.causes());
            assert_eq!(got, expected.map(str::to_owned), "{template}");
        }
        let unknown = resolve_template("evil.example/c:v{kube_minor_version}", Some(&tag), None).unwrap_err();
        assert_eq!((unknown.is_syntax(), unknown.causes()), (true, both));
    }

    proptest! {
        #[test]
        fn resolved_template_is_a_tag_without_braces(
            parts in prop::collection::vec(prop_oneof![
                "[a-z./:@{} -]{0,6}",
                Just("{kube_major_version}".to_owned()),
                Just("{kube_patch_version}".to_owned()),
                Just("r.example/c:".to_owned()),
            ], 0..6),
            patch in prop::option::of(0_u64..100),
        ) {
            let version = KubernetesVersion { major: 1, minor: 31, patch };
            if let Ok(reference) = resolve_template(&parts.concat(), None, Some(version)) {
                prop_assert!(matches!(reference.selector(), Selector::Tag(_)));
                let has_braces = reference.to_string().contains(['{', '}']);
                prop_assert!(!has_braces);
            }
        }
    }
}
