//! Bundle content, watched namespaces of operators, and bundles rejected before anything is applied.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_e2e::{PATIENCE, Scenario, describe, eventually, replace_in};
use sample_operator::content::{CSV, Sample};
use serde_json::json;

/// List options for the objects of the extension.
fn owned(scenario: &Scenario) -> ListParams {
    ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={}", scenario.name))
}

/// Waits until the operator is a single pod with these target namespaces, without any previous pod.
pub(crate) async fn works_in(scenario: &Scenario, targets: &str) -> Result<()> {
    let pods = scenario.cluster.within::<Pod>(&scenario.name);
    let ours = ListParams::default().labels(&format!("app={}", scenario.name));
    eventually("a single pod", PATIENCE, async || {
        let pods = pods.list(&ours).await?.items;
        let watched: Vec<_> = pods
            .iter()
            .map(|pod| pod.annotations().get("olm.targetNamespaces").map(String::as_str))
            .collect();
        ensure!(watched == [Some(targets)], "pods for {watched:?}");
        Ok(())
    })
    .await
}

/// Creates greetings in both lists of namespaces. Waits until the operator answers those of `within`. Those of
/// `without` must remain unanswered.
async fn answers(scenario: &Scenario, name: &str, within: &[&str], without: &[&str]) -> Result<()> {
    for namespace in without.iter().chain(within) {
        scenario.greet("v1", namespace, name, json!({"name": "world"})).await?;
    }
    for namespace in within {
        let answered = |found: Option<&DynamicObject>| {
            found.is_some_and(|found| found.data["status"]["message"] == "Hello, world!")
        };
        let greetings = scenario.greetings("v1", namespace);
        scenario.cluster.wait(&greetings, name, &format!("answered in {namespace}"), answered).await?;
    }
    for namespace in without {
        let greeting = scenario.greetings("v1", namespace).get(name).await?;
        ensure!(greeting.data["status"].is_null(), "answered in {namespace}: {:?}", greeting.data);
    }
    Ok(())
}

/// Waits until the extension's Roles exist in these namespaces only, each bound to the operator.
pub(crate) async fn permitted_in(scenario: &Scenario, namespaces: &[&str]) -> Result<()> {
    let ours = owned(scenario);
    eventually("Roles in the watched namespaces", PATIENCE, async || {
        let roles = scenario.cluster.all::<Role>().list(&ours).await?.items;
        let mut found: Vec<_> = roles.iter().filter_map(ResourceExt::namespace).collect();
        found.sort_unstable();
        ensure!(found == namespaces, "Roles in {found:?}");
        Ok(())
    })
    .await?;
    for namespace in namespaces {
        let bindings = scenario.cluster.within::<RoleBinding>(namespace).list(&ours).await?.items;
        let subjects = bindings.iter().flat_map(|binding| binding.subjects.iter().flatten());
        let subjects: Vec<_> = subjects.map(|one| (one.namespace.as_deref(), one.name.as_str())).collect();
        let operator = scenario.name.as_str();
        ensure!(subjects == [(Some(operator), operator)], "{namespace}: {subjects:?}");
    }
    Ok(())
}

