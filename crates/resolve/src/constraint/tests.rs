//! Requirements: errors, texts, verdicts, and hostile input.

use std::time::{Duration, Instant};

use olm_fbc::Property;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;

mod properties;

fn property(kind: &str, value: &str) -> Property {
    Property { kind: kind.to_owned(), value: RawValue::from_string(value.to_owned()).unwrap() }
}

fn requirement(kind: &str, value: &str) -> Requirement {
    Requirement::parse(&property(kind, value)).unwrap()
}

fn constraint(value: &Value) -> Requirement {
    requirement("olm.constraint", &value.to_string())
}

fn api(kind: &str) -> Value {
    json!({ "group": "ex.io", "version": "v1", "kind": kind })
}

fn gvk(kind: &str) -> Gvk {
    Gvk { group: "ex.io".to_owned(), version: "v1".to_owned(), kind: kind.to_owned() }
}

fn package(name: &str, range: &str) -> Value {
    json!({ "package": { "packageName": name, "versionRange": range } })
}

/// Installed bundle of a package, with further properties.
fn provider(extension: &str, package: &str, version: &str, more: &[(&str, Value)]) -> Provider {
    let identity = json!({ "packageName": package, "version": version }).to_string();
    let mut properties = vec![property("olm.package", &identity)];
    properties.extend(more.iter().map(|(kind, value)| property(kind, &value.to_string())));
    Provider::new(Some(extension.to_owned()), format!("{package}.v{version}"), properties)
}

fn around<const N: usize>(providers: [Provider; N], served: &[Gvk]) -> AvailableProviders {
    AvailableProviders { providers: providers.into(), served: served.iter().cloned().collect() }
}

fn met(by: &str) -> RequirementVerdict {
    RequirementVerdict::Met { by: by.to_owned(), external: false }
}

