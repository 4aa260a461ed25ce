use serde_json::json;

use super::*;
use crate::check;

/// CRD of widgets with these versions: name, served flag, and the schema of `spec`. The first is the storage
/// version.
fn crd(versions: &[(&str, bool, Value)], webhook: bool) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(number, (name, served, spec))| {
            let schema = json!({"type": "object", "properties": {"spec": spec}});
            json!({"name": name, "served": served, "storage": number == 0, "schema": {"openAPIV3Schema": schema}})
        })
        .collect();
    let strategy = if webhook { "Webhook" } else { "None" };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"scope": "Namespaced", "versions": versions, "conversion": {"strategy": strategy}}})
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "extra": {}}, "spec": spec})
}

/// Violations of an object of version v1 after the schema of its `spec` changes from `old` to `new`.
fn violations(old: &Value, new: &Value, spec: &Value) -> Vec<String> {
    let crd = |spec: &Value| crd(&[("v1", true, spec.clone())], false);
    let check = LiveCheck::new(&crd(old), &crd(new)).unwrap();
    assert_eq!(check.versions().collect::<Vec<_>>(), if old == new { vec![] } else { vec!["v1"] });
    check.violations("v1", &object(spec))
}

/// Schema of an object whose field `a` has this schema.
fn with(field: Value) -> Value {
    json!({"type": "object", "properties": {"a": field}})
}

fn loose() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Compares the violations of an object's `spec` after the change to the new schema.
fn compare(rows: &[(&Value, Value, Vec<&str>)]) {
    for (new, spec, expected) in rows {
        assert_eq!(violations(&loose(), new, spec), *expected, "{new} {spec}");
        // Violations of the old schema are not reported.
        assert_eq!(violations(new, new, spec), [""; 0], "{new} {spec}");
    }
}

// docs/design/additions.md#crd-checks; case additions-a46
#[test]
fn required_fields_and_types_of_the_new_schema_are_validated() {
    let required = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}});
    let defaulted = json!({"type": "object", "required": ["a"],
        "properties": {"a": {"type": "string", "default": "x"}}});
    compare(&[
        (&required, json!({"a": "x"}), vec![]),
        (&required, json!({}), vec![r#"v1: spec: "a" is a required property"#]),
        (&defaulted, json!({}), vec![]),
        (&defaulted, json!({"a": null}), vec![]),
        (
            &with(json!({"type": "integer"})),
            json!({"a": "secret"}),
            vec![r#"v1: spec.a: value is not of type "integer""#],
        ),
        (&with(json!({"type": "string", "nullable": true})), json!({"a": null}), vec![]),
        (&with(json!({"type": "string", "enum": ["x"], "nullable": true})), json!({"a": null}), vec![]),
        (&with(json!({"type": "string"})), json!({"a": null}), vec![]),
        (&with(json!({"x-kubernetes-int-or-string": true})), json!({"a": "5%"}), vec![]),
        (
            &with(json!({"x-kubernetes-int-or-string": true})),
            json!({"a": true}),
            vec![r#"v1: spec.a: value is not of types "integer", "string""#],
        ),
        (
            &with(json!({"type": "integer", "maximum": 5, "exclusiveMaximum": true})),
            json!({"a": 5}),
            vec!["v1: spec.a: value is greater than or equal to the maximum of 5"],
        ),
        (
            &with(json!({"type": "string", "format": "email"})),
            json!({"a": "x"}),
            vec![r#"v1: spec.a: value is not a "email""#],
        ),
        (&with(json!({"type": "string", "format": "unheard-of"})), json!({"a": "x"}), vec![]),
    ]);
}

#[test]
fn dropped_fields_and_repeated_entries_of_the_new_schema_are_reported() {
    let text = with(json!({"type": "string"}));
    let list = |more: Value| {
        let mut list =
            json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}});
        list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with(list)
    };
    compare(&[
        (&text, json!({"a": "x", "b": {"c": 1}}), vec!["v1: spec.b: the field would be dropped"]),
        (
            &list(json!({})),
            json!({"a": [{"k": "x"}, {"l": "x"}]}),
            vec!["v1: spec.a[1].l: the field would be dropped"],
        ),
        (
            &list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})),
            json!({"a": [{"k": "x"}, {"k": "x"}]}),
            vec!["v1: spec.a: entries are there twice"],
        ),
        (
            &with(json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"})),
            json!({"a": [1, 2, 1]}),
            vec!["v1: spec.a: entries are there twice"],
        ),
        (
            &with(json!({"type": "object", "additionalProperties": {"type": "integer"}})),
            json!({"a": {"x": 1, "y": "z"}}),
            vec![r#"v1: spec.a.y: value is not of type "integer""#],
        ),
        (
            &with(json!({"type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object"}}})),
            json!({"a": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}, "spec": {}}}),
            vec![],
        ),
        (&loose(), json!({"anything": [{"else": 1}]}), vec![]),
    ]);
}

