//! Checks of the ClusterServiceVersion: its fields (docs/design/cli.md#bundle-validation), webhook definitions
//! (docs/design/bundles.md#bundle-validators), and features of OLM v0 that OLM v1 lacks
//! (docs/design/cli.md#lint-rules, docs/design/bundles.md#author-checks).
//!
//! The renderer checks names and deployments of webhooks, its install checks cover requirements of the API server.

use std::collections::BTreeSet;

use olm_bundle::pointer::{list, text};
use olm_bundle::subdomain_faults;
use olm_version::{Range, Version, VersionRelease, quote};
use serde_json::Value;

use crate::content::{Content, Object, pointer};
use crate::manifests::group_of;
use crate::metadata;
use crate::report::{Findings, Location};
use crate::rule;

const API_VERSION: &str = "operators.coreos.com/v1alpha1";
const INSTALL_MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
pub(crate) const SKIP_RANGE: &str = "olm.skipRange";

/// Maximum size of all annotations of an object in bytes, as in the API server.
const ANNOTATION_BYTES: usize = 256 << 10;

/// Maximum length of a label value.
const LABEL_BYTES: usize = 63;

/// Annotations that take effect only in this spelling.
const KNOWN_ANNOTATIONS: [&str; 5] =
    ["olm.operatorGroup", "olm.operatorNamespace", "olm.providedAPIs", SKIP_RANGE, "olm.targetNamespaces"];

/// Reports several ClusterServiceVersions. The renderer uses the last one.
pub(crate) fn single(content: &Content<'_>, findings: &mut Findings) {
    let all: Vec<&Object> = content.of_kind("ClusterServiceVersion").collect();
    if all.len() > 1 {
        let files: BTreeSet<String> = all.iter().map(|csv| csv.location().file).collect();
        let files = files.into_iter().collect::<Vec<_>>().join(", ");
        for csv in &all {
            let message = format!("one of {} ClusterServiceVersions, in {files}: keep one", all.len());
            findings.add(&rule::CSV_1, csv.location(), message);
        }
    }
}

pub(crate) fn api_version(csv: &Object, findings: &mut Findings) {
    if !["", API_VERSION].contains(&csv.api_version()) {
        let message = format!("expected {API_VERSION}, got {}", quote(csv.api_version()));
        findings.add(&rule::CSV_15, csv.at("apiVersion"), message);
    }
}

pub(crate) fn names(csv: &Object, findings: &mut Findings) {
    let allowed = "lower case letters, digits, '-' and '.', at most 63 characters, beginning and ending with a letter or digit";
    for field in ["metadata.name", "spec.replaces"] {
        let Some(name) = csv.text_or_nothing(&pointer(field)) else { continue };
        let is_subdomain = subdomain_faults(name).is_empty();
        let is_absent = name.is_empty() && field == "spec.replaces";
        if is_absent || (is_subdomain && name.len() <= LABEL_BYTES) {
            continue;
        }
        let message = if is_subdomain {
            let length = name.len();
            format!("{} has {length} characters, at most {LABEL_BYTES} are allowed", quote(name))
        } else {
            format!("{} is not a name: {allowed}", quote(name))
        };
        findings.add(&rule::CSV_2, csv.at(field), message);
    }
}

pub(crate) fn version(csv: &Object, findings: &mut Findings) {
    let version = csv.text("/spec/version");
    if csv.text_or_nothing("/spec/version").is_some()
        && let Err(error) = Version::parse(version)
    {
        let message = match version {
            "" => "the version is missing; expected one such as 1.2.3".to_string(),
            _ => format!("{}: expected a version such as 1.2.3: {error}", quote(version)),
        };
        findings.add(&rule::CSV_3, csv.at("spec.version"), message);
    }
}

pub(crate) fn minimum_kubernetes(csv: &Object, findings: &mut Findings) {
    let minimum = csv.text("/spec/minKubeVersion").trim();
    if minimum.is_empty() {
        let message = "the minimum Kubernetes version is missing; expected a version such as 1.26.0";
        findings.add(&rule::CSV_6, csv.at("spec.minKubeVersion"), message);
    } else if let Err(error) = Version::parse(csv.text("/spec/minKubeVersion")) {
        let message = format!("{}: expected a version such as 1.26.0: {error}", quote(minimum));
        findings.add(&rule::CSV_7, csv.at("spec.minKubeVersion"), message);
    }
}

