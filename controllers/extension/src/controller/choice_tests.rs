use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::ClusterObjectSet;
use olm_api::conditions::reasons;
use olm_fbc::PackageContent;
use olm_request::{Settings, is_available};
use olm_resolve::{
    AvailableProviders, ClusterFacts, ConditionState, DependencyMode, Dependent, Gvk, Indexing, PackageIndex,
    Provider, Requirement, UpgradeScope,
};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::super::revisions::{states, tests::set};
use super::*;

#[cfg(test)]
#[path = "choice_dependency_tests.rs"]
mod dependencies;
#[cfg(test)]
#[path = "choice_notification_tests.rs"]
mod notifications;

fn filter(more: &serde_json::Value) -> CatalogFilter {
    let mut filter = json!({"packageName": "demo"});
    filter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(filter).unwrap()
}

/// Catalog with the bundles `demo.v1.0.0` to `demo.v3.0.0`, each replacing the one before, with additional
/// properties by version. The third one skips `skips`.
fn index(properties: &[(i32, serde_json::Value)], skips: &[&str]) -> Arc<PackageIndex> {
    let mut lines = vec![json!({"schema": "olm.package", "name": "demo"})];
    let entry = |n: i32| {
        let skips = if n == 3 { skips } else { &[] };
        json!({"name": format!("demo.v{n}.0.0"), "replaces": format!("demo.v{}.0.0", n - 1), "skips": skips})
    };
    lines.push(json!({"schema": "olm.channel", "package": "demo", "name": "stable",
        "entries": [entry(1), entry(2), entry(3)]}));
    for n in 1..=3 {
        let version = json!({"packageName": "demo", "version": format!("{n}.0.0")});
        let mut all = vec![json!({"type": "olm.package", "value": version})];
        all.extend(properties.iter().filter(|(of, _)| *of == n).map(|(_, property)| property.clone()));
        lines.push(json!({"schema": "olm.bundle", "package": "demo", "name": format!("demo.v{n}.0.0"),
            "image": format!("r.example/demo:v{n}"), "properties": all}));
    }
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let content = PackageContent::from_metas("demo", lines.iter().map(|line| line.as_bytes())).unwrap();
    Arc::new(PackageIndex::new(&content, Indexing { properties: true, release_support: false }))
}

fn answer(name: &str, priority: i32, package: Arc<PackageIndex>) -> Catalog {
    Catalog { name: name.to_owned(), priority, package: Ok(Some(package)) }
}

fn inputs(catalogs: Vec<Catalog>) -> ResolutionInputs {
    ResolutionInputs {
        catalog_exists: !catalogs.is_empty(),
        catalogs: Ok(catalogs),
        cluster_state: ClusterState::default(),
        group_awaits_content: false,
    }
}

fn surrounded(by: AvailableProviders) -> ClusterState {
    ClusterState { providers: Some(by), ..ClusterState::default() }
}

/// Inputs with these catalogs, each with the package without additional properties.
fn plain(names: &[&str]) -> ResolutionInputs {
    inputs(names.iter().map(|name| answer(name, 0, index(&[], &[]))).collect())
}

fn decided(
    more: &serde_json::Value,
    sets: &[Arc<ClusterObjectSet>],
    rules: &ExtensionRules,
    inputs: &ResolutionInputs,
) -> Result<Choice, Box<ResolutionFailure>> {
    let (filter, states) = (filter(more), states(sets));
    let question = ChoiceRequest { filter: &filter, states: &states, rules };
    question.decide(inputs, question.resolve(inputs), Hints::default())
}

fn version(
    more: &serde_json::Value,
    sets: &[Arc<ClusterObjectSet>],
    changed: bool,
    inputs: &ResolutionInputs,
) -> Result<String, String> {
    let rules = ExtensionRules::default();
    let (filter, states) = (filter(more), states(sets));
    let question = ChoiceRequest { filter: &filter, states: &states, rules: &rules };
    let choice = rolling_choice(question, changed).map_or_else(|| decided(more, sets, &rules, inputs), Ok);
    choice.map(|choice| choice.target.version).map_err(|refusal| refusal.failure.message)
}