// docs/design/bundles.md#deployment-configuration; cases bundles-43, bundles-46, bundles-59, additions-a38
#[tokio::test(flavor = "multi_thread")]
async fn operator_watches_the_configured_namespaces_on_the_selected_nodes() -> Result<()> {
    let scenario = Scenario::of("scoped", Sample::scoped, &["1.0.0"]).await?;
    let [first, second] = ["a", "b"].map(|ending| format!("{}-{ending}", scenario.name));
    let own = scenario.name.as_str();
    for namespace in [&first, &second] {
        scenario.cluster.create_namespace(namespace).await?;
    }
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    has_its_objects(&scenario).await?;
    works_in(&scenario, "").await?;
    permitted_in(&scenario, &[]).await?;
    let roles = scenario.cluster.all::<ClusterRole>().list(&owned(&scenario)).await?.items.len();
    ensure!(roles == 2, "{roles} ClusterRoles");
    answers(&scenario, "all", &[own, &first], &[]).await?;

    scenario.configure(json!({"watchNamespace": first})).await?;
    scenario.wait_installed("1.0.0").await?;
    works_in(&scenario, &first).await?;
    permitted_in(&scenario, &[&first]).await?;
    answers(&scenario, "single", &[&first], &[own, &second]).await?;

    let selector = json!({"kubernetes.io/os": "linux"});
    let placed = json!({"nodeSelector": selector});
    scenario.configure(json!({"watchNamespaces": [second, first], "deploymentConfig": placed})).await?;
    scenario.wait_installed("1.0.0").await?;
    works_in(&scenario, &format!("{first},{second}")).await?;
    let deployment = scenario.cluster.within::<Deployment>(own).get(own).await?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
    ensure!(json!(pod.node_selector) == selector, "{:?}", pod.node_selector);
    permitted_in(&scenario, &[&first, &second]).await?;
    answers(&scenario, "several", &[&first, &second], &[own]).await?;

    for namespace in [&first, &second] {
        scenario.cluster.delete(&scenario.cluster.all::<Namespace>(), namespace).await?;
    }
    scenario.finish().await
}

/// Checks the objects of the bundle: text that resembles a template is not rendered.
async fn has_its_objects(scenario: &Scenario) -> Result<()> {
    let (cluster, name) = (&scenario.cluster, scenario.name.as_str());
    let scripts = cluster.within::<ConfigMap>(name).get(&format!("{name}-scripts")).await?;
    let template = scripts.data.unwrap_or_default().remove("template");
    ensure!(template.as_deref() == Some("{{ .Values.a }}"), "{template:?}");
    let policy = cluster.within::<NetworkPolicy>(name).get(name).await?;
    let types = policy.spec.and_then(|spec| spec.policy_types).unwrap_or_default();
    ensure!(types == ["Ingress", "Egress"], "{types:?}");
    let deployment = cluster.within::<Deployment>(name).get(name).await?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
    let mode = pod.volumes.unwrap_or_default().into_iter().find_map(|volume| volume.config_map?.default_mode);
    ensure!(mode == Some(0o755), "{mode:?}");
    Ok(())
}

/// Checks that no object of the extension exists.
async fn nothing_is_applied(scenario: &Scenario) -> Result<()> {
    let ours = owned(scenario);
    let sets = scenario.cluster.all::<ClusterObjectSet>().list(&ours).await?.items;
    ensure!(sets.is_empty(), "a revision exists: {sets:?}");
    let accounts = scenario.cluster.within::<ServiceAccount>(&scenario.name);
    ensure!(accounts.get_opt(&scenario.name).await?.is_none(), "a ServiceAccount exists");
    let shown = scenario.condition_now("Installed").await?;
    ensure!(shown == "False/Failed: No bundle installed", "{shown}");
    Ok(())
}

