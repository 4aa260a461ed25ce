//! Serving certificates of webhooks (docs/design/bundles.md#webhook-certificates): annotations and objects that the
//! selected provider needs.
//!
//! A provider adds annotations and objects. It never changes the objects of the bundle. A new provider is a variant
//! of [`Certificates`] and an arm in each of its methods.
//!
//! The built-in provider reads its inputs from rendered objects: [`injections`] and [`issued_by_others`].

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::names;

/// Annotation of the webhook configurations, converted CRDs and APIServices into which the built-in provider injects its CA
/// bundle. The value is `<namespace>/<secret>` of the serving certificate.
pub const BUILTIN_CA_ANNOTATION: &str = "ext.olm.operatorframework.io/inject-ca-from";
/// cert-manager annotation with the same meaning.
const CERT_MANAGER_CA_ANNOTATION: &str = "cert-manager.io/inject-ca-from";
/// Annotation of a Service for which OpenShift issues a certificate. The value is the name of the Secret.
const OPENSHIFT_SECRET_ANNOTATION: &str = "service.beta.openshift.io/serving-cert-secret-name";

/// Issuer of the serving certificates for webhooks and aggregated APIs of bundles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Certificates {
    /// No issuer: bundles with webhooks or aggregated APIs are refused.
    #[default]
    None,
    /// cert-manager.
    CertManager,
    /// OpenShift service CA.
    OpenshiftServiceCa,
    /// operator-controller.
    Builtin,
}

/// Names of the objects that serve the webhooks and aggregated APIs of one deployment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serving {
    /// Namespace of Service and Secret.
    pub namespace: String,
    /// Name of the Service of the deployment.
    pub service: String,
    /// Name of the Certificate and of its Secret.
    pub secret: String,
}

/// Kind of an object with a CA bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InjectionKind {
    /// `ValidatingWebhookConfiguration`.
    Validating,
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `CustomResourceDefinition` with a conversion webhook.
    Crd,
    /// `APIService` with a Service.
    ApiService,
}

impl InjectionKind {
    /// Kind of the object. `None` for an object that never has a CA bundle.
    pub fn of(object: &Value) -> Option<Self> {
        let group = object["apiVersion"].as_str()?.split_once('/')?.0;
        match (group, object["kind"].as_str()?) {
            ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => Some(Self::Validating),
            ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => Some(Self::Mutating),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Some(Self::Crd),
            ("apiregistration.k8s.io", "APIService") => Some(Self::ApiService),
            _ => None,
        }
    }

    /// Returns the value of `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Crd => "CustomResourceDefinition",
            Self::ApiService => "APIService",
        }
    }
}

/// Object that receives the CA bundle of the built-in provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Injection {
    /// Kind of the object.
    pub kind: InjectionKind,
    /// Name of the object.
    pub name: String,
    /// Names for the server that it calls.
    pub serving: Serving,
}

/// CA injections of the built-in provider, read from rendered objects or objects of a stored revision. Sorted,
/// without duplicates.
///
/// An author may write the annotation, too. It is honored only if the called Service is one of these objects, so
/// that a bundle cannot request Secrets outside of its installation. It is ignored if another provider issues the
/// certificate of that Service, because that provider writes the same fields.
pub fn injections(objects: &[&Value]) -> Vec<Injection> {
    let services: BTreeSet<(&str, &str)> = objects.iter().filter_map(|object| service(object)).collect();
    let others = issued_by_others(objects);
    let is_ours = |Injection { serving, .. }: &Injection| {
        services.contains(&(&serving.namespace, &serving.service))
            && !others.contains(&(serving.namespace.clone(), serving.secret.clone()))
    };
    let all: BTreeSet<Injection> =
        objects.iter().filter_map(|object| Injection::of(object)).filter(is_ours).collect();
    all.into_iter().collect()
}

/// Namespace and name, if the object is a Service.
fn service(object: &Value) -> Option<(&str, &str)> {
    let metadata = &object["metadata"];
    let is_service = object["apiVersion"] == "v1" && object["kind"] == "Service";
    is_service.then_some((metadata["namespace"].as_str()?, metadata["name"].as_str()?))
}

