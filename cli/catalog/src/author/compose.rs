//! Composition of a catalog from a list of images (`catalog build --file`): each image is rendered into its own
//! directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path};

use futures::{StreamExt, TryStreamExt, stream};
use olm_cli_core::error::CliError;
use olm_cli_core::repeated_keys;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ImageArgs, tagged_reference};
use olm_fbc::Form;
use olm_oci::Reference;
use serde::Deserialize;
use serde_json::Value;

use super::catalog_dir::{check_empty, failed, write_directory};
use super::catalog_text::object_text;
use super::render::{self, PARALLEL};

/// Images that make up a catalog.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Composition {
    /// Reference of the composed catalog image.
    pub(super) image: Reference,
    /// Directory and image of each part.
    parts: Vec<(String, Reference)>,
}

/// Composition file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    repo: String,
    tag: String,
    references: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    name: String,
    image: String,
}

impl Composition {
    /// Reads the composition file at `path`.
    ///
    /// # Errors
    /// The file cannot be read or is invalid. The message names file and field.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let text = fs::read(path).map_err(|error| failed("read", path, &error))?;
        repeated_keys::refuse(&path.display().to_string(), &text)?;
        Self::parse(&text).map_err(|why| CliError::at(path.display(), why))
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let document = olm_yaml::from_slice(text).map_err(|error| error.to_string())?;
        let document = Document::deserialize(document).map_err(|error| {
            format!("expected name, repo, tag and references, a list of objects with name and image: {error}")
        })?;
        let image = format!("{}:{}", document.repo, document.tag);
        let image = tagged_reference(&image).map_err(|failure| format!("repo and tag: {failure}"))?;
        if document.name.is_empty() {
            return Err("name must not be empty".to_owned());
        }
        if document.references.is_empty() {
            return Err("references must not be empty".to_owned());
        }
        let mut names = BTreeSet::new();
        let mut parts = Vec::new();
        for (index, Part { name, image }) in document.references.into_iter().enumerate() {
            if !is_directory_name(&name) {
                let quoted = olm_version::quote(&name);
                return Err(format!(
                    "references[{index}].name: expected the name of a directory, got {quoted}"
                ));
            }
            if !names.insert(name.clone()) {
                return Err(format!("references[{index}].name: {name} occurs twice"));
            }
            let image = image.parse().map_err(|error| format!("references[{index}].image: {error}"))?;
            parts.push((name, image));
        }
        Ok(Self { image, parts })
    }
}

/// Reports whether `name` is a single, visible directory name.
fn is_directory_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
        && !name.starts_with('.')
        && !name.contains('/')
}

/// Renders every part into the directory `root`, which must be empty or new.
///
/// # Errors
/// `root` is not empty, an image cannot be rendered, or a file cannot be written.
pub(super) async fn write(
    composition: &Composition,
    root: &Path,
    images: &ImageArgs,
    session: &Session,
) -> Result<(), CliError> {
    check_empty(root)?;
    // All parts are rendered before the first is written, so that a failure leaves no partial catalog.
    let step = session.progress.step(format!("rendering {} images", composition.parts.len()));
    let rendered: Vec<(&str, String)> = stream::iter(&composition.parts)
        .map(|(name, reference)| async move {
            let objects = render::image(reference, images, session).await?;
            Ok::<_, CliError>((name.as_str(), text(&objects)?))
        })
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    drop(step);
    let files = rendered.into_iter().map(|(name, text)| Ok((Path::new(name).join("index.yaml"), text)));
    write_directory(root, files, session)
}

fn text(objects: &[Value]) -> Result<String, CliError> {
    objects.iter().map(|object| object_text(object, Form::Yaml)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "name: c\nrepo: r.example/team/catalog\ntag: v1\n";

    #[test]
    fn composition_file_is_parsed() {
        let text = format!("{HEAD}references:\n- name: a\n  image: r.example/a:v1\n");
        let expected = Composition {
            image: "r.example/team/catalog:v1".parse().unwrap(),
            parts: vec![("a".to_owned(), "r.example/a:v1".parse().unwrap())],
        };
        assert_eq!(Composition::parse(text.as_bytes()), Ok(expected));
    }

    #[test]
    fn parse_error_names_field() {
        let two = "- {name: a, image: 'r.example/a:v1'}\n- {name: a, image: 'r.example/b:v1'}\n";
        for (text, expected) in [
            (format!("{HEAD}references: []"), "references must not be empty"),
            (format!("{HEAD}reference: []"), "unknown field `reference`"),
            (format!("{HEAD}references:\n{two}"), "references[1].name: a occurs twice"),
            (
                format!("{HEAD}references: [{{name: ../a, image: x}}]"),
                "references[0].name: expected the name of a directory, got \"../a\"",
            ),
            (format!("{HEAD}references: [{{name: a, image: x}}]"), "references[0].image: "),
            (
                "name: c\nrepo: catalog\ntag: v1\nreferences: []".to_owned(),
                "repo and tag: reference \"catalog:v1\": ",
            ),
            ("- a".to_owned(), "expected name, repo, tag and references, "),
        ] {
            let error = Composition::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
