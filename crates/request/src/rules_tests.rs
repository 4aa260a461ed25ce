use serde_json::json;

use super::*;
use crate::approval::ApprovalMode;
use crate::windows::WindowState;

fn rules(annotations: &[(&str, &str)], settings: Settings) -> ExtensionRules {
    let prefixed =
        |(key, value): &(&str, &str)| (format!("{}{key}", annotations::EXT_PREFIX), (*value).to_owned());
    ExtensionRules::of(Some(&annotations.iter().map(prefixed).collect()), settings)
}

// Case additions-a01
#[test]
fn extension_without_annotations_has_default_rules() {
    let none = ExtensionRules::of(None, Settings::default());
    assert_eq!(none, ExtensionRules::default());
    assert!(!none.can_block_upgrades() && !none.needs_cluster_state());
    assert_eq!(none.indexing(), Indexing::default());
    let unknown = rules(&[("unknown", "Manual")], Settings::default());
    assert_eq!(ExtensionRules { invalid: Vec::new(), ..unknown }, none);
}

#[test]
fn annotations_set_rules() {
    let all = rules(
        &[
            ("dependency-mode", "Check"),
            ("ignore-dependencies", "olm.gvk.required, olm.constraint"),
            ("ignore-dependents", "true"),
            ("upgrade-group", "pair"),
            ("upgrade-scope", "minor"),
            ("exclude-skipped", "true"),
        ],
        Settings::default(),
    );
    assert_eq!(all.settings.dependencies, DependencyMode::Check);
    assert_eq!(all.ignored_requirements, ["olm.gvk.required", "olm.constraint"]);
    assert!(
        all.ignore_dependents && all.exclude_skipped && all.can_block_upgrades() && all.needs_cluster_state()
    );
    assert_eq!(all.upgrade_scope, Some(UpgradeScope::Minor));
    assert_eq!(all.upgrade_group.as_deref(), Some("pair"));
    assert_eq!(all.invalid, []);

    let report = Settings { dependencies: DependencyMode::Report, ..Settings::default() };
    assert!(rules(&[("dependency-mode", "Check")], report).can_block_upgrades());
    assert_eq!(rules(&[("dependency-mode", "Reject")], report), ExtensionRules::default());
    let off = rules(&[("exclude-skipped", "false"), ("ignore-dependents", "false")], Settings::default());
    assert_eq!(off, ExtensionRules::default());
    let minor = Settings { upgrade_scope: Some(UpgradeScope::Minor), ..Settings::default() };
    assert_eq!(rules(&[], minor).upgrade_scope, Some(UpgradeScope::Minor));
    assert_eq!(rules(&[("upgrade-scope", "major")], minor).upgrade_scope, Some(UpgradeScope::Major));
    let brake = rules(&[("upgrade-scope", "patch")], Settings::default());
    assert!(brake.can_block_upgrades() && !brake.needs_cluster_state() && brake.reports_upgrades());
    for (value, mode) in [("Strict", CrdCheck::Strict), ("Live", CrdCheck::Live), ("Warn", CrdCheck::Warn)] {
        let checked = rules(&[("crd-check", value)], Settings::default());
        assert_eq!(checked.crd_check, Some(mode));
        assert!(checked.can_block_upgrades() && !checked.needs_cluster_state());
    }
    for (value, policy) in [
        ("Delete", UninstallPolicy::Delete),
        ("KeepCRDs", UninstallPolicy::KeepCrds),
        ("BlockIfInUse", UninstallPolicy::BlockIfInUse),
    ] {
        let leaving = rules(&[("uninstall-policy", value)], Settings::default());
        assert_eq!((leaving.uninstall_policy, policy.as_str()), (Some(policy), value));
        assert!(!leaving.can_block_upgrades() && !leaving.paused);
    }
    let restored = rules(&[("on-failure", "Rollback")], Settings::default());
    assert!(restored.rollback && restored.can_block_upgrades() && !restored.approval.can_hold());
    assert!(rules(&[("paused", "true")], Settings::default()).paused);
    assert!(rules(&[("replace-immutable", "Allow")], Settings::default()).replaces_immutable);
    assert_eq!(rules(&[("paused", "false")], Settings::default()), ExtensionRules::default());
    let digest = format!("sha256:{}", "0f".repeat(32));
    let adopting = rules(&[("adopt", &digest)], Settings::default());
    assert_eq!(adopting.adopt, Some(digest));
    assert!(!adopting.can_block_upgrades() && adopting.invalid.is_empty());
    let shared = rules(&[("aggregate-api-roles", "true")], Settings::default());
    assert!(shared.aggregate_api_roles && !shared.can_block_upgrades());
}

#[test]
fn gates_and_flags_set_rules() {
    let report = Settings { dependencies: DependencyMode::Report, ..Settings::default() };
    assert!(rules(&[], report).judges_dependencies() && !rules(&[], report).can_block_upgrades());
    assert!(!rules(&[], report).reports_upgrades());
    let gated = rules(&[], Settings { cluster_constraints: true, ..Settings::default() });
    assert!(gated.can_block_upgrades() && gated.needs_cluster_state() && gated.indexing().properties);
    assert!(!rules(&[], Settings { best_effort: true, ..Settings::default() }).can_block_upgrades());
    let notified = rules(&[], Settings { update_notifications: true, ..Settings::default() });
    assert!(notified.reports_upgrades() && !notified.can_block_upgrades());
    let compatible = rules(&[], Settings { operator_conditions: true, ..Settings::default() });
    assert!(compatible.can_hold() && compatible.can_block_upgrades() && !compatible.approval.can_hold());
}

