//! Unsupported and invalid bundles (docs/design/bundles.md#refused-bundles,
//! docs/design/bundles.md#bundle-validators).

use olm_bundle::Certificates;
use serde_json::{Value, json};

use crate::fixture::Fixture;

const WEBHOOK: &str = "
customresourcedefinitions: {owned: [{name: a.x}]}
install: {spec: {deployments: [{name: d}]}}
webhookdefinitions: [{type: ValidatingAdmissionWebhook, generateName: v.x.y, deploymentName: d}]
";

fn crd(name: &str) -> String {
    json!({"kind": "CustomResourceDefinition", "metadata": {"name": name}}).to_string()
}

fn webhooks(webhooks: Value) -> Fixture {
    Fixture::new(WEBHOOK)
        .file("manifests/crd.yaml", &crd("a.x"))
        .csv(|csv| csv["spec"]["webhookdefinitions"] = webhooks)
}

#[test]
fn unsupported_bundles_are_refused_in_order() {
    // Cases bundles-14, bundles-15, bundles-16, bundles-17
    let owned = "apiservicedefinitions: {owned: [{name: a, group: g, version: v1, kind: K}]}";
    assert_eq!(
        Fixture::new(owned).render_error(),
        "unsupported bundle: apiServiceDefintions are not supported"
    );
    let mut bundle = Fixture::new(WEBHOOK);
    bundle.certificates = Certificates::None;
    assert_eq!(bundle.render_error(), "unsupported bundle: webhookDefinitions are not supported");
    let mut bundle = Fixture::with_modes(&["OwnNamespace"]);
    bundle.single_own_namespace = false;
    assert_eq!(
        bundle.render_error(),
        "unsupported bundle: bundle does not support AllNamespaces install mode"
    );
    let error = Fixture::with_modes(&["MultiNamespace"]).render().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unsupported bundle: bundle must support at least one of [AllNamespaces SingleNamespace OwnNamespace] \
         install modes"
    );
    assert!(!error.is_invalid_configuration());
}

#[test]
fn empty_package_name_is_a_fault() {
    // Case bundles-9
    let bundle = Fixture::new("").file("metadata/annotations.yaml", "annotations: {}");
    assert_eq!(bundle.render_error(), "package name is empty");
}

#[test]
fn deployment_and_crd_faults_are_reported_together() {
    // Case bundles-19
    let spec = "
customresourcedefinitions: {owned: [{name: b.x}, {name: a.x}, {name: a.x}]}
install: {spec: {deployments: [{name: dep}, {name: dep}, {name: ''}]}}
";
    let twice = format!("{}\n---\n{}", crd("c.x"), crd("c.x"));
    let lines = Fixture::new(spec).file("manifests/crd.yaml", &twice).render_error();
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let missing = "cluster service definition references owned custom resource definition";
    let expected = [
        "cluster service version contains duplicate strategy deployment spec 'dep'".to_string(),
        format!("invalid cluster service version strategy deployment name '': {subdomain}"),
        "bundle contains duplicate custom resource definition 'c.x'".to_string(),
        format!("{missing} 'a.x' not found in bundle"),
        format!("{missing} 'b.x' not found in bundle"),
    ];
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn long_invalid_name_has_two_reasons() {
    let name = format!("{}-", "a".repeat(253));
    let spec = json!({"install": {"spec": {"deployments": [{"name": name}]}}});
    let error = Fixture::new(&spec.to_string()).render_error();
    assert!(error.ends_with(")*'), must be no more than 253 characters"), "{error}");
}

#[test]
fn conversion_webhook_requires_all_namespaces_only() {
    // Case bundles-20
    let conversion = json!([{
        "type": "ConversionWebhook", "generateName": "c.x", "deploymentName": "d", "conversionCRDs": ["a.x"],
    }]);
    assert!(webhooks(conversion.clone()).render().is_ok());
    let both = ["SingleNamespace", "AllNamespaces"].map(|mode| json!({"type": mode, "supported": true}));
    assert_eq!(
        webhooks(conversion).csv(|csv| csv["spec"]["installModes"] = json!(both)).render_error(),
        "bundle contains conversion webhook \"c.x\" and supports install modes [AllNamespaces SingleNamespace] - \
         conversion webhooks are only supported for bundles that only support AllNamespaces install mode"
    );
}

#[test]
fn conversion_of_shared_or_unowned_crd_is_a_fault() {
    let conversion = |name: &str, crds: Value| json!({"type": "ConversionWebhook", "generateName": name, "deploymentName": "d", "conversionCRDs": crds});
    let bundle =
        webhooks(json!([conversion("two", json!(["a.x", "z.x"])), conversion("one", json!(["a.x"])),]));
    assert_eq!(
        bundle.render_error(),
        "conversion webhooks [one,two] reference same custom resource definition 'a.x'\n\
         conversion webhook 'two' references custom resource definition 'z.x' not owned bundle"
    );
}

#[test]
fn duplicate_or_dangling_webhooks_are_faults() {
    // Cases bundles-23, bundles-24
    let webhook = |kind: &str, name: &str, deployment: &str| json!({"type": kind, "generateName": name, "deploymentName": deployment});
    let (validating, mutating) = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook");
    assert!(
        webhooks(json!([webhook(validating, "w.x.y", "d"), webhook(mutating, "w.x.y", "d")]))
            .render()
            .is_ok()
    );
    let error = webhooks(json!([
        webhook(validating, "w", "d"),
        webhook(validating, "w", "d"),
        webhook(mutating, "trail-", "d"),
        webhook(validating, "b", "no"),
        webhook(mutating, "a", "no"),
    ]))
    .render_error();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "webhook of type 'MutatingAdmissionWebhook' with name 'a' references non-existent deployment 'no'",
            "webhook of type 'ValidatingAdmissionWebhook' with name 'b' references non-existent deployment 'no'",
            "duplicate webhook 'w' of type 'ValidatingAdmissionWebhook'",
        ]
    );
    let invalid = "webhook of type 'MutatingAdmissionWebhook' has invalid name 'trail-': a lowercase RFC 1123 subdomain";
    assert!(lines[3].starts_with(invalid), "{}", lines[3]);
    assert_eq!(lines.len(), 4);
}

#[test]
fn webhook_rules_that_intercept_olm_are_faults() {
    // Case bundles-21
    let rules = json!([
        {"apiGroups": ["*", "apps"], "resources": ["*"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["MutatingWebhookConfigurations", "other"]},
        {"apiGroups": ["olm.operatorframework.io"]},
    ]);
    let webhook = json!([{
        "type": "ValidatingAdmissionWebhook", "generateName": "v", "deploymentName": "d", "rules": rules,
    }]);
    let prefix = "webhook \"v\" contains forbidden rule: admission webhook rules cannot reference";
    let expected = [
        format!("{prefix} API group \"*\""),
        format!(
            "{prefix} resource \"MutatingWebhookConfigurations\" for API group \"admissionregistration.k8s.io\""
        ),
        format!("{prefix} API group \"olm.operatorframework.io\""),
    ];
    assert_eq!(webhooks(webhook).render_error().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn unsupported_kind_is_a_fault() {
    // Case bundles-22
    let pod = "{kind: Pod, apiVersion: v1, metadata: {name: p1}}";
    assert_eq!(
        Fixture::new("").file("manifests/pod.yaml", pod).render_error(),
        "unsupported resource \"p1\" with kind \"Pod\""
    );
}
