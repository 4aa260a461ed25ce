//! Changes to the manifests of a bundle before it is published: digests in place of tags, kinds that are left out
//! (docs/design/cli.md#changed-manifests).

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use olm_cli_core::error::CliError;
use olm_cli_core::output::yaml;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use serde_json::Value;

/// Paths of the images of containers in a deployment of the install strategy.
const CONTAINERS: [&str; 2] = ["/spec/template/spec/containers", "/spec/template/spec/initContainers"];

/// Replaces the tags of the images of containers and of `spec.relatedImages` by digests, in each value of the
/// ClusterServiceVersion that is such an image.
///
/// # Errors
/// An image has no tag, or its registry does not have it. Nothing is changed then.
pub(super) async fn pin<T: AsRef<[u8]> + From<String>>(
    files: &mut BTreeMap<String, T>,
    images: &ImageArgs,
    session: &Session,
) -> Result<(), CliError> {
    let mut tagged = BTreeSet::new();
    for (path, content) in manifests(files) {
        let objects =
            olm_yaml::all_from_slice(content.as_ref()).map_err(|error| CliError::at(path, error))?;
        tagged.extend(objects.iter().filter(|object| is_csv(object)).flat_map(images_of));
    }
    let pins = images.pins(tagged, session).await?;
    change(files, |objects| {
        objects.iter_mut().filter(|object| is_csv(object)).for_each(|csv| replace(csv, &pins));
    })
}

/// Leaves out the objects of these kinds.
///
/// # Errors
/// A manifest cannot be read, or no manifest has an object of a kind.
pub(super) fn skip_kinds(files: &mut BTreeMap<String, Vec<u8>>, kinds: &[String]) -> Result<(), CliError> {
    let mut unused: BTreeSet<&String> = kinds.iter().collect();
    change(files, |objects| {
        unused.retain(|kind| !objects.iter().any(|object| text(object, "/kind") == *kind));
        objects.retain(|object| !kinds.iter().any(|kind| text(object, "/kind") == *kind));
    })?;
    match unused.first() {
        Some(kind) => {
            Err(CliError::usage(format!("--skip-kind {kind}: the bundle has no object of this kind")))
        }
        None => Ok(()),
    }
}

fn manifests<T>(files: &BTreeMap<String, T>) -> impl Iterator<Item = (&String, &T)> {
    files.iter().filter(|(path, _)| path.starts_with("manifests/") && !path.ends_with('/'))
}

/// Changes the objects of each manifest. Other manifests than those that differ keep their text. One without objects is
/// removed.
fn change<T: AsRef<[u8]> + From<String>>(
    files: &mut BTreeMap<String, T>,
    mut edit: impl FnMut(&mut Vec<Value>),
) -> Result<(), CliError> {
    let mut changed = Vec::new();
    for (path, content) in manifests(files) {
        let before = olm_yaml::all_from_slice(content.as_ref()).map_err(|error| CliError::at(path, error))?;
        let mut after = before.clone();
        edit(&mut after);
        if after != before {
            changed.push((path.clone(), after.iter().map(yaml).collect::<Result<Vec<_>, _>>()?));
        }
    }
    for (path, documents) in changed {
        if documents.is_empty() {
            files.remove(&path);
        } else {
            files.insert(path, documents.join("---\n").into());
        }
    }
    Ok(())
}

fn is_csv(object: &Value) -> bool {
    text(object, "/kind") == "ClusterServiceVersion"
}

/// Images of containers and related images.
fn images_of(csv: &Value) -> impl Iterator<Item = String> {
    let deployments = list(csv, "/spec/install/spec/deployments").iter();
    let containers = deployments.flat_map(|one| CONTAINERS.iter().flat_map(|path| list(one, path)));
    let owners = containers.chain(list(csv, "/spec/relatedImages"));
    owners.map(|owner| text(owner, "/image").to_owned()).filter(|image| !image.is_empty())
}

/// Replaces each text that is a key of `pins`.
fn replace(value: &mut Value, pins: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(pinned) = pins.get(text) {
                text.clone_from(pinned);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, pins)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, pins)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_manifests_with_a_skipped_kind_change() {
        let text = |text: &str| text.as_bytes().to_vec();
        let mut files = BTreeMap::from([
            ("manifests/a.yaml".to_owned(), text("kind: A # kept\n")),
            ("manifests/b.yaml".to_owned(), text("kind: B # lost\n---\nkind: A\n")),
            ("manifests/c.yaml".to_owned(), text("kind: B\n")),
            ("manifests/d/".to_owned(), Vec::new()),
            ("metadata/b.yaml".to_owned(), text("kind: B\n")),
        ]);
        skip_kinds(&mut files, &["B".to_owned()]).unwrap();
        let left: Vec<_> =
            files.iter().map(|(path, text)| (path.as_str(), String::from_utf8_lossy(text))).collect();
        assert_eq!(
            left,
            [
                ("manifests/a.yaml", "kind: A # kept\n".into()),
                ("manifests/b.yaml", "kind: A\n".into()),
                ("manifests/d/", "".into()),
                ("metadata/b.yaml", "kind: B\n".into()),
            ]
        );
        let error = skip_kinds(&mut files, &["B".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "--skip-kind B: the bundle has no object of this kind");
    }
}
