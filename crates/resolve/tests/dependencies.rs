//! Declared dependencies under the modes Reject, Report and Check (docs/design/resolution.md#judged-dependencies,
//! docs/design/additions.md#dependency-modes, docs/design/additions.md#unsatisfied-candidates).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod fixture;

use std::collections::BTreeSet;

use olm_fbc::Property;
use olm_resolve::{
    AvailableProviders, DependencyMode, Dependent, Gvk, HeldReason, Indexing, Provider, Requirement,
    ResolveError, Rules, missing_packages, satisfiers,
};
use serde_json::{Value, json};

use fixture::{Content, RequestFixture, entry, replacing, request};

fn property(kind: &str, value: &Value) -> Property {
    Property { kind: kind.to_owned(), value: serde_json::value::to_raw_value(value).unwrap() }
}

fn gvk(kind: &str) -> Value {
    json!({"group": "g.example", "version": "v1", "kind": kind})
}

/// Installed extension with its package and provided kinds.
fn installed(package: &str, version: &str, kinds: &[&str]) -> Provider {
    let identity = property("olm.package", &json!({"packageName": package, "version": version}));
    let kinds = kinds.iter().map(|kind| property("olm.gvk", &gvk(kind)));
    let properties = std::iter::once(identity).chain(kinds).collect();
    Provider::new(Some(format!("my-{package}")), format!("{package}.v{version}"), properties)
}

fn around(providers: impl IntoIterator<Item = Provider>) -> AvailableProviders {
    AvailableProviders { providers: providers.into_iter().collect(), served: BTreeSet::new() }
}

fn under(mode: DependencyMode, available: &AvailableProviders) -> Rules<'_> {
    Rules { dependencies: mode, providers: Some(available), ..Rules::default() }
}

/// Bundle 1.0.0 without dependencies, and its successor 2.0.0 that requires package `base`.
fn dependent() -> Content {
    Content::default().channel("stable", &[entry("1.0.0"), replacing("2.0.0", "1.0.0")]).bundle_with(
        "2.0.0",
        [("olm.package.required", json!({"packageName": "base", "versionRange": ">=1.4.0"}))],
    )
}

const BASE: &str = "an operator with package: base and with version in range: >=1.4.0";

fn error(request: &RequestFixture<'_>, content: &Content) -> ResolveError {
    request.resolve(&[content.at("main", 0)]).unwrap_err()
}

// Cases additions-a21, seeds-s0-6: exact text.
#[test]
fn reject_mode_returns_the_reference_error() {
    let refused = r#"validating bundle "demo.v2.0.0": bundle "demo.v2.0.0" has a dependency declared via property "olm.package.required" which is currently not supported"#;
    let met = around([installed("base", "1.4.0", &[])]);
    assert_eq!(request().from(&dependent()), refused);
    assert_eq!(request().rules(under(DependencyMode::Reject, &met)).from(&dependent()), refused);
    assert_eq!(request().installed("1.0.0").from(&dependent()), refused);
    // This does not require indexed properties.
    let catalog = olm_resolve::Catalog {
        name: "main".to_owned(),
        priority: 0,
        package: Ok(dependent().index(Indexing::default())),
    };
    assert_eq!(request().of(&[catalog]), refused);
}

// Cases additions-a22, seeds-s0-6
#[test]
fn report_mode_installs_and_reports_requirements() {
    let choice = |available: &AvailableProviders| {
        let resolved = request()
            .rules(under(DependencyMode::Report, available))
            .resolve(&[dependent().at("main", 0)])
            .unwrap();
        let requirements: Vec<_> = resolved.requirements.iter().map(ToString::to_string).collect();
        (resolved.bundle, requirements)
    };
    assert_eq!(choice(&around([])), ("demo.v2.0.0".to_owned(), vec![format!("{BASE}: not satisfied")]));
    assert_eq!(
        choice(&around([installed("base", "1.4.0", &[])])),
        ("demo.v2.0.0".to_owned(), vec![format!("{BASE}: satisfied by my-base")])
    );
    // Without providers every requirement is unmet.
    let blind = Rules { dependencies: DependencyMode::Report, ..Rules::default() };
    let resolved = request().rules(blind).resolve(&[dependent().at("main", 0)]).unwrap();
    assert!(!resolved.requirements[0].is_met());
}

