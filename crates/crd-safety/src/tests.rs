#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// JSON pointer to the schema of the property `f` in [`crd`].
const FIELD: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/f";

/// CRD with one served version whose spec has these properties.
fn crd(properties: &Value) -> Value {
    let spec = json!({"type": "object", "properties": properties});
    versions(&json!([version("v1", &json!({"type": "object", "properties": {"spec": spec}}))]))
}

fn version(name: &str, schema: &Value) -> Value {
    json!({"name": name, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}})
}

fn versions(versions: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"scope": "Namespaced", "versions": versions},
    })
}

fn lines(old: &Value, new: &Value) -> Vec<String> {
    check(Some(old), new).unwrap().iter().map(ToString::to_string).collect()
}

/// Findings of a change of the property `f`.
fn change(old: &Value, new: &Value) -> Vec<String> {
    lines(&crd(&json!({"f": old})), &crd(&json!({"f": new})))
}

// Case apply-49
#[test]
fn removed_field_is_the_only_finding() {
    let (old, new) = (crd(&json!({"x": {"nullable": false}})), crd(&json!({})));
    let findings = check(Some(&old), &new).unwrap();
    assert_eq!(
        error_text("widgets.example.com", &findings),
        "validating upgrade for CRD \"widgets.example.com\": existingFieldRemoval: removed field : v1.^.spec.x"
    );
    let line = |section, version: Option<&str>| CrdFinding {
        section,
        version: version.map(str::to_owned),
        property: version.map(|_| "^.spec.x".to_owned()),
        check: "type",
        text: "text".to_owned(),
        impact: Impact::Nothing,
    };
    assert_eq!(line(Section::Crd, None).to_string(), "type: text");
    assert_eq!(line(Section::Served, Some("v1 -> v2")).to_string(), "v1 -> v2: ^.spec.x: type: text");
}

#[test]
fn findings_of_one_property_sort_by_check_name() {
    let old = json!({"type": "string", "default": "a", "enum": ["a", "b"], "pattern": "a", "maxLength": 9,
        "maximum": 9, "maxItems": 9, "maxProperties": 9, "minLength": 1, "minimum": 1, "minItems": 1,
        "minProperties": 1, "format": "email", "oneOf": [{"maxLength": 1}]});
    let new = json!({"type": "integer", "default": "b", "enum": ["b"], "pattern": "b", "maxLength": 8,
        "maximum": 8, "maxItems": 8, "maxProperties": 8, "minLength": 2, "minimum": 2, "minItems": 2,
        "minProperties": 2, "format": "uri", "nullable": true, "required": ["x"], "oneOf": [{"minLength": 1}]});
    let findings = check(Some(&crd(&json!({"f": old}))), &crd(&json!({"f": new}))).unwrap();
    let names: Vec<&str> =
        findings.iter().filter(|f| f.property.as_deref() == Some("^.spec.f")).map(|f| f.check).collect();
    let all = "default enum maxItems maxLength maxProperties maximum minItems minLength minProperties minimum \
        nullable oneOf pattern required type unhandled";
    assert_eq!(names.join(" "), all);
}

// docs/design/apply.md#harmless-changes; cases apply-51, apply-52
#[test]
fn harmless_changes_yield_no_finding() {
    for (old, new) in [
        (json!({"enum": ["a"]}), json!({"enum": ["a", "b"]})),
        (json!({"enum": ["a"]}), json!({})),
        (json!({"enum": ["a"]}), json!({"enum": []})),
        (json!({"pattern": "a"}), json!({})),
        (json!({"description": "a"}), json!({"description": "b"})),
        (json!({"title": "a", "example": 1}), json!({"externalDocs": {"url": "u"}, "example": 2})),
        (json!({"required": ["a"]}), json!({"required": null})),
        (json!({"default": null, "x-kubernetes-list-map-keys": []}), json!({})),
        (json!({"maxLength": 5, "maximum": 7}), json!({"maxLength": 5.0, "maximum": 7.0})),
        (
            json!({"additionalProperties": {"properties": {"a": {"description": "x"}}}}),
            json!({"additionalProperties": {"properties": {"a": {"description": "y"}, "b": {"type": "string"}}}}),
        ),
        (json!({"anyOf": [{"maxLength": 4}]}), json!({"anyOf": [{"maxLength": 5, "title": "t"}]})),
        (json!({"not": {"description": "a"}}), json!({"not": {"description": "b"}})),
        (
            json!({"description": "a", "oneOf": [{"required": ["a"]}, {"properties": {"a": {"maxLength": 1}}}]}),
            json!({"oneOf": [{"required": ["a"]}, {"properties": {"a": {"maxLength": 1, "title": "t"}}}]}),
        ),
    ] {
        assert_eq!(change(&old, &new), Vec::<String>::new(), "{old} -> {new}");
    }
    let fresh = crd(&json!({"f": {"required": ["x"]}}));
    assert_eq!(lines(&crd(&json!({})), &fresh), Vec::<String>::new(), "a new optional field");
    assert_eq!(check(None, &json!({"kind": "Whatever"})), Ok(Vec::new()));
}

