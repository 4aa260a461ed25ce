//! Bundles and their catalog: small operators of seven objects, with or without a Deployment.

use serde_json::{Value, json};

use crate::content::Files;

/// Versions of each package. The second upgrades the first.
pub(super) const VERSIONS: [&str; 2] = ["1.0.0", "1.1.0"];

/// Name of the package, and of the extension that installs it.
pub(super) fn name(number: usize) -> String {
    format!("bench-{number:03}")
}

/// Files of a package's bundle. With `operand`, the image of a Deployment, it has seven objects.
pub(super) fn bundle(number: usize, version: &str, operand: Option<&str>) -> Files {
    let name = name(number);
    let group = format!("{name}.bench.example");
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "description": "How large the widget is."},
                        "colour": {"type": "string", "description": "Which colour the widget has."},
                    }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}}}],
        },
    });
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-settings")},
        "data": {"version": version, "settings.yaml": "interval: 10s\nlevel: info\n"},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("{name}-metrics")},
        "spec": {"selector": {"app": name}, "ports": [{"name": "metrics", "port": 8443}]},
    });
    let annotations = json!({"annotations": {
        "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
        "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
        "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
        "operators.operatorframework.io.bundle.package.v1": name,
        "operators.operatorframework.io.bundle.channels.v1": "stable",
    }});
    [
        ("metadata/annotations.yaml", annotations),
        ("manifests/crd.yaml", crd),
        ("manifests/settings.yaml", settings),
        ("manifests/service.yaml", service),
        ("manifests/operator.clusterserviceversion.yaml", csv(&name, &group, version, operand)),
    ]
    .into_iter()
    .map(|(path, object)| (path.to_owned(), object.to_string().into_bytes()))
    .collect()
}

fn csv(name: &str, group: &str, version: &str, operand: Option<&str>) -> Value {
    let container = |image: &str| {
        json!({
            "name": "operator", "image": image, "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "VERSION", "value": version}],
            "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}},
        })
    };
    let deployment = |image: &str| {
        json!({"name": name, "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "serviceAccountName": name, "terminationGracePeriodSeconds": 0, "containers": [container(image)],
            }},
        }})
    };
    let rules = json!([{"apiGroups": [group], "resources": ["widgets", "widgets/status"],
        "verbs": ["get", "list", "watch", "update", "patch"]}]);
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("{name}.v{version}")},
        "spec": {
            "displayName": name, "version": version,
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "customresourcedefinitions": {"owned": [{"name": format!("widgets.{group}"), "kind": "Widget", "version": "v1"}]},
            "install": {"strategy": "deployment", "spec": {
                "clusterPermissions": [{"serviceAccountName": name, "rules": rules}],
                "deployments": operand.map(deployment).into_iter().collect::<Vec<_>>(),
            }},
        },
    })
}

/// Catalog objects of a package whose bundles have these images, in the order of [`VERSIONS`].
pub(super) fn package(number: usize, images: &[String]) -> Vec<Value> {
    let name = name(number);
    let bundle_name = |version: &str| format!("{name}.v{version}");
    let entries = [
        json!({"name": bundle_name(VERSIONS[0])}),
        json!({"name": bundle_name(VERSIONS[1]), "replaces": bundle_name(VERSIONS[0])}),
    ];
    let mut metas = vec![
        json!({"schema": "olm.package", "name": name, "defaultChannel": "stable"}),
        json!({"schema": "olm.channel", "package": name, "name": "stable", "entries": &entries[..images.len()]}),
    ];
    for (version, image) in VERSIONS.iter().zip(images) {
        let property = json!({"type": "olm.package", "value": {"packageName": name, "version": version}});
        metas.push(
            json!({"schema": "olm.bundle", "package": name, "name": bundle_name(version), "image": image,
            "properties": [property]}),
        );
    }
    metas
}

#[cfg(test)]
mod tests {
    use olm_bundle::{BundleContent, RenderOptions, render};

    use super::*;

    #[test]
    fn bundle_with_deployment_renders_seven_objects() {
        let options = RenderOptions { install_namespace: "bench", ..RenderOptions::default() };
        let count = |operand| {
            render(&BundleContent::load(&bundle(7, VERSIONS[1], operand)).unwrap(), &options).unwrap().len()
        };
        assert_eq!((count(Some("i:1")), count(None)), (7, 6));
    }
}