fn check() -> ExtensionRules {
    mode(DependencyMode::Check)
}

fn mode(dependencies: DependencyMode) -> ExtensionRules {
    ExtensionRules { settings: Settings { dependencies, ..Settings::default() }, ..ExtensionRules::default() }
}

fn is(finding: &ConditionChange) -> &ConditionState {
    match finding {
        ConditionChange::State(state) => state,
        other => panic!("{other:?}"),
    }
}

fn requires_base() -> serde_json::Value {
    json!({"type": "olm.package.required", "value": {"packageName": "base", "versionRange": ">=1.0.0"}})
}

fn gvk(kind: &str) -> serde_json::Value {
    json!({"group": "g", "version": "v1", "kind": kind})
}

fn property(value: &serde_json::Value) -> Property {
    Property {
        kind: value["type"].as_str().unwrap().to_owned(),
        value: to_raw_value(&value["value"]).unwrap(),
    }
}

fn base() -> Provider {
    let identity = json!({"type": "olm.package", "value": {"packageName": "base", "version": "1.4.0"}});
    Provider::new(Some("base".to_owned()), "base.v1.4.0".to_owned(), vec![property(&identity)])
}

// docs/design/operations.md#upgrade-targets
#[test]
fn upgrades_are_unknown_while_a_catalog_does_not_answer() {
    let reached = |more: &serde_json::Value, inputs: &ResolutionInputs| {
        let (filter, states, rules) =
            (filter(more), states(&[set(1, "Active", true)]), ExtensionRules::default());
        let reach = ChoiceRequest { filter: &filter, states: &states, rules: &rules }.reach(inputs)?;
        Some(reach.best_first().iter().map(|hop| hop.version.clone()).collect::<Vec<_>>())
    };
    let main = plain(&["main"]);
    assert_eq!(reached(&json!({}), &main).unwrap(), ["3.0.0", "2.0.0"]);
    assert_eq!(reached(&json!({"version": "<3"}), &main).unwrap(), ["2.0.0"]);
    assert_eq!(reached(&json!({"version": "~~"}), &main), None);
    let fault = || Catalog {
        name: "other".to_owned(),
        priority: 0,
        package: Err(CatalogError::NotCached("other".to_owned())),
    };
    assert_eq!(reached(&json!({}), &inputs(vec![answer("main", 0, index(&[], &[])), fault()])), None);
}

#[test]
fn resolver_result_becomes_choice_or_error() {
    let main = plain(&["main"]);
    assert_eq!(version(&json!({}), &[], false, &main).unwrap(), "3.0.0");
    assert_eq!(version(&json!({}), &[set(1, "Active", true)], false, &main).unwrap(), "2.0.0");
    let error = version(&json!({"version": "9.0.0"}), &[], false, &main).unwrap_err();
    assert_eq!(error, "no bundles found for package \"demo\" matching version \"9.0.0\"");
    let error = version(&json!({}), &[], false, &plain(&["a", "b"])).unwrap_err();
    assert!(error.ends_with("in multiple catalogs with the same priority [a b]"), "{error}");
    let bad = filter(&json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}}));
    let catalogs = selected(&bad, &[]).map(|_| Vec::new());
    let error =
        version(&json!({}), &[], false, &ResolutionInputs { catalogs, catalog_exists: true, ..plain(&[]) });
    assert_eq!(
        error.unwrap_err(),
        "desired catalog selector is invalid: \"Bad\" is not a valid label selector operator"
    );
}

