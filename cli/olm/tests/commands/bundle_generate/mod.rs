//! `olm bundle generate` with the real binary: a project of kubebuilder, plain manifests, and bundles that `olm render`
//! turned into manifests.

mod edits;
mod real;
mod refusals;
mod traps;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use olm_require::Need;

use crate::fixture::{Ran, olm_in, tests};

/// Manifests of a small operator, without webhooks.
const MANIFESTS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: lamp, namespace: lamp-system, labels: {app: lamp}}
spec:
  selector: {matchLabels: {app: lamp}}
  template:
    metadata: {labels: {app: lamp}}
    spec:
      serviceAccountName: lamp
      containers: [{name: manager, image: "quay.io/example/lamp:v1"}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: lamp, namespace: lamp-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.light.example.com}
spec:
  group: light.example.com
  names: {kind: Lamp, listKind: LampList, plural: lamps, singular: lamp}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: Switches a light.}}}
"#;

fn compare(name: &str, printed: &str) {
    crate::fixture::compare("commands/bundle_generate/golden", name, printed);
}

/// Runs `olm bundle` in a folder with this standard input.
fn bundle(folder: &Path, args: &[&str], input: &str) -> Ran {
    let mut command = olm_in(folder, &[&["bundle"], args].concat());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The command may end without reading its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap().into()
}

/// Generates bundle `lamp` of version 0.1.0 in folder `bundle` from standard input.
fn generate(folder: &Path, args: &[&str], input: &str) -> Ran {
    let fixed = ["generate", "lamp", "--version", "0.1.0", "--from", "-", "--to", "bundle"];
    bundle(folder, &[&fixed, args].concat(), input)
}

fn project() -> PathBuf {
    tests("commands/bundle_generate/data/project")
}

/// All files below a folder.
fn files(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found: Vec<_> = ["manifests", "metadata"]
        .iter()
        .flat_map(|folder| root.join(folder).read_dir().unwrap())
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    found.sort();
    found
}

fn has_kustomize() -> bool {
    let found = olm_require::find("kubectl").is_some() || olm_require::find("kustomize").is_some();
    if !found {
        olm_require::report(Need::Tools, "there is neither kustomize nor kubectl: install one of them");
    }
    found
}

#[test]
fn project_with_webhooks_yields_valid_and_repeatable_bundle() {
    if !has_kustomize() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(project(), folder.path().join("project")).unwrap();
    let args = ["generate", "lamp", "--version", "0.1.0", "--from", "project", "--to", "bundle"];
    let ran = bundle(folder.path(), &args, "");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("project.txt", &ran.stdout);
    let root = folder.path().join("bundle");
    for name in [
        "manifests/lamp.clusterserviceversion.yaml",
        "manifests/light.example.com_lamps.yaml",
        "metadata/annotations.yaml",
    ] {
        let text = fs::read_to_string(root.join(name)).unwrap();
        compare(name.rsplit('/').next().unwrap(), &text);
    }
    let first = files(&root);
    let ran = bundle(folder.path(), &["validate", "bundle", "-o", "json"], "");
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let ran = bundle(folder.path(), &[&args[..], &["-o", "json"]].concat(), "");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("\"created\"") && !ran.stdout.contains("\"changed\""), "{}", ran.stdout);
    assert_eq!(files(&root), first);
}

#[test]
fn api_service_becomes_definition_without_what_olm_creates() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = "volumes: [{name: c, secret: {secretName: tls}}]";
    let container = "ports: [{name: https, containerPort: 6443}], \
                     volumeMounts: [{name: c, mountPath: /apiserver.local.config/certificates}]";
    let manifests = MANIFESTS
        .replace("serviceAccountName: lamp\n", &format!("serviceAccountName: lamp\n      {certificate}\n"))
        .replace("lamp:v1\"}", &format!("lamp:v1\", {container}}}"));
    let subjects = "subjects: [{kind: ServiceAccount, name: lamp, namespace: lamp-system}]";
    let input = format!(
        "{manifests}
---
{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {{selector: {{app: lamp}}, ports: [{{port: 443, targetPort: https}}]}}}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: v1.api.example.com}}
spec: {{group: api.example.com, version: v1, service: {{name: s, namespace: lamp-system}}}}
---
{{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: r, namespace: kube-system}},
 roleRef: {{kind: Role, name: extension-apiserver-authentication-reader}}, {subjects}}}
---
{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {{name: d}},
 roleRef: {{kind: ClusterRole, name: \"system:auth-delegator\"}}, {subjects}}}
---
{{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {{name: c}}, spec: {{secretName: tls}}}}
---
{{apiVersion: api.example.com/v1, kind: Fuse, metadata: {{name: f}}}}
"
    );
    let ran = generate(folder.path(), &[], &input);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("api-service.txt", &ran.stdout);
    let csv = fs::read(folder.path().join("bundle/manifests/lamp.clusterserviceversion.yaml")).unwrap();
    let spec = olm_yaml::from_slice(&csv).unwrap()["spec"].clone();
    let owned = serde_json::json!([{
        "group": "api.example.com", "version": "v1", "kind": "Fuse", "name": "fuses", "displayName": "Fuse",
        "deploymentName": "lamp", "containerPort": 6443,
    }]);
    assert_eq!(spec["apiservicedefinitions"]["owned"], owned);
    let strategy = &spec["install"]["spec"];
    let permission = serde_json::json!([{"serviceAccountName": "lamp", "rules": []}]);
    assert_eq!(
        (&strategy["clusterPermissions"], &strategy["permissions"]),
        (&permission, &serde_json::Value::Null)
    );
    let pod = &strategy["deployments"][0]["spec"]["template"]["spec"];
    assert!(pod.get("volumes").is_none() && pod["containers"][0].get("volumeMounts").is_none(), "{pod}");
}

#[test]
fn dry_run_prints_files_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ran = generate(folder.path(), &["--dry-run"], MANIFESTS);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    compare("dry-run.yaml", &ran.stdout);
    compare("dry-run.txt", &ran.stderr);
    assert!(!folder.path().join("bundle").exists());
}

#[test]
fn help_matches_golden_file() {
    let ran = bundle(Path::new("."), &["generate", "--help"], "");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("help.txt", &ran.stdout);
}