pub(crate) fn release(content: &Content<'_>, findings: &mut Findings) {
    let Some(csv) = content.csv() else { return };
    let release = match csv.value.pointer("/spec/release") {
        None | Some(Value::Null) => return,
        Some(Value::String(text)) if text.is_empty() => return,
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let version = csv.text("/spec/version");
    if Version::parse(version).is_ok()
        && let Err(error) = VersionRelease::parse(version, Some(&release))
    {
        findings.add(&rule::CSV_10, csv.at("spec.release"), format!("{}: {error}", quote(&release)));
    }
    let package = metadata::package(content.files);
    let expected = format!("{package}-v{version}-{release}");
    if csv.name() != expected {
        let message =
            format!("with a release, metadata.name must be {}, not {}", quote(&expected), quote(csv.name()));
        findings.add(&rule::CSV_10, csv.at("metadata.name"), message);
    }
    if csv.annotation("olm.substitutesFor").is_some() {
        let message = "not allowed together with spec.release: remove one of the two";
        findings.add(&rule::CSV_10, csv.at_annotation("olm.substitutesFor"), message);
    }
}

pub(crate) fn install_modes(csv: &Object, findings: &mut Findings) {
    let location = csv.at("spec.installModes");
    if csv.list("/spec/installModes").is_empty() {
        let message =
            format!("no install modes: list {} with supported: true or false", INSTALL_MODES.join(", "));
        return findings.add(&rule::CSV_4, location, message);
    }
    let mut seen = BTreeSet::new();
    let mut any_supported = false;
    for (location, mode) in csv.items("spec.installModes") {
        let kind = text(mode, "/type");
        if !seen.insert(kind) {
            findings.add(&rule::CSV_4, location.clone(), format!("{} is listed twice", quote(kind)));
        }
        if !INSTALL_MODES.contains(&kind) {
            let message =
                format!("unknown install mode {}; allowed: {}", quote(kind), INSTALL_MODES.join(", "));
            findings.add(&rule::CSV_5, location, message);
        } else if mode.get("supported") == Some(&Value::Bool(true)) {
            any_supported = true;
        }
    }
    if !any_supported {
        let message = "no install mode is supported: set supported: true for at least one";
        findings.add(&rule::CSV_4, location, message);
    }
}

pub(crate) fn required_fields(csv: &Object, findings: &mut Findings) {
    for field in ["apiVersion", "spec.displayName", "spec.install.strategy"] {
        if csv.text_or_nothing(&pointer(field)) == Some("") {
            findings.add(&rule::CSV_11, csv.at(field), "the field must be set and not empty");
        }
    }
    let deployments = csv.value.pointer("/spec/install/spec/deployments");
    if deployments.is_none_or(Value::is_null) {
        let message = "the field must be set; without deployments, use []";
        findings.add(&rule::CSV_11, csv.at("spec.install.spec.deployments"), message);
    }
}

pub(crate) fn strategy(csv: &Object, findings: &mut Findings) {
    let strategy = csv.text("/spec/install/strategy");
    if !["", "deployment"].contains(&strategy) {
        let message = format!("{} is ignored: deployments are installed with any strategy", quote(strategy));
        findings.add(&rule::CSV_12, csv.at("spec.install.strategy"), message);
    }
}

pub(crate) fn annotation_keys(csv: &Object, findings: &mut Findings) {
    let mut bytes = 0;
    let annotations = csv.value.pointer("/metadata/annotations").and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        let known = KNOWN_ANNOTATIONS.into_iter().find(|known| known.eq_ignore_ascii_case(key));
        if let Some(known) = known.filter(|known| known != key) {
            findings.add(&rule::CSV_13, csv.at_annotation(key), format!("must be spelled {known}"));
        }
        if !is_qualified_name(key) {
            let message = "the key is not allowed in a pod: it has letters, digits, '-', '_' and '.', at most 63, optionally after \
                           a DNS-1123 subdomain and '/'";
            findings.add(&rule::CSV_16, csv.at_annotation(key), message);
        }
    }
    if bytes > ANNOTATION_BYTES {
        let message = format!(
            "the annotations have {bytes} bytes, the limit of a pod is {ANNOTATION_BYTES}: shorten the largest"
        );
        findings.add(&rule::CSV_16, csv.at("metadata.annotations"), message);
    }
}

pub(crate) fn skip_range(csv: &Object, findings: &mut Findings) {
    if let Some(range) = csv.annotation(SKIP_RANGE)
        && let Err(error) = Range::parse(range)
    {
        let message = format!("{}: expected a range such as \">=1.0.0 <1.2.0\": {error}", quote(range));
        findings.add(&rule::CSV_14, csv.at_annotation(SKIP_RANGE), message);
    }
}

