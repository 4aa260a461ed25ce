//! Serving certificates of webhooks (spec 04 §12): what the chosen provider needs to see in the objects.
//!
//! A provider is a set of marks (annotations) and of objects; it never changes which objects the bundle itself
//! yields. A new provider is a new variant of [`Certificates`] and an arm in each of its methods.

use serde_json::{Value, json};

use crate::names;

/// Who issues the serving certificates of a bundle's webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Certificates {
    /// Nobody: bundles with webhooks are refused.
    #[default]
    None,
    /// cert-manager.
    CertManager,
    /// The service CA of OpenShift.
    OpenshiftServiceCa,
}

/// Names around the webhooks of one deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Serving {
    /// Name of the Service in front of the deployment.
    pub(crate) service: String,
    /// Name of the certificate and of the Secret that holds it.
    pub(crate) secret: String,
    pub(crate) namespace: String,
}

impl Serving {
    pub(crate) fn of_deployment(name: &str, install_namespace: &str) -> Self {
        let service = names::webhook_service(name);
        let secret = names::certificate(&service);
        Self { service, secret, namespace: install_namespace.to_string() }
    }
}

impl Certificates {
    /// Annotation that has the CA bundle injected into a webhook configuration or a converted definition.
    pub(crate) fn ca_injection(self, serving: &Serving) -> Option<(&'static str, String)> {
        match self {
            Self::None => None,
            Self::CertManager => {
                Some(("cert-manager.io/inject-ca-from", format!("{}/{}", serving.namespace, serving.secret)))
            }
            Self::OpenshiftServiceCa => Some(("service.beta.openshift.io/inject-cabundle", "true".into())),
        }
    }

    /// Annotation that has the Secret with the certificate created for a Service.
    pub(crate) fn service_annotation(self, serving: &Serving) -> Option<(&'static str, String)> {
        match self {
            Self::None | Self::CertManager => None,
            Self::OpenshiftServiceCa => {
                Some(("service.beta.openshift.io/serving-cert-secret-name", serving.secret.clone()))
            }
        }
    }

    /// Objects beside the bundle's own that the provider needs.
    pub(crate) fn objects(self, serving: &Serving) -> Vec<Value> {
        match self {
            Self::None | Self::OpenshiftServiceCa => Vec::new(),
            Self::CertManager => cert_manager_objects(serving),
        }
    }
}

/// A self-signed issuer and a certificate that lives two years.
fn cert_manager_objects(serving: &Serving) -> Vec<Value> {
    let Serving { service, secret, namespace } = serving;
    let issuer = names::issuer(secret);
    let host = format!("{service}.{namespace}");
    vec![
        json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "Issuer",
            "metadata": {"name": issuer, "namespace": namespace},
            "spec": {"selfSigned": {}},
        }),
        json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": {"name": secret, "namespace": namespace},
            "spec": {
                "secretName": secret,
                "commonName": host,
                "usages": ["server auth"],
                "dnsNames": [host, format!("{host}.svc"), format!("{host}.svc.cluster.local")],
                "issuerRef": {"name": issuer},
                "duration": "17520h0m0s",
                "renewBefore": "24h0m0s",
            },
        }),
    ]
}

/// Volume name, mount path, and file names of certificate and key in it.
const VOLUMES: [(&str, &str, &str, &str); 2] = [
    ("webhook-cert", "/tmp/k8s-webhook-server/serving-certs", "tls.crt", "tls.key"),
    ("apiservice-cert", "/apiserver.local.config/certificates", "apiserver.crt", "apiserver.key"),
];

/// Mounts the certificate into every container of a pod, in place of whatever claims its paths or names
/// (spec 04 §12.3). Init containers are left alone.
pub(crate) fn mount(pod: &mut Value, serving: &Serving) {
    let mut replaced: Vec<String> = VOLUMES.iter().map(|(name, ..)| (*name).to_string()).collect();
    for mount in items(pod, "containers").flat_map(|container| items(container, "volumeMounts")) {
        if VOLUMES.iter().any(|(_, path, ..)| mount["mountPath"] == *path) {
            replaced.extend(mount["name"].as_str().map(str::to_string));
        }
    }
    let volumes = VOLUMES.iter().map(|(name, _, certificate, key)| {
        let items = json!([{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}]);
        json!({"name": name, "secret": {"secretName": serving.secret, "items": items}})
    });
    replace_named(pod, "volumes", &replaced, volumes.collect());
    let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        let mounts = VOLUMES.iter().map(|(name, path, ..)| json!({"name": name, "mountPath": path}));
        replace_named(container, "volumeMounts", &replaced, mounts.collect());
    }
}

