//! Condition `UpgradeAvailable` with gate `UpdateNotifications` (docs/design/additions.md#update-notifications).

use super::*;

fn notified() -> ExtensionRules {
    let settings = Settings { update_notifications: true, ..Settings::default() };
    ExtensionRules { settings, ..ExtensionRules::default() }
}

/// `Status/Reason version: message` of the finding, `-` without one, or `unchanged`.
fn shown(findings: &ConditionChanges) -> String {
    let ConditionState { status, reason, message } = match &findings.upgrade {
        ConditionChange::State(state) => state,
        ConditionChange::Inactive => return "-".to_owned(),
        ConditionChange::Unchanged => return "unchanged".to_owned(),
    };
    let status = match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    format!("{status}/{reason} {}: {message}", findings.available_version.as_deref().unwrap_or("-"))
}

fn found(more: &serde_json::Value, rules: &ExtensionRules, inputs: &ResolutionInputs) -> String {
    match decided(more, &[set(1, "Active", true)], rules, inputs) {
        Ok(choice) => shown(&choice.findings),
        Err(refusal) => shown(&refusal.findings),
    }
}

const UP_TO_DATE: &str = "False/UpToDate -: no newer version is held back";
const TWO: &str = "bundle demo.v2.0.0 version 2.0.0 from catalog main is available and held back:";

#[test]
fn newer_version_outside_of_range_is_reported_with_its_release() {
    let main = plain(&["main"]);
    let outside = |range: &str| {
        format!(
            "True/OutsideVersionRange 2.0.0: {TWO} outside of version range {range:?}; to release it, change \
             spec.source.catalog.version so that it admits 2.0.0; further upgrades lead to 3.0.0"
        )
    };
    for range in ["1.0.0", "1.x"] {
        assert_eq!(found(&json!({"version": range}), &notified(), &main), outside(range));
        assert_eq!(found(&json!({"version": range}), &ExtensionRules::default(), &main), "-");
    }
    // The extension upgrades by itself.
    for settings in [json!({}), json!({"version": ""}), json!({"version": ">=1"})] {
        assert_eq!(found(&settings, &notified(), &main), UP_TO_DATE);
    }
    // The catalog has no bundle within the range.
    let withdrawn = json!({"version": "1.2.3"});
    assert_eq!(found(&withdrawn, &notified(), &main), outside("1.2.3"));
    assert_eq!(found(&withdrawn, &ExtensionRules::default(), &main), "-");
}

#[test]
fn condition_needs_an_installed_bundle_and_catalogs() {
    let pinned = json!({"version": "1.0.0"});
    let (main, none) = (plain(&["main"]), plain(&[]));
    let first = decided(&pinned, &[], &notified(), &main).unwrap();
    assert_eq!(shown(&first.findings), "-");
    let missing = "Unknown/PackageNotFound -: no catalog has package \"demo\"";
    assert_eq!(found(&pinned, &notified(), &none), missing);
    assert_eq!(
        found(&pinned, &ExtensionRules { exclude_skipped: true, ..ExtensionRules::default() }, &none),
        missing
    );
    assert_eq!(found(&pinned, &ExtensionRules::default(), &none), "-");
    let down = Catalog {
        name: "main".to_owned(),
        priority: 0,
        package: Err(CatalogError::NotServing("main".to_owned())),
    };
    assert_eq!(found(&pinned, &notified(), &inputs(vec![down])), "unchanged");
    let rolling = states(&[set(1, "Active", false)]);
    let (filter, rules) = (filter(&json!({})), notified());
    let choice =
        rolling_choice(ChoiceRequest { filter: &filter, states: &rolling, rules: &rules }, false).unwrap();
    assert_eq!(shown(&choice.findings), "unchanged");
}

#[test]
fn upgrade_scope_reason_takes_precedence_over_version_range() {
    let minor = Some(UpgradeScope::Minor);
    let scoped = ExtensionRules { upgrade_scope: minor, ..notified() };
    let why = r#"outside of the upgrade scope "minor" of installed 1.0.0"#;
    let release = "widen or remove annotation ext.olm.operatorframework.io/upgrade-scope";
    let main = plain(&["main"]);
    let rule_alone = format!("True/OutsideScope 2.0.0: {TWO} {why}; to release it, {release}");
    assert_eq!(found(&json!({}), &scoped, &main), rule_alone);
    let both = format!(
        "True/OutsideScope 2.0.0: {TWO} outside of version range \"1.x\", and {why}; to release it, change \
         spec.source.catalog.version so that it admits 2.0.0, and {release}"
    );
    assert_eq!(found(&json!({"version": "1.x"}), &scoped, &main), both);
    // Without the gate only the rule counts, and the status has no version.
    let without = ExtensionRules { upgrade_scope: minor, ..ExtensionRules::default() };
    assert_eq!(found(&json!({}), &without, &main), rule_alone.replace("2.0.0: ", "-: "));
    assert_eq!(found(&json!({"version": "1.x"}), &without, &main), UP_TO_DATE);
}

#[test]
fn version_with_refused_or_unmet_dependency_is_reported() {
    let main = || inputs(vec![answer("main", 0, index(&[(2, requires_base())], &[]))]);
    let refused = r#"declares a dependency via property "olm.package.required", which mode Reject refuses"#;
    let release = "set annotation ext.olm.operatorframework.io/dependency-mode to Report or Check";
    assert_eq!(
        found(&json!({}), &notified(), &main()),
        format!("True/DependencyConflict 2.0.0: {TWO} {refused}; to release it, {release}")
    );
    // Other extensions may release it, so that the choice is repeated.
    let settings = Settings { dependencies: DependencyMode::Check, ..notified().settings };
    let check = ExtensionRules { settings, ..ExtensionRules::default() };
    let installed = [set(1, "Active", true)];
    let choice = decided(&json!({"version": "1.0.0"}), &installed, &check, &main()).unwrap();
    assert!(choice.requeue);
    let reported = shown(&choice.findings);
    assert!(reported.starts_with("True/DependencyConflict 2.0.0: "), "{reported}");
    let pinned = json!({"version": "1.0.0"});
    assert!(!decided(&pinned, &installed, &notified(), &main()).unwrap().requeue);
}