// docs/design/additions.md#unsatisfied-candidates, docs/design/resolution.md#judged-dependencies.
// Cases additions-a23, seeds-s0-6
#[test]
fn check_mode_chooses_the_best_bundle_with_met_requirements() {
    let (nothing, met) = (around([]), around([installed("base", "1.4.0", &[])]));
    let check = |available| request().rules(under(DependencyMode::Check, available));
    assert_eq!(check(&met).from(&dependent()), "2.0.0");
    assert_eq!(check(&nothing).from(&dependent()), "1.0.0");
    let stays = check(&nothing).installed("1.0.0");
    let resolved = stays.resolve(&[dependent().at("main", 0)]).unwrap();
    assert_eq!(resolved.bundle, "demo.v1.0.0");
    assert_eq!(resolved.held[0].to_string(), format!("passed over demo.v2.0.0: requires {BASE}"));
    assert!(
        matches!(&resolved.held[0].reason, HeldReason::Dependencies(text) if *text == format!("requires {BASE}"))
    );
    // Worked example of docs/design/resolution.md#judged-dependencies: 1.4.0-rc.1 is lower than 1.4.0.
    let almost = around([installed("base", "1.4.0-rc.1", &[])]);
    assert_eq!(check(&almost).from(&dependent()), "1.0.0");
}

#[test]
fn check_mode_keeps_the_installed_bundle_with_unmet_requirements() {
    let nothing = around([]);
    let request = request().installed("2.0.0").rules(under(DependencyMode::Check, &nothing));
    let resolved = request.resolve(&[dependent().at("main", 0)]).unwrap();
    assert_eq!((resolved.bundle.as_str(), resolved.held.len()), ("demo.v2.0.0", 0));
    assert!(!resolved.requirements[0].is_met());
}

// docs/design/additions.md#dependency-modes
#[test]
fn check_mode_error_names_missing_packages_and_satisfiers() {
    let nothing = around([]);
    let check = request().rules(under(DependencyMode::Check, &nothing));
    let error = error(&check.clone().version("2.0.0"), &dependent());
    assert_eq!(
        error.to_string(),
        format!(
            "dependencies not satisfied: bundle demo.v2.0.0 requires {BASE}; highest version without unmet dependencies: \
             1.0.0"
        )
    );
    let ResolveError::DependenciesNotSatisfied { bundle, unmet, instead, held, .. } = error else { panic!() };
    assert_eq!(missing_packages(&unmet), BTreeSet::from(["base"]));
    assert_eq!(held.len(), 1);

    let package = |versions: &[&str]| {
        let bundle = |version: &&str| olm_fbc::Bundle {
            name: format!("base.v{version}"),
            properties: vec![property("olm.package", &json!({"packageName": "base", "version": version}))],
            ..olm_fbc::Bundle::default()
        };
        let content =
            olm_fbc::PackageContent { bundles: versions.iter().map(bundle).collect(), ..Default::default() };
        olm_resolve::PackageIndex::new(&content, Indexing { properties: true, ..Indexing::default() })
    };
    let (old, new) = (package(&["1.3.0"]), package(&["1.4.0", "1.5.0"]));
    let satisfiers = satisfiers(&unmet, &[("zeta", &new), ("main", &new), ("old", &old)]);
    let filled = ResolveError::DependenciesNotSatisfied { bundle, unmet, satisfiers, instead, held };
    assert_eq!(
        filled.to_string(),
        format!(
            "dependencies not satisfied: bundle demo.v2.0.0 requires {BASE}; candidates in catalogs: base@1.5.0 (main), \
             base@1.5.0 (zeta); highest version without unmet dependencies: 1.0.0"
        )
    );
}

