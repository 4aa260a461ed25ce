//! A user-defined ValidatingAdmissionPolicy.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::PostParams;
use olm_e2e::{PATIENCE, Scenario, eventually, extension};
use serde_json::{Value, json};

/// Runs kubectl. Returns whether it succeeded, and its standard error.
fn kubectl(arguments: &[&str], input: &Value) -> Result<(bool, String)> {
    use std::io::Write as _;
    let mut kubectl = Command::new("kubectl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("kubectl")?;
    kubectl.stdin.take().context("kubectl's input")?.write_all(input.to_string().as_bytes())?;
    let output = kubectl.wait_with_output()?;
    Ok((output.status.success(), String::from_utf8(output.stderr)?))
}

/// User-defined policy: members of the group may install only this package, into its namespace, from its catalog,
/// along the catalog's upgrade edges and with the CRD upgrade check.
async fn delegate(scenario: &Scenario, group: &str) -> Result<()> {
    let name = &scenario.name;
    let rules = [
        (format!("object.spec.source.catalog.packageName == '{name}'"), "wrong package"),
        (format!("object.spec.namespace == '{name}'"), "wrong namespace"),
        (
            format!(
                "has(object.spec.source.catalog.selector) && has(object.spec.source.catalog.selector.matchLabels) && \
                 'e2e' in object.spec.source.catalog.selector.matchLabels && \
                 object.spec.source.catalog.selector.matchLabels['e2e'] == '{name}'"
            ),
            "wrong catalog",
        ),
        (
            "!has(object.spec.source.catalog.upgradeConstraintPolicy) || \
             object.spec.source.catalog.upgradeConstraintPolicy == 'CatalogProvided'"
                .to_owned(),
            "edges must be kept",
        ),
        (
            "!has(object.spec.install) || !has(object.spec.install.preflight) || \
             !has(object.spec.install.preflight.crdUpgradeSafety) || \
             object.spec.install.preflight.crdUpgradeSafety.enforcement == 'Strict'"
                .to_owned(),
            "CRDs must be checked",
        ),
    ];
    let rules: Vec<Value> = rules
        .iter()
        .map(|(expression, message)| json!({"expression": expression, "message": message}))
        .collect();
    let of_group =
        json!([{"name": "of-the-group", "expression": format!("'{group}' in request.userInfo.groups")}]);
    let kinds = json!([{"apiGroups": ["olm.operatorframework.io"], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["clusterextensions"]}]);
    let policy = json!({"metadata": {"name": name}, "spec": {"failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": kinds}, "matchConditions": of_group, "validations": rules}});
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    let role = json!({"metadata": {"name": name}, "rules": [{"apiGroups": ["olm.operatorframework.io"],
        "resources": ["clusterextensions"], "verbs": ["create", "get", "patch", "update"]}]});
    let bound = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]});
    let new = PostParams::default();
    let cluster = &scenario.cluster;
    cluster.all::<ValidatingAdmissionPolicy>().create(&new, &serde_json::from_value(policy)?).await?;
    cluster.all::<ValidatingAdmissionPolicyBinding>().create(&new, &serde_json::from_value(binding)?).await?;
    cluster.all::<ClusterRole>().create(&new, &serde_json::from_value(role)?).await?;
    cluster.all::<ClusterRoleBinding>().create(&new, &serde_json::from_value(bound)?).await?;
    Ok(())
}

// docs/design/operations.md#admission-policies; case operations-a32
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/tests/security/delegated_installers.rs::delegated_installers_are_limited_to_allowed_values proves it"]
async fn user_defined_policy_denies_other_packages_and_settings() -> Result<()> {
    let scenario = Scenario::new("delegated", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let group = format!("installers-of-{}", scenario.name);
    delegate(&scenario, &group).await?;
    let apply = ["apply", "--as", "delegate", "--as-group", group.as_str(), "-f", "-"];
    let ours = |catalog: Value| -> Result<Value> {
        Ok(serde_json::to_value(extension(&scenario.name, &scenario.name, &scenario.name, catalog))?)
    };
    let selector = json!({"selector": {"matchLabels": {"e2e": scenario.name}}});
    let allowed = ours(selector.clone())?;
    let with = |pointer: &str, value: Value| -> Result<Value> {
        let mut object = allowed.clone();
        *object.pointer_mut(pointer).context("no such field")? = value;
        Ok(object)
    };
    let mut beside_the_edges = selector;
    beside_the_edges["upgradeConstraintPolicy"] = json!("SelfCertified");
    let mut unchecked = allowed.clone();
    unchecked["spec"]["install"] = json!({"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}});
    let rows = [
        (with("/spec/source/catalog/packageName", json!("another"))?, "wrong package"),
        (with("/spec/namespace", json!("kube-system"))?, "wrong namespace"),
        (ours(json!({}))?, "wrong catalog"),
        (ours(beside_the_edges)?, "edges must be kept"),
        (unchecked, "CRDs must be checked"),
    ];
    for (object, message) in &rows {
        // A policy becomes active with a delay.
        eventually(message, PATIENCE, async || {
            let (done, said) = kubectl(&[&apply[..], &["--dry-run=server"]].concat(), object)?;
            ensure!(!done && said.contains(message), "{said}");
            Ok(())
        })
        .await?;
        let (done, said) = kubectl(&apply, object)?;
        ensure!(!done && said.contains(message), "{said}");
        ensure!(
            scenario.extensions().get_opt(&scenario.name).await?.is_none(),
            "denied, but the extension exists"
        );
    }
    let (done, said) = kubectl(&apply, &allowed)?;
    ensure!(done, "{said}");
    scenario.wait_installed("1.0.0").await?;
    let cluster = &scenario.cluster;
    cluster.delete(&cluster.all::<ValidatingAdmissionPolicyBinding>(), &scenario.name).await?;
    cluster.delete(&cluster.all::<ValidatingAdmissionPolicy>(), &scenario.name).await?;
    cluster.delete(&cluster.all::<ClusterRoleBinding>(), &scenario.name).await?;
    cluster.delete(&cluster.all::<ClusterRole>(), &scenario.name).await?;
    scenario.finish().await
}
