//! Rules on mistakes of manifests that only show in a cluster, or in a catalog.

use super::fixture::{Files, compare};

const IMAGE: &str = "                image: quay.io/light/lamp@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n";

/// Bundle whose container has these lines.
fn container(lines: &str) -> Files {
    Files::good().csv(IMAGE, &format!("{IMAGE}{lines}"))
}

/// Rules of the findings.
fn rules(files: &Files) -> Vec<String> {
    let id = |finding: &String| finding.rsplit('[').next().unwrap().trim_end_matches(']').to_owned();
    files.findings().iter().map(id).collect()
}

fn modes(files: Files, supported: &[&str]) -> Files {
    let mut files = files;
    for mode in ["OwnNamespace", "SingleNamespace", "AllNamespaces"] {
        let is_supported = supported.contains(&mode);
        files = files.csv(&format!("{mode}, supported: true"), &format!("{mode}, supported: {is_supported}"));
    }
    files
}

#[test]
fn watched_namespaces_are_compared_with_install_modes() {
    let env =
        |entry: &str| format!("                env:\n                - {{name: WATCH_NAMESPACE, {entry}}}\n");
    let field = |path: &str| env(&format!("valueFrom: {{fieldRef: {{fieldPath: \"{path}\"}}}}"));
    let own = field("metadata.namespace");
    let targets = field("metadata.annotations['olm.targetNamespaces']");
    let all = ["OwnNamespace", "SingleNamespace", "AllNamespaces"];
    for (lines, supported, is_found) in [
        (&targets, &all[..], false),
        (&own, &all[..1], false),
        (&own, &all, true),
        (&own, &all[2..], true),
        (&env("value: ''"), &all[2..], false),
        (&env("value: ''"), &all, true),
        (&env("value: lamps"), &all[..1], true),
        (&env("value: $(POD_NAMESPACE)"), &all, false),
        (&env("valueFrom: {configMapKeyRef: {name: c, key: k}}"), &all, false),
    ] {
        let found = rules(&modes(container(lines), supported));
        assert_eq!(found, if is_found { vec!["DEPLOY-4"] } else { vec![] }, "{lines} {supported:?}");
    }
    let message = container(&own).findings();
    assert!(message[0].contains("env[0]: WATCH_NAMESPACE makes the operator watch only its own namespace, but spec.installModes supports AllNamespaces, SingleNamespace: set valueFrom.fieldRef.fieldPath to metadata.annotations['olm.targetNamespaces']"), "{message:?}");
}

#[test]
fn argument_with_a_file_that_no_volume_has_is_reported() {
    let path = "--metrics-cert-path=/tmp/k8s-metrics-server/metrics-certs";
    let args = |args: &str| format!("                args: [{args}]\n");
    let mount = "                volumeMounts: [{name: v, mountPath: /tmp/k8s-metrics-server}]\n";
    for (lines, expected) in [
        (args(path), vec!["DEPLOY-5"]),
        (args("--tls-cert-file, /certs/tls.crt"), vec!["DEPLOY-5"]),
        (args(path) + mount, vec![]),
        (args("--config=/etc/lamp.yaml"), vec![]),
        (args("--client-ca-file=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"), vec![]),
        // OLM mounts it only for a server of webhooks.
        (args("--webhook-cert-path=/tmp/k8s-webhook-server/serving-certs"), vec!["DEPLOY-5"]),
    ] {
        assert_eq!(rules(&container(&lines)), expected, "{lines}");
    }
}

