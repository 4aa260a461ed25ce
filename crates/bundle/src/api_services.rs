//! APIServices of aggregated APIs, and the permissions of their servers (docs/design/bundles.md#aggregated-apis).
//! Services, certificates and volumes are those of webhooks: a deployment has one Service for both.

use std::collections::{BTreeMap, BTreeSet};

use olm_version::names::is_dns_label;
use olm_version::quote;
use serde_json::{Value, json};

use crate::bundle::BundleContent;
use crate::csv::ApiService;
use crate::install_modes::RenderContext;
use crate::names;
use crate::rbac;
use crate::validate::{ValidationFault, Validator, subdomain_faults};
use crate::webhooks::{annotate, service_port};

/// Group of APIServices.
pub(crate) const GROUP: &str = "apiregistration.k8s.io";
/// Priorities of classic OLM: discovery lists the group before CRDs, which have 1000 and 100.
const GROUP_PRIORITY: i32 = 2000;
const VERSION_PRIORITY: i32 = 15;

impl ApiService {
    /// Name of the APIService.
    pub(crate) fn object_name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }
}

/// Faults of owned APIServices, sorted: their deployment does not exist, their group or version cannot be served, or
/// one group and version has several servers.
pub(crate) fn faults(bundle: &BundleContent) -> Vec<ValidationFault> {
    let deployments: BTreeSet<&str> = bundle.csv.deployments().iter().map(|one| one.name.as_str()).collect();
    let mut servers: BTreeMap<String, BTreeSet<(&str, i32)>> = BTreeMap::new();
    let mut found: BTreeSet<(String, String)> = BTreeSet::new();
    for service in &bundle.csv.spec.api_services.owned {
        let (name, deployment) = (service.object_name(), service.deployment_name.as_str());
        if !deployments.contains(deployment) {
            let text = format!("APIService '{name}' references non-existent deployment '{deployment}'");
            found.insert((name.clone(), text));
        }
        if !subdomain_faults(&service.group).is_empty() || !service.group.contains('.') {
            let text = format!(
                "APIService '{name}' has invalid group {}: expected a domain with at least one dot",
                quote(&service.group)
            );
            found.insert((name.clone(), text));
        }
        if !is_dns_label(&service.version) {
            let text = format!(
                "APIService '{name}' has invalid version {}: expected a DNS label such as v1",
                quote(&service.version)
            );
            found.insert((name.clone(), text));
        }
        servers.entry(name).or_default().insert((deployment, service_port(service.container_port)));
    }
    for (name, servers) in servers.into_iter().filter(|(_, servers)| servers.len() > 1) {
        let listed: Vec<String> = servers.iter().map(|(name, port)| format!("{name}:{port}")).collect();
        let text = format!("APIService '{name}' has several servers [{}]", listed.join(","));
        found.insert((name, text));
    }
    let fault = |(name, text): (String, String)| ValidationFault::new(Validator::ApiService, &name, text);
    found.into_iter().map(fault).collect()
}

/// Pairs of port and target port for the aggregated APIs of a deployment.
pub(crate) fn ports<'a>(
    bundle: &'a BundleContent,
    deployment: &'a str,
) -> impl Iterator<Item = (i32, Value)> + 'a {
    bundle.csv.api_services_of(deployment).map(|service| {
        let port = service_port(service.container_port);
        (port, json!(port))
    })
}

/// One APIService per owned group and version, and for each deployment that serves one, the bindings with which an
/// API server authenticates and authorizes delegated requests.
pub(crate) fn objects(bundle: &BundleContent, context: RenderContext<'_>) -> Vec<Value> {
    let owned = &bundle.csv.spec.api_services.owned;
    let mut seen = BTreeSet::new();
    // Several kinds of a group and version are one APIService. The validators ensure that its server is the same.
    let distinct = owned.iter().filter(|service| seen.insert((&service.group, &service.version)));
    let mut objects: Vec<Value> = distinct.map(|service| api_service(service, context)).collect();
    let deployments = bundle.csv.deployments().iter();
    for deployment in deployments.filter(|one| bundle.csv.api_services_of(&one.name).next().is_some()) {
        objects.extend(bindings(&deployment.name, deployment.account(), context));
    }
    objects
}

fn api_service(service: &ApiService, context: RenderContext<'_>) -> Value {
    let serving = context.serving(&service.deployment_name);
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "APIService",
        "metadata": {"name": service.object_name()},
        "spec": {
            "group": service.group,
            "version": service.version,
            "groupPriorityMinimum": GROUP_PRIORITY,
            "versionPriority": VERSION_PRIORITY,
            "service": {
                "namespace": serving.namespace,
                "name": serving.service,
                "port": service_port(service.container_port),
            },
        },
    });
    annotate(&mut object, context.certificates.ca_injection(&serving));
    object
}

fn bindings(deployment: &str, account: &str, context: RenderContext<'_>) -> [Value; 2] {
    let (service, namespace) = (context.serving(deployment).service, context.install_namespace);
    let binding = |kind: &str, metadata: Value, role_kind: &str, role: &str| {
        json!({
            "apiVersion": format!("{}/v1", rbac::GROUP),
            "kind": kind,
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac::GROUP, "kind": role_kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        })
    };
    let reader = json!({"name": names::auth_reader(&service, namespace), "namespace": "kube-system"});
    let delegator = json!({"name": names::auth_delegator(&service, namespace)});
    [
        binding("RoleBinding", reader, "Role", "extension-apiserver-authentication-reader"),
        binding("ClusterRoleBinding", delegator, "ClusterRole", "system:auth-delegator"),
    ]
}
