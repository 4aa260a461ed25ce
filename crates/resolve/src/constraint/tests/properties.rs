//! Properties of arbitrary requirements.

use proptest::prelude::*;

use super::*;

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "failureMessage",
        "gvk",
        "package",
        "all",
        "any",
        "not",
        "cel",
        "constraints",
        "group",
        "kind",
        "version",
        "packageName",
        "versionRange",
        "rule",
        "name",
        ">=1.0.0",
        "a",
        "true",
        "properties.size() > 0",
        "\u{212a}",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.clone().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(words.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Trees of valid conditions.
fn arbitrary_constraint() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["G", "H"]).prop_map(|kind| json!({ "gvk": api(kind) })),
        prop::sample::select(vec![("a", ">=1.0.0"), ("a", "<1.0.0"), ("b", ">=1.0.0")])
            .prop_map(|(name, range)| package(name, range)),
        prop::sample::select(vec!["properties.exists(p, p.type == 'x')", "properties[9].type == 'x'"])
            .prop_map(|rule| json!({ "cel": { "rule": rule } })),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        (prop::sample::select(vec!["all", "any", "not"]), prop::collection::vec(inner, 0..4))
            .prop_map(|(kind, members)| json!({ kind: { "constraints": members } }))
    })
}

fn some_providers() -> Vec<Provider> {
    vec![
        provider("a", "a", "1.0.0", &[("olm.gvk", api("G")), ("x", json!(1))]),
        provider("b", "b", "0.9.0", &[("olm.gvk", api("H"))]),
        Provider::external(gvk("G")),
    ]
}

proptest! {
    #[test]
    fn arbitrary_json_never_panics(value in arbitrary_json(), kind in 0..3_usize) {
        let kind = [PACKAGE_REQUIRED, GVK_REQUIRED, CONSTRAINT][kind];
        let requirement = requirement(kind, &value.to_string());
        let verdict = requirement.verdict(&around([], &[gvk("G")]));
        prop_assert_eq!(requirement.fault().is_some(), matches!(verdict, RequirementVerdict::Invalid(_)));
        let _ = requirement.to_string();
    }

    #[test]
    fn requirement_agrees_with_a_recursive_evaluation(value in arbitrary_constraint()) {
        let requirement = constraint(&value);
        prop_assert_eq!(requirement.fault(), None);
        for provider in some_providers() {
            prop_assert_eq!(requirement.is_met_by(&provider), plainly(&value, &provider));
        }
    }

    #[test]
    fn not_is_the_negation_of_any(members in prop::collection::vec(arbitrary_constraint(), 0..4)) {
        let (any, not) = (
            constraint(&json!({ "any": { "constraints": members } })),
            constraint(&json!({ "not": { "constraints": members } })),
        );
        for provider in some_providers() {
            prop_assert_ne!(any.is_met_by(&provider), not.is_met_by(&provider));
        }
    }

    #[test]
    fn verdict_does_not_depend_on_the_order_of_bundles(value in arbitrary_constraint(), seed in 0..6_usize) {
        let requirement = constraint(&value);
        let mut providers = some_providers();
        let expected = requirement.verdict(&AvailableProviders { providers: providers.clone(), ..Default::default() });
        providers.rotate_left(seed % 3);
        if seed > 2 { providers.swap(0, 1); }
        prop_assert_eq!(requirement.verdict(&AvailableProviders { providers, ..Default::default() }), expected);
    }
}

/// Rules of docs/design/resolution.md#constraint-property as a recursive function.
fn plainly(value: &Value, provider: &Provider) -> bool {
    let members = |kind: &str| -> Option<Vec<bool>> {
        let members = value.get(kind)?.get("constraints")?.as_array()?;
        Some(members.iter().map(|member| plainly(member, provider)).collect())
    };
    if let Some(all) = members("all") {
        return all.into_iter().all(|held| held);
    }
    if let Some(any) = members("any") {
        return any.into_iter().any(|held| held);
    }
    if let Some(not) = members("not") {
        return !not.into_iter().any(|held| held);
    }
    constraint(value).is_met_by(provider)
}
