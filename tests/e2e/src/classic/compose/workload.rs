//! Deployments, webhooks and their certificates.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::rbac::{GROUP, V1};
use super::{CSV, Composer, hash, list, text};
use crate::classic::certificates::{CA, CERTIFICATE, KEY};

impl Composer<'_> {
    /// Deployments, with Services and certificates of those that serve webhooks.
    pub(super) fn workloads(&mut self) {
        for deployment in list(&self.csv["spec"]["install"]["spec"]["deployments"]).to_vec() {
            let webhooks: Vec<Value> = list(&self.csv["spec"]["webhookdefinitions"])
                .iter()
                .filter(|webhook| webhook["deploymentName"] == deployment["name"])
                .cloned()
                .collect();
            if !webhooks.is_empty() {
                self.serving(&deployment, &webhooks);
            }
            self.deployment(&deployment, !webhooks.is_empty());
            for webhook in &webhooks {
                self.webhook(webhook);
            }
        }
    }

    fn deployment(&mut self, deployment: &Value, is_serving: bool) {
        let mut spec = deployment["spec"].clone();
        spec["revisionHistoryLimit"] = json!(1);
        let template = &mut spec["template"];
        if let Some(all) = self.csv["metadata"]["annotations"].as_object() {
            for (key, value) in all {
                template["metadata"]["annotations"][key] = value.clone();
            }
        }
        let secret = format!("{}-cert", service(deployment));
        if is_serving {
            template["metadata"]["annotations"]["olmcahash"] = json!(hash(&json!(secret)));
        }
        for (name, path, certificate, key) in CERTIFICATES.iter().filter(|_| is_serving) {
            let items = json!([{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}]);
            push(
                &mut template["spec"]["volumes"],
                json!({"name": name, "secret": {"secretName": secret, "items": items}}),
            );
            for container in template["spec"]["containers"].as_array_mut().into_iter().flatten() {
                let mounts = &mut container["volumeMounts"];
                if let Some(mounts) = mounts.as_array_mut() {
                    mounts.retain(|mount| mount["mountPath"] != *path);
                }
                push(mounts, json!({"name": name, "mountPath": path}));
            }
        }
        for container in template["spec"]["containers"].as_array_mut().into_iter().flatten() {
            push(&mut container["env"], json!({"name": "OPERATOR_CONDITION_NAME", "value": self.name}));
        }
        let mut labels = self.labels(true, Some(self.origin.namespace));
        labels["olm.deployment-spec-hash"] = json!(hash(&spec));
        for (key, value) in deployment["label"].as_object().into_iter().flatten() {
            labels[key] = value.clone();
        }
        self.add(
            "olm",
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": deployment["name"], "namespace": self.origin.namespace, "labels": labels,
                "ownerReferences": [self.owner()]},
            "spec": spec, "status": {"availableReplicas": 1}}),
        );
    }

    /// Service and certificate of a Deployment, and the rights that classic OLM gives to its account.
    fn serving(&mut self, deployment: &Value, webhooks: &[Value]) {
        let namespace = self.origin.namespace;
        let service = service(deployment);
        let secret = format!("{service}-cert");
        let account =
            deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap_or("default");
        let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
        let metadata = |name: &str| {
            json!({"name": name, "namespace": namespace, "labels": self.labels(true, None),
            "ownerReferences": [self.owner()]})
        };
        let mut certificate = metadata(&secret);
        certificate["annotations"] = json!({"olmcahash": hash(&json!(secret))});
        let objects = [
            (
                "olm.install",
                json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(&service),
                "spec": {"type": "ClusterIP", "ports": ports(webhooks), "selector": deployment["spec"]["selector"]["matchLabels"]}}),
            ),
            (
                "olm",
                json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": certificate,
                "data": {"tls.crt": CERTIFICATE, "tls.key": KEY, "olmCAKey": CA}}),
            ),
            (
                "olm",
                json!({"apiVersion": V1, "kind": "Role", "metadata": metadata(&secret), "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}]}),
            ),
            (
                "olm",
                json!({"apiVersion": V1, "kind": "RoleBinding", "metadata": metadata(&secret), "subjects": subjects,
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": secret}}),
            ),
            (
                "olm.install",
                json!({"apiVersion": V1, "kind": "ClusterRoleBinding", "subjects": subjects,
                "metadata": {"name": format!("{service}-system:auth-delegator"),
                    "labels": self.labels(true, Some(namespace))},
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "system:auth-delegator"}}),
            ),
            (
                "olm.install",
                json!({"apiVersion": V1, "kind": "RoleBinding", "subjects": subjects,
                "metadata": {"name": format!("{service}-auth-reader"), "namespace": "kube-system",
                    "labels": {"olm.managed": "true"}},
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "extension-apiserver-authentication-reader"}}),
            ),
        ];
        for (manager, object) in objects {
            self.add(manager, object);
        }
    }

    /// Configuration of an admission webhook.
    fn webhook(&mut self, webhook: &Value) {
        let kind = match text(&webhook["type"]) {
            "ValidatingAdmissionWebhook" => "ValidatingWebhookConfiguration",
            "MutatingAdmissionWebhook" => "MutatingWebhookConfiguration",
            _ => return,
        };
        let name = text(&webhook["generateName"]);
        let mut labels = self.labels(false, Some(self.origin.namespace));
        labels["olm.webhook-description-generate-name"] = json!(name);
        labels["olm.webhook-description-hash"] = json!(hash(webhook));
        let mut entry = json!({"name": name, "clientConfig": self.client(webhook)});
        for field in [
            "rules",
            "failurePolicy",
            "matchPolicy",
            "objectSelector",
            "sideEffects",
            "timeoutSeconds",
            "admissionReviewVersions",
            "reinvocationPolicy",
        ] {
            if !webhook[field].is_null() {
                entry[field] = webhook[field].clone();
            }
        }
        if !self.origin.targets.is_empty() {
            let uids = self.objects.iter().filter(|object| object["kind"] == "OperatorGroup");
            let key =
                uids.map(|group| format!("olm.operatorgroup.uid/{}", text(&group["metadata"]["uid"]))).next();
            entry["namespaceSelector"] = json!({"matchLabels": {key.unwrap_or_default(): ""}});
        }
        let suffix: String = hash(webhook).chars().take(5).collect();
        self.add("olm", json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "webhooks": [entry],
            "metadata": {"name": format!("{name}-{suffix}"), "generateName": format!("{name}-"), "labels": labels}}));
    }

    /// Writes the conversion webhook of a CRD, if the CSV has one.
    pub(super) fn convert(&self, crd: &mut Value) {
        let webhook = list(&self.csv["spec"]["webhookdefinitions"]).iter().find(|webhook| {
            webhook["type"] == "ConversionWebhook"
                && list(&webhook["conversionCRDs"]).contains(&crd["metadata"]["name"])
        });
        if let Some(webhook) = webhook {
            crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
                "clientConfig": self.client(webhook), "conversionReviewVersions": webhook["admissionReviewVersions"]}});
        }
    }

    fn client(&self, webhook: &Value) -> Value {
        let service = service(&json!({"name": webhook["deploymentName"]}));
        json!({"caBundle": CA, "service": {"name": service, "namespace": self.origin.namespace,
            "path": webhook["webhookPath"].as_str().unwrap_or("/"),
            "port": webhook["containerPort"].as_i64().unwrap_or(443)}})
    }
}