// Cases resolution-26, resolution-28
#[test]
fn catalogs_are_selected_by_label_and_disabled_by_mode() {
    let catalog = |name: &str, mode: &str| -> Arc<ClusterCatalog> {
        let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name, "labels": {"n": name}},
            "spec": {"availabilityMode": mode, "source": {"type": "Image", "image": {"ref": "r.example/c:1"}}}});
        Arc::new(serde_json::from_value(catalog).unwrap())
    };
    let all = [catalog("on", "Available"), catalog("off", "Unavailable")];
    let names = |more: &serde_json::Value| -> Vec<String> {
        let selected = selected(&filter(more), &all).unwrap();
        selected.iter().filter_map(|catalog| catalog.metadata.name.clone()).collect()
    };
    assert_eq!(names(&json!({})), ["on", "off"]);
    assert_eq!(names(&json!({"selector": {}})), ["on", "off"]);
    assert_eq!(names(&json!({"selector": {"matchLabels": {"n": "off"}}})), ["off"]);
    assert_eq!(all.iter().map(|catalog| is_available(catalog)).collect::<Vec<_>>(), [true, false]);
}

// docs/design/apply.md#choice-of-the-bundle; case apply-13
#[test]
fn rollout_continues_while_range_admits_it() {
    let rolling = [set(1, "Active", true), set(2, "Active", false)];
    let (main, none) = (plain(&["main"]), plain(&[]));
    assert_eq!(version(&json!({}), &rolling, false, &none).unwrap(), "2.0.0");
    assert_eq!(version(&json!({"version": ">=2"}), &rolling, false, &none).unwrap(), "2.0.0");
    assert_eq!(version(&json!({"version": "1.0.0"}), &rolling, false, &main).unwrap(), "1.0.0");
    let three = json!({"version": "3.0.0", "upgradeConstraintPolicy": "SelfCertified"});
    assert_eq!(version(&three, &rolling, false, &main).unwrap(), "3.0.0");
    assert_eq!(version(&json!({}), &rolling, true, &main).unwrap(), "2.0.0");
    // An edit without catalogs must not return to the older version.
    assert_eq!(version(&json!({}), &rolling, true, &none).unwrap(), "2.0.0");
}

// Cases apply-20, apply-22, apply-23, resolution-47, resolution-48, additions-e24
#[test]
fn missing_catalogs_keep_installed_bundle() {
    let (installed, none) = ([set(1, "Active", true)], plain(&[]));
    for settings in [json!({}), json!({"version": "1.0.0"}), json!({"version": "1.x"})] {
        assert_eq!(version(&settings, &installed, false, &none).unwrap(), "1.0.0");
    }
    let error = version(&json!({"version": "2.0.0"}), &installed, false, &none).unwrap_err();
    assert!(error.starts_with("error upgrading from currently installed version \"1.0.0\": "), "{error}");
    assert!(version(&json!({}), &[], false, &none).is_err());
}

// Cases additions-a01, additions-a21
#[test]
fn choice_without_rules_has_no_findings() {
    let installed = [set(1, "Active", true)];
    let choice = decided(&json!({}), &installed, &ExtensionRules::default(), &plain(&["main"])).unwrap();
    assert_eq!(choice.findings, ConditionChanges::default());
    assert_eq!(choice.target.catalog_properties, None);
    assert!(!choice.requeue);
    let inputs = inputs(vec![answer("main", 0, index(&[(3, requires_base())], &[]))]);
    let refusal = decided(&json!({}), &[], &ExtensionRules::default(), &inputs).unwrap_err();
    assert_eq!(
        refusal.failure.message,
        "validating bundle \"demo.v3.0.0\": bundle \"demo.v3.0.0\" has a dependency declared via property \
         \"olm.package.required\" which is currently not supported"
    );
    assert_eq!((refusal.findings, refusal.requeue), (ConditionChanges::default(), false));
}

