//! The part of a revision that the verdict needs (docs/design/operations.md#properties-annotation,
//! docs/design/operations.md#verdict).

use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterObjectSet, annotations, labels};

use crate::property::{Declaration, declarations};

/// Active revision and the platform constraints of its bundle. Small, because all are kept in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstrainedRevision {
    /// Name of the ClusterExtension.
    pub extension: String,
    /// UID of the ClusterExtension, if the revision has an owner reference.
    pub extension_uid: Option<String>,
    /// Name of the bundle.
    pub bundle: String,
    /// Version of the bundle. May be empty.
    pub version: String,
    /// Constraints, or the error that made the properties unreadable.
    pub declared: Result<Vec<Declaration>, String>,
}

impl ConstrainedRevision {
    /// Returns `true` if the bundle declares a constraint, or if its properties are unreadable.
    pub fn has_limits(&self) -> bool {
        self.declared.as_ref().map_or(true, |declared| !declared.is_empty())
    }

    /// Reads a ClusterObjectSet. `None` if it is not active or belongs to no extension.
    pub fn of(revision: &ClusterObjectSet) -> Option<Self> {
        let label = |key| revision.metadata.labels.as_ref()?.get(key).filter(|value| !value.is_empty());
        if label(labels::OWNER_KIND)? != labels::OWNER_KIND_EXTENSION
            || revision.spec.as_ref()?.lifecycle_state != LifecycleState::Active
        {
            return None;
        }
        let extension = label(labels::OWNER_NAME)?.clone();
        let annotation = |key| revision.annotation(key);
        let filled = |key| annotation(key).filter(|text| !text.is_empty());
        let named_by_version = || {
            let (package, version) =
                (filled(annotations::PACKAGE_NAME)?, filled(annotations::BUNDLE_VERSION)?);
            Some(format!("{package}.v{version}"))
        };
        let bundle = filled(annotations::BUNDLE_NAME).map(str::to_owned).or_else(named_by_version);
        let bundle = bundle.or_else(|| revision.metadata.name.clone())?;
        let declared = annotation(annotations::PROPERTIES)
            .map(|text| declarations(text, annotation(annotations::EXT_MAX_OPENSHIFT_VERSION)));
        let owner = revision.metadata.owner_references.iter().flatten();
        let mut owner =
            owner.filter(|owner| owner.kind == labels::OWNER_KIND_EXTENSION && owner.name == extension);
        Some(Self {
            extension_uid: owner.next().map(|owner| owner.uid.clone()),
            version: annotation(annotations::BUNDLE_VERSION).unwrap_or_default().to_owned(),
            declared: declared.unwrap_or(Ok(Vec::new())),
            extension,
            bundle,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn revision(changes: Value) -> Option<ConstrainedRevision> {
        let mut set = json!({
            "metadata": {
                "name": "kiwi-3",
                "labels": {
                    "olm.operatorframework.io/owner-kind": "ClusterExtension",
                    "olm.operatorframework.io/owner-name": "kiwi",
                },
                "annotations": {
                    "olm.operatorframework.io/bundle-name": "kiwi.v1.2.0",
                    "olm.operatorframework.io/bundle-version": "1.2.0",
                    "olm.operatorframework.io/package-name": "fruit",
                },
                "ownerReferences": [{
                    "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "kiwi", "uid": "u1",
                }],
            },
            "spec": {"lifecycleState": "Active", "revision": 3, "collisionProtection": "Prevent"},
        });
        merge(&mut set, changes);
        ConstrainedRevision::of(&serde_json::from_value(set).unwrap())
    }

    fn merge(into: &mut Value, changes: Value) {
        match (into, changes) {
            (Value::Object(into), Value::Object(changes)) => {
                for (key, change) in changes {
                    if change.is_null() {
                        into.remove(&key);
                    } else {
                        merge(into.entry(key).or_insert(Value::Null), change);
                    }
                }
            }
            (into, changes) => *into = changes,
        }
    }

    fn annotated(annotations: Value) -> Value {
        json!({"metadata": {"annotations": annotations}})
    }

    #[test]
    fn active_revision_of_extension_is_read_and_others_skipped() {
        let plain = revision(json!({})).unwrap();
        let expected = ConstrainedRevision {
            extension: "kiwi".into(),
            extension_uid: Some("u1".into()),
            bundle: "kiwi.v1.2.0".into(),
            version: "1.2.0".into(),
            declared: Ok(Vec::new()),
        };
        assert_eq!(plain, expected);
        // docs/design/operations.md#verdict; case operations-e28
        let none = [
            json!({"spec": {"lifecycleState": "Archived"}}),
            json!({"spec": null}),
            json!({"metadata": {"labels": {"olm.operatorframework.io/owner-kind": "Other"}}}),
            json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": ""}}}),
            json!({"metadata": {"labels": null}}),
        ];
        for changes in none {
            assert_eq!(revision(changes.clone()), None, "{changes}");
        }
        assert_eq!(revision(json!({"metadata": {"ownerReferences": null}})).unwrap().extension_uid, None);
    }

    #[test]
    fn bundle_without_name_falls_back_to_package_then_revision() {
        let name = |annotations| revision(annotated(annotations)).unwrap().bundle;
        let key = |suffix: &str| format!("olm.operatorframework.io/{suffix}");
        assert_eq!(name(json!({key("bundle-name"): null})), "fruit.v1.2.0");
        assert_eq!(name(json!({key("bundle-name"): "", key("bundle-version"): null})), "kiwi-3");
        assert_eq!(name(json!({key("bundle-name"): null, key("package-name"): null})), "kiwi-3");
    }

    #[test]
    fn source_text_of_version_overrides_properties() {
        let properties = "[{\"type\":\"olm.maxOpenShiftVersion\",\"value\":4.2}]";
        let declared =
            |annotations| revision(annotated(annotations)).unwrap().declared.unwrap()[0].written.clone();
        assert_eq!(declared(json!({"olm.properties": properties})), "4.2");
        let source = "ext.olm.operatorframework.io/max-openshift-version";
        assert_eq!(declared(json!({"olm.properties": properties, source: "4.20"})), "4.20");
        let broken = revision(annotated(json!({"olm.properties": ""}))).unwrap().declared;
        assert_eq!(broken, Err("unexpected end of JSON input".to_owned()));
    }
}