// docs/design/additions.md#requirement-texts: a bundle is among the candidates of its own requirements.
#[test]
fn bundle_can_meet_its_own_requirements() {
    let content =
        Content::default().channel("stable", &[entry("1.0.0"), replacing("2.0.0", "1.0.0")]).bundle_with(
            "2.0.0",
            [
                ("olm.gvk", gvk("Widget")),
                ("olm.gvk.required", gvk("Widget")),
                ("olm.package.required", json!({"packageName": "demo", "versionRange": ">=2.0.0"})),
            ],
        );
    let widget = Gvk { group: "g.example".into(), version: "v1".into(), kind: "Widget".into() };
    let nothing = around([]);
    let served = AvailableProviders { providers: Vec::new(), served: BTreeSet::from([widget]) };
    for available in [&nothing, &served] {
        for mode in [DependencyMode::Report, DependencyMode::Check] {
            for request in [request(), request().installed("1.0.0"), request().installed("2.0.0")] {
                let request = request.rules(under(mode, available));
                let resolved = request.resolve(&[content.at("main", 0)]).unwrap();
                assert_eq!((resolved.bundle.as_str(), resolved.held.len()), ("demo.v2.0.0", 0), "{mode:?}");
                let requirements: Vec<_> = resolved.requirements.iter().map(ToString::to_string).collect();
                assert_eq!(requirements.len(), 2);
                assert!(
                    requirements.iter().all(|line| line.ends_with(": satisfied by demo.v2.0.0")),
                    "{requirements:?}"
                );
                let explanation = request.explain(&[content.at("main", 0)]);
                assert_eq!(explanation.chosen.unwrap().requirements, requirements);
            }
        }
    }
    // An installed bundle precedes. Of the extension itself only the candidate is considered, not the bundle that it
    // replaces.
    let other = around([installed("other", "1.0.0", &["Widget"])]);
    let resolved =
        request().rules(under(DependencyMode::Check, &other)).resolve(&[content.at("main", 0)]).unwrap();
    assert!(resolved.requirements[0].to_string().ends_with(": satisfied by my-other"));
    let lost = Content::default()
        .channel("stable", &[entry("1.0.0"), replacing("2.0.0", "1.0.0")])
        .bundle_with("1.0.0", [("olm.gvk", gvk("Widget"))])
        .bundle_with("2.0.0", [("olm.gvk.required", gvk("Widget"))]);
    assert_eq!(
        request().installed("1.0.0").rules(under(DependencyMode::Check, &nothing)).from(&lost),
        "1.0.0"
    );
}

#[test]
fn error_lists_unmet_requirements_with_failure_messages() {
    let all = json!({"failureMessage": "need certified store", "all": {"constraints": [
        {"gvk": gvk("Bucket")}, {"package": {"packageName": "store", "versionRange": ">=1.0.0"}},
    ]}});
    let content = Content::default().bundle_with(
        "2.0.0",
        [
            ("olm.gvk.required", gvk("Bucket")),
            ("olm.constraint", all),
            ("olm.constraint", json!({})),
            ("olm.label.required", json!({"label": "x"})),
        ],
    );
    // Case additions-a26: a single bundle must be both. docs/design/resolution.md#judged-dependencies: the wide
    // reading is mentioned.
    let apart = around([installed("store", "1.0.0", &[]), installed("bucket", "1.0.0", &["Bucket"])]);
    let error = error(&request().rules(under(DependencyMode::Check, &apart)), &content).to_string();
    let rest =
        error.strip_prefix("dependencies not satisfied: bundle demo.v2.0.0 requires an operator ").unwrap();
    assert!(
        rest.contains(" (need certified store), which several installed bundles meet only together, "),
        "{rest}"
    );
    assert!(
        rest.contains("has an invalid dependency: convert olm.constraint to resolver predicate: "),
        "{rest}"
    );
    assert!(!rest.contains("kind: Bucket, requires"), "lists a met requirement: {rest}");
}

// Case additions-e17
#[test]
fn explanation_reports_rule_errors() {
    let rule = json!({"cel": {"rule": "properties.exists_one(p, p.value.certified == true)"}});
    let content = Content::default().bundle_with("2.0.0", [("olm.constraint", rule)]);
    let around = around([installed("base", "1.0.0", &[])]);
    let explanation =
        request().rules(under(DependencyMode::Check, &around)).explain(&[content.at("main", 0)]);
    let bundle = &explanation.catalogs[0].bundles[0];
    assert_eq!(bundle.details.len(), 1, "{bundle:?}");
    let start = r#"rule "properties.exists_one(p, p.value.certified == true)" fails on bundle base.v1.0.0: "#;
    assert!(bundle.details[0].starts_with(start), "{}", bundle.details[0]);
    assert!(explanation.to_string().contains(&format!("\n    {start}")), "{explanation}");
}