// docs/design/additions.md#upgrade-scope; cases additions-a13, additions-e09
#[test]
fn upgrade_scope_holds_back_and_reports() {
    let rules = ExtensionRules { upgrade_scope: Some(UpgradeScope::Minor), ..ExtensionRules::default() };
    let installed = [set(1, "Active", true)];
    let choice = decided(&json!({}), &installed, &rules, &plain(&["main"])).unwrap();
    assert_eq!(choice.target.version, "1.0.0");
    let state = is(&choice.findings.upgrade);
    assert_eq!((state.status, state.reason), (Some(true), reasons::OUTSIDE_SCOPE));
    assert_eq!(
        state.message,
        "bundle demo.v2.0.0 version 2.0.0 from catalog main is available and held back: outside of the upgrade scope \
         \"minor\" of installed 1.0.0; to release it, widen or remove annotation \
         ext.olm.operatorframework.io/upgrade-scope"
    );
    assert_eq!(choice.findings.dependencies, ConditionChange::Inactive);
    assert!(!choice.requeue && choice.events.is_empty());

    let major = ExtensionRules { upgrade_scope: Some(UpgradeScope::Major), ..ExtensionRules::default() };
    let choice = decided(&json!({}), &installed, &major, &plain(&["main"])).unwrap();
    assert_eq!(choice.target.version, "2.0.0");
    let state = is(&choice.findings.upgrade);
    assert_eq!((state.status, state.reason), (Some(false), reasons::UP_TO_DATE));
    assert_eq!(state.message, "no newer version is held back");
}

// The catalog no longer has the installed version. The held version is not installed, and nothing fails.
#[test]
fn installed_bundle_is_kept_while_all_successors_are_held() {
    let rules = ExtensionRules { upgrade_scope: Some(UpgradeScope::Minor), ..ExtensionRules::default() };
    let mut lines = vec![json!({"schema": "olm.package", "name": "demo"})];
    lines.push(json!({"schema": "olm.channel", "package": "demo", "name": "stable",
        "entries": [{"name": "demo.v2.0.0", "replaces": "demo.v1.0.0"}]}));
    lines.push(json!({"schema": "olm.bundle", "package": "demo", "name": "demo.v2.0.0", "image": "i",
        "properties": [{"type": "olm.package", "value": {"packageName": "demo", "version": "2.0.0"}}]}));
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let content = PackageContent::from_metas("demo", lines.iter().map(|line| line.as_bytes())).unwrap();
    let package = Arc::new(PackageIndex::new(&content, Indexing::default()));
    let inputs = inputs(vec![answer("main", 0, package)]);
    let installed = [set(1, "Active", true)];
    let choice = decided(&json!({}), &installed, &rules, &inputs).unwrap();
    assert_eq!(choice.target.version, "1.0.0");
    assert_eq!(choice.deprecation, DeprecationData::Unchanged);
    assert_eq!(is(&choice.findings.upgrade).reason, reasons::OUTSIDE_SCOPE);
    // The installed version is not kept if the requested range excludes it.
    let refusal = decided(&json!({"version": ">=2"}), &installed, &rules, &inputs).unwrap_err();
    assert!(refusal.failure.message.contains("outside of the upgrade scope"), "{}", refusal.failure);
    assert_eq!(refusal.deprecation, DeprecationData::Unchanged);
}

// docs/design/api.md#deprecation-conditions
#[test]
fn failed_resolution_keeps_deprecation_unless_no_catalog_exists() {
    let rules = ExtensionRules::default();
    let fails = |inputs: &ResolutionInputs| {
        let refusal = decided(&json!({"version": "9.9.9"}), &[set(1, "Active", true)], &rules, inputs);
        refusal.unwrap_err().deprecation
    };
    assert_eq!(fails(&plain(&["main"])), DeprecationData::Unchanged);
    let unserved = Err(CatalogError::NotServing("main".to_owned()));
    let down = Catalog { name: "main".to_owned(), priority: 0, package: unserved };
    assert_eq!(fails(&inputs(vec![down])), DeprecationData::Unchanged);
    assert_eq!(fails(&ResolutionInputs { catalog_exists: false, ..plain(&[]) }), DeprecationData::None);
}

