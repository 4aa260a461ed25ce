//! Deployments of the install strategy, without the certificates that OLM mounts
//! (docs/design/bundles.md#certificate-volumes), and their images.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use olm_bundle_check::is_operand_image;
use serde_json::{Value, json};

use super::objects::Object;
use super::summary::Report;
use super::traps::has_metrics_certificate;

/// Names of volumes that OLM adds, and their paths.
const VOLUMES: [(&str, &str); 2] = [
    ("webhook-cert", "/tmp/k8s-webhook-server/serving-certs"),
    ("apiservice-cert", "/apiserver.local.config/certificates"),
];
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];
/// Prefix of environment variables with images of operands.
const RELATED_IMAGE: &str = "RELATED_IMAGE_";
/// Image of a new kubebuilder project.
const PLACEHOLDER_IMAGE: &str = "controller:latest";

/// Entry of `spec.install.spec.deployments`. `is_serving` is set for a server of webhooks or of an aggregated API.
pub(super) fn strategy(
    deployment: &Object,
    is_serving: bool,
    certificates: &[Object],
    report: &mut Report,
) -> Value {
    let mut entry = json!({"name": deployment.name(), "spec": deployment.value["spec"]});
    if let Some(labels) = deployment.value.pointer("/metadata/labels").filter(|labels| labels.is_object()) {
        entry["label"] = labels.clone();
    }
    if deployment.value.pointer("/metadata/annotations").is_some() {
        report.note(format!(
            "{}: metadata.annotations are lost, because a bundle has none for Deployments; those of the pod \
             template remain",
            deployment.label()
        ));
    }
    if let Some(pod) = entry.pointer_mut("/spec/template/spec") {
        let removed = replaced_volumes(deployment, pod, is_serving, certificates, report);
        remove_volumes(pod, &removed);
    }
    if images(&entry, false).iter().any(|(_, image)| image == PLACEHOLDER_IMAGE) {
        report.note(format!(
            "{}: image {PLACEHOLDER_IMAGE} is that of a new project; set the image with kustomize, or --set-image \
             controller=IMAGE",
            deployment.label()
        ));
    }
    entry
}

/// Names of the volumes that the certificates of OLM replace.
fn replaced_volumes(
    deployment: &Object,
    pod: &Value,
    is_serving: bool,
    certificates: &[Object],
    report: &mut Report,
) -> BTreeSet<String> {
    let mut removed = BTreeSet::new();
    for volume in list(pod, "/volumes") {
        let (name, secret) = (text(volume, "/name"), text(volume, "/secret/secretName"));
        let is_issued = |one: &&Object| text(&one.value, "/spec/secretName") == secret;
        let certificate = certificates.iter().find(is_issued).filter(|_| !secret.is_empty());
        let mounts = mounts(pod, name);
        let at_olm = |(_, path): &(String, String)| VOLUMES.iter().any(|(_, known)| path == known);
        let is_replaced = VOLUMES.iter().any(|(known, _)| name == *known) || mounts.iter().any(at_olm);
        if is_serving && is_replaced {
            removed.insert(name.to_owned());
        }
        let elsewhere = mounts.iter().find(|mount| !is_serving || !at_olm(mount));
        if let (Some(certificate), Some((container, path))) = (certificate, elsewhere) {
            report.problem(format!(
                "{}: {}: container {container} mounts the Secret of {} at {path}; a bundle cannot contain the \
                 Certificate, and OLM mounts the certificate of webhooks only at {}: use that path, or a Secret \
                 that the operator creates{}",
                deployment.origin,
                deployment.label(),
                certificate.label(),
                VOLUMES[0].1,
                if has_metrics_certificate(&deployment.value) {
                    "; --strip-metrics-certs removes that of metrics"
                } else {
                    ""
                }
            ));
        } else if certificate.is_some() {
            removed.insert(name.to_owned());
        }
    }
    removed
}

/// Containers that mount a volume, with the path.
fn mounts(pod: &Value, volume: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for container in CONTAINERS.iter().flat_map(|kind| list(pod, &format!("/{kind}"))) {
        let mounts = list(container, "/volumeMounts").iter().filter(|mount| mount["name"] == *volume);
        found.extend(
            mounts.map(|mount| (text(container, "/name").to_owned(), text(mount, "/mountPath").to_owned())),
        );
    }
    found
}

/// Removes volumes and their mounts.
fn remove_volumes(pod: &mut Value, names: &BTreeSet<String>) {
    if names.is_empty() {
        return;
    }
    let retain = |owner: &mut Value, key: &str| {
        let Some(fields) = owner.as_object_mut() else { return };
        let Some(items) = fields.get_mut(key).and_then(Value::as_array_mut) else { return };
        items.retain(|item| !names.contains(text(item, "/name")));
        if items.is_empty() {
            fields.remove(key);
        }
    };
    retain(pod, "volumes");
    for kind in CONTAINERS {
        let containers = pod.get_mut(kind).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(|container| retain(container, "volumeMounts"));
    }
}

