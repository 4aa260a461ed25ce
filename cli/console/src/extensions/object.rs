//! One object of an extension: its state on the cluster, and its difference to the revision. Pure.

use maud::{Markup, html};
use olm_cli_core::output::{self, qualified};
use olm_cli_lifecycle::status::observe::{Live, Observed, ObservedObject};
use serde_json::{Value, json};

use super::cut;

/// Limit of differing fields that are shown.
const FIELDS: usize = 100;
/// Longest YAML that is shown, in bytes.
const YAML: usize = 256 << 10;
/// Metadata that a revision determines.
const METADATA: [&str; 2] = ["labels", "annotations"];

/// Name of an object in a query: kind, namespace and name.
pub(super) fn key(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

/// The object with this key in the newest revision that has it.
pub(super) fn find<'a>(observed: &'a Observed, wanted: &str) -> Option<&'a ObservedObject> {
    let objects = observed.revisions.iter().rev().filter_map(|revision| revision.content.as_ref().ok());
    objects.flatten().flat_map(|phase| &phase.objects).find(|object| {
        let text =
            |pointer| object.content.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        key(text("/kind"), text("/metadata/namespace"), text("/metadata/name")) == wanted
    })
}

pub(super) fn markup(object: &ObservedObject) -> Markup {
    let desired = &object.content.object;
    let text = |pointer| desired.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let title =
        format!("{} {}", text("/kind"), qualified(text("/metadata/namespace"), text("/metadata/name")));
    html! {
        section #object aria-label=(title) {
            h2 { (title) }
            @match &object.live {
                Live::Found(live) => {
                    (differences(desired, live))
                    h3 { "On the cluster" }
                    pre.yaml #object-yaml tabindex="0" role="region" aria-label=(format!("YAML of {title}")) { (yaml(live)) }
                },
                Live::Missing => p.notice { "The object does not exist." },
                Live::NotServed => p.notice { "The cluster does not serve this kind." },
                Live::Unreadable(why) => p.notice { "The object cannot be read: " (why) },
            }
            @if !matches!(object.live, Live::Found(_)) {
                h3 { "In the revision" }
                pre.yaml tabindex="0" role="region" aria-label=(format!("Revision of {title}")) { (yaml(desired)) }
            }
        }
    }
}

fn differences(desired: &Value, live: &Value) -> Markup {
    let mut found = Vec::new();
    let is_secret = desired["kind"] == "Secret";
    let fields = desired.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| !["status", "metadata"].contains(&name.as_str())) {
        // The API server turns stringData into data.
        if name != "stringData" {
            compare(name, value, &live[name], &mut found);
        }
    }
    for name in METADATA {
        compare(&format!("metadata.{name}"), &desired["metadata"][name], &live["metadata"][name], &mut found);
    }
    html! {
        h3 { "Difference to the revision" }
        @if found.is_empty() { p.soft { "None: the object has all values of the revision." } } @else {
            ul.differences {
                @for (path, wanted, is) in found.iter().take(FIELDS) {
                    li {
                        code { (path) } ": "
                        @if is_secret { "differs (not shown)" } @else {
                            "the revision has " span.added { (cut(wanted)) } ", the cluster has " span.removed { (cut(is)) }
                        }
                    }
                }
                @if found.len() > FIELDS { li { "and " (found.len() - FIELDS) " more fields" } }
            }
        }
    }
}

/// Collects fields of `desired` that `live` has otherwise. Other fields of `live`, such as defaults, are no difference.
fn compare(path: &str, desired: &Value, live: &Value, found: &mut Vec<(String, String, String)>) {
    match (desired, live) {
        (Value::Null, _) => {}
        (Value::Object(fields), Value::Object(_)) => {
            for (name, value) in fields {
                compare(&format!("{path}.{name}"), value, &live[name], found);
            }
        }
        (Value::Array(items), Value::Array(lives)) if items.len() == lives.len() => {
            for (index, (item, live)) in items.iter().zip(lives).enumerate() {
                compare(&format!("{path}[{index}]"), item, live, found);
            }
        }
        (desired, Value::Null) if is_zero(desired) => {}
        (desired, live) if desired == live || is_same_quantity(path, desired, live) => {}
        (desired, Value::Null) => found.push((path.to_owned(), desired.to_string(), "nothing".to_owned())),
        (desired, live) => found.push((path.to_owned(), desired.to_string(), live.to_string())),
    }
}

/// Reports whether the API server leaves a field with this value out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        value => [json!(""), json!(false), json!(0)].contains(value),
    }
}

/// Reports whether two resource quantities are equal, such as `0.5` and `500m`.
fn is_same_quantity(path: &str, desired: &Value, live: &Value) -> bool {
    let is_quantity =
        [".limits.", ".requests."].iter().any(|list| path.contains(list)) || path.ends_with(".sizeLimit");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    is_quantity && olm_bundle::is_same_quantity(&text(desired), &text(live))
}

/// Object as YAML, without the bookkeeping of the API server and the data of Secrets.
pub(crate) fn yaml(object: &Value) -> String {
    let mut shown = object.clone();
    if let Some(metadata) = shown.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if shown["kind"] == "Secret" {
        for field in ["/data", "/stringData"] {
            for (_, value) in shown.pointer_mut(field).and_then(Value::as_object_mut).into_iter().flatten() {
                *value = Value::String("(not shown)".to_owned());
            }
        }
        if let Some(annotations) = shown.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    let text = output::yaml(&shown).unwrap_or_default();
    match text.len() > YAML {
        true => format!("{}…", &text[..text.floor_char_boundary(YAML)]),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_of_the_revision_are_compared() {
        let mut found = Vec::new();
        let desired = json!({"a": 1, "b": {"c": "x", "d": []}, "list": [{"e": 1}], "gone": true});
        let live = json!({"a": 2, "b": {"c": "x", "default": 1}, "list": [{"e": 1, "f": 2}]});
        compare("spec", &desired, &live, &mut found);
        let desired = json!({"s": "", "b": false, "n": 0, "limits": {"cpu": "0.5", "memory": "1Gi"}, "requests": {"cpu": 1}});
        let live = json!({"limits": {"cpu": "500m", "memory": "1025Mi"}, "requests": {"cpu": "1"}});
        compare("pod", &desired, &live, &mut found);
        compare("pod.image", &json!("0.5"), &json!("500m"), &mut found);
        let paths: Vec<_> = found.iter().map(|(path, wanted, is)| format!("{path} {wanted} {is}")).collect();
        let expected = [
            "spec.a 1 2",
            "spec.gone true nothing",
            "pod.limits.memory \"1Gi\" \"1025Mi\"",
            "pod.image \"0.5\" \"500m\"",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn data_of_secrets_is_not_shown() {
        let secret = json!({"kind": "Secret", "metadata": {"name": "s", "managedFields": []}, "data": {"password": "c2VjcmV0"}});
        let text = yaml(&secret);
        assert!(
            text.contains("password: (not shown)")
                && !text.contains("c2VjcmV0")
                && !text.contains("managedFields")
                && !text.contains("stringData"),
            "{text}"
        );
    }
}
