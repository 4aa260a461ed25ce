//! Uninstall plan: the objects, CRDs and custom resources that are deleted with an extension
//! (docs/design/additions.md#uninstall-policy). Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::ResourceExt;
use kube::core::GroupVersionKind;
use olm_api::{ClusterExtension, annotations};
use olm_cli_core::error::CliError;
use olm_cli_core::output::{Fields, counted, qualified};
use olm_request::{ExtensionRules, Settings, UninstallPolicy};
use olm_revision::object::{ObjectKey, served_kind};
use olm_version::quote;
use serde::Serialize;
use serde_json::Value;

use crate::status::observe::{Live, Observed};

/// Uninstall plan as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UninstallPlan {
    pub(super) extension: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<String>,
    /// `Delete`, `KeepCRDs` or `BlockIfInUse`.
    policy: &'static str,
    /// Number of deleted objects.
    objects: usize,
    /// Number of deleted objects by kind.
    kinds: BTreeMap<String, usize>,
    /// CRDs of the extension, by name.
    #[serde(rename = "definitions")]
    pub(super) crds: Vec<OwnedCrd>,
    /// Number of deleted custom resources.
    custom_resources: usize,
    /// Requirements of other extensions for which the deletion waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) dependents: Vec<String>,
    warnings: Vec<String>,
    #[serde(skip)]
    uninstall_policy: UninstallPolicy,
    /// Number of revisions and objects that cannot be read.
    #[serde(skip)]
    uncounted: usize,
    /// Deleted objects.
    #[serde(skip)]
    pub(super) keys: Vec<ObjectKey>,
}

/// CRD of the extension.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnedCrd {
    pub(super) name: String,
    /// Kind of its custom resources, in a served version. `None` if no version is served.
    #[serde(skip)]
    pub(super) gvk: Option<GroupVersionKind>,
    /// Number of custom resources. `None` if they cannot be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) custom_resources: Option<usize>,
    /// First custom resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first: Option<String>,
    /// `true` if the CRD and its custom resources are kept.
    #[serde(rename = "stays")]
    pub(super) kept: bool,
    /// `true` if a webhook of the extension converts between its versions.
    #[serde(skip)]
    converted: bool,
}