// Case apply-53
#[test]
fn changes_without_check_are_unhandled() {
    for (old, new, summary) in [
        (json!({}), json!({"format": "email"}), "Format \"\" -> \"email\""),
        (
            json!({"title": "a"}),
            json!({"title": "b", "format": "email"}),
            "Format \"\" -> \"email\"; Title \"a\" -> \"b\"",
        ),
        (json!({"multipleOf": 0.5}), json!({"multipleOf": 1e6}), "MultipleOf &0.5 -> &1e+06"),
        (
            json!({"x-kubernetes-preserve-unknown-fields": false}),
            json!({}),
            "XPreserveUnknownFields &false -> nil",
        ),
        (json!({}), json!({"additionalProperties": {}}), "AdditionalProperties nil -> <complex value>"),
        (
            json!({"additionalProperties": true}),
            json!({"additionalProperties": {}}),
            "Schema nil -> <complex value>",
        ),
        // A new constraint makes a condition narrower.
        (
            json!({"allOf": [{}]}),
            json!({"allOf": [{}, {"maxLength": 1}]}),
            "AllOf <complex value> -> <complex value> (changed)",
        ),
        (
            json!({"allOf": [{"additionalProperties": {}}]}),
            json!({"allOf": [{"additionalProperties": {"properties": {"a": {"maxLength": 1}}}}]}),
            "AllOf <complex value> -> <complex value> (changed)",
        ),
        // A wider `not` rejects more.
        (
            json!({"not": {"maxLength": 1}}),
            json!({"not": {"maxLength": 2}}),
            "Not <complex value> -> <complex value> (changed)",
        ),
        (
            json!({"x-kubernetes-validations": [{"rule": "a"}]}),
            json!({"x-kubernetes-validations": [{"rule": "b"}]}),
            "XValidations [{\"rule\":\"a\"}] -> [{\"rule\":\"b\"}]",
        ),
    ] {
        let line = format!("v1: ^.spec.f: unhandled: unhandled changes found ({summary})");
        assert_eq!(change(&old, &new), [line], "{old} -> {new}");
    }
}

#[test]
fn finding_paths_cover_every_kind_of_nested_schema() {
    let tightened = |limit: u8| {
        let leaf = json!({"maxLength": limit});
        json!({
            "items": leaf,
            "additionalProperties": leaf,
            "not": leaf,
            "patternProperties": {"^x": leaf},
            "allOf": [{}, leaf],
            "properties": {"a.b": leaf},
        })
    };
    let lines = change(&tightened(2), &tightened(1));
    let bounds: Vec<_> =
        lines.iter().filter_map(|line| line.split_once(": maxLength: ")).map(|(p, _)| p).collect();
    assert_eq!(
        bounds,
        [
            "v1: ^.spec.f.a.b",
            "v1: ^.spec.f.additionalProperties",
            "v1: ^.spec.f.allOf[1]",
            "v1: ^.spec.f.items",
            "v1: ^.spec.f.not",
            "v1: ^.spec.f.patternProperties[^x]",
        ]
    );
}

