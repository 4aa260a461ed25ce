//! Install checks of rendered objects: objects that an API server rejects regardless of the state of the cluster,
//! objects that contradict each other, and objects that would take over parts of the cluster
//! (docs/design/bundles.md#author-checks).
//!
//! No check may fail for a bundle that the reference installs, unless the bundle is ambiguous or intercepts or extends
//! the rights of OLM.

mod accounts;
mod aggregated;
mod duplicates;
mod reserved;
mod serving;

use std::collections::{BTreeMap, BTreeSet};

use olm_version::quote;
use serde_json::Value;

use crate::bundle::{BundleContent, group_of, name_of};
use crate::certificates::Serving;
use crate::csv::Csv;
use crate::kinds::{BundleKind, KINDS, is_built_in};
use crate::limits::sorted_texts;
use crate::pointer::text;
use crate::validate::subdomain_faults;
use crate::webhooks::service_port;

/// Namespace of OLM in its install files.
pub const SYSTEM_NAMESPACE: &str = "olmv1-system";
const CRD: &str = "CustomResourceDefinition";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Runs the install checks on `objects`, the result of [`render`](crate::render()) for `bundle` in
/// `install_namespace`. `system_namespace` is that of OLM, [`SYSTEM_NAMESPACE`] unless it was installed in another one.
/// One sentence per failed check, sorted. Empty for an installable bundle.
pub fn install_checks(
    bundle: &BundleContent,
    objects: &[Value],
    install_namespace: &str,
    system_namespace: &str,
) -> Vec<String> {
    let deployments = ServingDeployments::of(bundle);
    let mut found = BTreeSet::new();
    found.extend(cluster_service_versions(bundle));
    for object in objects {
        found.extend(of_object(&deployments, object));
        found.extend(reserved::reserved_name(object, install_namespace, system_namespace));
        found.extend(reserved::aggregation_label(object));
        found.extend(accounts::system_accounts(object, system_namespace));
    }
    found.extend(reserved::intercepted_groups(objects));
    found.extend(aggregated::served_twice(objects));
    found.extend(duplicates::conflicting_duplicates(&deployments, bundle, objects));
    sorted_texts(found)
}

/// Deployments whose webhooks or aggregated APIs need generated objects.
struct ServingDeployments<'a> {
    csv: &'a Csv,
    /// Names of the deployments by kind and name of the object.
    by_object: BTreeMap<(&'static str, String), Vec<&'a str>>,
}

impl<'a> ServingDeployments<'a> {
    fn of(bundle: &'a BundleContent) -> Self {
        let webhooks = &bundle.csv.spec.webhooks;
        let services = &bundle.csv.spec.api_services.owned;
        let names: BTreeSet<&str> = webhooks
            .iter()
            .map(|webhook| webhook.deployment_name.as_str())
            .chain(services.iter().map(|service| service.deployment_name.as_str()))
            .collect();
        let mut by_object: BTreeMap<(&'static str, String), Vec<&'a str>> = BTreeMap::new();
        for name in names {
            let serving = Serving::of_deployment(name, "");
            by_object.entry(("Service", serving.service)).or_default().push(name);
            by_object.entry(("Certificate", serving.secret)).or_default().push(name);
        }
        Self { csv: &bundle.csv, by_object }
    }

    /// Deployments that need this `Service` or `Certificate`.
    fn behind(&self, kind: &'static str, name: &str) -> &[&'a str] {
        self.by_object.get(&(kind, name.to_string())).map_or(&[], Vec::as_slice)
    }

    /// Name of the APIService that uses this port of the Service.
    fn api_service(&self, service: &str, port: i64) -> Option<String> {
        let deployments = self.behind("Service", service).iter();
        let mut owned = deployments.flat_map(|deployment| self.csv.api_services_of(deployment));
        let found = owned.find(|owned| i64::from(service_port(owned.container_port)) == port)?;
        Some(found.object_name())
    }
}

/// Kind and name, with which every text begins.
fn title(object: &Value) -> String {
    format!("{} {}", text(object, "/kind"), quote(name_of(object)))
}

/// Reports several ClusterServiceVersions. The reference uses the last one.
fn cluster_service_versions(bundle: &BundleContent) -> Option<String> {
    let files = bundle.csv_files();
    let names: Vec<String> = files.iter().map(|file| quote(file)).collect();
    (files.len() > 1).then(|| {
        let (count, names) = (files.len(), names.join(", "));
        format!("bundle has {count} ClusterServiceVersions, in {names}: exactly one is allowed")
    })
}

fn of_object(deployments: &ServingDeployments<'_>, object: &Value) -> Vec<String> {
    let kind = text(object, "/kind");
    if name_of(object).is_empty() {
        return vec![format!("a {kind} has no metadata.name: every object of a bundle needs one")];
    }
    let title = title(object);
    let titled = |fault: String| format!("{title}: {fault}");
    if let Some(fault) = version_fault(object) {
        return vec![titled(fault)];
    }
    let mut found: Vec<String> = name_fault(object).into_iter().collect();
    match (group_of(object), kind) {
        ("", "Service") => found.extend(serving::service(deployments, object)),
        ("cert-manager.io", "Certificate") => found.extend(serving::certificate(object)),
        ("admissionregistration.k8s.io", _) => found.extend(serving::webhooks(object)),
        (_, CRD) => found.extend(serving::conversion(object)),
        _ => {}
    }
    found.into_iter().map(titled).collect()
}

/// Error in the API version of an object. Only groups built into Kubernetes are checked, because other groups may
/// have a kind of the same name.
fn version_fault(object: &Value) -> Option<String> {
    let (kind, version) = (text(object, "/kind"), text(object, "/apiVersion"));
    if version.is_empty() {
        return Some("apiVersion is missing".to_string());
    }
    let served = KINDS.iter().filter(|row| row.kind == kind).find_map(BundleKind::api_version);
    if served.as_deref() == Some(version) || !(is_built_in(group_of(object)) || kind == CRD) {
        return None;
    }
    let version = quote(version);
    Some(match served {
        Some(served) => format!("apiVersion is {version}, it must be {served}"),
        None => format!("apiVersion {version} has no such kind"),
    })
}

/// Error in the name of an object. Services and CRDs have rules of their own.
fn name_fault(object: &Value) -> Option<String> {
    let name = name_of(object);
    match (group_of(object), text(object, "/kind")) {
        ("", "Service") => None,
        (_, CRD) => {
            let expected = format!("{}.{}", text(object, "/spec/names/plural"), text(object, "/spec/group"));
            let parts = "spec.names.plural and spec.group";
            (name != expected).then(|| format!("metadata.name must be {}, {parts}", quote(&expected)))
        }
        (RBAC_GROUP, _) => {
            let is_segment = name != "." && name != ".." && !name.contains(['/', '%']);
            (!is_segment).then(|| "metadata.name must not be . or .. or contain / or %".to_string())
        }
        _ => {
            let faults = subdomain_faults(name);
            (!faults.is_empty()).then(|| format!("metadata.name: {}", faults.join(", ")))
        }
    }
}
