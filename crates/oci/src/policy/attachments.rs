//! `registries.d`: images whose signatures are stored as attachments beside the image (containers-registries.d(5)).
//!
//! Only `use-sigstore-attachments` is read. Settings for other kinds of signatures are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::document::Unique;
use super::scope::scopes;
use crate::Reference;

/// Merged sections of all files. `None` where a section defers to a less specific one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attachments {
    /// Sections by scope, each with the name of its file.
    docker: BTreeMap<String, (Option<bool>, String)>,
    default: Option<(Option<bool>, String)>,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "default-docker")]
    default_docker: Option<Section>,
    docker: Option<Unique<Option<Section>>>,
}

#[derive(Default, Deserialize)]
struct Section {
    #[serde(rename = "use-sigstore-attachments")]
    use_sigstore_attachments: Option<bool>,
}

impl Attachments {
    /// Adds the content of the file `name`.
    ///
    /// # Errors
    /// The text is not such YAML, or has a section that another file has too.
    pub(super) fn add(&mut self, name: &str, text: &[u8]) -> Result<(), String> {
        let parsed: Option<File> = serde_saphyr::from_slice(text)
            .map_err(|error| format!("parsing {name}: {}", error.without_snippet()))?;
        let Some(file) = parsed else {
            return Ok(());
        };
        if let Some(section) = file.default_docker {
            if let Some((_, other)) = &self.default {
                return Err(format!("section \"default-docker\" is both in {other} and in {name}"));
            }
            self.default = Some((section.use_sigstore_attachments, name.to_owned()));
        }
        for (scope, section) in file.docker.unwrap_or_default().0 {
            if let Some((_, other)) = self.docker.get(&scope) {
                return Err(format!("section {scope:?} of \"docker\" is both in {other} and in {name}"));
            }
            let enabled = section.unwrap_or_default().use_sigstore_attachments;
            self.docker.insert(scope, (enabled, name.to_owned()));
        }
        Ok(())
    }

    /// `true` if signatures of `image` are attached beside it, according to the most specific section with a value.
    pub(super) fn enabled(&self, image: &Reference) -> bool {
        let scoped = scopes(image).into_iter().find_map(|scope| self.docker.get(&scope)?.0);
        scoped.or_else(|| self.default.as_ref()?.0).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_section_with_a_value_wins() {
        let mut attachments = Attachments::default();
        attachments
            .add(
                "a.yaml",
                b"default-docker:\n  use-sigstore-attachments: true\n  lookaside: https://l.example.com\n\
                  docker:\n  r.io:\n    use-sigstore-attachments: false\n  r.io/ns:\n    lookaside: file:///l\n  s.io:\n",
            )
            .unwrap();
        attachments.add("b.yaml", b"docker: {r.io/ns/app: {use-sigstore-attachments: yes}, '*.x.io': {use-sigstore-attachments: false}}").unwrap();
        attachments.add("c.yaml", b"# nothing\n").unwrap();
        for (image, expected) in [
            ("r.io/ns/app:v1", true),
            ("r.io/ns/other:v1", false),
            ("r.io/app:v1", false),
            ("s.io/app:v1", true),
            ("y.x.io/app:v1", false),
            ("other.io/app:v1", true),
        ] {
            assert_eq!(attachments.enabled(&image.parse().unwrap()), expected, "{image}");
        }
        assert!(!Attachments::default().enabled(&"r.io/app:v1".parse().unwrap()));
    }

    #[test]
    fn duplicate_or_malformed_section_is_an_error() {
        let mut attachments = Attachments::default();
        attachments.add("a.yaml", b"default-docker: {}\ndocker: {r.io: {}}").unwrap();
        for (text, expected) in [
            ("default-docker: {}", "section \"default-docker\" is both in a.yaml and in b.yaml"),
            ("docker: {r.io: {}}", "section \"r.io\" of \"docker\" is both in a.yaml and in b.yaml"),
        ] {
            assert_eq!(attachments.clone().add("b.yaml", text.as_bytes()).unwrap_err(), expected);
        }
        for text in [
            "text",
            "docker: [a]",
            "docker: {a: {use-sigstore-attachments: maybe}}",
            "docker: {a: {}, a: {}}",
            "[",
        ] {
            let error = attachments.clone().add("b.yaml", text.as_bytes()).unwrap_err();
            assert!(error.starts_with("parsing b.yaml: ") && !error.contains('\n'), "{text}: {error}");
        }
    }
}