/// Unknown values: annotation, value, effect, allowed values.
const UNKNOWN: [(&str, &str, &str, &str); 18] = [
    (
        "adopt",
        "all",
        "holds upgrades",
        "the digest of the objects to adopt, sha256: and 64 hexadecimal digits",
    ),
    ("aggregate-api-roles", "yes", "has no effect", "true, false"),
    ("approval", "manual", "counts as ManualUpgrades", "Automatic, ManualUpgrades, Manual"),
    ("approve-permission-increase", "yes", "counts as true", "true, false"),
    ("approved", "demo.v2.0.0", "has no effect", "the digest of a plan, sha256: and 64 hexadecimal digits"),
    ("crd-check", "None", "counts as Strict", "Strict, Live, Warn"),
    ("dependency-mode", "check", "counts as Check", "Reject, Report, Check"),
    ("exclude-skipped", "yes", "counts as true", "true, false"),
    (
        "ignore-dependencies",
        "olm.gvk",
        "has no effect",
        "lists, separated by commas, of olm.package.required, olm.gvk.required, olm.constraint",
    ),
    ("ignore-dependents", "", "has no effect", "true, false"),
    ("ignore-operator-condition", "yes", "has no effect", "true, false"),
    ("on-failure", "rollback", "has no effect", "Rollback"),
    ("paused", "True", "counts as true", "true, false"),
    ("replace-immutable", "true", "has no effect", "Allow"),
    ("uninstall-policy", "KeepCrds", "counts as BlockIfInUse", "Delete, KeepCRDs, BlockIfInUse"),
    ("upgrade-group", "a b", "has no effect", "names with the syntax of a label value"),
    ("upgrade-scope", "Minor", "counts as patch", "patch, minor, major"),
    (
        "upgrade-window",
        "0 22 * * 6",
        "holds upgrades",
        "windows such as `0 22 * * 6 4h Europe/Berlin`, separated by semicolons",
    ),
];

/// Rules of an extension with all [`UNKNOWN`] values.
fn unknown(settings: Settings) -> ExtensionRules {
    rules(&UNKNOWN.map(|(key, value, ..)| (key, value)), settings)
}

// docs/design/additions.md#annotations
#[test]
fn unknown_value_is_reported_with_its_effect_and_allowed_values() {
    let reported: Vec<String> =
        unknown(Settings::default()).invalid.iter().map(ToString::to_string).collect();
    let expected = UNKNOWN.map(|(key, value, effect, allowed)| {
        format!(
            "annotation ext.olm.operatorframework.io/{key} {effect}: unknown value {value:?}, allowed: {allowed}"
        )
    });
    assert_eq!(reported, expected);
}

// A misspelled `uninstall-policy` protects nothing.
#[test]
fn unknown_key_is_reported() {
    let misspelled = rules(&[("paused", "false"), ("uninstal-policy", "KeepCRDs")], Settings::default());
    let reported: Vec<String> = misspelled.invalid.iter().map(ToString::to_string).collect();
    let expected = "annotation ext.olm.operatorframework.io/uninstal-policy has no effect: unknown key";
    assert_eq!(reported, [expected]);
    let foreign = BTreeMap::from([("example.com/uninstal-policy".to_owned(), String::new())]);
    assert_eq!(ExtensionRules::of(Some(&foreign), Settings::default()).invalid, []);
}

// docs/design/additions.md#annotations
#[test]
fn unknown_values_have_their_safe_effect() {
    let report = Settings { dependencies: DependencyMode::Report, ..Settings::default() };
    let strict = ApprovalRules {
        mode: ApprovalMode::ManualUpgrades,
        permission_increase: true,
        windows: UpgradeWindows::closed(),
        ..ApprovalRules::default()
    };
    let expected = ExtensionRules {
        settings: Settings { dependencies: DependencyMode::Check, ..report },
        upgrade_scope: Some(UpgradeScope::Patch),
        exclude_skipped: true,
        crd_check: Some(CrdCheck::Strict),
        paused: true,
        uninstall_policy: Some(UninstallPolicy::BlockIfInUse),
        approval: strict,
        adopt: Some("all".to_owned()),
        ..rules(&[], report)
    };
    assert_eq!(ExtensionRules { invalid: Vec::new(), ..unknown(report) }, expected);
    let now = jiff::Timestamp::UNIX_EPOCH;
    assert_eq!(expected.approval.windows.state(now), WindowState::Closed { opens: None });
}

// docs/design/additions.md#dependency-modes; case additions-e20
#[test]
fn only_checked_extensions_not_being_deleted_are_protected() {
    let extension = |mode: Option<&str>, going: bool| -> ClusterExtension {
        let mut extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "app", "annotations": {}}});
        if let Some(mode) = mode {
            extension["metadata"]["annotations"][annotations::EXT_DEPENDENCY_MODE] = json!(mode);
        }
        if going {
            extension["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(extension).unwrap()
    };
    let all_checked = Settings { dependencies: DependencyMode::Check, ..Settings::default() };
    let rows = [
        (None, false, Settings::default(), false),
        (Some("Report"), false, Settings::default(), false),
        (Some("Check"), false, Settings::default(), true),
        (Some("Check"), true, Settings::default(), false),
        (Some("check"), false, Settings::default(), true),
        (None, false, all_checked, true),
        (Some("Reject"), false, all_checked, false),
    ];
    for (mode, going, settings, counts) in rows {
        let extension = extension(mode, going);
        let rules = ExtensionRules::of(extension.metadata.annotations.as_ref(), settings);
        assert_eq!(rules.protect(&extension), counts, "{mode:?} {going}");
    }
}