impl UninstallPlan {
    /// Plan to delete the objects of the revisions. `keep_crds` overrides the policy of the extension.
    pub(super) fn new(observed: &Observed, keep_crds: bool) -> Self {
        let extension = &observed.extension;
        let policy = policy(extension, keep_crds);
        let owners: BTreeSet<String> = observed.revisions.iter().filter_map(|one| one.set.uid()).collect();
        let mut objects: HashMap<ObjectKey, &Value> = HashMap::new();
        let mut warnings = Vec::new();
        for revision in &observed.revisions {
            let phases = match &revision.content {
                Err(why) => {
                    warnings.push(format!(
                        "the objects of revision {} are not counted: {why}",
                        revision.set.name_any()
                    ));
                    continue;
                }
                Ok(phases) => phases,
            };
            for object in phases.iter().flat_map(|phase| &phase.objects) {
                let key = ObjectKey::of(&object.content.object);
                match &object.live {
                    Live::Found(live) if is_owned(live, &owners) => drop(objects.insert(key, live)),
                    Live::Unreadable(why) => {
                        let name = qualified(&key.namespace, &key.name);
                        warnings.push(format!("{} {name} is not counted: {why}", key.gvk.kind));
                    }
                    Live::Found(_) | Live::Missing | Live::NotServed => {}
                }
            }
        }
        let keeps = policy == UninstallPolicy::KeepCrds;
        let mut crds: Vec<OwnedCrd> = objects.values().filter_map(|object| crd(object, keeps)).collect();
        crds.sort_by(|a, b| a.name.cmp(&b.name));
        let mut kinds = BTreeMap::new();
        let is_deleted = |object: &Value| !(keeps && is_crd(object));
        for object in objects.values().filter(|object| is_deleted(object)) {
            *kinds.entry(object["kind"].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
        }
        let uncounted = warnings.len();
        warnings.sort();
        warnings.dedup();
        let bundle = extension.status.as_ref().and_then(|status| status.install.as_ref());
        Self {
            extension: extension.name_any(),
            bundle: bundle.map(|install| install.bundle.name.clone()),
            policy: policy.as_str(),
            objects: kinds.values().sum(),
            kinds,
            crds,
            custom_resources: 0,
            dependents: Vec::new(),
            warnings,
            uninstall_policy: policy,
            uncounted,
            keys: objects.into_iter().filter(|(_, object)| is_deleted(object)).map(|(key, _)| key).collect(),
        }
    }

    /// Adds up the custom resources, after the CRDs have been counted.
    pub(super) fn counted(mut self) -> Self {
        let deleted = || self.crds.iter().filter(|one| !one.kept);
        self.custom_resources = deleted().filter_map(|one| one.custom_resources).sum();
        let converted = self.crds.iter().filter(|one| one.kept && one.converted);
        self.warnings.extend(
            converted
                .map(|one| format!("the conversion webhook of {} is deleted with the extension", one.name)),
        );
        self
    }

    /// Reports whether the policy keeps CRDs, including those that could not be read.
    pub(super) fn keeps_crds(&self) -> bool {
        self.uninstall_policy == UninstallPolicy::KeepCrds
    }

    /// Failure if the extension's policy forbids to uninstall it now.
    pub fn blocked(&self) -> Option<CliError> {
        let (count, first) = (self.custom_resources, self.crds.iter().find_map(|one| one.first.as_ref()));
        (self.uninstall_policy == UninstallPolicy::BlockIfInUse && count > 0).then(|| {
            let first = first.map(|first| format!(" (first: {first})")).unwrap_or_default();
            CliError::findings(format!(
                    "cannot uninstall: {count} custom resources exist{first}, and the uninstall policy of {} is BlockIfInUse\n\
                     delete them first, or keep them and their CustomResourceDefinitions with --keep-crds",
                    quote(&self.extension)
                ))
        })
    }

    /// Confirmation question.
    pub fn question(&self) -> String {
        let deleted: Vec<&OwnedCrd> = self.crds.iter().filter(|one| !one.kept).collect();
        let is_known = deleted.iter().all(|one| one.custom_resources.is_some() || one.gvk.is_none());
        let crds = match deleted.len() {
            0 => String::new(),
            count => format!(
                ", including {} with {}",
                counted(count, "CustomResourceDefinition"),
                at_least(self.custom_resources, "custom resource", is_known)
            ),
        };
        let objects = at_least(self.objects, "object", self.uncounted == 0);
        format!("Uninstall {} and permanently delete {objects}{crds}?", self.extension)
    }

    /// Names of the CRDs that are deleted although custom resources exist, or may exist.
    pub fn endangered(&self) -> impl Iterator<Item = &str> {
        let in_use = |one: &&OwnedCrd| !one.kept && one.gvk.is_some() && one.custom_resources != Some(0);
        self.crds.iter().filter(in_use).map(|one| one.name.as_str())
    }

    /// Text output.
    pub fn text(&self) -> String {
        let mut fields = Fields::default();
        fields.add(0, "Extension", &self.extension);
        fields.add(0, "Installed", self.bundle.as_deref().unwrap_or("nothing"));
        fields.add(0, "Policy", self.policy);
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        fields.add(0, "Deletes", &at_least(self.objects, "object", self.uncounted == 0));
        if !kinds.is_empty() {
            fields.add(2, "Kinds", &kinds.join(", "));
        }
        for (kept, key) in [(false, "Deletes CRDs"), (true, "Keeps CRDs")] {
            let lines: Vec<String> =
                self.crds.iter().filter(|one| one.kept == kept).map(OwnedCrd::line).collect();
            fields.list(0, key, &lines);
        }
        fields.list(0, "Blocked by", &self.dependents);
        if !self.dependents.is_empty() {
            let key = annotations::EXT_IGNORE_DEPENDENTS;
            fields.add(2, "Remedy", &format!("uninstall them first, or set annotation {key} to \"true\""));
        }
        fields.list(0, "Warning", &self.warnings);
        fields.text
    }
}

/// Count in words. What cannot be read is not counted, and zero may then be any number.
fn at_least(count: usize, what: &str, is_known: bool) -> String {
    match (count, is_known) {
        (_, true) => counted(count, what),
        (0, false) => format!("an unknown number of {what}s"),
        (_, false) => format!("at least {}", counted(count, what)),
    }
}

impl OwnedCrd {
    fn line(&self) -> String {
        let count = match (self.custom_resources, &self.first) {
            (None, _) => "its custom resources cannot be counted".to_owned(),
            (Some(count), Some(first)) => format!("{}, first {first}", counted(count, "custom resource")),
            (Some(_), None) => "no custom resources".to_owned(),
        };
        format!("{}: {count}", self.name)
    }
}

/// Policy of the extension's annotation, unless the flag overrides it.
pub(super) fn policy(extension: &ClusterExtension, keep_crds: bool) -> UninstallPolicy {
    let rules = ExtensionRules::of(extension.metadata.annotations.as_ref(), Settings::default());
    match keep_crds {
        true => UninstallPolicy::KeepCrds,
        false => rules.uninstall_policy.unwrap_or(UninstallPolicy::Delete),
    }
}

/// Reports whether an owner reference of the object has one of these UIDs.
fn is_owned(object: &Value, owners: &BTreeSet<String>) -> bool {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    references.into_iter().any(|reference| reference["uid"].as_str().is_some_and(|uid| owners.contains(uid)))
}

fn is_crd(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
        && object["apiVersion"].as_str().is_some_and(|version| version.starts_with("apiextensions.k8s.io/"))
}

fn crd(object: &Value, kept: bool) -> Option<OwnedCrd> {
    if !is_crd(object) {
        return None;
    }
    Some(OwnedCrd {
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        gvk: served_kind(object),
        custom_resources: None,
        first: None,
        kept,
        converted: object["spec"]["conversion"]["strategy"] == "Webhook",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::observe::{ObservedObject, ObservedRevision, PhaseStatus};
    use olm_api::cluster_object_set::CollisionProtection;
    use olm_revision::canonical::Numbers;
    use olm_revision::content::ContentObject;
    use serde_json::json;

    fn owned(mut object: Value, owner: &str) -> ObservedObject {
        let content = ContentObject {
            object: object.clone(),
            numbers: Numbers::Exact,
            collision_protection: CollisionProtection::Prevent,
        };
        object["metadata"]["ownerReferences"] = json!([{"uid": owner, "controller": true}]);
        ObservedObject { content, live: Live::Found(object), cause: None }
    }

    fn observed(policy: Option<&str>) -> Observed {
        let config_map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}});
        let versions = json!([{"name": "v2", "served": true, "storage": false}, {"name": "v1", "served": true, "storage": true}]);
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "pipes.example.com"},
            "spec": {"group": "example.com", "names": {"kind": "Pipe", "plural": "pipes"}, "versions": versions,
                "conversion": {"strategy": "Webhook"}}});
        let mut missing = owned(config_map("missing"), "r1");
        missing.live = Live::Missing;
        let mut secret = owned(config_map("secret"), "r1");
        secret.live = Live::Unreadable("forbidden".to_owned());
        let objects = vec![
            owned(config_map("a"), "r1"),
            owned(config_map("b"), "other"),
            owned(crd, "r1"),
            missing,
            secret,
        ];
        let set = json!({"metadata": {"name": "pipe-1", "uid": "r1"}});
        let annotations =
            policy.map(|policy| json!({annotations::EXT_UNINSTALL_POLICY: policy})).unwrap_or_default();
        Observed {
            extension: serde_json::from_value(
                json!({"metadata": {"name": "pipe", "annotations": annotations}}),
            )
            .unwrap(),
            revisions: vec![ObservedRevision {
                set: serde_json::from_value(set).unwrap(),
                content: Ok(vec![PhaseStatus { name: "deploy".to_owned(), objects }]),
            }],
            drift: None,
        }
    }

    fn plan(policy: Option<&str>, keep_crds: bool, count: usize) -> UninstallPlan {
        let mut plan = UninstallPlan::new(&observed(policy), keep_crds);
        for crd in &mut plan.crds {
            crd.custom_resources = Some(count);
            crd.first = (count > 0).then(|| "example.com/v1, Kind=Pipe apps/one".to_owned());
        }
        plan.counted()
    }

    // docs/design/additions.md#uninstall-policy
    #[test]
    fn plan_counts_objects_and_custom_resources() {
        let deleting = plan(None, false, 3);
        assert_eq!(deleting.crds[0].gvk.as_ref().unwrap().version, "v1");
        assert_eq!(
            deleting.text(),
            "\
Extension:          pipe
Installed:          nothing
Policy:             Delete
Deletes:            at least 2 objects
  Kinds:            1 ConfigMap, 1 CustomResourceDefinition
Deletes CRDs:       pipes.example.com: 3 custom resources, first example.com/v1, Kind=Pipe apps/one
Warning:            ConfigMap ns/secret is not counted: forbidden
"
        );
        let question = "Uninstall pipe and permanently delete at least 2 objects, including 1 CustomResourceDefinition with 3 custom resources?";
        assert_eq!(deleting.question(), question);
        assert!(deleting.blocked().is_none() && !deleting.keeps_crds());
    }

    #[test]
    fn what_cannot_be_read_is_not_zero() {
        let mut observed = observed(None);
        observed.revisions[0].content = Err("forbidden".to_owned());
        let plan = UninstallPlan::new(&observed, false).counted();
        assert_eq!(plan.question(), "Uninstall pipe and permanently delete an unknown number of objects?");
        let mut plan = self::plan(None, false, 0);
        assert_eq!(plan.endangered().count(), 0);
        plan.crds[0].custom_resources = None;
        assert!(
            plan.question()
                .ends_with("1 CustomResourceDefinition with an unknown number of custom resources?")
        );
        assert_eq!(plan.endangered().collect::<Vec<_>>(), ["pipes.example.com"]);
    }

    // Cases additions-a49, additions-a50
    #[test]
    fn policy_keeps_crds_or_blocks_uninstall() {
        let kept = plan(Some("BlockIfInUse"), true, 3);
        assert!(kept.keeps_crds() && kept.blocked().is_none());
        assert_eq!(kept.question(), "Uninstall pipe and permanently delete at least 1 object?");
        let text = kept.text();
        assert!(text.contains("Keeps CRDs:         pipes.example.com: 3 custom resources"), "{text}");
        assert!(
            text.contains("the conversion webhook of pipes.example.com is deleted with the extension"),
            "{text}"
        );
        let blocked = plan(Some("BlockIfInUse"), false, 3).blocked().unwrap();
        assert_eq!(blocked.exit_code(), 3);
        let expected = "cannot uninstall: 3 custom resources exist (first: example.com/v1, Kind=Pipe apps/one), and the uninstall \
                    policy of \"pipe\" is BlockIfInUse\n";
        assert!(blocked.to_string().starts_with(expected), "{blocked}");
        assert!(plan(Some("BlockIfInUse"), false, 0).blocked().is_none());
        let misspelled = observed(Some("keepcrds")).extension;
        assert_eq!(policy(&misspelled, false), UninstallPolicy::BlockIfInUse);
    }
}