#[test]
fn objects_without_webhook_must_fit_all_served_versions() {
    let text = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let number = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let old = crd(&[("v1", true, text.clone())], false);
    let both = |webhook| crd(&[("v1", true, text.clone()), ("v2", true, number.clone())], webhook);
    let spec = object(&json!({"a": "x"}));
    let converted = LiveCheck::new(&old, &both(true)).unwrap();
    assert_eq!(converted.violations("v1", &spec), [""; 0]);
    let plain = LiveCheck::new(&old, &both(false)).unwrap();
    assert_eq!(plain.violations("v1", &spec), [r#"v2: spec.a: value is not of type "integer""#]);
    // An unchanged schema has no violations.
    assert_eq!(LiveCheck::new(&both(false), &both(false)).unwrap().violations("v1", &spec), [""; 0]);
    let versions = |old: &Value, new: &Value| -> Vec<String> {
        LiveCheck::new(old, new).unwrap().versions().map(str::to_owned).collect()
    };
    let loose = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let changed = |webhook| crd(&[("v1", true, loose.clone()), ("v2", true, loose.clone())], webhook);
    assert_eq!(versions(&both(true), &both(true)), [""; 0], "unchanged schemas list no version");
    assert_eq!(versions(&both(true), &changed(true)), ["v1", "v2"]);
    assert_eq!(versions(&both(true), &changed(false)), ["v1"]);
    // A version that becomes served is validated although no client could read it before.
    let hidden = crd(&[("v1", true, text.clone()), ("v2", false, number.clone())], false);
    let shown = LiveCheck::new(&hidden, &both(false)).unwrap();
    assert_eq!(shown.violations("v1", &spec), [r#"v2: spec.a: value is not of type "integer""#]);
    let unserved = crd(&[("v1", false, text.clone()), ("v2", true, text.clone())], false);
    assert_eq!(versions(&unserved, &changed(false)), ["v2"]);
    let nothing = crd(&[("v1", false, text)], false);
    assert_eq!(versions(&nothing, &changed(false)), [""; 0]);
}

#[test]
fn live_crd_check_skips_findings_not_testable_on_objects() {
    let with =
        |field: Value| crd(&[("v1", true, json!({"type": "object", "properties": {"a": field}}))], false);
    let plain = with(json!({"type": "string"}));
    let scoped = {
        let mut scoped = plain.clone();
        scoped["spec"]["scope"] = json!("Cluster");
        scoped
    };
    let mut stored = plain.clone();
    stored["status"]["storedVersions"] = json!(["v0", "v1"]);
    let rule = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]});
    let removed = crd(&[("v1", true, json!({"type": "object"}))], false);
    let text = || json!({"type": "string"});
    let mut unserved = crd(&[("v1", false, text()), ("v2", true, text())], false);
    let hidden = crd(&[("v1", false, json!({"type": "integer"})), ("v2", true, text())], false);
    let mut forgotten = unserved.clone();
    unserved["status"]["storedVersions"] = json!(["v1", "v2"]);
    forgotten["status"]["storedVersions"] = json!(["v2"]);
    let rows = [
        (&plain, with(json!({"type": "integer"})), true, false),
        (&plain, with(json!({"type": "string", "format": "email"})), true, false),
        (&plain, with(json!({"type": "string", "format": "unheard-of"})), false, false),
        (&plain, with(json!({"type": "string", "default": "x"})), false, false),
        (&plain, with(rule), false, false),
        (&plain, removed, true, false),
        (&unserved, hidden.clone(), false, false),
        (&forgotten, hidden, true, false),
        (&plain, scoped, false, true),
        (&stored, plain.clone(), false, true),
    ];
    for (old, new, judged, absolute) in rows {
        let live = LiveCheck::new(old, &new).unwrap();
        let findings = check(Some(old), &new).unwrap();
        assert!(!findings.is_empty(), "{new}");
        for finding in findings {
            assert_eq!((live.judges(&finding), finding.is_absolute()), (judged, absolute), "{finding}");
        }
    }
}

#[test]
fn unusable_schema_error_names_version() {
    let with = |pattern: &str| crd(&[("v1", true, json!({"type": "string", "pattern": pattern}))], false);
    let error = LiveCheck::new(&with("a"), &with("(")).unwrap_err();
    let text = "CustomResourceDefinition \"widgets.example.com\": schema.openAPIV3Schema of version v1 must be a schema \
                that can be evaluated";
    assert_eq!(error.to_string(), text);
    assert!(LiveCheck::new(&json!({}), &with("a")).is_err());
}
