//! Objects that belong to another extension, for which the engine reports a collision
//! (docs/design/apply.md#collision-protection).
//!
//! Pure.

use std::fmt;

use olm_api::{labels, names};
use olm_cli_core::error::CliError;
use olm_plan::objects::ObjectName;
use olm_revision::plan::controller;
use serde::Serialize;
use serde_json::Value;

/// Highest number of objects that a message names. CRDs precede the others.
const NAMED: usize = 5;

/// Object of a bundle that belongs to another extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Collision {
    #[serde(flatten)]
    pub(crate) object: ObjectName,
    /// ClusterExtension that owns the object.
    pub(crate) extension: String,
    /// Revision that controls the object. Empty if the extension controls it itself, as after an installation by Helm.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) revision: String,
}

impl Collision {
    /// Collision of the extension `name` with the live object. `None` if no other extension controls it.
    pub(super) fn of(object: &ObjectName, live: &Value, name: &str) -> Option<Self> {
        let reference = controller(live)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let group = reference["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        if group.is_none_or(|(group, _)| group != names::GROUP) {
            return None;
        }
        let label = |key: &str| live["metadata"]["labels"][key].as_str();
        let owner = text(&reference["name"]);
        let (extension, revision) = match reference["kind"].as_str()? {
            "ClusterExtension" => (owner, String::new()),
            "ClusterObjectSet" if label(labels::OWNER_KIND) == Some(labels::OWNER_KIND_EXTENSION) => {
                (label(labels::OWNER_NAME)?.to_owned(), owner)
            }
            _ => return None,
        };
        (extension != name).then(|| Self { object: object.clone(), extension, revision })
    }
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} belongs to ClusterExtension {:?}", self.object, self.extension)?;
        if self.revision.is_empty() { Ok(()) } else { write!(f, " (revision {})", self.revision) }
    }
}

/// Error for a bundle whose rollout would collide. `None` without collisions.
pub fn collision_error(collisions: &[Collision]) -> Option<CliError> {
    if collisions.is_empty() {
        return None;
    }
    let (crds, others): (Vec<&Collision>, Vec<&Collision>) =
        collisions.iter().partition(|collision| collision.object.is_crd());
    let mut lines: Vec<String> = crds.into_iter().chain(others).map(Collision::to_string).collect();
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    Some(CliError::findings(format!(
        "the rollout would collide with objects of another extension:\n  {}\n{ALTERNATIVES}",
        lines.join("\n  ")
    )))
}

/// Next step after a refusal.
pub(crate) const ALTERNATIVES: &str = "an object has only one owner: let the existing extension watch your namespaces, \
     install a bundle without these objects, or uninstall the owner first";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(name: &str) -> ObjectName {
        let (group, kind) = ("apiextensions.k8s.io".to_owned(), "CustomResourceDefinition".to_owned());
        ObjectName { group, kind, namespace: String::new(), name: name.to_owned() }
    }

    fn reference(group: &str, kind: &str, name: &str, is_controller: bool) -> Value {
        json!({"apiVersion": format!("{group}/v1"), "kind": kind, "name": name, "uid": "u", "controller": is_controller})
    }

    // Cases apply-24, additions-e08
    #[test]
    fn only_objects_of_another_extension_collide() {
        let olm = "olm.operatorframework.io";
        let of = |name: &str| json!({labels::OWNER_KIND: "ClusterExtension", labels::OWNER_NAME: name});
        let set = |name: &str, is_controller| reference(olm, "ClusterObjectSet", name, is_controller);
        for (what, owners, labels, expected) in [
            ("no owner", json!([]), of("lamp"), None),
            ("own revision", json!([set("pipe-1", true)]), of("pipe"), None),
            ("other extension", json!([set("lamp-3", true)]), of("lamp"), Some(("lamp", "lamp-3"))),
            (
                "earlier revisions that no longer control it",
                json!([set("lamp-2", false), set("lamp-3", true)]),
                of("lamp"),
                Some(("lamp", "lamp-3")),
            ),
            ("owner that does not control it", json!([set("lamp-3", false)]), of("lamp"), None),
            ("revision without extension", json!([set("by-hand", true)]), json!({}), None),
            (
                "Helm installation of another extension",
                json!([reference(olm, "ClusterExtension", "lamp", true)]),
                json!({}),
                Some(("lamp", "")),
            ),
            (
                "own Helm installation",
                json!([reference(olm, "ClusterExtension", "pipe", true)]),
                json!({}),
                None,
            ),
            (
                "controller of another group",
                json!([reference("apps", "ClusterExtension", "lamp", true)]),
                of("lamp"),
                None,
            ),
        ] {
            let live = json!({"metadata": {"name": "a", "labels": labels, "ownerReferences": owners}});
            let found = Collision::of(&crd("a"), &live, "pipe");
            let found = found.as_ref().map(|one| (one.extension.as_str(), one.revision.as_str()));
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn error_names_crds_first_their_owner_and_the_alternatives() {
        assert!(collision_error(&[]).is_none());
        let of = |object: ObjectName| Collision {
            object,
            extension: "lamp".to_owned(),
            revision: "lamp-1".to_owned(),
        };
        let account = |n: usize| ObjectName {
            group: String::new(),
            kind: "ServiceAccount".to_owned(),
            namespace: "ns".to_owned(),
            name: n.to_string(),
        };
        let mut collisions: Vec<Collision> = (0..5).map(account).map(of).collect();
        let of_helm = Collision { revision: String::new(), ..of(crd("pipes.example.com")) };
        collisions.push(of_helm);
        let error = collision_error(&collisions).unwrap();
        assert_eq!(error.exit_code(), 3);
        assert_eq!(
            error.to_string(),
            format!(
                "the rollout would collide with objects of another extension:\n  \
                 CustomResourceDefinition pipes.example.com belongs to ClusterExtension \"lamp\"\n  \
                 ServiceAccount ns/0 belongs to ClusterExtension \"lamp\" (revision lamp-1)\n  \
                 ServiceAccount ns/1 belongs to ClusterExtension \"lamp\" (revision lamp-1)\n  \
                 ServiceAccount ns/2 belongs to ClusterExtension \"lamp\" (revision lamp-1)\n  \
                 ServiceAccount ns/3 belongs to ClusterExtension \"lamp\" (revision lamp-1)\n  \
                 and 1 more\n{ALTERNATIVES}"
            )
        );
    }
}