impl Injection {
    /// Injection that the annotation of an object requests. `None` without the annotation, or if it is not that of the
    /// called Service.
    pub fn of(object: &Value) -> Option<Self> {
        let kind = InjectionKind::of(object)?;
        let metadata = &object["metadata"];
        let (namespace, secret) = metadata["annotations"][BUILTIN_CA_ANNOTATION].as_str()?.split_once('/')?;
        let client = match kind {
            InjectionKind::Validating | InjectionKind::Mutating => object.pointer("/webhooks/0/clientConfig"),
            InjectionKind::Crd => object.pointer("/spec/conversion/webhook/clientConfig"),
            InjectionKind::ApiService => object.pointer("/spec"),
        };
        let called = &client?["service"];
        let service = called["name"].as_str()?;
        let agrees = called["namespace"] == namespace && names::certificate(service) == secret;
        agrees.then(|| Self {
            kind,
            name: metadata["name"].as_str().unwrap_or_default().to_owned(),
            serving: Serving {
                namespace: namespace.to_owned(),
                service: service.to_owned(),
                secret: secret.to_owned(),
            },
        })
    }
}

/// Namespace and name of the Secrets that cert-manager or OpenShift issue for these objects.
pub fn issued_by_others(objects: &[&Value]) -> BTreeSet<(String, String)> {
    let secret = |object: &&Value| {
        let metadata = &object["metadata"];
        let secret = match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
            ("v1", "Service") => &metadata["annotations"][OPENSHIFT_SECRET_ANNOTATION],
            (group, "Certificate") if group.starts_with("cert-manager.io/") => &object["spec"]["secretName"],
            _ => return None,
        };
        Some((metadata["namespace"].as_str()?.to_owned(), secret.as_str()?.to_owned()))
    };
    objects.iter().filter_map(secret).collect()
}

impl Serving {
    pub(crate) fn of_deployment(name: &str, install_namespace: &str) -> Self {
        let service = names::serving_service(name);
        let secret = names::certificate(&service);
        Self { service, secret, namespace: install_namespace.to_string() }
    }
}

impl Certificates {
    /// Annotation that requests injection of the CA bundle into a webhook configuration, a converted CRD or an
    /// APIService.
    pub(crate) fn ca_injection(self, serving: &Serving) -> Option<(&'static str, String)> {
        let secret = format!("{}/{}", serving.namespace, serving.secret);
        match self {
            Self::None => None,
            Self::CertManager => Some((CERT_MANAGER_CA_ANNOTATION, secret)),
            Self::Builtin => Some((BUILTIN_CA_ANNOTATION, secret)),
            Self::OpenshiftServiceCa => Some(("service.beta.openshift.io/inject-cabundle", "true".into())),
        }
    }

    /// Annotation of the Service that requests a Secret with the certificate.
    pub(crate) fn service_annotation(self, serving: &Serving) -> Option<(&'static str, String)> {
        match self {
            Self::None | Self::CertManager | Self::Builtin => None,
            Self::OpenshiftServiceCa => Some((OPENSHIFT_SECRET_ANNOTATION, serving.secret.clone())),
        }
    }

    /// Additional objects that the provider needs.
    pub(crate) fn objects(self, serving: &Serving) -> Vec<Value> {
        match self {
            Self::None | Self::OpenshiftServiceCa | Self::Builtin => Vec::new(),
            Self::CertManager => cert_manager_objects(serving),
        }
    }
}

/// Self-signed Issuer and a Certificate valid for two years.
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

/// Volume name, mount path, and file names of certificate and key.
const VOLUMES: [(&str, &str, &str, &str); 2] = [
    ("webhook-cert", "/tmp/k8s-webhook-server/serving-certs", "tls.crt", "tls.key"),
    ("apiservice-cert", "/apiserver.local.config/certificates", "apiserver.crt", "apiserver.key"),
];

