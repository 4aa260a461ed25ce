//! ClusterObjectSets without an extension: phases that wait for their probes, content in Secrets, and the progress
//! deadline.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use kube::api::PostParams;
use olm_api::ClusterObjectSet;
use olm_e2e::{Scenario, object_set, revision_says};
use serde_json::{Value, json};

/// ClusterObjectSet with the name of the scenario, without an extension.
struct HandMade {
    scenario: Scenario,
}

impl HandMade {
    async fn new(test: &str) -> Result<Self> {
        Ok(Self { scenario: Scenario::new(test, &[]).await? })
    }

    async fn create(&self, spec: Value) -> Result<()> {
        let set = object_set(&self.scenario.name, spec);
        self.scenario.cluster.all::<ClusterObjectSet>().create(&PostParams::default(), &set).await?;
        Ok(())
    }

    async fn wait(&self, type_: &'static str, begins: &str) -> Result<ClusterObjectSet> {
        let what = format!("{type_} {begins}");
        let cluster = &self.scenario.cluster;
        cluster.wait(&cluster.all(), &self.scenario.name, &what, revision_says(type_, begins)).await
    }

    async fn merge(&self, patch: Value) -> Result<()> {
        let sets = self.scenario.cluster.all::<ClusterObjectSet>();
        self.scenario.cluster.merge(&sets, &self.scenario.name, patch).await?;
        Ok(())
    }

    /// ConfigMap for a phase.
    fn config_map(&self, name: &str, data: Value) -> Value {
        let metadata = json!({"name": name, "namespace": self.scenario.name, "labels": {"e2e": "probed"}});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    }

    async fn exists(&self, name: &str) -> Result<bool> {
        let found = self.scenario.cluster.within::<ConfigMap>(&self.scenario.name).get_opt(name).await?;
        Ok(found.is_some())
    }

    async fn set_data(&self, name: &str, data: Value) -> Result<()> {
        let maps = self.scenario.cluster.within::<ConfigMap>(&self.scenario.name);
        self.scenario.cluster.merge(&maps, name, json!({ "data": data })).await?;
        Ok(())
    }

    async fn finish(self) -> Result<()> {
        let (cluster, sets) = (&self.scenario.cluster, self.scenario.cluster.all::<ClusterObjectSet>());
        cluster.delete(&sets, &self.scenario.name).await?;
        cluster.wait_gone(&sets, &self.scenario.name).await?;
        self.scenario.finish().await
    }
}

/// Phases with one object each, named `first`, `second` and so on.
fn phases(objects: &[Value]) -> Value {
    let names = ["first", "second", "third", "fourth"];
    let phase = |(object, name): (&Value, &str)| json!({"name": name, "objects": [{ "object": object }]});
    objects.iter().zip(names).map(phase).collect()
}

fn of_kind(group: &str, kind: &str, assertion: Value) -> Value {
    let selector = json!({"type": "GroupKind", "groupKind": {"group": group, "kind": kind}});
    json!({"selector": selector, "assertions": [assertion]})
}

fn field_is(path: &str, value: &str) -> Value {
    json!({"type": "FieldValue", "fieldValue": {"fieldPath": path, "value": value}})
}

// docs/design/apply.md#probes
#[tokio::test(flavor = "multi_thread")]
async fn phase_waits_for_a_bound_volume() -> Result<()> {
    let made = HandMade::new("volume").await?;
    let name = made.scenario.name.clone();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim", "namespace": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": {"requests": {"storage": "1Mi"}}}});
    let bound = of_kind("", "PersistentVolumeClaim", field_is("status.phase", "Bound"));
    let after = made.config_map("after", json!({"a": "b"}));
    made.create(json!({"phases": phases(&[claim, after]), "progressionProbes": [bound]})).await?;
    let pending = format!(
        "False/ProbeFailure: Object PersistentVolumeClaim.v1 {name}/claim: value at key \"status.phase\" != \"Bound\"; \
         expected: \"Bound\" got: \"Pending\""
    );
    made.wait("Available", &pending).await?;
    made.wait("Progressing", "True/RollingOut").await?;
    ensure!(!made.exists("after").await?, "the second phase did not wait");

    let volumes = made.scenario.cluster.all::<PersistentVolume>();
    let volume = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Mi"}, "hostPath": {"path": "/nowhere"},
        "claimRef": {"namespace": name, "name": "claim"}}});
    volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
    made.wait("Progressing", "True/Succeeded").await?;
    made.wait("Available", "True/ProbesSucceeded").await?;
    ensure!(made.exists("after").await?);
    let claims = made.scenario.cluster.within::<PersistentVolumeClaim>(&name);
    let cluster = made.scenario.cluster.clone();
    made.finish().await?;
    cluster.wait_gone(&claims, "claim").await?;
    cluster.delete(&volumes, &name).await
}

