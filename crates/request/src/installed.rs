//! Installed bundle of each extension, read from its newest active revision that has succeeded once, with the
//! properties of that bundle (docs/design/additions.md#dependency-modes).

use std::collections::{BTreeMap, HashSet};

use olm_api::cluster_extension::BundleMetadata;
use olm_api::conditions::types;
use olm_api::{ClusterObjectSet, annotations, labels};
use olm_fbc::Property;
use olm_resolve::Requirement;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

/// Property with package and version of a bundle.
const PACKAGE: &str = "olm.package";

/// Installed bundle of one extension.
#[derive(Clone, Debug)]
pub struct ExtensionBundle {
    /// Name of the ClusterExtension.
    pub extension: String,
    /// Name, version and release of the bundle. Name and version are empty without their annotations.
    pub bundle: BundleMetadata,
    /// Package of the bundle. Empty without its annotation.
    pub package: String,
    /// Distinct properties of the bundle, without the APIs that only the cluster's CRDs define.
    pub properties: Vec<Property>,
    /// Requirements of the bundle.
    pub requirements: Vec<Requirement>,
}

/// Annotation that is not a list of properties and is treated as absent.
#[derive(Debug, thiserror::Error)]
#[error("annotation {annotation}: not a JSON list of properties with type and value: {source}")]
pub struct UnreadableAnnotation {
    annotation: &'static str,
    source: serde_json::Error,
}

/// Extension that owns the revision, by its labels.
pub fn owner(revision: &ClusterObjectSet) -> Option<&str> {
    let label = |key: &str| revision.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let of_extension = label(labels::OWNER_KIND) == Some(labels::OWNER_KIND_EXTENSION);
    label(labels::OWNER_NAME).filter(|name| of_extension && !name.is_empty())
}

/// Extension that owns the revision, if its bundle may be the installed one: the revision has succeeded, is not
/// archived and is not being deleted.
pub fn installs(revision: &ClusterObjectSet) -> Option<&str> {
    owner(revision).filter(|_| revision.is_active() && revision.is_true(types::SUCCEEDED))
}

/// Newest revision of each extension among those that [`installs`] accepts.
pub fn newest<'a>(
    revisions: impl IntoIterator<Item = &'a ClusterObjectSet>,
) -> BTreeMap<&'a str, &'a ClusterObjectSet> {
    let mut newest: BTreeMap<&str, &ClusterObjectSet> = BTreeMap::new();
    for revision in revisions {
        if let Some(extension) = installs(revision) {
            let known = newest.entry(extension).or_insert(revision);
            if revision.number() > known.number() {
                *known = revision;
            }
        }
    }
    newest
}

/// Newest active revision of an extension that has not succeeded yet and is newer than `installed`.
pub fn rolling_out<'a>(
    revisions: impl IntoIterator<Item = &'a ClusterObjectSet>,
    installed: &ClusterObjectSet,
) -> Option<&'a ClusterObjectSet> {
    let is_newer = |revision: &&ClusterObjectSet| {
        owner(revision) == owner(installed) && revision.number() > installed.number() && revision.is_active()
    };
    revisions.into_iter().filter(is_newer).max_by_key(|revision| revision.number())
}

impl ExtensionBundle {
    /// Reads the labels and annotations of a revision. Unreadable annotations are skipped and returned.
    pub fn read(revision: &ClusterObjectSet) -> (Self, Vec<UnreadableAnnotation>) {
        let mut unreadable = Vec::new();
        let mut properties = Vec::new();
        for key in [annotations::PROPERTIES, annotations::EXT_CATALOG_PROPERTIES] {
            let Some(text) = revision.annotation(key) else { continue };
            match read_properties(text) {
                Ok(read) => properties.extend(read),
                Err(source) => unreadable.push(UnreadableAnnotation { annotation: key, source }),
            }
        }
        let extension = owner(revision).unwrap_or_default().to_owned();
        let package = revision.annotation(annotations::PACKAGE_NAME).unwrap_or_default().to_owned();
        (Self::new(extension, package, revision.bundle(), properties), unreadable)
    }

