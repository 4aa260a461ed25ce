//! Summary of a plan on one line.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::objects::{self, ChangeKind};
use crate::permissions;

/// Largest number of named CRDs and images each.
const NAMED: usize = 3;
/// Longest name, in bytes.
const LONGEST: usize = 300;

/// Summary of the changes when `new` replaces `old`, such as
/// `3 objects created, 1 changed, 0 deleted; permissions gained by 1 subject; CRDs lamps.example.com; images r.io/a:v2`.
pub fn summary(old: &[Value], new: &[Value]) -> String {
    let changes = objects::changes(old, new);
    let count = |kind| changes.iter().filter(|change| change.change == kind).count();
    let mut parts = vec![format!(
        "{} created, {} changed, {} deleted",
        counted(count(ChangeKind::Created), "object"),
        count(ChangeKind::Changed),
        count(ChangeKind::Deleted)
    )];
    let immutable =
        changes.iter().filter(|change| objects::replaceable_field(&change.object, &change.fields).is_some());
    let immutable = immutable.count();
    parts.extend((immutable > 0).then(|| format!("immutable fields of {}", counted(immutable, "object"))));
    match permissions::changes(old, new) {
        Ok(subjects) => {
            let gaining = subjects.iter().filter(|subject| !subject.gained.is_empty()).count();
            parts.extend(
                (gaining > 0).then(|| format!("permissions gained by {}", counted(gaining, "subject"))),
            );
        }
        Err(error) => parts.push(error.to_string()),
    }
    let crds = changes.iter().map(|change| &change.object).filter(|object| object.is_crd());
    parts.extend(named("CRDs", crds.map(|object| object.name.as_str()).collect()));
    let before = images(old);
    parts.extend(named("images", images(new).into_iter().filter(|image| !before.contains(image)).collect()));
    parts.join("; ")
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn named(what: &str, all: Vec<&str>) -> Option<String> {
    let more = all.len().saturating_sub(NAMED);
    let names = all.iter().take(NAMED).map(|name| plain(name)).collect::<Vec<_>>().join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!all.is_empty()).then(|| format!("{what} {names}{more}"))
}

/// The name, unless it could be taken for a part of the message: it is text of a bundle.
fn plain(name: &str) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/@-".contains(c);
    if name.len() <= LONGEST && name.chars().all(is_plain) { name } else { "(invalid name)" }
}

/// Images of all containers in pod templates, sorted.
fn images(objects: &[Value]) -> BTreeSet<&str> {
    let pods = objects.iter().filter_map(|object| object.pointer("/spec/template/spec"));
    let lists = pods.flat_map(|pod| [pod.get("initContainers"), pod.get("containers")]);
    let containers = lists.flatten().filter_map(Value::as_array).flatten();
    containers.filter_map(|container| container.get("image")?.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(image: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"},
            "spec": {"template": {"spec": {"containers": [{"name": "m", "image": image}]}}}})
    }

    fn crd(name: &str) -> Value {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name}})
    }

    #[test]
    fn summary_counts_objects_and_names_crds_and_images() {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "b"}, "subjects": [{"kind": "ServiceAccount", "namespace": "ns", "name": "a"}],
            "roleRef": {"kind": "ClusterRole", "name": "view"}});
        let (old, new) = (vec![deployment("r.io/a:v1"), crd("gone")], vec![deployment("r.io/a:v2"), binding]);
        assert_eq!(
            summary(&old, &new),
            "1 object created, 1 changed, 1 deleted; permissions gained by 1 subject; CRDs gone; images r.io/a:v2"
        );
        let selecting = |app: &str| {
            let mut deployment = deployment("r.io/a:v1");
            deployment["spec"]["selector"] = json!({"matchLabels": {"app": app}});
            deployment
        };
        assert_eq!(
            summary(&[selecting("a")], &[selecting("b")]),
            "0 objects created, 1 changed, 0 deleted; immutable fields of 1 object"
        );
        assert_eq!(summary(&new, &new), "0 objects created, 0 changed, 0 deleted");
        let many: Vec<Value> = ["a", "b", "c", "d", "e"].map(crd).into();
        let hostile = [deployment("a; approved"), crd(&"a".repeat(LONGEST + 1))];
        assert_eq!(
            summary(&[], &hostile),
            "2 objects created, 0 changed, 0 deleted; permissions gained by 1 subject; CRDs (invalid name); images (invalid \
             name)"
        );
        assert_eq!(summary(&[], &many), "5 objects created, 0 changed, 0 deleted; CRDs a, b, c and 2 more");
    }
}