// docs/design/additions.md#skipped-versions; case additions-a16
#[test]
fn skipped_version_is_reported_or_excluded() {
    let inputs = inputs(vec![answer("main", 0, index(&[], &["demo.v2.0.0"]))]);
    let installed = [set(1, "Active", true)];
    let choice = decided(&json!({}), &installed, &ExtensionRules::default(), &inputs).unwrap();
    assert_eq!(choice.target.version, "2.0.0");
    let merged = events::merged(choice.events);
    assert_eq!(merged.len(), 1);
    assert!(merged[0].warning, "{merged:?}");
    assert_eq!(
        merged[0].note,
        "chose bundle demo.v2.0.0 version 2.0.0 from catalog main, which follows demo.v1.0.0 by replaces in channel \
         stable; passed over: demo.v3.0.0 (no successor of installed demo.v1.0.0); \
         bundle demo.v2.0.0 is skipped in channels [stable] and should not be installed"
    );

    let rules = ExtensionRules { exclude_skipped: true, ..ExtensionRules::default() };
    let choice = decided(&json!({}), &installed, &rules, &inputs).unwrap();
    assert_eq!(choice.target.version, "1.0.0");
    let state = is(&choice.findings.upgrade);
    assert_eq!((state.status, state.reason), (Some(true), reasons::SKIPPED));
    assert_eq!(
        state.message,
        "bundle demo.v2.0.0 version 2.0.0 from catalog main is available and held back: skipped in channels [stable]; \
         to release it, remove annotation ext.olm.operatorframework.io/exclude-skipped"
    );
}

#[test]
fn bundle_that_the_cluster_cannot_run_is_held() {
    let demands = json!({"type": "olm.csv.metadata", "value": {"minKubeVersion": "1.99.0"}});
    let inputs = ResolutionInputs {
        cluster_state: ClusterState {
            cluster: Some(ClusterFacts::new("v1.31.4+k3s1", std::collections::BTreeSet::new())),
            ..ClusterState::default()
        },
        ..inputs(vec![answer("main", 0, index(&[(3, demands)], &[]))])
    };
    let settings = Settings { cluster_constraints: true, ..Settings::default() };
    let rules = ExtensionRules { settings, ..ExtensionRules::default() };
    let choice = decided(&json!({}), &[], &rules, &inputs).unwrap();
    assert_eq!(choice.target.version, "2.0.0");
    let state = is(&choice.findings.upgrade);
    assert_eq!((state.status, state.reason), (Some(true), reasons::CLUSTER_CONSTRAINT));
    assert!(state.message.contains("minKubeVersion (1.99.0) > server version (1.31.4)"), "{}", state.message);
    assert_eq!(choice.findings.dependencies, ConditionChange::Inactive);
}

// Cases additions-a34, additions-a35
#[test]
fn failing_catalog_is_skipped_unless_its_priority_is_higher() {
    let broken = |priority: i32| Catalog {
        name: "broken".to_owned(),
        priority,
        package: Err(CatalogError::Cache { catalog: "broken".to_owned(), fault: "500".to_owned() }),
    };
    let best_effort = ExtensionRules {
        settings: Settings { best_effort: true, ..Settings::default() },
        ..ExtensionRules::default()
    };
    let with = |priority| inputs(vec![answer("main", 0, index(&[], &[])), broken(priority)]);
    let error = decided(&json!({}), &[], &ExtensionRules::default(), &with(0)).unwrap_err();
    let text = "error walking catalogs: error getting package \"demo\" from catalog \"broken\": error retrieving cache \
                for catalog \"broken\": 500";
    assert_eq!(error.failure.message, text);

    let choice = decided(&json!({}), &[], &best_effort, &with(0)).unwrap();
    assert_eq!(choice.target.version, "3.0.0");
    assert_eq!(choice.findings.suffix(), "; skipped unavailable catalogs: [broken]");
    assert_eq!(choice.findings.upgrade, ConditionChange::Inactive);

    let error = decided(&json!({}), &[], &best_effort, &with(1)).unwrap_err();
    assert!(error.failure.message.starts_with(text), "{}", error.failure);
    assert!(error.failure.message.contains("its priority 1 is higher"), "{}", error.failure);
}