// Case apply-54
#[test]
fn only_new_differences_between_served_versions_are_findings() {
    let pair = |extra: &Value| {
        let low = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let mut high = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        high["properties"]["a"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        versions(&json!([version("v2", &high), version("v1", &low)]))
    };
    let (known, bounded, tighter) =
        (pair(&json!({})), pair(&json!({"minimum": 1})), pair(&json!({"minimum": 2})));
    assert_eq!(lines(&known, &known), Vec::<String>::new());
    let added = "^.a: minimum: minimum constraint added when there was none previously";
    assert_eq!(lines(&known, &bounded), [format!("v2: {added} : 1"), format!("v1 -> v2: {added} : 1")]);
    assert_eq!(
        lines(&bounded, &tighter),
        ["v2: ^.a: minimum: minimum increased : 1 -> 2".to_owned(), format!("v1 -> v2: {added} : 2")]
    );
    // The order of required names does not matter.
    let names = |names: Value| {
        let (low, high) = (json!({}), json!({"required": names}));
        versions(&json!([version("v1", &low), version("v2", &high)]))
    };
    assert_eq!(lines(&names(json!(["a", "b"])), &names(json!(["b", "a"]))), Vec::<String>::new());
}

#[test]
fn malformed_and_hostile_crds_are_refused() {
    let good = crd(&json!({}));
    let refused = |new: &Value| {
        let error = check(Some(&good), new).unwrap_err().to_string();
        assert_eq!(check(Some(new), &good).unwrap_err().to_string(), error);
        error
    };
    assert_eq!(
        refused(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})),
        "object \"s\" is a \"Secret\" of \"v1\", not a CustomResourceDefinition of apiextensions.k8s.io/v1"
    );
    let malformed = "CustomResourceDefinition \"widgets.example.com\": ";
    assert_eq!(refused(&versions(&json!(7))), format!("{malformed}spec.versions must be a list"));
    assert_eq!(refused(&versions(&json!([{}]))), format!("{malformed}spec.versions[0].name must be text"));
    assert_eq!(
        refused(&crd(&json!({"l": {"items": {"anyOf": [{"maxLength": 1.5}]}}}))),
        format!(
            "{malformed}spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.l.items.anyOf[0].maxLength must \
             be an integer"
        )
    );
    let many: Vec<Value> = (0..101).map(|number| version(&format!("v{number}"), &json!({}))).collect();
    assert_eq!(
        refused(&versions(&many.into())),
        "CustomResourceDefinition \"widgets.example.com\" has 101 versions, at most 100 are compared"
    );
}

/// Each level costs stack: an allowed depth must fit into a small stack, and refusing a deeper one must need none.
#[test]
fn deep_schemas_need_little_stack() {
    let nested = |levels: usize, leaf: Value| {
        // Moved, because the macro would copy by recursion.
        let around = |inner, _| Value::Object([("not".to_owned(), inner)].into_iter().collect());
        let mut crd = crd(&json!({"f": null}));
        *crd.pointer_mut(FIELD).unwrap() = (0..levels).fold(leaf, around);
        crd
    };
    // The schema of the field is at level ten, which puts the leaf at the last allowed level.
    let allowed = crd::MAX_DEPTH - 10;
    let (old, new) = (nested(allowed, json!({"maxLength": 2})), nested(allowed, json!({"maxLength": 1})));
    let one_more = nested(allowed + 1, json!({}));
    let deep = nested(20_000, json!({}));
    std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(512 << 10);
        let run = || {
            let findings = check(Some(&old), &new).unwrap();
            assert!(findings.iter().any(|finding| finding.check == "maxLength"));
            let error = check(Some(&old), &deep).unwrap_err();
            assert_eq!(
                error.to_string(),
                "CustomResourceDefinition \"widgets.example.com\" is nested deeper than 200 levels"
            );
            assert!(check(Some(&old), &one_more).is_err());
        };
        small.spawn_scoped(scope, run).unwrap().join().unwrap();
    });
    // Values are dropped by recursion.
    std::mem::forget(deep);
}

#[test]
fn findings_above_size_limit_are_an_error() {
    let properties: serde_json::Map<String, Value> = (0..2_000)
        .map(|number| (format!("{number}{}", "x".repeat(10_000)), json!({"type": "string"})))
        .collect();
    let error = check(Some(&crd(&properties.into())), &crd(&json!({}))).unwrap_err().to_string();
    assert_eq!(
        error,
        "CustomResourceDefinition \"widgets.example.com\": the findings are longer than 33554432 bytes"
    );
}

