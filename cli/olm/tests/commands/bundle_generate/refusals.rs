//! Input that forms no bundle.

use std::fs;

use super::{MANIFESTS, bundle, generate, has_kustomize, project};
use crate::fixture::olm_in;

#[test]
fn object_that_cannot_be_in_a_bundle_is_refused_with_advice() {
    let webhook = "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: w}, \
                   webhooks: [{name: v.kb.io, clientConfig: CALL}]}";
    let service = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {app: LABEL}, ports: [{port: 443}]}}";
    let call = webhook.replace("CALL", "{service: {name: s, namespace: lamp-system}}");
    let binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, \
                   roleRef: {kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: lamp, namespace: lamp-system}]}";
    let api = "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.a.io}, \
               spec: {group: a.io, version: v1, service: {name: s, namespace: lamp-system}}}";
    let second = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: twin, namespace: lamp-system}, \
                  spec: {template: {metadata: {labels: {app: lamp}}}}}";
    let certificate =
        "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: c}, spec: {secretName: tls}}";
    let mounting = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: m}, spec: {template: {spec: {volumes: [{name: v, \
                    secret: {secretName: tls}}], containers: [{name: a, volumeMounts: [{name: v, mountPath: /tls}]}]}}}}";
    for (documents, expected) in [
        (
            vec!["{apiVersion: batch/v1, kind: Job, metadata: {name: j}}".to_owned()],
            "standard input: Job j: a bundle cannot contain objects of this kind; let the operator create it, or leave it out with --skip-kind Job",
        ),
        (vec![webhook.replace("CALL", "{url: 'https://x'}")], "v.kb.io: clientConfig.service is missing"),
        (vec![call.clone()], "v.kb.io: Service s is not in the input"),
        (
            vec![call.clone(), service.replace("LABEL", "other")],
            "no Deployment of the input has pods with the labels",
        ),
        (
            vec![call.clone(), service.replace("LABEL", "lamp"), second.to_owned()],
            "selects the pods of Deployments lamp and twin",
        ),
        (vec![call, service.replace("LABEL", "lamp").replace("443", "80")], "Service s has no port 443"),
        (vec![binding.to_owned()], "to ClusterRole view, which the input lacks"),
        (vec![api.to_owned(), service.replace("LABEL", "lamp")], "APIService v1.a.io: its kinds are unknown"),
        (
            vec![certificate.to_owned(), mounting.to_owned()],
            "container a mounts the Secret of Certificate c at /tls",
        ),
        (
            vec![
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: a}}".to_owned(),
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: b}}".to_owned(),
            ],
            "the input has another ConfigMap of this name",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let input = format!("{MANIFESTS}---\n{}\n", documents.join("\n---\n"));
        let ran = generate(folder.path(), &[], &input);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{expected}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
        assert!(!folder.path().join("bundle").exists());
    }
}

#[test]
fn skipped_kind_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let input = format!("{MANIFESTS}---\n{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}}}\n");
    let ran = generate(folder.path(), &["--skip-kind", "Job"], &input);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("Job j") && ran.stdout.contains("--skip-kind"), "{}", ran.stdout);
}

#[test]
fn wrong_usage_fails_with_exit_code_and_message() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("deploy/manifests")).unwrap();
    fs::write(folder.path().join("m.yaml"), MANIFESTS).unwrap();
    for (args, code, expected) in [
        (&["Lamp", "--version", "1.0.0", "--from", "m.yaml", "--to", "b"][..], 2, "package name \"Lamp\""),
        (
            &["lamp", "--version", "v1", "--from", "m.yaml", "--to", "b"],
            2,
            "expected a version such as 1.2.3",
        ),
        (
            &["lamp", "--version", "1.0.0", "--from", "m.yaml", "--to", "deploy"],
            1,
            "deploy: has manifests, but is not a bundle",
        ),
        (&["lamp", "--version", "1.0.0", "--from", "none", "--to", "b"], 1, "none"),
        (
            &["lamp", "--version", "1.0.0", "--from", "deploy", "--to", "b"],
            1,
            "deploy: no Kubernetes objects found",
        ),
        (
            &["lamp", "--version", "1.0.0", "--from", "-", "-", "--to", "b"],
            2,
            "standard input can be given only once",
        ),
        (
            &["lamp", "--version", "1.0.0", "--from", "m.yaml", "--to", "b", "--set-image", "x"],
            2,
            "expected REPOSITORY=IMAGE",
        ),
        (
            &["lamp", "--version", "1.0.0", "--from", "m.yaml", "--to", "b", "--set-image", "lamp=x:v1"],
            2,
            "--set-image \"lamp\": no container of a Deployment has an image of this repository; theirs are \
             quay.io/example/lamp\n",
        ),
        (
            &["lamp", "--version", "1.0.0", "--from", "m.yaml", "--to", "b", "--skip-kind", "Job"],
            2,
            "--skip-kind \"Job\": the input has no object of this kind; its kinds are CustomResourceDefinition, \
             Deployment, ServiceAccount\n",
        ),
    ] {
        let ran = bundle(folder.path(), &[&["generate"], args].concat(), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn wrong_usage_of_a_run_fails_before_the_cluster_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["manifests", "metadata"] {
        fs::create_dir_all(folder.path().join("b").join(name)).unwrap();
    }
    for (args, expected) in [
        (&["r.example/lamp:v1"][..], "--push-to <REGISTRY/REPOSITORY>"),
        (&["b", "--push-to", "r.example/lamp:v1"], "expected a repository without a tag"),
        (&["b", "--push-to", "r.example/lamp", "--pull-from", "lamp"], "expected a repository without a tag"),
        (
            &["b", "--push-to", "r.example/lamp", "--set-image", "a=b"],
            "--package and --set-image are for a folder with manifests, which \"b\" is not",
        ),
        (
            &["r.example/lamp:v1", "--push-to", "r.example/lamp", "--skip-kind", "Job"],
            "--skip-kind Job: \"r.example/lamp:v1\" is an image: only a directory can be changed",
        ),
    ] {
        let ran = bundle(folder.path(), &[&["run", "-n", "lamp"], args].concat(), "");
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn broken_kustomization_fails_with_the_error_of_the_tool() {
    if !has_kustomize() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kustomization.yaml"), "resources: [absent.yaml]\n").unwrap();
    let ran =
        bundle(folder.path(), &["generate", "lamp", "--version", "1.0.0", "--from", ".", "--to", "b"], "");
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains(" .: exit status: 1: ") && ran.stderr.contains("absent.yaml"),
        "{}",
        ran.stderr
    );
}

#[test]
fn project_without_kustomize_fails_and_names_both_tools() {
    let folder = tempfile::tempdir().unwrap();
    let project = project();
    let args = [
        "bundle",
        "generate",
        "lamp",
        "--version",
        "0.1.0",
        "--to",
        "b",
        "--from",
        project.to_str().unwrap(),
    ];
    let output = olm_in(folder.path(), &args).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("needs kustomize or kubectl, and neither is in a folder of PATH"), "{stderr}");
}