/// Volume, path, and files of the certificate, in the order of classic OLM.
const CERTIFICATES: [(&str, &str, &str, &str); 2] = [
    ("apiservice-cert", "/apiserver.local.config/certificates", "apiserver.crt", "apiserver.key"),
    ("webhook-cert", "/tmp/k8s-webhook-server/serving-certs", "tls.crt", "tls.key"),
];

/// Name of the Service of a Deployment.
fn service(deployment: &Value) -> String {
    format!("{}-service", text(&deployment["name"]).replace('.', "-"))
}

fn push(list: &mut Value, value: Value) {
    match list {
        Value::Array(values) => values.push(value),
        other => *other = json!([value]),
    }
}

/// Returns the files of a bundle whose Deployments run the idle sample operator instead of their own programs, so that
/// pods start wherever the images of the bundle are absent.
///
/// # Errors
/// The bundle has no CSV, or it is not YAML.
pub fn with_sample_operator(
    files: &BTreeMap<String, Vec<u8>>,
    image: &str,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = files.clone();
    for (path, bytes) in files.iter_mut().filter(|(path, _)| path.starts_with("manifests/")) {
        let mut csv: Value = serde_saphyr::from_slice(bytes).with_context(|| format!("parsing {path}"))?;
        if csv["kind"] != CSV {
            continue;
        }
        for deployment in csv["spec"]["install"]["spec"]["deployments"].as_array_mut().into_iter().flatten() {
            deployment["spec"]["replicas"] = json!(1);
            let pod = &mut deployment["spec"]["template"]["spec"];
            let account = pod["serviceAccountName"].clone();
            let containers: Vec<Value> = list(&pod["containers"])
                .iter()
                .map(|container| {
                    let env: Vec<&Value> =
                        list(&container["env"]).iter().filter(|variable| variable["valueFrom"].is_null()).collect();
                    json!({"name": container["name"], "image": image, "args": ["idle"], "env": env,
                        "imagePullPolicy": "IfNotPresent", "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}}})
                })
                .collect();
            *pod = json!({"containers": containers, "terminationGracePeriodSeconds": 2});
            if !account.is_null() {
                pod["serviceAccountName"] = account;
            }
        }
        *bytes = serde_json::to_vec(&csv)?;
    }
    Ok(files)
}

/// Ports of the Service of webhooks.
fn ports(webhooks: &[Value]) -> Vec<Value> {
    let mut ports: Vec<Value> = Vec::new();
    for webhook in webhooks {
        let port = webhook["containerPort"].as_i64().unwrap_or(443);
        let target =
            if webhook["targetPort"].is_null() { json!(port) } else { webhook["targetPort"].clone() };
        let port = json!({"name": port.to_string(), "port": port, "protocol": "TCP", "targetPort": target});
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}