    /// Creates an entry from the properties of the bundle. Adds an `olm.package` property if there is none, and
    /// removes duplicates.
    pub fn new(
        extension: String,
        package: String,
        bundle: BundleMetadata,
        mut properties: Vec<Property>,
    ) -> Self {
        if !properties.iter().any(|property| property.kind == PACKAGE) {
            properties.extend(identity(&package, &bundle));
        }
        let mut seen = HashSet::new();
        properties.retain(|property| seen.insert((property.kind.clone(), normal_form(&property.value))));
        let requirements = Requirement::all(&properties);
        Self { extension, bundle, package, properties, requirements }
    }
}

fn read_properties(text: &str) -> Result<Vec<Property>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(rename = "type")]
        kind: String,
        value: Option<Box<RawValue>>,
    }
    let entries: Vec<Entry> = serde_json::from_str(text)?;
    let property =
        |Entry { kind, value }| Property { kind, value: value.unwrap_or_else(|| RawValue::NULL.to_owned()) };
    Ok(entries.into_iter().map(property).collect())
}

/// Derives the `olm.package` property from the metadata of a bundle.
fn identity(package: &str, bundle: &BundleMetadata) -> Option<Property> {
    if package.is_empty() || bundle.version.is_empty() {
        return None;
    }
    let mut value = json!({"packageName": package, "version": bundle.version});
    if let Some(release) = bundle.release.as_ref().filter(|release| !release.is_empty()) {
        value["release"] = json!(release);
    }
    Some(Property { kind: PACKAGE.to_owned(), value: to_raw_value(&value).ok()? })
}