// docs/design/apply.md#probes
#[tokio::test(flavor = "multi_thread")]
async fn phase_waits_for_every_kind_of_assertion() -> Result<()> {
    let made = HandMade::new("asserted").await?;
    let namespace = made.scenario.name.clone();
    let group = format!("{namespace}.example");
    let resource = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let established =
        json!({"type": "ConditionEqual", "conditionEqual": {"type": "Established", "status": "True"}});
    let equal =
        json!({"type": "FieldsEqual", "fieldsEqual": {"fieldA": "data.left", "fieldB": "data.right"}});
    let labels = json!({"matchLabels": {"e2e": "probed"}});
    let probes = json!([
        of_kind("apiextensions.k8s.io", "CustomResourceDefinition", established),
        of_kind("", "ConfigMap", equal),
        {"selector": {"type": "Label", "label": labels}, "assertions": [field_is("data.left", "1")]},
    ]);
    let objects = [
        resource,
        made.config_map("middle", json!({"left": "1", "fixed": "x"})),
        made.config_map("last", json!({"left": "1", "right": "1"})),
    ];
    made.create(json!({"phases": phases(&objects), "progressionProbes": probes})).await?;
    let failure =
        format!("False/ProbeFailure: Object ConfigMap.v1 {namespace}/middle: \"data.right\" missing");
    made.wait("Available", &failure).await?;
    made.set_data("middle", json!({"right": "2"})).await?;
    let failure = format!(
        "False/ProbeFailure: Object ConfigMap.v1 {namespace}/middle: \"data.left\" != \"data.right\" expected: \"1\" \
         got: \"2\""
    );
    made.wait("Available", &failure).await?;
    ensure!(!made.exists("last").await?, "the last phase did not wait");
    made.set_data("middle", json!({"right": "1"})).await?;
    made.wait("Progressing", "True/Succeeded").await?;
    made.wait("Available", "True/ProbesSucceeded").await?;
    ensure!(made.exists("last").await?);
    made.finish().await
}

