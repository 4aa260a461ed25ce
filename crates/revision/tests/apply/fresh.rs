//! Upgrades end in the state of a new installation (docs/design/apply.md#owners-of-fields): what the API server defaulted
//! or derived for the old content is not left over.

use serde_json::{Value, json};

use crate::fixture::{Fixture, deployment, phase};

/// Fields that the API server allocates, and metadata of one object.
const OF_ONE_OBJECT: [&str; 7] = [
    "/metadata",
    "/status",
    "/spec/clusterIP",
    "/spec/clusterIPs",
    "/spec/healthCheckNodePort",
    "/spec/allocateLoadBalancerNodePorts",
    "/spec/template/metadata/creationTimestamp",
];

/// Deployment with these members of its pod spec.
fn pod(members: Value) -> Value {
    let mut object = deployment("", "");
    merge(&mut object["spec"]["template"]["spec"], members);
    object
}

/// Deployment with these members of its container.
fn container(members: Value) -> Value {
    let mut object = deployment("", "");
    merge(&mut object["spec"]["template"]["spec"]["containers"][0], members);
    object
}

fn spec(members: Value) -> Value {
    let mut object = deployment("", "");
    merge(&mut object["spec"], members);
    object
}

fn of(api_version: &str, kind: &str, members: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {}});
    merge(&mut object, members);
    object
}

fn service(members: Value) -> Value {
    of("v1", "Service", json!({ "spec": members }))
}

fn merge(object: &mut Value, members: Value) {
    object.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
}

fn named(object: &Value, namespace: &str, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = name.into();
    if !object["kind"].as_str().unwrap().starts_with("Cluster")
        && !object["kind"].as_str().unwrap().ends_with("WebhookConfiguration")
    {
        object["metadata"]["namespace"] = namespace.into();
    }
    if object["kind"] == "Deployment" {
        object["spec"]["selector"] = json!({"matchLabels": {"app": "x"}});
        object["spec"]["template"]["metadata"] = json!({"labels": {"app": "x"}});
    }
    object
}

fn state(mut object: Value) -> Value {
    for path in OF_ONE_OBJECT {
        let (parent, name) = path.rsplit_once('/').unwrap();
        if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
            parent.remove(name);
        }
    }
    let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten().for_each(|port| drop(port.as_object_mut().unwrap().remove("nodePort")));
    object
}