#[test]
fn refusal_for_uncached_content_awaits_it() {
    let missing = Catalog {
        name: "main".to_owned(),
        priority: 0,
        package: Err(CatalogError::NotCached("main".to_owned())),
    };
    let refusal = decided(&json!({}), &[], &ExtensionRules::default(), &inputs(vec![missing])).unwrap_err();
    assert!(refusal.awaits_content);
}

// docs/design/additions.md#best-effort-resolution: content being fetched is not unavailable
#[test]
fn best_effort_waits_for_content_before_skipping_catalog() {
    let missing = || Catalog {
        name: "slow".to_owned(),
        priority: 0,
        package: Err(CatalogError::NotCached("slow".to_owned())),
    };
    let inputs = inputs(vec![answer("main", 0, index(&[], &[])), missing()]);
    assert!(inputs.awaits_content() && !plain(&["main"]).awaits_content());
    let settings = Settings { best_effort: true, ..Settings::default() };
    let rules = ExtensionRules { settings, ..ExtensionRules::default() };
    assert!(decided(&json!({}), &[], &rules.awaiting_content(true), &inputs).unwrap_err().awaits_content);
    let choice = decided(&json!({}), &[], &rules.awaiting_content(false), &inputs).unwrap();
    assert_eq!(choice.findings.suffix(), "; skipped unavailable catalogs: [slow]");
}

// docs/design/additions.md#dependency-modes
#[test]
fn revision_records_catalog_properties_if_dependencies_are_checked() {
    let inputs = ResolutionInputs {
        cluster_state: surrounded(AvailableProviders {
            providers: vec![base()],
            ..AvailableProviders::default()
        }),
        ..inputs(vec![answer("main", 0, index(&[(3, requires_base())], &[]))])
    };
    let choice = decided(&json!({}), &[], &check(), &inputs).unwrap();
    let identity = json!({"type": "olm.package", "value": {"packageName": "demo", "version": "3.0.0"}});
    let recorded: serde_json::Value =
        serde_json::from_str(&choice.target.catalog_properties.unwrap()).unwrap();
    assert_eq!(recorded, json!([identity, requires_base()]));

    let large = json!({"type": "acme", "value": "x".repeat(PROPERTIES_BYTES)});
    let small = [property(&identity), property(&large), property(&requires_base())];
    let recorded: serde_json::Value = serde_json::from_str(&catalog_properties(&small).unwrap()).unwrap();
    assert_eq!(recorded, json!([identity, requires_base()]));
    assert_eq!(catalog_properties(&[]), None);
}

#[test]
fn rollout_ends_when_the_newest_revision_is_removed() {
    let (rules, filter) = (ExtensionRules::default(), filter(&json!({})));
    let archived = set(3, "Archived", false);
    let mut deleted = set(3, "Active", false);
    Arc::make_mut(&mut deleted).metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let rows = [(set(3, "Active", false), Some("3.0.0")), (archived, None), (deleted, None)];
    for (newest, expected) in rows {
        let states = states(&[set(1, "Active", true), set(2, "Active", false), newest]);
        let choice = rolling_choice(ChoiceRequest { filter: &filter, states: &states, rules: &rules }, false);
        assert_eq!(choice.map(|choice| choice.target.version).as_deref(), expected);
    }
}

#[test]
fn rollout_leaves_conditions_unchanged() {
    let rolling = states(&[set(1, "Active", false)]);
    let rules = check();
    let filter = filter(&json!({}));
    let choice =
        rolling_choice(ChoiceRequest { filter: &filter, states: &rolling, rules: &rules }, false).unwrap();
    let unchanged = ConditionChanges {
        upgrade: ConditionChange::Unchanged,
        dependencies: ConditionChange::Unchanged,
        ..ConditionChanges::default()
    };
    assert_eq!(choice.findings, unchanged);
    assert_eq!(choice.deprecation, DeprecationData::Unchanged);
}
