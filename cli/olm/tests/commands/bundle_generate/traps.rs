//! What manifests of a project lose as a bundle: each is named, and the frequent ones have an option.

use std::fs;

use serde_json::Value;

use super::{MANIFESTS, bundle, generate};

const CONTAINER: &str = "{name: manager, image: \"quay.io/example/lamp:v1\"}";

/// Manifests whose container has these fields, too, followed by more objects.
fn manifests(fields: &str, more: &str) -> String {
    assert!(MANIFESTS.contains(CONTAINER));
    let container = format!("{}, {fields}}}", CONTAINER.trim_end_matches('}'));
    MANIFESTS.replace(CONTAINER, &container) + more
}

/// Output of a successful run.
fn generated(args: &[&str], input: &str) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let ran = generate(folder.path(), args, input);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let csv = fs::read(folder.path().join("bundle/manifests/lamp.clusterserviceversion.yaml")).unwrap();
    (ran.stdout, olm_yaml::from_slice(&csv).unwrap())
}

#[test]
fn trap_of_the_manifests_is_noted() {
    let config = |namespace: &str| {
        format!("---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, namespace: {namespace}}}}}\n")
    };
    let watch = |entry: &str| manifests(&format!("env: [{{name: WATCH_NAMESPACE, {entry}}}]"), "");
    let metrics = manifests("args: [--metrics-cert-path=/tmp/m]", "");
    let operand = manifests("env: [{name: BULB_IMAGE, value: 'quay.io/example/bulb:v1'}]", "");
    let binding = "---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, \
                   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, \
                   subjects: [{kind: ServiceAccount, name: other, namespace: lamp-system}]}\n---\n\
                   {apiVersion: v1, kind: ServiceAccount, metadata: {name: other, namespace: lamp-system}}\n";
    for (input, expected) in [
        (manifests("args: []", &config("lamp-system")), None),
        (
            manifests("args: []", &config("kube-system")),
            Some(
                "namespace kube-system is lost: ConfigMap c is installed into the namespace of the operator",
            ),
        ),
        (watch("valueFrom: {fieldRef: {fieldPath: metadata.namespace}}"), Some("[DEPLOY-4]")),
        (watch("value: ''"), None),
        (metrics, Some("[DEPLOY-5]")),
        (operand, Some("[IMG-3]")),
        (MANIFESTS.to_owned() + binding, Some("[OBJ-5]")),
    ] {
        let (printed, _) = generated(&[], &input);
        let notes = printed.split("\nCheck:\n").nth(1);
        match expected {
            None => assert_eq!(notes, None, "{printed}"),
            Some(expected) => {
                assert!(notes.is_some_and(|notes| notes.contains(expected)), "{expected}: {printed}")
            }
        }
    }
}

#[test]
fn option_removes_the_certificate_of_metrics() {
    let fields = "args: [--metrics-cert-path=/tmp/m, --metrics-cert-name=tls.crt, --leader-elect], volumeMounts: [{name: m, mountPath: /tmp/m}]";
    let more = "---\n{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: m, namespace: lamp-system}, spec: {secretName: m}}\n";
    let input = manifests(fields, more)
        .replace("containers: [", "volumes: [{name: m, secret: {secretName: m}}]\n      containers: [");
    let folder = tempfile::tempdir().unwrap();
    let ran = generate(folder.path(), &[], &input);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("; --strip-metrics-certs removes that of metrics"), "{}", ran.stderr);
    let (printed, csv) = generated(&["--strip-metrics-certs"], &input);
    let pod = &csv["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["args"], serde_json::json!(["--leader-elect"]), "{printed}");
    assert!(pod.get("volumes").is_none() && pod["containers"][0].get("volumeMounts").is_none());
    let ran = generate(folder.path(), &["--strip-metrics-certs"], MANIFESTS);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("no container of a Deployment has the argument --metrics-cert-path"),
        "{}",
        ran.stderr
    );
}

#[test]
fn option_adds_images_of_variables_to_related_images() {
    let input = manifests(
        "env: [{name: BULB_IMAGE, value: 'quay.io/example/bulb:v1'}, {name: IMAGE_TAG, value: v1}]",
        "",
    );
    let (printed, csv) = generated(&["--related-images-from-env"], &input);
    assert!(!printed.contains("IMG-3"), "{printed}");
    let related = csv["spec"]["relatedImages"].as_array().unwrap();
    assert!(
        related.contains(&serde_json::json!({"name": "bulb-image", "image": "quay.io/example/bulb:v1"})),
        "{related:?}"
    );
    assert_eq!(related.len(), 2);
}

