//! Choices whose requirements or dependents are assessed.

use olm_resolve::GroupStep;

use super::*;

// Cases additions-a22, additions-a24, additions-e16, additions-e18, seeds-s0-6
#[test]
fn report_mode_installs_and_reports_dependencies() {
    let required = |kind: &str| json!({"type": "olm.gvk.required", "value": gvk(kind)});
    let market_with = |properties: &[(i32, serde_json::Value)], providers: Vec<Provider>| {
        let served = [Gvk { group: "g".into(), version: "v1".into(), kind: "External".into() }];
        ResolutionInputs {
            cluster_state: surrounded(AvailableProviders { providers, served: served.into() }),
            ..inputs(vec![answer("main", 0, index(properties, &[]))])
        }
    };
    let judged = |inputs: &ResolutionInputs| {
        let choice = decided(&json!({}), &[], &mode(DependencyMode::Report), inputs).unwrap();
        assert_eq!(choice.target.version, "3.0.0");
        (is(&choice.findings.dependencies).clone(), choice.requeue)
    };
    let (none, again) = judged(&market_with(&[], vec![]));
    assert_eq!((none.status, none.reason, again), (Some(true), reasons::NO_DEPENDENCIES, false));
    assert_eq!(none.message, "bundle demo.v3.0.0 requires nothing");

    let (all, again) = judged(&market_with(&[(3, requires_base()), (3, required("External"))], vec![base()]));
    assert_eq!((all.status, all.reason, again), (Some(true), reasons::ALL_SATISFIED, false));
    assert!(all.message.contains("base"), "{}", all.message);
    assert!(all.message.contains("external"), "{}", all.message);

    let (unmet, again) = judged(&market_with(&[(3, requires_base())], vec![]));
    assert_eq!((unmet.status, unmet.reason, again), (Some(false), reasons::UNSATISFIED, true));
    assert_eq!(
        unmet.message,
        "bundle demo.v3.0.0 requires an operator with package: base and with version in range: >=1.0.0: not satisfied"
    );

    let empty = json!({"type": "olm.constraint", "value": {}});
    let (invalid, _) = judged(&market_with(&[(3, empty.clone())], vec![]));
    assert_eq!((invalid.status, invalid.reason), (None, reasons::UNSATISFIED));
    assert!(invalid.message.contains("constraint is empty"), "{}", invalid.message);
    let (both, _) = judged(&market_with(&[(3, empty), (3, requires_base())], vec![]));
    assert_eq!(both.status, Some(false));
}

// docs/design/additions.md#unsatisfied-candidates; cases additions-a23, additions-e19, seeds-s0-6
#[test]
fn check_mode_waits_for_dependencies() {
    let package = index(&[(1, requires_base()), (2, requires_base()), (3, requires_base())], &[]);
    let with = |providers: Vec<Provider>| ResolutionInputs {
        cluster_state: surrounded(AvailableProviders { providers, ..AvailableProviders::default() }),
        ..inputs(vec![answer("main", 0, Arc::clone(&package))])
    };
    let (filter, states) = (filter(&json!({})), states(&[]));
    let rules = check();
    let question = ChoiceRequest { filter: &filter, states: &states, rules: &rules };
    let inputs = with(vec![]);
    let resolution = question.resolve(&inputs);
    assert_eq!(judged(&resolution).len(), 1);
    let satisfiers = vec![olm_resolve::Satisfier {
        package: "base".to_owned(),
        version: "1.4.0".to_owned(),
        catalog: "main".to_owned(),
    }];
    let hints = Hints { satisfiers, not_installed: vec!["base".to_owned()] };
    let refusal = question.decide(&inputs, resolution, hints).unwrap_err();
    assert_eq!(
        refusal.failure,
        InstallError::retry(
            "dependencies not satisfied: bundle demo.v3.0.0 requires an operator with package: base and with version \
             in range: >=1.0.0; candidates in catalogs: base@1.4.0 (main); found but not installed: base"
        )
    );
    assert!(refusal.requeue);
    let state = is(&refusal.findings.dependencies);
    assert_eq!((state.status, state.reason), (Some(false), reasons::UNSATISFIED));
    assert!(
        state.message.ends_with("; candidates in catalogs: base@1.4.0 (main); found but not installed: base")
    );

    let choice = decided(&json!({}), &[], &rules, &with(vec![base()])).unwrap();
    assert_eq!(choice.target.version, "3.0.0");
    assert_eq!(is(&choice.findings.dependencies).reason, reasons::ALL_SATISFIED);
    assert!(!choice.requeue);
}

// docs/design/resolution.md#judged-dependencies, docs/design/additions.md#unsatisfied-candidates
#[test]
fn check_mode_keeps_installed_version_if_dependency_is_missing() {
    let inputs = ResolutionInputs {
        cluster_state: surrounded(AvailableProviders::default()),
        ..inputs(vec![answer("main", 0, index(&[(2, requires_base())], &[]))])
    };
    let choice = decided(&json!({}), &[set(1, "Active", true)], &check(), &inputs).unwrap();
    assert_eq!(choice.target.version, "1.0.0");
    let state = is(&choice.findings.upgrade);
    assert_eq!((state.status, state.reason), (Some(true), reasons::DEPENDENCY_CONFLICT));
    assert!(
        state.message.contains("demo.v2.0.0") && state.message.contains("package: base"),
        "{}",
        state.message
    );
    assert!(choice.requeue);
    // A requested version is not silently replaced.
    let pinned = json!({"version": "2.0.0"});
    let refusal = decided(&pinned, &[set(1, "Active", true)], &check(), &inputs).unwrap_err();
    assert!(refusal.failure.message.starts_with("dependencies not satisfied: bundle demo.v2.0.0 requires "));
    assert_eq!(is(&refusal.findings.upgrade).reason, reasons::DEPENDENCY_CONFLICT);
    assert_eq!(refusal.findings.dependencies, ConditionChange::Unchanged);
}

