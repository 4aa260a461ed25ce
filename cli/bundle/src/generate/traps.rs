//! What manifests of a project lose in a bundle without an error: namespaces, and the certificate of metrics
//! (docs/design/cli.md#bundle-generation).

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use serde_json::Value;

use super::objects::{Input, Object};
use super::summary::Report;

/// Flag of kubebuilder for the folder with the certificate of metrics, and the prefix of the flags that belong to it.
const METRICS_CERTIFICATE: (&str, &str) = ("--metrics-cert-path", "--metrics-cert-");
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Notes the namespaces of the input that are not those of the Deployments: OLM has only that of the installation.
/// Objects that the report skips are not in the bundle.
pub(super) fn note_namespaces(input: &Input, report: &mut Report) {
    let own: BTreeSet<&str> =
        input.deployments.iter().map(Object::namespace).filter(|namespace| !namespace.is_empty()).collect();
    if own.len() > 1 {
        let own: Vec<&str> = own.iter().copied().collect();
        report.note(format!(
            "the Deployments of the namespaces {} are installed into one namespace: use no namespace in the addresses of Services",
            own.join(", ")
        ));
    }
    let skipped: BTreeSet<String> = report.skipped.iter().map(|skipped| skipped.object.clone()).collect();
    let mut moved: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let lists = [&input.roles, &input.bindings, &input.services, &input.shipped];
    for object in lists.into_iter().flatten() {
        let is_kept = object.kind() == "VerticalPodAutoscaler" || skipped.contains(&object.label());
        if !object.namespace().is_empty() && !own.contains(object.namespace()) && !is_kept {
            moved.entry(object.namespace()).or_default().push(format!("{} {}", object.kind(), object.name()));
        }
    }
    for (namespace, objects) in moved {
        report.note(format!(
            "namespace {namespace} is lost: {} {} installed into the namespace of the operator; let the operator create \
             objects of other namespaces, or leave them out with --skip-kind",
            objects.join(", "),
            if objects.len() == 1 { "is" } else { "are" }
        ));
    }
}

/// Reports whether a Deployment names the certificate of its metrics.
pub(super) fn has_metrics_certificate(deployment: &Value) -> bool {
    containers(deployment).any(|container| metrics_path(container).is_some())
}

fn containers(deployment: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.iter().flat_map(|kind| list(deployment, &format!("/spec/template/spec/{kind}")))
}

/// Path of the certificate of metrics.
fn metrics_path(container: &Value) -> Option<&str> {
    let args = list(container, "/args").iter().filter_map(Value::as_str);
    args.filter_map(|arg| arg.strip_prefix(METRICS_CERTIFICATE.0)?.strip_prefix('=')).next()
}

/// Removes the arguments for the certificate of metrics, and its volume if nothing else mounts it: the server of metrics
/// makes a certificate of its own then.
pub(super) fn strip_metrics_certificate(deployment: &mut Value) {
    let paths: BTreeSet<String> =
        containers(deployment).filter_map(metrics_path).map(str::to_owned).collect();
    let is_there = |mount: &Value| paths.contains(text(mount, "/mountPath"));
    let mounts: Vec<&Value> =
        containers(deployment).flat_map(|container| list(container, "/volumeMounts")).collect();
    let used: BTreeSet<&str> =
        mounts.iter().filter(|mount| !is_there(mount)).map(|mount| text(mount, "/name")).collect();
    let unused: BTreeSet<String> = mounts
        .iter()
        .filter(|mount| is_there(mount))
        .map(|mount| text(mount, "/name"))
        .filter(|name| !used.contains(name))
        .map(str::to_owned)
        .collect();
    let Some(pod) = deployment.pointer_mut("/spec/template/spec") else { return };
    retain(pod, "volumes", |volume| !unused.contains(text(volume, "/name")));
    for kind in CONTAINERS {
        for container in pod.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            retain(container, "volumeMounts", |mount| !is_there(mount));
            let is_about =
                |arg: &Value| arg.as_str().is_some_and(|arg| arg.starts_with(METRICS_CERTIFICATE.1));
            retain(container, "args", |arg| !is_about(arg));
        }
    }
}

/// Keeps items of a list, and removes an empty one.
fn retain(owner: &mut Value, key: &str, keep: impl Fn(&Value) -> bool) {
    let Some(fields) = owner.as_object_mut() else { return };
    let Some(items) = fields.get_mut(key).and_then(Value::as_array_mut) else { return };
    let before = items.len();
    items.retain(keep);
    if items.is_empty() && before > 0 {
        fields.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_certificate_is_removed_with_its_volume() {
        let of = |args: Value, volumes: Value, mounts: Value| {
            json!({"spec": {"template": {"spec": {
                "volumes": volumes, "containers": [{"args": args, "volumeMounts": mounts}],
            }}}})
        };
        let (name, path) = ("m", "/tmp/m");
        let mount = |path: &str| json!({"name": name, "mountPath": path});
        let flag = format!("--metrics-cert-path={path}");
        let mut deployment = of(
            json!([flag, "--metrics-cert-name=tls.crt", "--leader-elect"]),
            json!([{"name": name}, {"name": "other"}]),
            json!([mount(path)]),
        );
        assert!(has_metrics_certificate(&deployment));
        strip_metrics_certificate(&mut deployment);
        assert!(!has_metrics_certificate(&deployment));
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(
            *pod,
            json!({"volumes": [{"name": "other"}], "containers": [{"args": ["--leader-elect"]}]})
        );

        // Another mount of the volume keeps it.
        let mut deployment = of(json!([flag]), json!([{"name": name}]), json!([mount(path), mount("/b")]));
        strip_metrics_certificate(&mut deployment);
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(
            *pod,
            json!({"volumes": [{"name": name}], "containers": [{"volumeMounts": [mount("/b")]}]})
        );
    }
}