// Cases bundles-21, bundles-22, additions-a45
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/install_tests.rs::invalid_bundle_or_namespace_creates_no_revision proves it"]
async fn bundle_with_forbidden_objects_or_rules_is_not_applied() -> Result<()> {
    let mut scenario = Scenario::of("hostile", Sample::webhooks, &[]).await?;
    let object = |version: &str, kind: &str, name: &str| {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        (format!("manifests/{name}.yaml"), object.to_string().into_bytes())
    };
    let forbidden = [object("v1", "Pod", "miner"), object("v1", "Namespace", "kube-public")];
    scenario.push_bundle("1.0.0", |files| files.extend(forbidden)).await?;
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", "cluster-admin");
    scenario.push_bundle("1.1.0", |files| files.extend([role])).await?;
    let group = format!("apiGroups: [\"{}\"], apiVersions: [v2]", scenario.sample.group);
    let all = "apiGroups: [\"*\"], apiVersions: [v2]";
    scenario.push_bundle("1.2.0", |files| replace_in(files, CSV, &group, all)).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0", "1.2.0"]))]).await?;
    let roles = scenario.cluster.all::<ClusterRole>();
    let before = roles.get("cluster-admin").await?;

    let rule = |webhook: &str| {
        format!(
            "webhook \"{webhook}.greetings.{}\" contains forbidden rule: admission webhook rules cannot reference API \
             group \"*\"",
            scenario.sample.group
        )
    };
    let kinds = "unsupported resource \"kube-public\" with kind \"Namespace\"\n\
                 unsupported resource \"miner\" with kind \"Pod\"";
    let name =
        "bundle cannot be applied: ClusterRole \"cluster-admin\" belongs to the cluster: choose another name";
    let refused = [
        ("1.0.0", "True/Retrying", kinds.to_owned()),
        ("1.1.0", "False/Blocked", name.to_owned()),
        ("1.2.0", "True/Retrying", format!("{}\n{}", rule("default"), rule("validate"))),
    ];
    scenario.install(json!({"version": "1.0.0"})).await?;
    for (version, class, why) in refused {
        scenario.edit(json!({ "version": version })).await?;
        let bundle = scenario.sample.bundle_name(version);
        let text =
            format!("{class}: error for resolved bundle \"{bundle}\" with version \"{version}\": {why}");
        let found = scenario.wait_condition("Progressing", &text).await?;
        ensure!(describe(&found, "Progressing") == text);
        nothing_is_applied(&scenario).await?;
    }
    ensure!(roles.get("cluster-admin").await?.resource_version() == before.resource_version());
    scenario.finish().await
}

// docs/design/bundles.md#watched-namespaces, docs/design/bundles.md#configuration-errors; case additions-a37
#[tokio::test(flavor = "multi_thread")]
async fn watch_namespace_must_match_the_install_modes_of_the_bundle() -> Result<()> {
    let mut scenario = Scenario::new("watching", &["1.0.0"]).await?;
    for (version, mode) in [("1.1.0", "SingleNamespace"), ("1.2.0", "OwnNamespace")] {
        let only = |files: &mut BTreeMap<_, _>| {
            let declared = |mode: &str, supported: bool| format!("{{type: {mode}, supported: {supported}}}");
            replace_in(files, CSV, &declared(mode, false), &declared(mode, true));
            replace_in(files, CSV, &declared("AllNamespaces", true), &declared("AllNamespaces", false));
        };
        scenario.push_bundle(version, only).await?;
    }
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0", "1.2.0"]))]).await?;
    let refused = async |version: &str, why: &str| {
        let begins = format!(
            "False/InvalidConfiguration: error for resolved bundle \"{}\" with version \"{version}\": invalid \
             ClusterExtension configuration: invalid configuration: ",
            scenario.sample.bundle_name(version)
        );
        let refused = |found: Option<&ClusterExtension>| {
            let text = found.map(|found| describe(found, "Progressing")).unwrap_or_default();
            text.starts_with(&begins) && text.contains(why)
        };
        scenario.cluster.wait(&scenario.extensions(), &scenario.name, why, refused).await.map(drop)
    };
    let missing = "required field \"watchNamespace\" is missing";
    scenario.install(json!({"version": "1.2.0"})).await?;
    refused("1.2.0", missing).await?;
    scenario.configure(json!({"watchNamespace": "elsewhere"})).await?;
    refused("1.2.0", &format!("invalid value \"elsewhere\": must be \"{}\"", scenario.name)).await?;
    nothing_is_applied(&scenario).await?;
    let none = json!({"spec": {"config": null}});
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, none).await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    refused("1.1.0", missing).await?;
    scenario.configure(json!({"watchNamespace": "not.a.label"})).await?;
    refused("1.1.0", "field \"watchNamespace\" must match pattern").await?;
    scenario.configure(json!({"watchNamespace": "default"})).await?;
    scenario.edit(json!({"version": "1.0.0"})).await?;
    refused("1.0.0", "unknown field \"watchNamespace\"").await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    scenario.wait_installed("1.1.0").await?;
    works_in(&scenario, "default").await?;
    scenario.edit(json!({"version": "1.2.0"})).await?;
    scenario.configure(json!({"watchNamespace": scenario.name})).await?;
    scenario.wait_installed("1.2.0").await?;
    scenario.finish().await
}