/// Mounts the certificate into every container of a pod, and removes volumes and mounts that use its paths or names
/// (docs/design/bundles.md#certificate-volumes). Init containers are not changed.
pub(crate) fn mount(pod: &mut Value, serving: &Serving) {
    let mut replaced: BTreeSet<String> = VOLUMES.iter().map(|(name, ..)| (*name).to_string()).collect();
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

/// Removes the items with one of the names from a list and appends `added`.
fn replace_named(owner: &mut Value, list: &str, names: &BTreeSet<String>, added: Vec<Value>) {
    let Some(owner) = owner.as_object_mut() else {
        return;
    };
    let mut kept = match owner.remove(list) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    kept.retain(|item| !item["name"].as_str().is_some_and(|name| names.contains(name)));
    kept.extend(added);
    owner.insert(list.to_string(), Value::Array(kept));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_mount_replaces_foreign_volumes_at_its_paths() {
        // Case bundles-47
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
    fn certificate_providers_differ_in_annotations_and_objects() {
        // Case bundles-50
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
        // The built-in provider annotates the objects that it injects into, and adds nothing else.
        let builtin = Certificates::Builtin;
        assert_eq!(
            builtin.ca_injection(&serving),
            Some(("ext.olm.operatorframework.io/inject-ca-from", "ns/d-service-cert".to_string()))
        );
        assert!(builtin.service_annotation(&serving).is_none() && builtin.objects(&serving).is_empty());
    }

    fn configuration(kind: &str, name: &str, called: &str, mark: &str) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "annotations": {BUILTIN_CA_ANNOTATION: mark}},
            "webhooks": [{"name": name, "clientConfig": {"service": {"namespace": "ns", "name": called}}}],
        })
    }

    fn crd(name: &str, mark: &str) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "annotations": {mark: "ns/d-service-cert"}},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"service": {"namespace": "ns", "name": "d-service"}}}}},
        })
    }

    fn service(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "ns"}})
    }

    #[test]
    fn injections_require_annotation_to_match_the_called_service() {
        let (validating, mutating) = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration");
        let mut unconverted = crd("old.io", BUILTIN_CA_ANNOTATION);
        unconverted["spec"] = json!({"conversion": {"strategy": "None"}});
        let mut other_group = configuration(validating, "z", "d-service", "ns/d-service-cert");
        other_group["apiVersion"] = json!("example.com/v1");
        let objects = [
            crd("a.io", BUILTIN_CA_ANNOTATION),
            configuration(mutating, "m", "d-service", "ns/d-service-cert"),
            configuration(validating, "v", "d-service", "ns/d-service-cert"),
            configuration(validating, "v", "d-service", "ns/d-service-cert"),
            configuration(validating, "w", "e-service", "ns/e-service-cert"),
            // Annotations of other providers, and annotations with another Secret.
            crd("b.io", "cert-manager.io/inject-ca-from"),
            configuration(validating, "x", "d-service", "kube-system/d-service-cert"),
            configuration(validating, "y", "d-service", "ns/e-service-cert"),
            configuration(validating, "y", "d-service", "d-service-cert"),
            unconverted,
            other_group,
            // Service that is not part of the bundle, and Service whose certificate another provider issues.
            configuration(validating, "u", "absent-service", "ns/absent-service-cert"),
            configuration(validating, "t", "f-service", "ns/f-service-cert"),
            service("d-service"),
            service("e-service"),
            service("f-service"),
            Certificates::CertManager.objects(&Serving::of_deployment("f", "ns")).remove(1),
            json!({"apiVersion": "v1", "kind": "Service"}),
            json!(null),
        ];
        let found = injections(&objects.iter().collect::<Vec<_>>());
        let rows: Vec<_> = found
            .iter()
            .map(|one| (one.kind.as_str(), one.name.as_str(), one.serving.secret.as_str()))
            .collect();
        assert_eq!(
            rows,
            [
                (validating, "v", "d-service-cert"),
                (validating, "w", "e-service-cert"),
                (mutating, "m", "d-service-cert"),
                ("CustomResourceDefinition", "a.io", "d-service-cert"),
            ]
        );
    }

    #[test]
    fn secrets_of_other_providers_are_found_in_their_objects() {
        let serving = Serving::of_deployment("d", "ns");
        let secret = BTreeSet::from([("ns".to_owned(), "d-service-cert".to_owned())]);
        let issued = Certificates::CertManager.objects(&serving);
        assert_eq!(issued_by_others(&issued.iter().collect::<Vec<_>>()), secret);
        let (key, value) = Certificates::OpenshiftServiceCa.service_annotation(&serving).unwrap();
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": "ns", "name": "d-service", "annotations": {key: value}},
        });
        assert_eq!(issued_by_others(&[&service]), secret);
        let plain =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "ns", "name": "d"}});
        assert!(issued_by_others(&[&plain, &json!({})]).is_empty());
    }
}