/// Generates schemas of every form, most of them valid.
fn schema() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(json!({})),
        "[a-c]{1,2}".prop_map(|text| json!({"type": text, "pattern": text, "title": text})),
        any::<i8>().prop_map(|n| json!({"maximum": n, "minLength": n, "default": {"b": n, "a": 1}})),
        proptest::collection::vec("[a-c]", 0..3).prop_map(|names| json!({"required": names, "enum": names})),
        any::<bool>()
            .prop_map(|flag| json!({"nullable": flag, "additionalProperties": flag, "uniqueItems": flag})),
        Just(json!({"maximum": "x", "properties": []})),
    ];
    scalar.prop_recursive(4, 24, 3, |inner| {
        let keys = prop_oneof![
            Just("items"),
            Just("additionalProperties"),
            Just("not"),
            Just("properties"),
            Just("allOf"),
            Just("anyOf"),
            Just("oneOf"),
        ];
        (keys, inner.clone(), inner).prop_map(|(key, a, b)| match key {
            "properties" => json!({key: {"a": a, "b": b}}),
            "allOf" | "anyOf" | "oneOf" => json!({key: [a, b]}),
            _ => json!({key: a, "description": "d"}),
        })
    })
}

fn any_crd() -> impl Strategy<Value = Value> {
    proptest::collection::vec(("v[1-3](alpha1|beta2)?", schema(), any::<bool>()), 1..4).prop_map(|list| {
        let list = list.into_iter().map(|(name, schema, served)| {
            let mut version = version(&name, &schema);
            version["served"] = served.into();
            version
        });
        versions(&list.collect())
    })
}

proptest! {
    #[test]
    fn findings_are_stable_and_sorted(old in any_crd(), new in any_crd()) {
        let found = check(Some(&old), &new);
        prop_assert_eq!(&found, &check(Some(&old.clone()), &new.clone()));
        if let Ok(findings) = found {
            prop_assert!(findings.is_sorted());
            prop_assert!(findings.iter().all(|finding| !finding.to_string().contains('\n')));
        }
    }

    #[test]
    fn violations_of_any_object_are_sorted_lines(old in any_crd(), new in any_crd(),
                                                text in "[\\[{\"a:1n\\]}, ]{0,20}") {
        let Ok(live) = LiveCheck::new(&old, &new) else { return Ok(()) };
        let object: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({"a": [text, null], "b": {"a": 1}}));
        for version in live.versions() {
            let violations = live.violations(version, &object);
            prop_assert!(violations.is_sorted());
            prop_assert!(violations.iter().all(|violation| !violation.contains('\n')));
        }
        if old == new {
            prop_assert_eq!(live.versions().count(), 0);
        }
    }

    #[test]
    fn unchanged_crd_has_no_findings(crd in any_crd()) {
        // An API server never stores a CRD with duplicate version names.
        let names: Vec<_> = crd["spec"]["versions"].as_array().unwrap().iter().map(|v| v["name"].to_string()).collect();
        prop_assume!(names.iter().collect::<BTreeSet<_>>().len() == names.len());
        if let Ok(findings) = check(Some(&crd), &crd) {
            prop_assert_eq!(findings, vec![]);
        }
    }

    #[test]
    fn arbitrary_values_do_not_panic(key in "type|properties|items|enum|oneOf|x-kubernetes-validations|required",
                                     value in "[\\[{\"a:1\\]}, ]{0,12}") {
        let value: Value = serde_json::from_str(&value).unwrap_or(Value::Null);
        let odd = crd(&json!({"f": {key: value}}));
        let _ = check(Some(&odd), &crd(&json!({})));
        let _ = check(Some(&crd(&json!({"f": {}}))), &odd);
    }
}

/// Impact of the only finding of a change of the field `f` of spec or status.
#[track_caller]
fn impact(part: &str, old: &Value, new: &Value) -> Impact {
    let of = |field: &Value| {
        let part = json!({part: {"type": "object", "properties": {"f": field}}});
        versions(&json!([version("v1", &json!({"type": "object", "properties": part}))]))
    };
    let findings = check(Some(&of(old)), &of(new)).unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings[0].impact
}