/// Sets images by repository, as the images of a kustomization do.
pub(super) fn set_images(deployment: &mut Value, images: &BTreeMap<String, String>) {
    let Some(pod) = deployment.pointer_mut("/spec/template/spec") else { return };
    for kind in CONTAINERS {
        let containers = pod.get_mut(kind).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let image = images.get(repository(text(container, "/image"))).cloned();
            if let Some(image) = image {
                container["image"] = Value::from(image);
            }
        }
    }
}

/// Repositories of the images that [`set_images`] can replace.
pub(super) fn repositories(deployment: &Value) -> impl Iterator<Item = &str> {
    let containers =
        CONTAINERS.iter().flat_map(|kind| list(deployment, &format!("/spec/template/spec/{kind}")));
    containers.map(|container| repository(text(container, "/image")))
}

/// Image reference without tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    image[name..].find(':').map_or(image, |colon| &image[..name + colon])
}

/// Images of a deployment of the install strategy: those of containers, by the name of deployment and container, and
/// those in environment variables `RELATED_IMAGE_<NAME>`, by that name. With `all_variables`, also those in other
/// variables.
fn images(deployment: &Value, all_variables: bool) -> Vec<(String, String)> {
    let mut images = Vec::new();
    for kind in CONTAINERS {
        for container in list(deployment, &format!("/spec/template/spec/{kind}")) {
            let name = format!("{}-{}", text(deployment, "/name"), text(container, "/name"));
            images.push((name, text(container, "/image").to_owned()));
            for variable in list(container, "/env") {
                let (name, value) = (text(variable, "/name"), text(variable, "/value"));
                let related = name.strip_prefix(RELATED_IMAGE);
                let other = Some(name).filter(|name| all_variables && is_operand_image(name, value));
                if let Some(name) = related.or(other) {
                    images.push((name.to_lowercase().replace('_', "-"), value.to_owned()));
                }
            }
        }
    }
    images.retain(|(_, image)| !image.is_empty());
    images
}

/// `spec.relatedImages`: images of the deployments, then hand-written entries of the list `known`. An entry with an
/// image of the `previous` deployments is not hand-written. `all_variables` is that of [`images`].
pub(super) fn related_images(
    deployments: &[Value],
    known: &[Value],
    previous: &[Value],
    all_variables: bool,
) -> Vec<Value> {
    let mut by_image: BTreeMap<String, String> = BTreeMap::new();
    let images = |deployment| images(deployment, all_variables);
    for (name, image) in deployments.iter().flat_map(images) {
        by_image.entry(image).or_insert(name);
    }
    let generated: BTreeSet<String> = previous.iter().flat_map(images).map(|(_, image)| image).collect();
    let is_written = |entry: &&Value| {
        let image = text(entry, "/image");
        !by_image.contains_key(image) && !generated.contains(image)
    };
    let mut written: Vec<Value> = known.iter().filter(is_written).cloned().collect();
    let mut related: Vec<Value> =
        by_image.iter().map(|(image, name)| json!({"image": image, "name": name})).collect();
    related.sort_by_key(|entry| text(entry, "/name").to_owned());
    related.append(&mut written);
    related
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_has_neither_tag_nor_digest() {
        for (image, expected) in [
            ("controller:latest", "controller"),
            ("localhost:5000/a/b", "localhost:5000/a/b"),
            ("localhost:5000/a/b:v1", "localhost:5000/a/b"),
            ("quay.io/a@sha256:00", "quay.io/a"),
            ("quay.io/a:v1@sha256:00", "quay.io/a"),
            ("", ""),
        ] {
            assert_eq!(repository(image), expected, "{image}");
        }
    }

    #[test]
    fn certificate_volume_is_removed_from_servers_only() {
        let deployment = |path: &str, secret: &str| Object {
            origin: "f".into(),
            is_sample: false,
            value: json!({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {"spec": {
                "volumes": [{"name": "v", "secret": {"secretName": secret}}, {"name": "kept"}],
                "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": path}]}],
            }}}}),
        };
        let certificate = Object {
            origin: "f".into(),
            is_sample: false,
            value: json!({"kind": "Certificate", "metadata": {"name": "cert"}, "spec": {"secretName": "tls"}}),
        };
        let certificates = [certificate];
        let olm = "/tmp/k8s-webhook-server/serving-certs";
        for (path, secret, is_serving, volumes, problems) in [
            (olm, "tls", true, 1, 0),
            (olm, "other", true, 1, 0),
            (olm, "other", false, 2, 0),
            (olm, "tls", false, 2, 1),
            ("/certs", "tls", true, 2, 1),
            ("/certs", "other", true, 2, 0),
        ] {
            let mut report = Report::default();
            let entry = strategy(&deployment(path, secret), is_serving, &certificates, &mut report);
            let found = list(&entry, "/spec/template/spec/volumes").len();
            assert_eq!((found, report.problems.len()), (volumes, problems), "{path} {secret} {is_serving}");
            let mounts = list(&entry["spec"]["template"]["spec"]["containers"][0], "/volumeMounts");
            assert_eq!(mounts.len(), volumes - 1, "{path} {secret} {is_serving}");
        }
    }
}