#[test]
fn earlier_bundle_that_is_none_is_wrong_usage() {
    for (args, expected) in [
        (
            ["--replaces", "0.0.9"],
            "--replaces: \"0.0.9\" is a version: write the name of the bundle, such as lamp.v0.0.9",
        ),
        (["--replaces", "lamp.v0.2.0"], "--replaces: \"lamp.v0.2.0\" has a higher version than this bundle"),
        (["--replaces", "lamp.v0.1.0"], "--replaces: \"lamp.v0.1.0\" is the bundle itself"),
        (["--skips", "lamp.v0.0.8,v0.0.9"], "--skips: \"v0.0.9\" is a version"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let ran = generate(folder.path(), &args, MANIFESTS);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
        assert!(!folder.path().join("bundle").exists());
    }
}

#[test]
fn repeated_keys_are_refused_in_input_and_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let ran = generate(folder.path(), &[], &MANIFESTS.replacen("---\n", "", 1));
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    let expected =
        "standard input:12: the key \"apiVersion\" is also on line 2: separate objects with a line `---`";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    assert!(!folder.path().join("bundle").exists());
    assert_eq!(generate(folder.path(), &[], MANIFESTS).code, 0);
    let file = folder.path().join("bundle/metadata/annotations.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.clone() + &text).unwrap();
    let ran = generate(folder.path(), &[], MANIFESTS);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("metadata/annotations.yaml:"), "{}", ran.stderr);
    let ran = bundle(folder.path(), &["validate", "bundle"], "");
    assert!(ran.code == 0 && ran.stdout.contains("[FILE-6]"), "{}", ran.stdout);
}

#[test]
fn copies_that_differ_in_labels_are_one_object() {
    let config = |labels: &str, data: &str| {
        format!("---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{labels}}}, data: {{{data}}}}}\n")
    };
    let copies = config(", labels: {a: one, b: one}", "k: v")
        + &config("", "k: v")
        + &config(", labels: {b: two, c: two}", "k: v");
    let folder = tempfile::tempdir().unwrap();
    let ran = generate(folder.path(), &[], &(MANIFESTS.to_owned() + &copies));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let note = "ConfigMap c: the copies in standard input and standard input differ only in labels, which are combined";
    let notes = (ran.stdout.matches(&format!("{note}\n")).count(), ran.stdout.matches(note).count());
    assert_eq!(notes, (1, 2), "{}", ran.stdout);
    assert!(ran.stdout.contains(&format!("{note}; the first value stays of b\n")), "{}", ran.stdout);
    let text = fs::read_to_string(folder.path().join("bundle/manifests/c_v1_configmap.yaml")).unwrap();
    let object: Value = olm_yaml::from_slice(text.as_bytes()).unwrap();
    assert_eq!(object["metadata"]["labels"], serde_json::json!({"a": "one", "b": "one", "c": "two"}));
    let ran =
        generate(folder.path(), &[], &(MANIFESTS.to_owned() + &config("", "k: v") + &config("", "k: w")));
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("has another object of this name; pass only one"), "{}", ran.stderr);
}

#[test]
fn option_makes_permissions_of_an_operand_account() {
    let more = "---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: bulb}, \
                rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}\n---\n\
                {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: bulb}, \
                roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bulb}, \
                subjects: [{kind: ServiceAccount, name: bulb, namespace: lamp-system}]}\n---\n\
                {apiVersion: v1, kind: ServiceAccount, metadata: {name: bulb, namespace: lamp-system}}\n";
    let input = MANIFESTS.to_owned() + more;
    let (printed, csv) = generated(&[], &input);
    assert!(printed.contains("in the namespace of the installation: --service-account bulb"), "{printed}");
    assert_eq!(csv["spec"]["install"]["spec"]["clusterPermissions"].as_array().unwrap().len(), 1);
    let (printed, csv) = generated(&["--service-account", "bulb"], &input);
    assert!(!printed.contains("Check:"), "{printed}");
    let permission = &csv["spec"]["install"]["spec"]["clusterPermissions"][0];
    assert_eq!(
        *permission,
        serde_json::json!({"serviceAccountName": "bulb", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
    );
    let folder = tempfile::tempdir().unwrap();
    let ran = generate(folder.path(), &["--service-account", "other"], &input);
    assert_eq!(ran.code, 2);
    let expected = "--service-account \"other\": no object of the input is or binds this ServiceAccount; it has bulb, lamp";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}