/// Each list is a series of contents of one object.
#[allow(clippy::too_many_lines, reason = "a table")]
fn series() -> Vec<Vec<Value>> {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        merge(&mut volume, source);
        pod(json!({ "volumes": [volume] }))
    };
    let probe = |handler: Value| container(json!({ "livenessProbe": handler, "readinessProbe": handler }));
    let hook = |handler: Value| container(json!({"lifecycle": {"preStop": handler}}));
    let env = |value: Value| {
        let mut variable = json!({"name": "X"});
        merge(&mut variable, value);
        container(json!({ "env": [variable] }))
    };
    let port = |members: Value| {
        let mut port = json!({"port": 80});
        merge(&mut port, members);
        service(json!({"selector": {"a": "b"}, "ports": [port]}))
    };
    let policy = |members: Value| of("networking.k8s.io/v1", "NetworkPolicy", json!({ "spec": members }));
    let budget = |members: Value| of("policy/v1", "PodDisruptionBudget", json!({ "spec": members }));
    let webhook = |members: Value| {
        let mut webhook = json!({"name": "a.acme.example", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["acme.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}]});
        merge(&mut webhook, members);
        of(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            json!({ "webhooks": [webhook] }),
        )
    };
    let role = |members: Value| of("rbac.authorization.k8s.io/v1", "ClusterRole", members);
    vec![
        vec![
            spec(json!({"strategy": {}})),
            spec(json!({"strategy": {"type": "Recreate"}})),
            spec(json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}})),
            spec(json!({})),
        ],
        vec![
            spec(
                json!({"replicas": 3, "minReadySeconds": 5, "revisionHistoryLimit": 1, "progressDeadlineSeconds": 60, "paused": true}),
            ),
            spec(json!({})),
        ],
        vec![
            probe(json!({"httpGet": {"port": 80}, "periodSeconds": 3})),
            probe(json!({"exec": {"command": ["a"]}})),
            probe(json!({"grpc": {"port": 80}, "initialDelaySeconds": 3})),
            probe(json!({"tcpSocket": {"port": "x"}})),
            probe(json!({"httpGet": {"port": 80, "scheme": "HTTPS", "path": "/x"}})),
            probe(json!({"httpGet": {"port": 81}})),
            probe(json!({"grpc": {"port": 80, "service": "x"}})),
            probe(json!({"httpGet": {"port": 81}})),
            container(json!({"startupProbe": {"tcpSocket": {"port": 80}}})),
            container(json!({})),
        ],
        vec![
            hook(json!({"httpGet": {"port": 80}})),
            hook(json!({"exec": {"command": ["a"]}})),
            hook(json!({"sleep": {"seconds": 3}})),
            hook(json!({"httpGet": {"port": 80}})),
            container(json!({})),
        ],
        vec![
            env(json!({"value": "x"})),
            env(json!({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})),
            env(json!({"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}})),
            env(json!({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}})),
            env(json!({"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b", "optional": true}}})),
            env(json!({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})),
            env(json!({})),
            container(json!({"envFrom": [{"secretRef": {"name": "a"}}]})),
        ],
        vec![
            volume(json!({})),
            volume(json!({"secret": {"secretName": "a"}})),
            volume(json!({"configMap": {"name": "a"}})),
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}})),
            volume(json!({"hostPath": {"path": "/a"}})),
            volume(
                json!({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            ),
            volume(json!({"csi": {"driver": "a"}})),
            volume(json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}}})),
            volume(json!({"persistentVolumeClaim": {"claimName": "a"}})),
            volume(
                json!({"iscsi": {"targetPortal": "127.0.0.1", "iqn": "iqn.2001-04.com.example:a", "lun": 0}}),
            ),
            volume(json!({"image": {"reference": "example.test/a:v1"}})),
            volume(json!({"emptyDir": {"sizeLimit": "1Gi"}})),
            volume(json!({})),
            pod(json!({})),
        ],
        vec![
            pod(json!({"hostNetwork": true, "hostPID": true, "containers": [
                {"name": "main", "image": "a", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}]})),
            pod(json!({"containers": [
                {"name": "main", "image": "a", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}]})),
            pod(
                json!({"containers": [{"name": "main", "image": "a", "ports": [{"containerPort": 80, "protocol": "SCTP"}]}]}),
            ),
        ],
        vec![
            pod(
                json!({"serviceAccountName": "a", "securityContext": {"runAsNonRoot": true}, "terminationGracePeriodSeconds": 2,
                "dnsPolicy": "Default", "schedulerName": "a", "enableServiceLinks": false, "priorityClassName": "a",
                "affinity": {"podAntiAffinity": {}}, "tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"},
                "hostAliases": [{"ip": "127.0.0.2", "hostnames": ["a"]}], "imagePullSecrets": [{"name": "a"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}],
                "automountServiceAccountToken": false, "shareProcessNamespace": true, "runtimeClassName": "a"}),
            ),
            pod(json!({})),
            pod(json!({"serviceAccount": "b", "serviceAccountName": "b"})),
            pod(json!({"serviceAccountName": "a"})),
            pod(json!({})),
        ],
        vec![
            pod(
                json!({"initContainers": [{"name": "a", "image": "a", "restartPolicy": "Always"}, {"name": "b", "image": "b"}],
                "containers": [{"name": "x", "image": "x"}, {"name": "y", "image": "y"}]}),
            ),
            pod(json!({"initContainers": [{"name": "b", "image": "b"}, {"name": "a", "image": "a"}],
                "containers": [{"name": "y", "image": "y"}, {"name": "z", "image": "z"}, {"name": "x", "image": "x"}]})),
            pod(
                json!({"containers": [{"name": "x", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "x"}]}],
                "volumes": [{"name": "v"}]}),
            ),
            pod(
                json!({"containers": [{"name": "x", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/a", "readOnly": true}]}],
                "volumes": [{"name": "v"}]}),
            ),
        ],
        vec![
            container(json!({"image": "example.test/a:latest"})),
            container(json!({"image": "example.test/a:v1"})),
            container(json!({"image": "example.test:5000/a"})),
            container(json!({"image": format!("example.test/a@sha256:{}", "0".repeat(64))})),
            container(json!({"image": "a", "imagePullPolicy": "Never"})),
            container(json!({"image": "a:v1"})),
        ],
        vec![
            container(
                json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1m"}}, "terminationMessagePolicy":
                "FallbackToLogsOnError", "securityContext": {"capabilities": {"drop": ["ALL"]}, "procMount": "Default"}, "stdin": true}),
            ),
            container(json!({"resources": {"limits": {"memory": "1Gi"}}})),
            container(json!({"resources": {}, "securityContext": {}})),
            container(json!({})),
        ],
        vec![
            service(
                json!({"type": "NodePort", "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local",
                "selector": {"a": "b"}, "ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b", "protocol": "UDP"}]}),
            ),
            service(
                json!({"selector": {"a": "b"}, "ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b", "protocol": "UDP"}]}),
            ),
            service(
                json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}],
                "loadBalancerSourceRanges": ["10.0.0.0/8"], "allocateLoadBalancerNodePorts": false}),
            ),
            service(json!({"ports": [{"port": 80, "targetPort": "x"}], "publishNotReadyAddresses": true})),
            service(json!({"type": "ExternalName", "externalName": "x.example"})),
            service(
                json!({"ports": [{"port": 81}], "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}),
            ),
            service(json!({"type": "NodePort", "ports": [{"port": 81}], "internalTrafficPolicy": "Local"})),
            service(json!({"type": "NodePort", "ports": [{"port": 81}]})),
            service(
                json!({"type": "ClusterIP", "ports": [{"port": 81}], "trafficDistribution": "PreferClose", "ipFamilyPolicy": "SingleStack"}),
            ),
            service(json!({"ports": [{"port": 81}]})),
        ],
        vec![
            port(json!({"targetPort": 8080, "name": "a", "appProtocol": "http"})),
            port(json!({"targetPort": "x"})),
            port(json!({})),
            port(json!({"protocol": "UDP"})),
            port(json!({"protocol": "TCP", "name": "x"})),
        ],
        vec![
            policy(json!({"podSelector": {}})),
            policy(json!({"podSelector": {"matchLabels": {"a": "b"}}, "egress": [{"ports": [{"port": 1}]}]})),
            policy(
                json!({"podSelector": {}, "ingress": [{"ports": [{"port": 1}]}], "policyTypes": ["Egress"]}),
            ),
            policy(json!({"podSelector": {}, "ingress": [{}]})),
        ],
        vec![
            budget(json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}})),
            budget(
                json!({"maxUnavailable": "50%", "selector": {"matchLabels": {"a": "b"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
            ),
            budget(
                json!({"minAvailable": 1, "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
            ),
        ],
        vec![
            webhook(json!({})),
            webhook(
                json!({"clientConfig": {"service": {"name": "a", "namespace": "b"}}, "failurePolicy": "Ignore", "timeoutSeconds": 3}),
            ),
            webhook(
                json!({"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "/x", "port": 8443}},
                "matchPolicy": "Exact", "reinvocationPolicy": "IfNeeded", "namespaceSelector": {"matchLabels": {"a": "b"}}}),
            ),
            webhook(
                json!({"objectSelector": {"matchLabels": {"a": "b"}}, "matchConditions": [{"name": "a", "expression": "true"}]}),
            ),
            webhook(json!({})),
        ],
        vec![
            role(json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})),
            role(json!({"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]})),
            role(json!({"rules": null})),
        ],
        vec![
            of(
                "v1",
                "ServiceAccount",
                json!({"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "a"}], "secrets": [{"name": "a"}]}),
            ),
            of("v1", "ServiceAccount", json!({"imagePullSecrets": [{"name": "b"}]})),
            of("v1", "ServiceAccount", json!({})),
        ],
        vec![
            of("v1", "ConfigMap", json!({"data": {"a": "x", "b": "y"}})),
            of("v1", "ConfigMap", json!({"binaryData": {"a": "eA=="}, "data": {"c": "z"}})),
            of("v1", "ConfigMap", json!({})),
            of("v1", "ConfigMap", json!({"data": {"a": "x"}, "immutable": true})),
        ],
        vec![
            of("v1", "Secret", json!({"data": {"a": "eA=="}, "stringData": {"b": "x"}})),
            of("v1", "Secret", json!({"data": {"b": "eQ=="}, "stringData": {"a": "x"}, "type": "Opaque"})),
            of("v1", "Secret", json!({"stringData": {"c": ""}})),
            of("v1", "Secret", json!({})),
        ],
    ]
}

#[tokio::test]
async fn upgrades_end_in_the_state_of_a_new_installation() {
    let fixture = &mut Fixture::start().await;
    fixture.namespace("upgraded").await;
    fixture.namespace("new").await;
    let mut faults = Vec::new();
    for (index, contents) in series().into_iter().enumerate() {
        let mut siblings = Vec::new();
        for (step, content) in contents.iter().enumerate() {
            let object = named(content, "upgraded", &format!("upgraded-{index}"));
            let extension = format!("series-{index}");
            let mut revision =
                fixture.revision(&extension, step as i64 + 1, vec![phase("a", &[&object])]).await;
            (revision.siblings, revision.probes) = (siblings.clone(), Default::default());
            let result = fixture.reconcile(&revision).await;
            let label = format!("series {index}, step {step}: ");
            let new = fixture.create(&named(content, "new", &format!("new-{index}-{step}"))).await;
            if !result.is_complete() {
                faults.push(format!("{label}{}", result.blocker().unwrap_or_else(|| format!("{result:?}"))));
                break;
            }
            let (live, new) = (state(fixture.get(&object).await.unwrap()), state(new));
            if live != new {
                faults.push(format!("{label}{live} is not {new}"));
            }
            siblings = vec![revision.owner.uid];
        }
    }
    assert_eq!(faults, [""; 0], "{}", faults.join("\n"));
}
