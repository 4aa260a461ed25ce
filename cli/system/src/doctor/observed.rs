//! Observed state of a cluster. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use olm_api::labels;
use olm_cli_migrate::ClassicPackage;
use serde_json::Value;

/// Facts from which the findings are derived. Contains no secret.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Time before the objects were read, with which they are compared.
    pub(super) time: Timestamp,
    /// Namespace of the servers.
    pub(super) namespace: String,
    /// Version of the API server, such as `v1.36.0`.
    pub(super) kubernetes: String,
    /// Objects by kind. Secrets have no data.
    pub(super) objects: BTreeMap<String, Vec<Value>>,
    /// Reads that failed, each with its reason.
    pub(super) unreadable: Vec<String>,
    pub(super) logs: Vec<Log>,
    /// Failing readiness checks by pod, as the server prints them.
    pub(super) readiness: BTreeMap<String, String>,
    pub(super) certificates: Vec<Certificate>,
    pub(super) pull_secrets: Vec<PullSecret>,
    /// Failure of a dry run that calls the admission webhook.
    pub(super) webhook_failure: Option<String>,
    /// Packages of classic OLM.
    pub(super) classic: Vec<ClassicPackage>,
    /// Names of all bundles of the served catalogs. `None` if a catalog could not be read.
    pub(super) offered: Option<BTreeSet<String>>,
}

/// Last lines of the log of a container.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    pub(super) pod: String,
    pub(super) container: String,
    /// `true` for the previous run of the container.
    pub(super) previous: bool,
    pub(super) text: String,
}

/// Public part of a Secret with a certificate.
#[derive(Debug, Clone, Default)]
pub(super) struct Certificate {
    pub(super) namespace: String,
    pub(super) secret: String,
    /// Extension whose webhooks use it, or empty.
    pub(super) owner: String,
    /// Chain, leaf first (PEM).
    pub(super) chain: Vec<u8>,
}

/// Pull Secret of a server.
#[derive(Debug, Clone)]
pub(super) struct PullSecret {
    /// `namespace/name`
    pub(super) name: String,
    /// Registries that it has credentials for, or the reason for which it is unusable.
    pub(super) registries: Result<Vec<String>, String>,
}

impl Observed {
    /// Adds an object, unless it is already known.
    pub(super) fn add(&mut self, kind: &str, object: Value) {
        let known = self.objects.entry(kind.to_owned()).or_default();
        if !known.iter().any(|one| key(one) == key(&object)) {
            known.push(object);
        }
    }

    /// Objects of a kind.
    pub(super) fn list(&self, kind: &str) -> &[Value] {
        self.objects.get(kind).map_or(&[], Vec::as_slice)
    }

    /// Object of the namespace of the servers.
    pub(super) fn own(&self, kind: &str, name: &str) -> Option<&Value> {
        let is_own = |one: &&Value| key(one) == (self.namespace.as_str(), name);
        self.list(kind).iter().find(is_own)
    }

    /// Reports whether the objects of this plural could not be read: those of the namespace of the servers, or
    /// cluster-scoped ones.
    pub(super) fn is_unreadable(&self, plural: &str) -> bool {
        let own = [format!("{plural}: "), format!("{plural} in namespace {}: ", self.namespace)];
        self.unreadable.iter().any(|why| own.iter().any(|begin| why.starts_with(begin)))
    }

    /// Log of a pod: that of its previous run, or of its current one. Of several containers, that of the server.
    pub(super) fn log(&self, pod: &str, previous: bool) -> &str {
        let of_pod = self.logs.iter().filter(|log| log.pod == pod && log.previous == previous);
        let found = of_pod.min_by_key(|log| log.container != "manager");
        found.map_or("", |log| log.text.as_str())
    }
}

/// Text at a JSON pointer, or empty.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Elements of the list at a JSON pointer.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Namespace and name.
pub(super) fn key(object: &Value) -> (&str, &str) {
    (text(object, "/metadata/namespace"), name(object))
}

/// Name.
pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Value of a label, or empty.
pub(super) fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str()).unwrap_or_default()
}

/// Name of the extension in the owner labels of an object, or empty.
pub(super) fn owner(object: &Value) -> &str {
    let is_owned = label(object, labels::OWNER_KIND) == labels::OWNER_KIND_EXTENSION;
    if is_owned { label(object, labels::OWNER_NAME) } else { "" }
}

/// `Kind namespace/name`, as findings name an object.
pub(super) fn title(kind: &str, object: &Value) -> String {
    let (namespace, name) = key(object);
    format!("{kind} {}", olm_cli_core::output::qualified(namespace, name))
}
