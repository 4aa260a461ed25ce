//! What a container of the operator expects from its manifests, but does not get as a bundle
//! (docs/design/cli.md#bundle-validation): namespaces to watch, files, and images of operands.

use std::collections::BTreeSet;

use olm_bundle::pointer::{list, text};
use olm_version::quote;
use serde_json::Value;

use crate::content::Object;
use crate::csv::supported_modes;
use crate::images::is_reference;
use crate::report::{Findings, Location};
use crate::rule;

/// Variables that name the watched namespaces by convention.
const WATCH: [&str; 2] = ["WATCH_NAMESPACE", "WATCH_NAMESPACES"];
/// Field with the watched namespaces.
const TARGETS: &str = "metadata.annotations['olm.targetNamespaces']";
/// Paths where OLM mounts the certificate of a deployment that serves webhooks or an aggregated API.
const CERTIFICATES: [&str; 2] =
    ["/tmp/k8s-webhook-server/serving-certs", "/apiserver.local.config/certificates"];
/// Folders that exist in every pod or in most images.
const USUAL: [&str; 5] =
    ["/etc/pki", "/etc/ssl", "/usr", "/var/run/secrets/kubernetes.io", "/run/secrets/kubernetes.io"];
/// Ends of the names of flags whose file must exist when the operator starts.
const FILES: [&str; 7] =
    ["cert-path", "certs-path", "cert-file", "tls-cert-file", "private-key-file", "tls-key-file", "ca-file"];

/// Container of a deployment with its location.
struct Container<'a> {
    deployment: &'a str,
    value: &'a Value,
    location: Location,
}

fn containers<'a>(csv: &'a Object, kinds: &[&str]) -> Vec<Container<'a>> {
    let mut found = Vec::new();
    for (location, deployment) in csv.items("spec.install.spec.deployments") {
        for kind in kinds {
            let path = format!("spec.template.spec.{kind}");
            for (index, value) in list(deployment, &crate::content::pointer(&path)).iter().enumerate() {
                let location = location.clone().at(&format!("{path}.{index}"));
                found.push(Container { deployment: text(deployment, "/name"), value, location });
            }
        }
    }
    found
}

/// Namespaces that a variable makes the operator watch.
enum Watched<'a> {
    All,
    Own,
    Named(&'a str),
}

/// Compares the variables for watched namespaces with the install modes.
pub(crate) fn watched_namespaces(csv: &Object, findings: &mut Findings) {
    let modes: BTreeSet<&str> = supported_modes(csv).into_iter().collect();
    for container in containers(csv, &["containers"]) {
        for (index, variable) in list(container.value, "/env").iter().enumerate() {
            let name = text(variable, "/name");
            if !WATCH.contains(&name) {
                continue;
            }
            let field = text(variable, "/valueFrom/fieldRef/fieldPath");
            let (watched, served) = match (field, variable.get("valueFrom")) {
                ("metadata.namespace", _) => (Watched::Own, "OwnNamespace"),
                (_, Some(source)) if !source.is_null() => continue,
                _ => match text(variable, "/value") {
                    "" => (Watched::All, "AllNamespaces"),
                    value if value.contains("$(") => continue,
                    value => (Watched::Named(value), ""),
                },
            };
            let others: Vec<&str> = modes.iter().copied().filter(|mode| *mode != served).collect();
            if others.is_empty() {
                continue;
            }
            let what = match watched {
                Watched::All => "all namespaces".to_owned(),
                Watched::Own => "only its own namespace".to_owned(),
                Watched::Named(name) => format!("only {}", quote(name)),
            };
            let message = format!(
                "{name} makes the operator watch {what}, but spec.installModes supports {}: set valueFrom.fieldRef.fieldPath \
                 to {TARGETS}, or support only modes that fit",
                others.join(", ")
            );
            let location = container.location.clone().at(&format!("env.{index}"));
            findings.add(&rule::DEPLOY_4, location, message);
        }
    }
}

