//! Checks of the pod templates of deployments: lists whose entries have keys. A POST accepts two entries of one key, a
//! server-side apply rejects them (docs/design/apply.md#owners-of-fields).

use olm_bundle::pointer::{list, text};
use olm_version::quote;
use serde_json::Value;

use crate::content::Object;
use crate::report::{Findings, Location};
use crate::rule;

/// Keyed list, and the fields of its key.
type KeyedList = (&'static str, &'static [&'static str]);

const OF_PODS: [KeyedList; 5] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("volumes", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("hostAliases", &["ip"]),
];
const OF_CONTAINERS: [KeyedList; 3] = [
    ("ports", &["containerPort", "protocol"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
];

/// Reports repeated keys and variables.
pub(crate) fn keyed_lists(csv: &Object, findings: &mut Findings) {
    for (location, deployment) in csv.items("spec.install.spec.deployments") {
        let Some(pod) = deployment.pointer("/spec/template/spec") else { continue };
        let location = location.at("spec.template.spec");
        OF_PODS.iter().for_each(|list| repeated_keys(pod, list, &location, findings));
        for containers in ["initContainers", "containers"] {
            for (index, container) in list(pod, &format!("/{containers}")).iter().enumerate() {
                let location = location.clone().at(&format!("{containers}.{index}"));
                OF_CONTAINERS.iter().for_each(|list| repeated_keys(container, list, &location, findings));
                repeated_variables(container, &location, findings);
            }
        }
    }
}

fn repeated_keys(owner: &Value, (field, key): &KeyedList, location: &Location, findings: &mut Findings) {
    let value = |entry: &Value, name: &str| match (entry.get(name), name) {
        (None, "protocol") => "TCP".to_owned(),
        (value, _) => value.unwrap_or(&Value::Null).to_string(),
    };
    let key_of = |entry: &Value| -> Vec<String> {
        key.iter().map(|name| format!("{name} {}", value(entry, name).trim_matches('"'))).collect()
    };
    let keys: Vec<Vec<String>> = list(owner, &format!("/{field}")).iter().map(key_of).collect();
    for (index, repeated) in keys.iter().enumerate().filter(|(index, key)| keys[..*index].contains(key)) {
        let message = format!("{} occurs twice: remove one of the two", repeated.join(", "));
        findings.add(&rule::DEPLOY_2, location.clone().at(&format!("{field}.{index}")), message);
    }
}

fn repeated_variables(container: &Value, location: &Location, findings: &mut Findings) {
    let env = list(container, "/env");
    for (index, variable) in env.iter().enumerate() {
        let name = text(variable, "/name");
        let Some(first) = env[..index].iter().position(|other| text(other, "/name") == name) else {
            continue;
        };
        let location = location.clone().at(&format!("env.{index}"));
        let reference = format!("$({name})");
        // `$$` is an escaped `$`.
        let uses = |other: &&Value| text(other, "/value").replace("$$", "").contains(&reference);
        match env[first + 1..=index].iter().find(uses) {
            Some(user) => {
                let user = quote(text(user, "/name"));
                let message =
                    format!("variable {} is set twice, and {user} uses the first value", quote(name));
                findings.add(&rule::DEPLOY_2, location, message);
            }
            None => {
                let message = format!("variable {} is set twice: remove the first one", quote(name));
                findings.add(&rule::DEPLOY_3, location, message);
            }
        }
    }
}