#[test]
fn operand_image_outside_of_related_images_is_reported() {
    let env =
        |name: &str, image: &str| format!("                env: [{{name: {name}, value: '{image}'}}]\n");
    for (lines, expected) in [
        (env("RELATED_IMAGE_BULB", "quay.io/light/bulb:v1"), vec!["IMG-3"]),
        (
            env(
                "BULB_IMAGE",
                "quay.io/light/bulb@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            vec!["IMG-3"],
        ),
        (
            env(
                "BULB_IMAGE",
                "quay.io/light/lamp@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            vec![],
        ),
        (env("BULB_IMAGE_NAME", "bulb"), vec![]),
    ] {
        assert_eq!(rules(&container(&lines)), expected, "{lines}");
    }
}

#[test]
fn edges_to_other_than_earlier_bundles_are_reported() {
    let replaces = |name: &str| {
        Files::good().csv("  version: 1.2.0\n", &format!("  version: 1.2.0\n  replaces: {name}\n"))
    };
    let skips = |names: &str| {
        Files::good().csv("  version: 1.2.0\n", &format!("  version: 1.2.0\n  skips: {names}\n"))
    };
    let range = |range: &str| {
        Files::good().csv("  annotations:\n", &format!("  annotations:\n    olm.skipRange: '{range}'\n"))
    };
    for (files, expected) in [
        (replaces("lamp.v1.1.0"), vec![]),
        (replaces("1.1.0"), vec!["CSV-17"]),
        (replaces("v1.1.0"), vec!["CSV-17"]),
        (replaces("lamp.v1.3.0"), vec!["CSV-17"]),
        (skips("[lamp.v1.0.0, lamp.v1.1.0]"), vec![]),
        (skips("[lamp.v1.0.0, 1.1.0, lamp.v1.2.0]"), vec!["CSV-17", "CSV-17"]),
        (range(">=1.0.0 <1.2.0"), vec![]),
        (range(">=1.0.0 <2.0.0"), vec!["CSV-18"]),
        (range(">=1.2.0 <1.2.0"), vec!["CSV-18"]),
    ] {
        assert_eq!(rules(&files), expected, "{:?}", files.findings());
    }
}

#[test]
fn namespaces_of_objects_and_subjects_are_reported() {
    let good = Files::good;
    let binding = |kind: &str, namespace: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: b}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}\nsubjects:\n- {{kind: ServiceAccount, name: lamp{namespace}}}\n"
        )
    };
    compare(&[
        (
            good().with(
                "manifests/c.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: kube-system}\n",
            ),
            &[
                "warning: manifests/c.yaml:3: ConfigMap c: metadata.namespace: \"kube-system\" is replaced by the namespace of the installation: let the operator create objects of other namespaces, or omit the namespace [OBJ-4]",
            ],
        ),
        (
            good().with("manifests/b.yaml", &binding("ClusterRoleBinding", ", namespace: system")),
            &[
                "warning: manifests/b.yaml:6: ClusterRoleBinding b: subjects[0].namespace: service account \"lamp\" is installed into the namespace of the installation, which may not be \"system\": write its permissions into the ClusterServiceVersion instead [OBJ-5]",
            ],
        ),
    ]);
}

#[test]
fn property_of_a_known_type_needs_its_value() {
    const FILE: &str = "metadata/properties.yaml";
    let with = |entry: &str| Files::good().with(FILE, &format!("properties:\n- {entry}\n"));
    for (entry, expected) in [
        ("{type: olm.package}", vec!["PROP-4"]),
        ("{type: olm.package, value: null}", vec!["PROP-4"]),
        ("{type: olm.package, value: {}}", vec!["PROP-4", "PROP-4"]),
        ("{type: olm.package, value: lamp}", vec!["PROP-4", "PROP-4"]),
        ("{type: olm.package, value: {packageName: lamp, version: 1.2.0}}", vec![]),
        ("{type: olm.package, value: {packageName: lamp, version: 1.3.0}}", vec!["PROP-4"]),
        ("{type: olm.gvk}", vec!["PROP-4"]),
        ("{type: olm.gvk, value: []}", vec!["PROP-4", "PROP-4", "PROP-4"]),
        ("{type: olm.gvk.required}", vec!["PROP-4"]),
        ("{type: olm.package.required, value: null}", vec!["PROP-4"]),
        ("{type: olm.constraint}", vec!["PROP-4"]),
        ("{type: example.com/x}", vec!["PROP-2"]),
        ("{type: olm.gvk, group: g, version: v1, kind: K}", vec!["PROP-1", "PROP-4"]),
    ] {
        let mut found = rules(&with(entry));
        found.sort();
        assert_eq!(found, expected, "{entry}");
    }
}