/// Reports arguments with files that no volume of the container has.
pub(crate) fn missing_files(csv: &Object, findings: &mut Findings) {
    let services = csv.list("/spec/apiservicedefinitions/owned").iter();
    let serving: BTreeSet<&str> = csv
        .list("/spec/webhookdefinitions")
        .iter()
        .chain(services)
        .map(|one| text(one, "/deploymentName"))
        .collect();
    for container in containers(csv, &["initContainers", "containers"]) {
        let mut mounts: Vec<&str> =
            list(container.value, "/volumeMounts").iter().map(|mount| text(mount, "/mountPath")).collect();
        if serving.contains(container.deployment) {
            mounts.extend(CERTIFICATES);
        }
        for field in ["command", "args"] {
            let words = list(container.value, &format!("/{field}"));
            for (index, word) in words.iter().enumerate() {
                let next = words.get(index + 1).and_then(Value::as_str);
                let Some((flag, path)) = word.as_str().and_then(|word| file_argument(word, next)) else {
                    continue;
                };
                if mounts.iter().chain(&USUAL).any(|mount| is_below(path, mount)) {
                    continue;
                }
                let message = format!(
                    "{flag} names {}, but the container has no volume there: remove the argument, or mount a volume with the \
                     file; OLM mounts only the certificate of webhooks, at {}",
                    quote(path),
                    CERTIFICATES[0]
                );
                findings.add(
                    &rule::DEPLOY_5,
                    container.location.clone().at(&format!("{field}.{index}")),
                    message,
                );
            }
        }
    }
}

/// Flag and absolute path of an argument that names a file which must exist: `--flag=path`, or `--flag` before the path.
fn file_argument<'a>(word: &'a str, next: Option<&'a str>) -> Option<(&'a str, &'a str)> {
    let (flag, path) = match word.split_once('=') {
        Some((flag, path)) => (flag, path),
        None => (word, next?),
    };
    let is_file = flag.starts_with('-') && FILES.iter().any(|end| flag.ends_with(end));
    (is_file && path.starts_with('/') && !path.contains("$(")).then_some((flag, path))
}

fn is_below(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reports images in environment variables that `spec.relatedImages` lacks.
pub(crate) fn operand_images(csv: &Object, findings: &mut Findings) {
    let related = csv.list("/spec/relatedImages").iter().map(|related| text(related, "/image"));
    let own = containers(csv, &["initContainers", "containers"]);
    let own = own.iter().map(|container| text(container.value, "/image"));
    let known: BTreeSet<&str> = related.chain(own).collect();
    for container in containers(csv, &["initContainers", "containers"]) {
        for (index, variable) in list(container.value, "/env").iter().enumerate() {
            let (name, image) = (text(variable, "/name"), text(variable, "/value"));
            if !is_operand_image(name, image) || known.contains(image) {
                continue;
            }
            let message = format!(
                "variable {} has the image {}, which spec.relatedImages lacks: add it there, else mirrors of the catalog do \
                 not have it",
                quote(name),
                quote(image)
            );
            findings.add(&rule::IMG_3, container.location.clone().at(&format!("env.{index}.value")), message);
        }
    }
}

/// Reports whether an environment variable has the reference of an image: one with tag or digest, and with a registry
/// unless the name of the variable leaves no doubt.
pub fn is_operand_image(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let is_clear = name == "IMAGE" || name.ends_with("_IMAGE") || name.starts_with("RELATED_IMAGE_");
    let is_registry = |(first, _): (&str, &str)| first.contains(['.', ':']) || first == "localhost";
    let last = value.rsplit('/').next().unwrap_or_default();
    name.contains("IMAGE")
        && (is_clear || value.split_once('/').is_some_and(is_registry))
        && last.contains([':', '@'])
        && is_reference(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_names_a_required_file() {
        for (word, next, expected) in [
            ("--metrics-cert-path=/tmp/m", None, Some(("--metrics-cert-path", "/tmp/m"))),
            ("--tls-cert-file", Some("/certs/tls.crt"), Some(("--tls-cert-file", "/certs/tls.crt"))),
            ("-client-ca-file=/a", None, Some(("-client-ca-file", "/a"))),
            ("--metrics-cert-path=$(DIR)/a", None, None),
            ("--metrics-cert-path=certs", None, None),
            ("--metrics-cert-path", None, None),
            ("--config=/etc/a.yaml", None, None),
            ("cert-path=/a", None, None),
        ] {
            assert_eq!(file_argument(word, next), expected, "{word}");
        }
        assert!(
            is_below("/a/b", "/a") && is_below("/a", "/a/") && is_below("/a", "/") && !is_below("/ab", "/a")
        );
    }

    #[test]
    fn operand_image_has_a_registry_and_a_tag_or_digest() {
        for (name, value, expected) in [
            ("RELATED_IMAGE_X", "quay.io/a/b:v1", true),
            ("operand_image", "localhost:5000/a:v1", true),
            ("MEMCACHED_IMAGE", "memcached:1.4", true),
            ("MEMCACHED_IMAGE", "memcached", false),
            ("IMAGE_OF_CACHE", "memcached:1.4", false),
            ("IMAGE_REPOSITORY", "quay.io/a/b", false),
            ("IMAGE_URL", "https://quay.io/a/b:v1", false),
            ("OPERAND", "quay.io/a/b:v1", false),
        ] {
            assert_eq!(is_operand_image(name, value), expected, "{name} {value}");
        }
    }
}