/// Normalizes the spelling of a value. A value that is nested too deep is returned unchanged.
fn normal_form(value: &RawValue) -> String {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(value.get());
    parsed.map_or_else(|_| value.get().to_owned(), |value| value.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use olm_api::cluster_object_set::LifecycleState;

    use super::*;

    /// Active and succeeded revision of `extension` with the bundle `<extension>.v<number>`.
    pub(crate) fn set(extension: &str, number: i64, annotations: &[(&str, &str)]) -> ClusterObjectSet {
        let mut set: ClusterObjectSet = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {
                "name": format!("{extension}-{number}"),
                "labels": {labels::OWNER_KIND: "ClusterExtension", labels::OWNER_NAME: extension},
                "annotations": {
                    annotations::BUNDLE_NAME: format!("{extension}.v{number}"),
                    annotations::BUNDLE_VERSION: format!("{number}.0.0"),
                    annotations::PACKAGE_NAME: extension,
                },
            },
            "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"},
            "status": {"conditions": [{"type": types::SUCCEEDED, "status": "True", "reason": "Succeeded", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        let own = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        set.metadata.annotations.get_or_insert_default().extend(own);
        set
    }

    fn archived(mut set: ClusterObjectSet) -> ClusterObjectSet {
        set.spec.as_mut().unwrap().lifecycle_state = LifecycleState::Archived;
        set
    }

    fn rolling_out(mut set: ClusterObjectSet) -> ClusterObjectSet {
        set.status = None;
        set
    }

    fn deleting(mut set: ClusterObjectSet) -> ClusterObjectSet {
        set.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        set
    }

    fn labeled(mut set: ClusterObjectSet, key: &str, value: &str) -> ClusterObjectSet {
        set.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        set
    }

    #[test]
    fn newest_active_succeeded_revision_is_the_installed_one() {
        let by_hand = labeled(set("a", 9, &[]), labels::OWNER_KIND, "Deployment");
        let rows: [(Vec<ClusterObjectSet>, &[&str]); 7] = [
            (vec![], &[]),
            (vec![set("a", 2, &[]), set("a", 10, &[]), set("a", 1, &[]), set("b", 1, &[])], &["a-10", "b-1"]),
            (vec![rolling_out(set("a", 2, &[])), set("a", 1, &[])], &["a-1"]),
            (vec![archived(set("a", 2, &[])), rolling_out(set("a", 3, &[]))], &[]),
            (vec![deleting(set("a", 2, &[])), set("b", 1, &[])], &["b-1"]),
            (vec![by_hand.clone()], &[]),
            (vec![labeled(set("a", 1, &[]), labels::OWNER_NAME, "")], &[]),
        ];
        for (sets, expected) in rows {
            let names: Vec<_> =
                newest(&sets).values().filter_map(|set| set.metadata.name.as_deref()).collect();
            assert_eq!(names, expected);
        }
        assert_eq!(owner(&by_hand), None);
        assert_eq!(owner(&archived(set("a", 1, &[]))), Some("a"));
    }

    /// Properties as `type value`, and the unreadable.
    fn read(annotations: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let (installed, unreadable) = ExtensionBundle::read(&set("a", 1, annotations));
        let line = |property: &Property| format!("{} {}", property.kind, property.value);
        (
            installed.properties.iter().map(line).collect(),
            unreadable.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn properties_merge_both_annotations_without_duplicates() {
        let identity = r#"olm.package {"packageName":"a","version":"1.0.0"}"#;
        let said = r#"[{"type":"olm.package","value":{"packageName":"a","version":"1.0.0-rc.1"}}]"#;
        let bundle =
            r#"[{"type":"certified","value":true},{"type":"x","value":{"b":1,"a":[2.50]}},{"type":"x"}]"#;
        let catalog = r#"[{"type":"x","value":{"a":[2.5],"b":1}},{"type":"certified","value":"true"},{"type":"x","value":null}]"#;
        let rows = [
            (&[][..], vec![identity]),
            (
                &[(annotations::EXT_CATALOG_PROPERTIES, said)],
                vec![r#"olm.package {"packageName":"a","version":"1.0.0-rc.1"}"#],
            ),
            (
                &[(annotations::BUNDLE_RELEASE, "2"), (annotations::PROPERTIES, "[]")],
                vec![r#"olm.package {"packageName":"a","release":"2","version":"1.0.0"}"#],
            ),
            (
                &[(annotations::PROPERTIES, bundle), (annotations::EXT_CATALOG_PROPERTIES, catalog)],
                vec!["certified true", r#"x {"b":1,"a":[2.50]}"#, "x null", r#"certified "true""#, identity],
            ),
        ];
        for (annotations, expected) in rows {
            let (properties, unreadable) = read(annotations);
            assert_eq!(properties, expected);
            assert!(unreadable.is_empty());
        }
        assert_eq!(read(&[(annotations::PACKAGE_NAME, "")]).0, Vec::<String>::new());
    }

    #[test]
    fn unreadable_annotation_is_skipped_and_reported() {
        let deep = format!(r#"[{{"type":"x","value":{}{}}}]"#, "[".repeat(5000), "]".repeat(5000));
        assert_eq!(read(&[(annotations::PROPERTIES, &deep)]).0.len(), 2);
        for wrong in
            ["", "null", "{}", r#"[{"value":1}]"#, r#"[{"type":1}]"#, "[1]", r#"[{"type":"x","value":1}"#]
        {
            let catalog = (annotations::EXT_CATALOG_PROPERTIES, r#"[{"type":"y","value":1}]"#);
            let (properties, unreadable) = read(&[(annotations::PROPERTIES, wrong), catalog]);
            assert_eq!(properties.len(), 2, "{wrong}");
            assert_eq!(unreadable.len(), 1, "{wrong}");
            let begin = "annotation olm.properties: not a JSON list of properties with type and value: ";
            assert!(unreadable[0].starts_with(begin), "{}", unreadable[0]);
        }
    }
}