/// Group, version and kind.
type Api<'a> = (&'a str, &'a str, &'a str);

fn shown((group, version, kind): Api<'_>) -> String {
    format!("{kind} of {group}/{version}")
}

fn provided(csv: &Object) -> BTreeSet<Api<'_>> {
    let crds = csv.list("/spec/customresourcedefinitions/owned").iter();
    let crds = crds.map(|api| (group_of(text(api, "/name")), api));
    let services = csv.list("/spec/apiservicedefinitions/owned").iter();
    let services = services.map(|api| (text(api, "/group"), api));
    let api = |(group, api)| (group, text(api, "/version"), text(api, "/kind"));
    crds.chain(services).map(api).collect()
}

pub(crate) fn examples(csv: &Object, findings: &mut Findings) {
    let provided = provided(csv);
    let known = ["alm-examples", "olm.examples"];
    let Some((key, examples)) = known.into_iter().find_map(|key| Some((key, csv.annotation(key)?))) else {
        if !provided.is_empty() {
            let message = "the annotation alm-examples is missing: add one object of each provided API";
            findings.add(&rule::CSV_8, csv.at("metadata.annotations"), message);
        }
        return;
    };
    let location = csv.at_annotation(key);
    let expected = "expected a JSON list of objects";
    let objects = match olm_yaml::json::to_value(examples.as_bytes()) {
        _ if examples.is_empty() => Vec::new(),
        Ok(Value::Array(objects)) => objects,
        Ok(Value::Null) => Vec::new(),
        Ok(_) => return findings.add(&rule::CSV_9, location, expected),
        Err(error) => return findings.add(&rule::CSV_9, location, format!("{expected}: {error}")),
    };
    let mut shown_apis = BTreeSet::new();
    for object in &objects {
        let version = text(object, "/apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let api = (group, version, text(object, "/kind"));
        if shown_apis.insert(api) && !provided.contains(&api) {
            let message = format!("an example is a {}, which the bundle does not provide", shown(api));
            findings.add(&rule::CSV_9, location.clone(), message);
        }
    }
    for api in provided.difference(&shown_apis) {
        findings.add(&rule::CSV_8, location.clone(), format!("no example of the provided {}", shown(*api)));
    }
}

/// Install modes of OLM v1.
const USABLE_MODES: [&str; 3] = ["AllNamespaces", "OwnNamespace", "SingleNamespace"];
const CONDITION_GROUP: &str = "operators.coreos.com";
const CONDITION_RESOURCE: &str = "operatorconditions";
const CONDITION_VARIABLE: &str = "OPERATOR_CONDITION_NAME";

pub(crate) fn supported_modes(csv: &Object) -> Vec<&str> {
    let modes = csv.list("/spec/installModes").iter();
    let supported = modes.filter(|mode| mode.get("supported") == Some(&Value::Bool(true)));
    supported.map(|mode| text(mode, "/type")).collect()
}

pub(crate) fn usable_mode(csv: &Object, findings: &mut Findings) {
    let supported = supported_modes(csv);
    if supported.contains(&"MultiNamespace") && !USABLE_MODES.iter().any(|mode| supported.contains(mode)) {
        let message = "only MultiNamespace is supported: an installation needs feature gate MultiWatchNamespaces of \
             operator-controller, and spec.config.inline.watchNamespaces";
        findings.add(&rule::V1_2, csv.at("spec.installModes"), message);
    }
}

pub(crate) fn api_services(csv: &Object, findings: &mut Findings) {
    for (location, service) in csv.items("spec.apiservicedefinitions.owned") {
        let message = format!(
            "the APIService of {} ({}) is installed only with the feature gate OwnedAPIServices: without it, \
             operator-controller refuses the bundle",
            quote(text(service, "/kind")),
            text(service, "/group")
        );
        findings.add(&rule::V1_4, location, message);
    }
}

pub(crate) fn native_apis(csv: &Object, findings: &mut Findings) {
    if !csv.list("/spec/nativeAPIs").is_empty() {
        let message = "without the feature gate ClusterConstraints, the operator is installed even if the cluster does not \
                       serve these APIs";
        findings.add(&rule::V1_6, csv.at("spec.nativeAPIs"), message);
    }
}

/// Reports permissions on OperatorConditions once, and each container with the variable that names one.
pub(crate) fn operator_conditions(csv: &Object, findings: &mut Findings) {
    let advice = "OLM v1 creates an OperatorCondition only with gate OperatorConditionCompat: let the operator run without one";
    if let Some(location) = operator_condition_rights(csv) {
        let message = format!("the operator requests permissions on operatorconditions, but {advice}");
        findings.add(&rule::V1_3, location, message);
    }
    for (location, deployment) in csv.items("spec.install.spec.deployments") {
        for (index, container) in list(deployment, "/spec/template/spec/containers").iter().enumerate() {
            if list(container, "/env").iter().any(|entry| text(entry, "/name") == CONDITION_VARIABLE) {
                let location = location.clone().at(&format!("spec.template.spec.containers.{index}.env"));
                let message = format!("the operator reads {CONDITION_VARIABLE}, but {advice}");
                findings.add(&rule::V1_3, location, message);
            }
        }
    }
}

/// Location of the first rule that grants access to OperatorConditions by name.
fn operator_condition_rights(csv: &Object) -> Option<Location> {
    let names = |rule: &Value, key: &str, resource: &str| {
        let mut names = list(rule, key).iter().filter_map(Value::as_str);
        names.any(|name| name.split('/').next() == Some(resource))
    };
    let permissions = csv.items("spec.install.spec.permissions");
    let mut permissions = permissions.chain(csv.items("spec.install.spec.clusterPermissions"));
    permissions.find_map(|(location, permission)| {
        let index = list(permission, "/rules").iter().position(|rule| {
            names(rule, "/apiGroups", CONDITION_GROUP) && names(rule, "/resources", CONDITION_RESOURCE)
        })?;
        Some(location.at(&format!("rules.{index}")))
    })
}

const CONVERSION: &str = "ConversionWebhook";
const TYPES: [&str; 3] = ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook", CONVERSION];

/// Resources needed to create a pod, by group. A webhook that intercepts them and is unavailable blocks the
/// cluster.
const VITAL: [(&str, &[&str]); 3] = [
    ("", &["configmaps", "endpoints", "namespaces", "pods", "secrets", "serviceaccounts", "services"]),
    ("apps", &["deployments", "replicasets"]),
    ("coordination.k8s.io", &["leases"]),
];

pub(crate) fn webhook_types(csv: &Object, findings: &mut Findings) {
    for (location, webhook) in csv.items("spec.webhookdefinitions") {
        let kind = text(webhook, "/type");
        if !TYPES.contains(&kind) {
            let known = TYPES.join(", ");
            let message =
                format!("unknown type {}, for which no webhook is created; allowed: {known}", quote(kind));
            findings.add(&rule::WEBHOOK_3, location.at("type"), message);
        }
    }
}

/// Warns of webhooks that may block the recovery of the operator itself.
pub(crate) fn blocking_webhooks(csv: &Object, findings: &mut Findings) {
    if !supported_modes(csv).contains(&"AllNamespaces") {
        return;
    }
    for (location, webhook) in csv.items("spec.webhookdefinitions") {
        let selector = webhook.get("objectSelector").and_then(Value::as_object);
        if text(webhook, "/failurePolicy") == "Ignore"
            || text(webhook, "/type") == CONVERSION
            || selector.is_some_and(|selector| !selector.is_empty())
        {
            continue;
        }
        for (index, rule) in list(webhook, "/rules").iter().enumerate() {
            let names = |key: &str| list(rule, key).iter().filter_map(Value::as_str);
            let vital = names("/apiGroups").find_map(|group| {
                let (_, resources) = VITAL.into_iter().find(|(vital, _)| *vital == group)?;
                names("/resources").find(|name| ["*", "*/*"].contains(name) || resources.contains(name))
            });
            let Some(resource) = vital else { continue };
            let message = format!(
                "while the operator is down, every request for {} is rejected, including those that would start it: narrow the \
                 rule, set an objectSelector, or set failurePolicy: Ignore",
                quote(resource)
            );
            findings.add(&rule::WEBHOOK_4, location.clone().at(&format!("rules.{index}")), message);
        }
    }
}

/// Reports whether Kubernetes accepts `key` as an annotation key. Case is ignored.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let (prefix, name) =
        key.split_once('/').map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
    let is_word = |c: char| c.is_ascii_alphanumeric();
    prefix.is_none_or(|prefix| subdomain_faults(prefix).is_empty())
        && name.len() <= 63
        && name.chars().all(|c| is_word(c) || matches!(c, '-' | '_' | '.'))
        && name.starts_with(is_word)
        && name.ends_with(is_word)
}