// Case additions-a31
#[test]
fn check_mode_keeps_version_that_dependents_need() {
    let provides = json!({"type": "olm.gvk", "value": gvk("Needed")});
    let needs = property(&json!({"type": "olm.gvk.required", "value": gvk("Needed")}));
    let dependent = Dependent {
        extension: "app".to_owned(),
        bundle: "app.v1.0.0".to_owned(),
        requirements: Requirement::all(&[needs]),
    };
    let inputs = ResolutionInputs {
        cluster_state: ClusterState {
            dependents: vec![dependent],
            ..surrounded(AvailableProviders::default())
        },
        ..inputs(vec![answer("main", 0, index(&[(1, provides)], &[]))])
    };
    let installed = [set(1, "Active", true)];
    let choice = decided(&json!({}), &installed, &check(), &inputs).unwrap();
    assert_eq!(choice.target.version, "1.0.0");
    let state = is(&choice.findings.upgrade);
    assert_eq!((state.status, state.reason), (Some(true), reasons::DEPENDENCY_CONFLICT));
    assert!(
        state.message.contains("installed extension app (bundle app.v1.0.0) requires "),
        "{}",
        state.message
    );
    assert!(
        state.message.ends_with("set annotation ext.olm.operatorframework.io/ignore-dependents to \"true\""),
        "{}",
        state.message
    );

    let overridden = ExtensionRules { ignore_dependents: true, ..check() };
    let choice = decided(&json!({}), &installed, &overridden, &inputs).unwrap();
    assert_eq!(choice.target.version, "2.0.0");
    let used = ExtensionEvent::warning(
        events::OVERRIDE_USED,
        "bundle demo.v2.0.0 is chosen because of annotation ext.olm.operatorframework.io/ignore-dependents"
            .to_owned(),
    );
    assert!(choice.events.contains(&used), "{:?}", choice.events);
}

// docs/design/additions.md#upgrade-groups; cases additions-a71, additions-a72
#[test]
fn check_mode_takes_step_of_upgrade_group() {
    let package = index(&[(2, requires_base()), (3, requires_base())], &[]);
    let with = |group: Option<GroupStep>, providers: Vec<Provider>| ResolutionInputs {
        cluster_state: ClusterState {
            group,
            ..surrounded(AvailableProviders { providers, ..AvailableProviders::default() })
        },
        ..inputs(vec![answer("main", 0, Arc::clone(&package))])
    };
    let others: Together = [("base".to_owned(), "base.v2".to_owned())].into();
    let step = GroupStep::Together {
        bundle: "demo.v2.0.0".to_owned(),
        others: others.clone(),
        providers: AvailableProviders { providers: vec![base()], ..AvailableProviders::default() },
        dependents: Vec::new(),
    };
    let installed = [set(1, "Active", true)];
    let choice = decided(&json!({}), &installed, &check(), &with(Some(step.clone()), vec![])).unwrap();
    assert_eq!((choice.target.version.as_str(), &choice.together), ("2.0.0", &others));
    assert_eq!(is(&choice.findings.dependencies).reason, reasons::ALL_SATISFIED);
    // A bundle that fits by itself waits for no member.
    let choice = decided(&json!({}), &installed, &check(), &with(Some(step), vec![base()])).unwrap();
    assert_eq!((choice.target.version.as_str(), choice.together.len()), ("2.0.0", 0));

    let held = GroupStep::Held { member: "base".to_owned(), cause: "it is pinned".to_owned() };
    let choice = decided(&json!({}), &installed, &check(), &with(Some(held), vec![])).unwrap();
    assert_eq!(choice.target.version, "1.0.0");
    let state = is(&choice.findings.upgrade);
    assert_eq!((state.status, state.reason), (Some(true), reasons::DEPENDENCY_CONFLICT));
    let cause = "; the upgrade group is held by its member base: it is pinned; to release it, ";
    assert!(state.message.contains(cause), "{}", state.message);
}

#[test]
fn override_is_published_only_if_effective() {
    let ignoring = |mode: DependencyMode| ExtensionRules {
        ignored_requirements: vec!["olm.package.required".to_owned()],
        ..self::mode(mode)
    };
    let used = |properties: &[(i32, serde_json::Value)], mode: DependencyMode| {
        let inputs = ResolutionInputs {
            cluster_state: surrounded(AvailableProviders::default()),
            ..inputs(vec![answer("main", 0, index(properties, &[]))])
        };
        let choice = decided(&json!({}), &[], &ignoring(mode), &inputs).unwrap();
        assert_eq!(choice.target.version, "3.0.0");
        choice.events.iter().any(|notice| notice.reason == events::OVERRIDE_USED)
    };
    assert!(used(&[(3, requires_base())], DependencyMode::Check));
    assert!(used(&[(3, requires_base())], DependencyMode::Reject));
    assert!(!used(&[(3, requires_base())], DependencyMode::Report));
    assert!(!used(&[], DependencyMode::Check));
}
