//! Content of an ExtensionPlan, within its limits. Pure.

use olm_api::extension_plan::{PlannedBundle, PlannedChange, PlannedObject, PlannedRevision};
use olm_api::text::one_line;
use olm_plan::objects::{ChangeKind, ObjectChange, by_name, changes};
use olm_plan::permissions::{self, Permission, Subject};
use olm_revision::generate::BundleIdentity;
use serde_json::Value;

use super::PlanId;

const MAX_OBJECTS: usize = 200;
const MAX_PERMISSIONS: usize = 100;
const MAX_FINDINGS: usize = 50;
/// Longest name, version or kind, in bytes.
const MAX_NAME: usize = 253;
/// Longest sentence, in bytes.
const MAX_SENTENCE: usize = 512;
const MAX_IMAGE: usize = 1024;
const MAX_IMAGE_DIGEST: usize = 256;
const MAX_SUMMARY: usize = 4096;

/// Inputs of the content of an ExtensionPlan.
pub(in super::super) struct PlanSource<'a> {
    pub extension: &'a str,
    pub id: &'a PlanId,
    pub target: &'a BundleIdentity,
    pub catalog: Option<&'a str>,
    pub image_digest: &'a str,
    pub summary: &'a str,
    /// Objects of the newest revision.
    pub before: &'a [Value],
    pub after: &'a [Value],
}

/// Content of the ExtensionPlan.
pub(in super::super) fn content(source: &PlanSource<'_>) -> PlannedRevision {
    let PlanSource { target, before, after, .. } = source;
    let mut limits = Limits::default();
    let changes = changes(before, after);
    let mut plan = PlannedRevision {
        extension: source.extension.to_owned(),
        revision: source.id.revision,
        digest: source.id.digest.clone(),
        bundle: PlannedBundle {
            name: limits.text(&target.name, MAX_NAME),
            version: limits.text(&target.version, MAX_NAME),
            catalog: source.catalog.map(|catalog| limits.text(catalog, MAX_NAME)),
            image: limits.text(&target.image, MAX_IMAGE),
            image_digest: limits.text(source.image_digest, MAX_IMAGE_DIGEST),
        },
        summary: limits.text(source.summary, MAX_SUMMARY),
        objects: Vec::new(),
        permissions_gained: limits.permissions(before, after),
        crd_findings: limits.sentences(&crd_findings(before, after, &changes), MAX_FINDINGS),
        truncated: false,
    };
    plan.objects = limits.first(&changes, MAX_OBJECTS).iter().map(|change| limits.object(change)).collect();
    plan.truncated = limits.exceeded;
    plan
}

