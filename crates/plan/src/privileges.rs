//! Rights that no role grants: privileges of pods, requests that webhooks intercept, tokens in Secrets, and kinds whose
//! effect is unknown.
//!
//! Pure. A changed rule of a webhook, or a changed object of an unknown kind, is another privilege.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::BundleKind;
use olm_bundle::pointer::{list, text, texts};
use serde_json::Value;

use crate::holders::{counted, subject};
use crate::objects::{self, ObjectName};
use crate::permissions::{GrantedAccess, Subject, TooMany};
use crate::sentence::{full_name, word};

/// Service accounts whose tokens a holder has: pods, and Secrets that get a token.
pub(crate) type Accounts = BTreeMap<Subject, BTreeSet<Subject>>;

/// Subject of an object, with the group of an unknown kind.
fn holder(object: &Value) -> Subject {
    let ObjectName { group, kind, namespace, name } = ObjectName::of(object);
    let kind = if is_known(&group, &kind) || group.is_empty() { kind } else { format!("{kind}.{group}") };
    Subject { kind, namespace, name }
}

/// Reports whether the permissions that objects of the kind grant are known: bundles usually have them.
fn is_known(group: &str, kind: &str) -> bool {
    BundleKind::of(group, kind).is_some()
}

/// Holder and privileges of an object.
///
/// # Errors
/// See [`TooMany`].
pub(crate) fn privileges(
    object: &Value,
    count: &mut usize,
) -> Result<(Subject, Vec<GrantedAccess>), TooMany> {
    let name = ObjectName::of(object);
    let mut all = of_pod(object);
    if name.group == "admissionregistration.k8s.io" {
        all.extend(intercepted(object, count)?);
    }
    if name.group.is_empty() && text(object, "/type") == "bootstrap.kubernetes.io/token" {
        all.push("authenticates as a bootstrap token".to_owned());
    }
    let privilege = |text| GrantedAccess::Privilege { text, content: String::new() };
    let mut all: Vec<_> = all.into_iter().map(privilege).collect();
    if !is_known(&name.group, &name.kind) {
        let place = if name.namespace.is_empty() { String::new() } else { format!("{}/", name.namespace) };
        let text = format!("unknown rights through {}/{} {place}{}", name.group, name.kind, word(&name.name));
        all.push(GrantedAccess::Privilege { text, content: objects::comparable(object).to_string() });
    }
    counted(count, all.len())?;
    Ok((holder(object), all))
}

/// Privileges of the pods of a pod template.
fn of_pod(object: &Value) -> Vec<String> {
    let pod = object.pointer("/spec/template/spec").unwrap_or(&Value::Null);
    let mut all = Vec::new();
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        all.extend((pod[field] == true).then(|| format!("pods with {field}")));
    }
    for volume in list(pod, "/volumes") {
        let path = volume.pointer("/hostPath").filter(|path| !path.is_null());
        all.extend(path.map(|path| format!("pods with hostPath {}", word(text(path, "/path")))));
    }
    let lists = ["/initContainers", "/containers", "/ephemeralContainers"].map(|field| list(pod, field));
    let contexts = lists.into_iter().flatten().filter_map(|container| container.get("securityContext"));
    for context in contexts.chain(pod.get("securityContext")) {
        all.extend((context["privileged"] == true).then(|| "privileged containers".to_owned()));
        let is_host_process = context["windowsOptions"]["hostProcess"] == true;
        all.extend(is_host_process.then(|| "containers with hostProcess".to_owned()));
        let added = texts(context, "/capabilities/add");
        all.extend(added.map(|capability| format!("containers with capability {}", word(capability))));
    }
    all
}

/// One text for each rule of the webhooks of a configuration.
fn intercepted(configuration: &Value, count: &mut usize) -> Result<Vec<String>, TooMany> {
    let mut all = Vec::new();
    for webhook in list(configuration, "/webhooks") {
        let selectors = ["namespaceSelector", "objectSelector"].map(|field| match webhook.get(field) {
            Some(Value::Object(selector)) if !selector.is_empty() => {
                format!(" where {field} is {}", Value::from(selector.clone()))
            }
            _ => String::new(),
        });
        for rule in list(webhook, "/rules") {
            let sorted = |field: &str| texts(rule, field).collect::<BTreeSet<_>>();
            let (groups, names) = (sorted("/apiGroups"), sorted("/resources"));
            counted(count, groups.len().saturating_mul(names.len()))?;
            let resources = groups.iter().flat_map(|group| names.iter().map(|name| full_name(name, group)));
            let resources = resources.collect::<Vec<_>>().join(", ");
            let operations: Vec<String> = sorted("/operations").into_iter().map(word).collect();
            all.push(format!("intercepts {} of {resources}{}", operations.join(", "), selectors.concat()));
        }
    }
    Ok(all)
}

/// Service accounts of pods, with those whose token Secret, shipped with them, the pods name, and of the Secrets.
///
/// # Errors
/// See [`TooMany`].
pub(crate) fn accounts(objects: &[Value], count: &mut usize) -> Result<Accounts, TooMany> {
    let mut accounts = Accounts::new();
    for object in objects {
        if text(object, "/type") == "kubernetes.io/service-account-token"
            && ObjectName::of(object).is_secret()
        {
            let name = text(object, "/metadata/annotations/kubernetes.io~1service-account.name");
            let secret = holder(object);
            let account = subject("ServiceAccount", &secret.namespace, name);
            accounts.insert(secret, BTreeSet::from([account]));
        }
    }
    for object in objects {
        let Some(pod) = object.pointer("/spec/template/spec").filter(|pod| pod.is_object()) else { continue };
        let holder = holder(object);
        let mut names =
            [text(pod, "/serviceAccountName"), text(pod, "/serviceAccount"), "default"].into_iter();
        let name = names.find(|name| !name.is_empty()).unwrap_or_default();
        let mut all = BTreeSet::from([subject("ServiceAccount", &holder.namespace, name)]);
        each_text(pod, &mut |text| {
            let token = accounts.get(&subject("Secret", &holder.namespace, text));
            all.extend(token.into_iter().flatten().cloned());
        });
        counted(count, all.len())?;
        accounts.insert(holder, all);
    }
    Ok(accounts)
}

/// Passes each string of the value to `found`.
fn each_text(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => found(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, found)),
        Value::Object(entries) => entries.values().for_each(|entry| each_text(entry, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