#[test]
fn impact_depends_on_the_change_and_its_place() {
    use Impact::{Clients, Nothing, StoredObjects};
    let rules = |rules: &[(&str, &str)]| {
        let rules: Vec<_> =
            rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect();
        json!({"x-kubernetes-validations": rules})
    };
    for (old, new, in_spec, in_status) in [
        (json!({}), json!({"maxLength": 3}), StoredObjects, StoredObjects),
        (json!({}), json!({"default": "x"}), Clients, Nothing),
        (json!({"default": "x"}), json!({"default": "y"}), Clients, Nothing),
        (json!({}), json!({"nullable": true}), Clients, Clients),
        (json!({"nullable": true}), json!({}), StoredObjects, StoredObjects),
        (json!({}), json!({"x-kubernetes-list-type": "atomic"}), Nothing, Nothing),
        (json!({"x-kubernetes-list-type": "set"}), json!({}), Clients, Clients),
        (
            json!({"x-kubernetes-list-type": "atomic"}),
            json!({"x-kubernetes-list-type": "set"}),
            StoredObjects,
            StoredObjects,
        ),
        (json!({}), json!({"x-kubernetes-map-type": "granular"}), Nothing, Nothing),
        (json!({}), json!({"x-kubernetes-map-type": "atomic"}), Clients, Clients),
        (rules(&[("a", "old text")]), rules(&[("a", "new text")]), Nothing, Nothing),
        (rules(&[("a", ""), ("b", "")]), rules(&[("b", "")]), Nothing, Nothing),
        (rules(&[("a", "")]), rules(&[("a", ""), ("b", "")]), StoredObjects, StoredObjects),
        (json!({"format": "date"}), json!({}), Nothing, Nothing),
        (json!({}), json!({"format": "unknown-to-the-server"}), Nothing, Nothing),
        (json!({}), json!({"format": "date"}), StoredObjects, StoredObjects),
        (json!({"uniqueItems": true}), json!({}), Nothing, Nothing),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), json!({}), StoredObjects, StoredObjects),
        (json!({}), json!({"x-kubernetes-preserve-unknown-fields": true}), Nothing, Nothing),
    ] {
        assert_eq!(impact("spec", &old, &new), in_spec, "{old} -> {new}");
        assert_eq!(impact("status", &old, &new), in_status, "status: {old} -> {new}");
    }
}

#[test]
fn removed_field_has_one_finding_without_its_consequences() {
    let nested = json!({"type": "object", "properties": {"b": {"type": "string", "maxLength": 3}}});
    let (old, new) =
        (crd(&json!({"a": nested, "ab": {"type": "string"}})), crd(&json!({"ab": {"type": "integer"}})));
    let all = check(Some(&old), &new).unwrap();
    assert!(all.len() > 3, "{all:?}");
    let kept: Vec<_> = without_consequences(all).iter().map(ToString::to_string).collect();
    assert_eq!(
        kept,
        [
            "existingFieldRemoval: removed field : v1.^.spec.a",
            "v1: ^.spec.ab: type: type changed : \"string\" -> \"integer\"",
        ]
    );
}

#[test]
fn version_without_users_breaks_nothing_and_vanished_versions_are_named() {
    let of = |name: &str, served: bool, max: u64| {
        let schema = json!({"type": "object", "properties": {"f": {"type": "string", "maxLength": max}}});
        json!({"name": name, "served": served, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let old = versions(&json!([of("v1", true, 5), of("v1alpha1", false, 5), of("v1beta1", true, 5)]));
    let new = versions(&json!([of("v1", true, 5), of("v1alpha1", false, 4), of("v1beta1", false, 5)]));
    let findings = check(Some(&old), &new).unwrap();
    let found: Vec<_> = findings.iter().map(|finding| (finding.check, finding.impact)).collect();
    assert_eq!(found, [("maxLength", Impact::Nothing)]);
    assert_eq!(vanished_versions(&old, &new).unwrap(), ["v1beta1"]);
    assert_eq!(vanished_versions(&old, &old).unwrap(), Vec::<String>::new());
}