/// Findings of the CRD check between the two lists of objects.
fn crd_findings(before: &[Value], after: &[Value], changes: &[ObjectChange]) -> Vec<String> {
    let (before, after) = (by_name(before), by_name(after));
    let changed = changes.iter().map(|change| &change.object).filter(|object| object.is_crd());
    let findings = changed.flat_map(|object| {
        let (Some(old), Some(new)) = (before.get(object), after.get(object)) else { return Vec::new() };
        let texts = match olm_crd_safety::check(Some(old), new) {
            Ok(findings) => {
                let vanished = olm_crd_safety::vanished_versions(old, new).unwrap_or_default();
                let vanished =
                    vanished.iter().map(|version| format!("version {version} is no longer served"));
                findings.iter().map(ToString::to_string).chain(vanished).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        texts.into_iter().map(|text| format!("{}: {text}", object.name)).collect()
    });
    findings.collect()
}

/// Limits of the schema.
#[derive(Default)]
struct Limits {
    /// `true` if something was cut.
    exceeded: bool,
}

impl Limits {
    /// The text, or its beginning and `…`.
    fn text(&mut self, text: &str, longest: usize) -> String {
        const MARK: char = '…';
        if text.len() <= longest {
            return text.to_owned();
        }
        self.exceeded = true;
        let mut end = longest - MARK.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        format!("{}{MARK}", &text[..end])
    }

    fn first<'a, T>(&mut self, all: &'a [T], most: usize) -> &'a [T] {
        self.exceeded |= all.len() > most;
        &all[..all.len().min(most)]
    }

    fn sentences(&mut self, all: &[String], most: usize) -> Vec<String> {
        self.first(all, most).iter().map(|text| self.text(&one_line(text), MAX_SENTENCE)).collect()
    }

    /// Gained permissions. Those that allow most are first, so that no limit hides them.
    fn permissions(&mut self, before: &[Value], after: &[Value]) -> Vec<String> {
        let changes = match permissions::changes(before, after) {
            Ok(changes) => changes,
            Err(error) => return vec![error.to_string()],
        };
        let gained = changes
            .iter()
            .flat_map(|change| change.gained.iter().map(move |gained| (&change.subject, gained)));
        let mut gained: Vec<(&Subject, &Permission)> = gained.collect();
        gained.sort_by_key(|(_, permission)| permission.rank());
        let sentence = |(subject, permission): &(&Subject, &Permission)| {
            let whole = format!("{subject}: {permission}");
            if whole.len() <= MAX_SENTENCE {
                return whole;
            }
            self.exceeded = true;
            permission.brief(subject)
        };
        let listed = &gained[..gained.len().min(MAX_PERMISSIONS)];
        let mut sentences: Vec<String> = listed.iter().map(sentence).collect();
        if gained.len() > MAX_PERMISSIONS {
            self.exceeded = true;
            let left_out = gained.len() - sentences.len() + 1;
            sentences.truncate(MAX_PERMISSIONS - 1);
            sentences.push(format!("and {left_out} more permissions"));
        }
        sentences
    }

    fn object(&mut self, ObjectChange { change, object, .. }: &ObjectChange) -> PlannedObject {
        PlannedObject {
            change: match change {
                ChangeKind::Created => PlannedChange::Created,
                ChangeKind::Changed => PlannedChange::Changed,
                ChangeKind::Deleted => PlannedChange::Deleted,
            },
            group: self.text(&object.group, MAX_NAME),
            kind: self.text(&object.kind, MAX_NAME),
            namespace: self.text(&object.namespace, MAX_NAME),
            name: self.text(&object.name, MAX_NAME),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(before: &[Value], after: &[Value], summary: &str) -> PlannedRevision {
        let target = BundleIdentity { name: "demo.v2".to_owned(), ..BundleIdentity::default() };
        let id = PlanId { revision: 2, digest: "sha256:a".to_owned() };
        let (extension, catalog, image_digest) = ("demo", Some("hub"), "sha256:b");
        let (target, id) = (&target, &id);
        content(&PlanSource { extension, id, target, catalog, image_digest, summary, before, after })
    }

    fn map(name: &str, value: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"},
            "data": {"a": value}})
    }

    fn crd(type_: &str) -> Value {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "lamps.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "lamps", "kind": "Lamp"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "properties": {"size": {"type": type_}}}}}]}})
    }

    fn role(verbs: &[&str]) -> [Value; 2] {
        let group = "rbac.authorization.k8s.io";
        [
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "r"},
                "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs}]}),
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "r"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "ns"}]}),
        ]
    }

    #[test]
    fn content_lists_objects_permissions_and_crd_findings() {
        let mut former = crd("integer");
        let beta = json!({"name": "v1beta1", "served": true, "storage": false});
        former["spec"]["versions"].as_array_mut().unwrap().push(beta);
        let before = [vec![map("a", "1"), map("b", "1"), former], role(&["get"]).into()].concat();
        let after =
            [vec![map("a", "2"), map("c", "1"), crd("string")], role(&["get", "list"]).into()].concat();
        let plan = plan(&before, &after, "a summary");
        let objects: Vec<String> = plan
            .objects
            .iter()
            .map(|object| format!("{} {} {}", object.change, object.kind, object.name))
            .collect();
        let expected = [
            "Created ConfigMap c",
            "Changed ConfigMap a",
            "Changed CustomResourceDefinition lamps.example.com",
            "Changed ClusterRole r",
            "Deleted ConfigMap b",
        ];
        assert_eq!(objects, expected);
        assert_eq!(plan.permissions_gained, ["ServiceAccount ns/sa: list on deployments.apps cluster-wide"]);
        let finding = "lamps.example.com: v1: ^.size: type: type changed : \"integer\" -> \"string\"";
        let vanished = "lamps.example.com: version v1beta1 is no longer served";
        assert_eq!(plan.crd_findings, [finding, vanished]);
        assert_eq!((plan.summary.as_str(), plan.truncated), ("a summary", false));
    }

    #[test]
    fn limit_hides_no_dangerous_permission() {
        let group = "rbac.authorization.k8s.io";
        let names = |prefix: &str, last: &str| {
            let all = (0..MAX_PERMISSIONS).map(|number| format!("{prefix}{number}"));
            all.chain([last.to_owned()]).collect::<Vec<_>>()
        };
        let rule = |number: usize| json!({"apiGroups": [format!("g{number}.x.io")], "resources": ["a"], "verbs": ["get"]});
        let mut rules: Vec<Value> = (0..MAX_PERMISSIONS).map(rule).collect();
        let (resources, verbs) = (names("a", "roles"), names("a", "escalate"));
        rules.push(json!({"apiGroups": [group], "resources": resources, "verbs": verbs}));
        let mut objects = role(&["get"]);
        objects[0]["rules"] = json!(rules);
        objects[1]["subjects"] =
            json!([{"kind": "User", "apiGroup": group, "name": "z\n".repeat(MAX_SENTENCE)}]);
        let plan = plan(&[], &objects, "");
        assert_eq!((plan.permissions_gained.len(), plan.truncated), (MAX_PERMISSIONS, true));
        let first = &plan.permissions_gained[0];
        let resources = format!(" more on roles.{group}, a0.");
        for part in ["…: escalate, a0, ", &resources, " more cluster-wide"] {
            assert!(first.contains(part), "{part}: {first}");
        }
        assert!(
            plan.permissions_gained.iter().all(|text| text.len() <= MAX_SENTENCE && !text.contains('\n'))
        );
        assert_eq!(plan.permissions_gained[MAX_PERMISSIONS - 1], "and 2 more permissions");
    }

    #[test]
    fn content_beyond_a_limit_is_cut() {
        let many: Vec<Value> = (0..MAX_OBJECTS).map(|number| map(&format!("m{number}"), "1")).collect();
        assert!(!plan(&[], &many, "").truncated);
        let more = [many, vec![map("z", "1")]].concat();
        let cut = plan(&[], &more, "");
        assert_eq!((cut.objects.len(), cut.truncated), (MAX_OBJECTS, true));
        let cut = plan(&[], &[map(&"n".repeat(300), "1")], "");
        assert_eq!((cut.objects[0].name.len(), cut.truncated), (MAX_NAME, true));
        let cut = plan(&[], &[], &"é".repeat(MAX_SUMMARY));
        assert!(cut.summary.len() <= MAX_SUMMARY && cut.summary.ends_with("é…") && cut.truncated);
    }
}