fn items<'a>(owner: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    owner.get(list).and_then(Value::as_array).into_iter().flatten()
}

/// Drops the elements with one of the names from a list and appends others.
fn replace_named(owner: &mut Value, list: &str, names: &[String], added: Vec<Value>) {
    let Some(owner) = owner.as_object_mut() else {
        return;
    };
    let mut kept = match owner.remove(list) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    kept.retain(|item| {
        !item["name"].as_str().is_some_and(|name| names.iter().any(|removed| removed == name))
    });
    kept.extend(added);
    owner.insert(list.to_string(), Value::Array(kept));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_volumes_at_protected_paths_give_way() {
        // spec 04 acceptance 47
        let serving = Serving::of_deployment("d", "ns");
        let mut pod = json!({
            "volumes": [{"name": "mine"}, {"name": "kept"}, {"name": "webhook-cert"}],
            "initContainers": [{"name": "i", "volumeMounts": [{"name": "mine", "mountPath": "/i"}]}],
            "containers": [
                {"name": "a", "volumeMounts": [{"name": "mine", "mountPath": "/apiserver.local.config/certificates"}]},
                {"name": "b", "volumeMounts": [{"name": "mine", "mountPath": "/x"}, {"name": "kept", "mountPath": "/k"}]},
                {"name": "c"},
            ],
        });
        mount(&mut pod, &serving);
        let names = |owner: &Value, list| -> Vec<String> {
            items(owner, list).map(|item| item["name"].as_str().unwrap().to_string()).collect()
        };
        assert_eq!(names(&pod, "volumes"), ["kept", "webhook-cert", "apiservice-cert"]);
        assert_eq!(names(&pod["initContainers"][0], "volumeMounts"), ["mine"]);
        assert_eq!(names(&pod["containers"][0], "volumeMounts"), ["webhook-cert", "apiservice-cert"]);
        assert_eq!(names(&pod["containers"][1], "volumeMounts"), ["kept", "webhook-cert", "apiservice-cert"]);
        let expected = json!([
            {"name": "webhook-cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs"},
            {"name": "apiservice-cert", "mountPath": "/apiserver.local.config/certificates"},
        ]);
        assert_eq!(pod["containers"][2]["volumeMounts"], expected);
        let expected = json!({
            "name": "apiservice-cert",
            "secret": {
                "secretName": "d-service-cert",
                "items": [{"key": "tls.crt", "path": "apiserver.crt"}, {"key": "tls.key", "path": "apiserver.key"}],
            },
        });
        assert_eq!(pod["volumes"][2], expected);
    }

    #[test]
    fn providers_differ_in_marks_and_objects() {
        // spec 04 acceptance 50
        let serving = Serving::of_deployment("d", "ns");
        let issued = Certificates::CertManager.objects(&serving);
        assert_eq!(issued[0]["metadata"]["name"], "d-service-cert-selfsigned-issuer");
        let expected = json!({
            "secretName": "d-service-cert", "commonName": "d-service.ns", "usages": ["server auth"],
            "dnsNames": ["d-service.ns", "d-service.ns.svc", "d-service.ns.svc.cluster.local"],
            "issuerRef": {"name": "d-service-cert-selfsigned-issuer"},
            "duration": "17520h0m0s", "renewBefore": "24h0m0s",
        });
        assert_eq!(issued[1]["spec"], expected);
        assert!(Certificates::OpenshiftServiceCa.objects(&serving).is_empty());
        assert_eq!(
            Certificates::CertManager.ca_injection(&serving),
            Some(("cert-manager.io/inject-ca-from", "ns/d-service-cert".to_string()))
        );
        assert_eq!(
            Certificates::OpenshiftServiceCa.service_annotation(&serving),
            Some(("service.beta.openshift.io/serving-cert-secret-name", "d-service-cert".to_string()))
        );
    }
}