// The rule, its error and the list of installed bundles can have any length.
#[test]
fn explanation_of_rule_errors_is_bounded() {
    let rule = format!("properties.all(p, p.value.{} == '{}')", "x".repeat(5_000), "y".repeat(50_000));
    let content =
        Content::default().bundle_with("2.0.0", [("olm.constraint", json!({"cel": {"rule": rule}}))]);
    let base = |number: usize| property("base", &json!({"number": number}));
    let around = around((0..30).map(|number| Provider::new(None, format!("b{number}"), vec![base(number)])));
    let explanation =
        request().rules(under(DependencyMode::Check, &around)).explain(&[content.at("main", 0)]);
    let details = &explanation.catalogs[0].bundles[0].details;
    assert_eq!(details.len(), 8);
    assert!(details.iter().all(|line| line.len() < 600), "{details:?}");
    assert!(details[0].contains(r#"xxx..." fails on bundle b0: no such key: xxx"#), "{}", details[0]);
}

// docs/design/additions.md#annotations: annotation `ext/ignore-dependencies`.
#[test]
fn ignored_requirements_are_ignored_in_every_mode() {
    let nothing = around([]);
    let ignored = ["olm.package.required".to_owned()];
    for mode in [DependencyMode::Reject, DependencyMode::Report, DependencyMode::Check] {
        let rules = Rules { ignored_requirements: &ignored, ..under(mode, &nothing) };
        let resolved = request().rules(rules).resolve(&[dependent().at("main", 0)]).unwrap();
        assert_eq!((resolved.bundle.as_str(), resolved.requirements.len()), ("demo.v2.0.0", 0), "{mode:?}");
    }
    let other = ["olm.constraint".to_owned()];
    let rules = Rules { ignored_requirements: &other, ..Rules::default() };
    let refused = request().rules(rules).from(&dependent());
    assert!(refused.contains(r#"via property "olm.package.required""#), "{refused}");
}

// Case additions-a31
#[test]
fn check_mode_does_not_break_dependents_of_the_installed_bundle() {
    let requirement = |value: &Value| Requirement::all(&[property("olm.gvk.required", value)]);
    let dependents = [
        Dependent {
            extension: "z".to_owned(),
            bundle: "z.v1".to_owned(),
            requirements: requirement(&gvk("Widget")),
        },
        Dependent {
            extension: "y".to_owned(),
            bundle: "y.v1".to_owned(),
            requirements: requirement(&gvk("Widget")),
        },
    ];
    let content = Content::default()
        .channel(
            "stable",
            &[
                entry("1.0.0"),
                replacing("1.1.0", "1.0.0"),
                json!({"name": "demo.v2.0.0", "skips": ["demo.v1.0.0"]}),
            ],
        )
        .bundle_with("1.1.0", [("olm.gvk", gvk("Widget"))]);
    let nothing = around([]);
    let rules = Rules { dependents: &dependents, ..under(DependencyMode::Check, &nothing) };
    let resolved = request().installed("1.0.0").rules(rules).resolve(&[content.at("main", 0)]).unwrap();
    assert_eq!(resolved.bundle, "demo.v1.1.0");
    assert_eq!(
        resolved.held[0].to_string(),
        "passed over demo.v2.0.0: installed extension y (bundle y.v1) requires an operator providing an API with group: \
         g.example, version: v1, kind: Widget"
    );
    assert!(matches!(resolved.held[0].reason, HeldReason::Dependent(_)));
    // Nothing is held back if another extension provides the kind, if the check is disabled, or in other modes.
    let other = around([installed("other", "1.0.0", &["Widget"])]);
    let served = AvailableProviders {
        providers: Vec::new(),
        served: BTreeSet::from([Gvk {
            group: "g.example".into(),
            version: "v1".into(),
            kind: "Widget".into(),
        }]),
    };
    for rules in [
        Rules { dependents: &dependents, ..under(DependencyMode::Check, &other) },
        Rules { dependents: &dependents, ..under(DependencyMode::Check, &served) },
        under(DependencyMode::Check, &nothing),
        Rules { dependents: &dependents, ..under(DependencyMode::Report, &nothing) },
    ] {
        assert_eq!(request().installed("1.0.0").rules(rules).from(&content), "2.0.0");
    }
}