fn fault(kind: &str, value: &str) -> String {
    requirement(kind, value).fault().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn requirements_keep_order_and_invalid_entries() {
    let properties = [
        property("olm.gvk.required", &api("Green").to_string()),
        property("olm.gvk", &api("Green").to_string()),
        property("olm.constraint", "{}"),
        property("olm.label.required", r#"{"label":"x"}"#),
        property("olm.package.required", r#"{"packageName":"blue","versionRange":">=1.0.0"}"#),
    ];
    let requirements = Requirement::all(&properties);
    let types: Vec<_> = requirements.iter().map(Requirement::property_type).collect();
    assert_eq!(types, ["olm.gvk.required", "olm.constraint", "olm.package.required"]);
    assert!(requirements[1].fault().is_some());
}

fn compare_faults(cases: &[(&str, &str)]) {
    for (value, expected) in cases {
        assert_eq!(fault("olm.constraint", value), *expected, "{value}");
    }
}

#[test]
fn unknown_fields_and_empty_constraints_are_reported_as_by_the_reference() {
    compare_faults(&[
        // Cases seeds-s1-3, additions-a29
        (
            r#"{"package":{"name":"blue","versionRange":">=1.0.0"}}"#,
            r#"parse olm.constraint: json: unknown field "name""#,
        ),
        (
            r#"{"all":{"constraints":[{"any":{"constraints":[{"package":{"name":"blue"}}]}}]}}"#,
            r#"parse olm.constraint: json: unknown field "name""#,
        ),
        (r#"{"value":{},"gvk":{}}"#, r#"parse olm.constraint: json: unknown field "value""#),
        (r#"{"none":{"constraints":[]}}"#, r#"parse olm.constraint: json: unknown field "none""#),
        (
            r#"{"gvk":{"group":"g","versions":["v1"]}}"#,
            r#"parse olm.constraint: json: unknown field "versions""#,
        ),
        // Case additions-e16
        ("{}", "convert olm.constraint to resolver predicate: constraint is empty"),
        ("null", "convert olm.constraint to resolver predicate: constraint is empty"),
        (r#"{"failureMessage":"x"}"#, "convert olm.constraint to resolver predicate: constraint is empty"),
        (r#"{"gvk":null}"#, "convert olm.constraint to resolver predicate: constraint is empty"),
        (
            r#"{"not":{"constraints":[{"gvk":{}},{"failureMessage":"x"}]}}"#,
            "convert olm.constraint to resolver predicate: constraint is empty",
        ),
        (
            r#"{"all":{"constraints":[null]}}"#,
            "convert olm.constraint to resolver predicate: constraint is empty",
        ),
        (
            r#"{"package":{"packageName":"blue"}}"#,
            "convert olm.constraint to resolver predicate: Last element in range is '||'",
        ),
        (
            r#"{"cel":{"rule":"1 + 1"}}"#,
            "convert olm.constraint to resolver predicate: cel expressions must have type Bool",
        ),
    ]);
}

#[test]
fn wrong_types_are_reported_as_by_the_reference() {
    // The first fault in the text is reported.
    compare_faults(&[
        (
            "[]",
            "parse olm.constraint: json: cannot unmarshal array into Go value of type constraints.Constraint",
        ),
        (
            r#"{"gvk":"x","package":{"name":"y"}}"#,
            "parse olm.constraint: json: cannot unmarshal string into Go struct field Constraint.gvk of type constraints.GVKConstraint",
        ),
        (
            r#"{"all":{"constraints":[{"gvk":{"group":{"a":[1,"]"]},"kind":true}}]}}"#,
            "parse olm.constraint: json: cannot unmarshal object into Go struct field GVKConstraint.all.constraints.gvk.group of type string",
        ),
        (
            r#"{"any":{"constraints":{}},"foo":1}"#,
            "parse olm.constraint: json: cannot unmarshal object into Go struct field CompoundConstraint.any.constraints of type []constraints.Constraint",
        ),
        (
            r#"{"any":{"constraints":[ 1.5e3 , {"foo":1}]}}"#,
            "parse olm.constraint: json: cannot unmarshal number into Go struct field CompoundConstraint.any.constraints of type constraints.Constraint",
        ),
    ]);
    assert_eq!(
        fault("olm.package.required", r#"{"packageName":5}"#),
        "parse olm.package.required: json: cannot unmarshal number into Go struct field PackageConstraint.packageName of type string"
    );
    assert_eq!(
        fault("olm.package.required", r#"{"packageName":"a","versionRange":""}"#),
        "parse olm.package.required: Last element in range is '||'"
    );
}

#[test]
fn fault_hints_list_the_allowed_fields() {
    let hint = |value: &str| {
        let requirement = requirement("olm.constraint", value);
        requirement.fault().and_then(RequirementFault::hint).unwrap_or_default().to_owned()
    };
    // Case seeds-s1-3
    assert_eq!(hint(r#"{"package":{"name":"blue"}}"#), "use packageName in place of name");
    assert_eq!(hint(r#"{"value":1}"#), "allowed here: failureMessage, gvk, package, all, any, not, cel");
    assert_eq!(hint("{}"), "one of gvk, package, all, any, not, cel is needed");
    assert_eq!(
        hint(r#"{"package":{"packageName":"blue","versionRange":"^1"}}"#),
        r#"versionRange of package "blue": a range such as ">=1.0.0 <2.0.0""#
    );
}

#[test]
fn fields_decode_as_in_go() {
    let cases = [
        // Names in any case. Unknown fields are errors only in olm.constraint.
        (
            "olm.gvk.required",
            r#"{"GROUP":"g","Version":"v1","kInd":"K","x":{"y":[]}}"#,
            "group: g, version: v1, kind: K",
        ),
        (
            "olm.constraint",
            r#"{"GVK":{"group":"g","version":"v1","\u212aind":"K"}}"#,
            "group: g, version: v1, kind: K",
        ),
        // `null` sets nothing, a repeated field is set again.
        ("olm.gvk.required", "null", "group: , version: , kind: "),
        (
            "olm.constraint",
            r#"{"gvk":{"group":"a","version":"v1","kind":null},"gvk":{"group":"b","kind":"\u004b"}}"#,
            "group: b, version: v1, kind: K",
        ),
    ];
    for (kind, value, expected) in cases {
        assert_eq!(
            requirement(kind, value).to_string(),
            format!("providing an API with {expected}"),
            "{value}"
        );
    }
    // A null after a kind unsets it. The first present kind is used.
    let several =
        json!({ "cel": { "rule": "no rule" }, "not": { "constraints": [] }, "all": null, "gvk": api("G") });
    assert_eq!(constraint(&several).fault(), None);
    assert_eq!(constraint(&several).mentioned_gvks().collect::<Vec<_>>(), [&gvk("G")]);
}

#[test]
fn constraint_larger_than_128_kib_is_rejected() {
    let sized = |size: usize| {
        let frame = json!({ "failureMessage": "", "gvk": api("G") }).to_string().len();
        constraint(&json!({ "failureMessage": "x".repeat(size - frame), "gvk": api("G") }))
    };
    // Cases additions-a30, seeds-s1-3
    let error = "olm.constraint value is greater than max constraint size 131072 bytes";
    assert_eq!(sized(131_073).fault().unwrap().to_string(), error);
    assert_eq!(sized(131_072).fault(), None);
    // Case additions-e15
    assert!(sized(70_000).is_large() && sized(70_000).fault().is_none());
    assert!(sized(65_537).is_large() && !sized(65_536).is_large());
}

#[test]
fn requirement_text_matches_olm_v0() {
    let green = "providing an API with group: ex.io, version: v1, kind: Green";
    let blue = "with package: blue and with version in range: >=1.0.0";
    let any = json!({ "any": { "constraints": [package("blue", ">=1.0.0"), { "gvk": api("Green") }] } });
    let not = json!({ "not": { "constraints": [package("blue", ">=1.0.0"), { "gvk": api("Green") }] } });
    let all = json!({ "all": { "constraints": [any, not] } });
    let rule = json!({ "failureMessage": "say \"why\"", "cel": { "rule": "true" } });
    let cases = [
        (json!({ "gvk": api("Green") }), green.to_owned()),
        (any, format!("{blue} or {green}")),
        (not, format!("not {blue} and not {green}")),
        (all, format!("{blue} or {green} and not {blue} and not {green}")),
        (rule, r#"with constraint: "true" and message: "say \"why\"""#.to_owned()),
        (json!({ "any": {} }), "predicate is false".to_owned()),
    ];
    for (value, expected) in cases {
        assert_eq!(constraint(&value).to_string(), expected);
    }
    let faulty = constraint(&json!({}));
    assert_eq!(faulty.to_string(), faulty.fault().unwrap().to_string());
    assert_eq!(constraint(&json!({ "failureMessage": "why", "any": {} })).failure_message(), Some("why"));
    assert_eq!(constraint(&json!({ "failureMessage": "", "any": {} })).failure_message(), None);
}

#[test]
fn installed_packages_and_apis_meet_requirements() {
    let base = provider("base", "base", "1.4.0-rc.1", &[]);
    let stor = provider("stor", "store", "2.0.0", &[("olm.gvk", api("Bucket")), ("certified", json!(true))]);
    let installed = around([stor, base], &[]);
    let required = |range: &str| {
        let value = json!({ "packageName": "base", "versionRange": range });
        requirement("olm.package.required", &value.to_string()).verdict(&installed)
    };
    // Worked example of docs/design/resolution.md#judged-dependencies.
    assert_eq!(required(">=1.4.0 <2.0.0"), RequirementVerdict::Unmet { wide: false });
    assert_eq!(required(">=1.4.0-rc.1 <2.0.0"), met("base"));
    assert_eq!(required("> 1.0.0 !1.2.1"), met("base"));
    let certified = json!({ "cel": { "rule": "properties.exists(p, p.type == \"certified\")" } });
    let both = json!({
        "failureMessage": "need certified store",
        "all": { "constraints": [{ "gvk": api("Bucket") }, certified] },
    });
    assert_eq!(constraint(&both).verdict(&installed), met("stor"));
    // Group, version and kind compare as text.
    let lower = requirement("olm.gvk.required", &api("bucket").to_string());
    assert_eq!(lower.verdict(&installed), RequirementVerdict::Unmet { wide: false });
}

#[test]
fn served_api_without_a_bundle_is_external() {
    let bucket = requirement("olm.gvk.required", &api("Bucket").to_string());
    // Cases additions-a24, additions-e18
    let served = around([], &[gvk("Bucket")]);
    let external = RequirementVerdict::Met { by: gvk("Bucket").to_string(), external: true };
    assert_eq!(bucket.verdict(&served), external);
    assert!(bucket.is_met_by(&Provider::external(gvk("Bucket"))));
    // An installed bundle precedes, and of several the one of the extension first by name.
    let store = |name: &str| provider(name, name, "1.0.0", &[("olm.gvk", api("Bucket"))]);
    assert_eq!(bucket.verdict(&around([store("z"), store("b"), store("c")], &[gvk("Bucket")])), met("b"));
    // A served API is not a bundle that meets other conditions.
    let other = constraint(&json!({ "not": { "constraints": [{ "gvk": api("Other") }] } }));
    assert_eq!(other.verdict(&served), RequirementVerdict::Unmet { wide: true });
}

#[test]
fn compound_constraint_is_met_by_a_single_bundle() {
    let any = json!({ "any": { "constraints": [package("a", ">=2.0.0"), { "gvk": api("G") }] } });
    let all = json!({ "all": { "constraints": [package("a", ">=1.0.0"), { "gvk": api("G") }] } });
    let not = |value: Value| json!({ "not": { "constraints": [value] } });
    let a = || provider("a", "a", "1.0.0", &[]);
    let b = || provider("b", "b", "1.0.0", &[("olm.gvk", api("G"))]);
    let cases = [
        // Case additions-a25
        (&any, around([a(), b()], &[]), met("b")),
        (&any, around([a()], &[]), RequirementVerdict::Unmet { wide: false }),
        // docs/design/additions.md#one-bundle-meets-a-constraint; case additions-a26
        (&all, around([a(), b()], &[]), RequirementVerdict::Unmet { wide: true }),
        (&all, around([b()], &[gvk("G")]), RequirementVerdict::Unmet { wide: false }),
        (&all, around([provider("c", "a", "1.0.0", &[("olm.gvk", api("G"))])], &[]), met("c")),
        // Any other bundle (docs/design/resolution.md#constraint-property).
        (&not(any.clone()), around([a(), b()], &[]), met("a")),
        (&not(all.clone()), around([], &[]), RequirementVerdict::Unmet { wide: true }),
        // Empty lists (rule 5), for any existing bundle.
        (&json!({ "all": {} }), around([a()], &[]), met("a")),
        (
            &json!({ "any": { "constraints": null } }),
            around([a()], &[]),
            RequirementVerdict::Unmet { wide: false },
        ),
        (&json!({ "not": { "constraints": [] } }), around([a()], &[]), met("a")),
        (&json!({ "all": {} }), around([], &[]), RequirementVerdict::Unmet { wide: true }),
    ];
    for (value, available, expected) in cases {
        assert_eq!(constraint(value).verdict(&available), expected, "{value}");
    }
    let faulty = constraint(&json!({}));
    let fault = faulty.fault().unwrap().clone();
    assert_eq!(faulty.verdict(&around([a()], &[])), RequirementVerdict::Invalid(fault));
}

#[test]
fn repeated_api_is_evaluated_once() {
    let steps = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let heavy =
        ["a", "b", "c", "d"].map(|name| format!("{steps}.all({name}, ")).concat() + "true)))) && false";
    let named: Vec<_> = (0..2_000).map(|_| json!({ "gvk": api("G") })).collect();
    let value = json!({"all": {"constraints": [{"any": {"constraints": named}}, {"cel": {"rule": heavy}}]}});
    let started = Instant::now();
    assert_eq!(
        constraint(&value).verdict(&around([], &[gvk("G")])),
        RequirementVerdict::Unmet { wide: false }
    );
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn documented_samples_are_accepted() {
    // Case seeds-s1-2
    let certified = json!({
        "failureMessage": "require to have \"certified\"",
        "cel": { "rule": "properties.exists(p, p.type == \"certified\")" },
    });
    let stable = json!({
        "failureMessage": "require to have \"certified\" and \"stable\" properties",
        "cel": {
            "rule": "properties.exists(p, p.type == \"certified\") && properties.exists(p, p.type == \"stable\")"
        },
    });
    let blue = |version: &str| json!({ "gvk": { "group": "blues.example.com", "version": version, "kind": "Blue" } });
    let any = json!({
        "failureMessage": "Any are required for Red because...",
        "any": { "constraints": [blue("v1beta1"), blue("v1beta2"), blue("v1")] },
    });
    for value in [&certified, &stable, &any, &package("blue", "> 1.0.0 !1.2.1")] {
        assert_eq!(constraint(value).fault(), None, "{value}");
    }
    // Case additions-a27
    let one = provider("one", "one", "1.0.0", &[("certified", json!(null))]);
    let two = provider("two", "two", "1.0.0", &[("certified", json!(true)), ("stable", json!({}))]);
    assert!(constraint(&certified).is_met_by(&one) && !constraint(&stable).is_met_by(&one));
    assert!(constraint(&stable).is_met_by(&two));
    let absent = constraint(&certified);
    assert_eq!(absent.verdict(&AvailableProviders::default()), RequirementVerdict::Unmet { wide: false });
    assert_eq!(absent.failure_message(), Some("require to have \"certified\""));
    assert_eq!(constraint(&any).mentioned_gvks().count(), 3);
    // Case seeds-s0-6, after the mapping of dependencies.yaml.
    let prometheus =
        requirement("olm.package.required", r#"{"packageName":"prometheus","versionRange":">0.27.0"}"#);
    assert_eq!(prometheus.to_string(), "with package: prometheus and with version in range: >0.27.0");
    assert!(prometheus.is_met_by(&provider("p", "prometheus", "0.28.0", &[])));
    assert!(!prometheus.is_met_by(&provider("p", "prometheus", "0.27.0", &[])));
}

#[test]
fn provider_reads_identity_from_properties() {
    let unreadable = property("olm.gvk", "5");
    let identity = property("olm.package", r#"{"packageName":"a","version":"1.0.0+2","release":"?"}"#);
    let provider = Provider::new(None, "a.v1".to_owned(), vec![unreadable, identity]);
    assert_eq!((provider.package(), provider.extension(), provider.external), (Some("a"), None, false));
    assert_eq!(provider.version().unwrap().version().to_string(), "1.0.0");
    assert_eq!((provider.gvks().count(), provider.properties().len()), (0, 2));
    let any = constraint(&json!({ "all": {} }));
    let named = RequirementVerdict::Met { by: "a.v1".to_owned(), external: false };
    assert_eq!(any.verdict(&around([provider], &[])), named);
    let nameless = Provider::new(None, "b".to_owned(), Vec::new());
    assert_eq!((nameless.package(), nameless.version().is_none()), (None, true));
}

#[test]
fn requirement_and_providers_are_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<Requirement>();
    shared::<AvailableProviders>();
}

/// Inputs within the size limit with the deepest possible nesting.
fn deepest() -> Vec<String> {
    let nested = |open: &str, core: &str, close: &str| {
        let levels = (CONSTRAINT_LIMIT - core.len()) / (open.len() + close.len());
        format!("{}{core}{}", open.repeat(levels), close.repeat(levels))
    };
    let levels = |count: usize, core: &str| {
        format!("{}{core}{}", r#"{"all":{"constraints":["#.repeat(count), "]}}".repeat(count))
    };
    let rule = |text: String| json!({ "cel": { "rule": text } }).to_string();
    let size = 120_000;
    vec![
        nested(r#"{"all":{"constraints":["#, r#"{"gvk":{}}"#, "]}}"),
        nested(r#"{"not":{"constraints":["#, "", "]}}"),
        nested("[", "", "]"),
        nested(r#"{"a":"#, "1", "}"),
        // The deepest that the reference accepts.
        levels(3_332, r#"{"gvk":{}}"#),
        rule("(".repeat(size)),
        rule(format!("{}true{}", "(".repeat(size / 2), ")".repeat(size / 2))),
        rule("[".repeat(size)),
        rule(format!("true{}", "==true".repeat(size / 6))),
        rule(format!("properties{}", ".a".repeat(size / 2))),
        rule(format!("{}true", "!-".repeat(size / 2))),
        rule(format!("{}true", "true ? true : ".repeat(size / 14))),
        rule(format!("{}true", "true || true ? true : ".repeat(size / 22))),
        rule(format!("{}true{}", "properties.exists(p, ".repeat(5_000), ")".repeat(5_000))),
        rule(format!("true{}", " || true".repeat(size / 8))),
        rule(format!("size([0{}]) > 0", ",0".repeat(size / 2))),
    ]
}

#[test]
fn deepest_inputs_fit_a_small_stack() {
    let work = || {
        let provider = provider("a", "a", "1.0.0", &[]);
        let mut accepted = 0;
        for value in deepest() {
            assert!(value.len() <= CONSTRAINT_LIMIT, "{}", &value[..40]);
            let requirement = requirement("olm.constraint", &value);
            accepted += usize::from(requirement.fault().is_none());
            let again = requirement.clone();
            let _ = (again.to_string(), again.is_met_by(&provider), again.verdict(&around([], &[])));
        }
        accepted
    };
    let small = std::thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap();
    // Accepted are the tree at the reference's limit and the two long rules that are not deep.
    assert_eq!(small.join().unwrap(), 3);
    let beyond = format!("{}{}", r#"{"not":{"constraints":["#.repeat(3_334), "]}}".repeat(3_334));
    assert_eq!(fault("olm.constraint", &beyond), "parse olm.constraint: exceeded max depth");
}