/// Creates the Secret of [`HandMade`] with a ConfigMap `direct`, immutable or not.
async fn put_content(made: &HandMade, value: &str, immutable: bool) -> Result<()> {
    let secrets = made.scenario.cluster.within::<Secret>(&made.scenario.name);
    made.scenario.cluster.delete(&secrets, "content").await?;
    made.scenario.cluster.wait_gone(&secrets, "content").await?;
    let object = made.config_map("direct", json!({"a": value}));
    let secret = json!({"metadata": {"name": "content"}, "immutable": immutable,
        "stringData": {"object": object.to_string()}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    Ok(())
}

fn content_phases(made: &HandMade) -> Value {
    let reference = json!({"name": "content", "namespace": made.scenario.name, "key": "object"});
    json!([{"name": "resources", "objects": [{ "ref": reference }]}])
}

// Case apply-40
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/revision/tests/api_server/main.rs::revision_controller_rolls_out_archives_and_deletes_revisions proves it"]
async fn replaced_secret_content_blocks_a_revision() -> Result<()> {
    let made = HandMade::new("blocked").await?;
    put_content(&made, "first", true).await?;
    made.create(json!({"phases": content_phases(&made)})).await?;
    let set = made.wait("Progressing", "True/Succeeded: Revision  has rolled out.").await?;
    let observed = set.status.unwrap_or_default().observed_phases;
    ensure!(observed.len() == 1 && observed[0].name == "resources" && !observed[0].digest.is_empty());
    // Secrets of a revision without an extension are not watched. The annotation triggers a reconcile.
    put_content(&made, "second", true).await?;
    made.merge(json!({"metadata": {"annotations": {"touched": "1"}}})).await?;
    let changed = "False/Blocked: resolved content of 1 phase(s) has changed: phase \"resources\"";
    made.wait("Progressing", changed).await?;
    let applied = made.scenario.cluster.within::<ConfigMap>(&made.scenario.name).get("direct").await?;
    ensure!(applied.data.unwrap_or_default()["a"] == "first");
    put_content(&made, "first", true).await?;
    made.merge(json!({"metadata": {"annotations": {"touched": "2"}}})).await?;
    made.wait("Progressing", "True/Succeeded: Revision  has rolled out.").await?;
    made.finish().await
}

// docs/design/apply.md#content-and-digests
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/revision/tests/api_server/main.rs::revision_controller_rolls_out_archives_and_deletes_revisions proves it"]
async fn mutable_secret_content_is_not_applied() -> Result<()> {
    let made = HandMade::new("mutable").await?;
    put_content(&made, "first", false).await?;
    made.create(json!({"phases": content_phases(&made)})).await?;
    let blocked = format!(
        "False/Blocked: the following secrets are not immutable (referenced secrets must have immutable set to true): \
         {}/content",
        made.scenario.name
    );
    made.wait("Progressing", &blocked).await?;
    ensure!(!made.exists("direct").await?, "the object was applied");
    made.finish().await
}

// docs/design/apply.md#progress-deadline; case apply-33
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/revision/tests/api_server/main.rs::revision_controller_rolls_out_archives_and_deletes_revisions proves it"]
async fn rollout_past_its_deadline_can_still_succeed() -> Result<()> {
    let made = HandMade::new("late-set").await?;
    let map = made.config_map("switch", json!({"kept": "yes"}));
    let probe = of_kind("", "ConfigMap", field_is("data.on", "yes"));
    made.create(
        json!({"phases": phases(&[map]), "progressionProbes": [probe], "progressDeadlineMinutes": 1}),
    )
    .await?;
    made.wait("Progressing", "False/ProgressDeadlineExceeded").await?;
    made.set_data("switch", json!({"on": "yes"})).await?;
    made.wait("Progressing", "True/Succeeded").await?;
    made.wait("Available", "True/ProbesSucceeded").await?;
    made.finish().await
}

// docs/design/apply.md#removal
#[tokio::test(flavor = "multi_thread")]
async fn archiving_a_rollout_past_its_deadline_deletes_its_objects() -> Result<()> {
    let made = HandMade::new("late-archived").await?;
    let namespace = made.scenario.name.clone();
    let map = made.config_map("settings", json!({"a": "b"}));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "never", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "never"}}, "template": {"metadata": {"labels": {"app": "never"}},
            "spec": {"containers": [{"name": "never", "image": "registry.invalid/never:1"}]}}}});
    let available =
        json!({"type": "ConditionEqual", "conditionEqual": {"type": "Available", "status": "True"}});
    let objects = json!([{"name": "all", "objects": [{ "object": map }, { "object": deployment }]}]);
    let probe = of_kind("apps", "Deployment", available);
    made.create(json!({"phases": objects, "progressionProbes": [probe], "progressDeadlineMinutes": 1}))
        .await?;
    made.wait("Progressing", "False/ProgressDeadlineExceeded").await?;
    ensure!(made.exists("settings").await?);
    made.merge(json!({"spec": {"lifecycleState": "Archived"}})).await?;
    made.wait("Progressing", "False/Archived").await?;
    let cluster = &made.scenario.cluster;
    cluster.wait_gone(&cluster.within::<ConfigMap>(&namespace), "settings").await?;
    cluster.wait_gone(&cluster.within::<Deployment>(&namespace), "never").await?;
    made.finish().await
}
