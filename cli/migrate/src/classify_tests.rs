//! Tests of the classification: one package that is ready, and each rule as a change of it.

use serde_json::{Value, json};

use super::*;
use crate::objects::Offer;

/// Objects of a package that is ready: Subscription, ClusterServiceVersion, OperatorGroup for all namespaces,
/// CatalogSource, and the ClusterCatalog with its image.
fn ready() -> Vec<Value> {
    let classic = |version: &str, kind: &str, namespace: &str, name: &str, rest: Value| {
        let mut object = json!({"apiVersion": format!("operators.coreos.com/{version}"), "kind": kind,
            "metadata": {"namespace": namespace, "name": name}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    vec![
        classic(
            "v1alpha1",
            "Subscription",
            "ops",
            "lamp",
            json!({
            "spec": {"name": "lamp", "channel": "stable", "source": "hub", "sourceNamespace": "olm"},
            "status": {"installedCSV": "lamp.v1.0.0", "currentCSV": "lamp.v1.0.0", "state": "AtLatestKnown",
                "installPlanRef": {"name": "install-1"}}}),
        ),
        classic(
            "v1alpha1",
            "ClusterServiceVersion",
            "ops",
            "lamp.v1.0.0",
            json!({
            "spec": {"version": "1.0.0", "installModes": [{"type": "AllNamespaces", "supported": true},
                    {"type": "SingleNamespace", "supported": true}, {"type": "MultiNamespace", "supported": false}],
                "customresourcedefinitions": {"owned": [{"name": "lamps.lamp.example", "kind": "Lamp"}]}},
            "status": {"phase": "Succeeded", "reason": "InstallSucceeded"}}),
        ),
        classic(
            "v1alpha1",
            "InstallPlan",
            "ops",
            "install-1",
            json!({
            "spec": {"clusterServiceVersionNames": ["lamp.v1.0.0"], "approved": true},
            "status": {"phase": "Complete"}}),
        ),
        classic("v1", "OperatorGroup", "ops", "global", json!({"spec": {}})),
        classic("v1alpha1", "CatalogSource", "olm", "hub", json!({"spec": {"image": "r.example/hub:v1"}})),
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "hub"},
            "spec": {"source": {"image": {"ref": "r.example/hub:v1"}}}}),
    ]
}

fn reports(objects: &[Value], offered: &[&str]) -> Vec<PackageReport> {
    let mut all = Objects::default();
    objects.iter().for_each(|object| all.add(object));
    all.offered = Some(offered.iter().map(|bundle| ((*bundle).to_owned(), Offer::default())).collect());
    classify(&all)
}

/// Rules and messages of the Subscription.
fn findings(objects: &[Value]) -> Vec<(&'static str, String)> {
    let mut reports = reports(objects, &["lamp.v1.0.0"]);
    reports.retain(|report| !report.subscription.is_empty());
    reports.remove(0).findings.into_iter().map(|finding| (finding.rule.id, finding.message)).collect()
}

/// Ready package in which the value at `pointer` of object `index` is `value`.
fn changed(index: usize, pointer: &str, value: Value) -> Vec<Value> {
    let mut objects = ready();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    objects[index].pointer_mut(parent).unwrap()[field] = value;
    objects
}

#[test]
fn package_without_findings_is_ready() {
    let reports = reports(&ready(), &["lamp.v1.0.0"]);
    assert_eq!(reports.len(), 1);
    let report = &reports[0];
    assert_eq!((report.class, report.findings.as_slice()), (Class::Ready, &[][..]));
    let names = [
        &report.package,
        &report.namespace,
        &report.subscription,
        &report.csv,
        &report.version,
        &report.channel,
    ];
    assert_eq!(names, ["lamp", "ops", "lamp", "lamp.v1.0.0", "1.0.0", "stable"]);
}

#[test]
fn each_field_of_classic_object_yields_its_migration_finding() {
    let [subscription, csv, plan, group, source, catalog] = [0, 1, 2, 3, 4, 5];
    for (index, pointer, value, rule, message) in [
        (subscription, "/spec/config", json!({"env": []}), "SETTING-2", "spec.config: env"),
        (
            subscription,
            "/spec/installPlanApproval",
            json!("Manual"),
            "SETTING-3",
            "installPlanApproval is Manual",
        ),
        (subscription, "/status/installedCSV", json!(""), "STATE-1", "nothing is installed"),
        (
            subscription,
            "/status/currentCSV",
            json!("lamp.v1.1.0"),
            "STATE-2",
            "an upgrade to lamp.v1.1.0 is in progress (AtLatestKnown)",
        ),
        (csv, "/status/phase", json!("Failed"), "STATE-1", "lamp.v1.0.0 is Failed (InstallSucceeded)"),
        (
            csv,
            "/spec/apiservicedefinitions",
            json!({"owned": [{"kind": "A", "group": "b"}]}),
            "SETTING-6",
            "1 aggregated API",
        ),
        (
            csv,
            "/spec/installModes",
            json!([]),
            "STATE-4",
            "OperatorGroup global needs install mode AllNamespaces",
        ),
        (
            plan,
            "/status/phase",
            json!("Installing"),
            "STATE-2",
            "InstallPlan install-1 for lamp.v1.0.0 is Installing",
        ),
        (group, "/spec/targetNamespaces", json!(["shop"]), "SETTING-1", "watchNamespace: shop"),
        (
            group,
            "/spec/serviceAccountName",
            json!("scoped"),
            "DECISION-7",
            "OperatorGroup global has serviceAccountName scoped",
        ),
        (group, "/metadata/namespace", json!("other"), "STATE-3", "OperatorGroups of namespace ops: none"),
        (source, "/spec/image", json!("r.example/hub:v2"), "", ""),
        (catalog, "/metadata/name", json!("other"), "", ""),
    ] {
        let expected = if rule.is_empty() { Vec::new() } else { vec![(rule, message.to_owned())] };
        assert_eq!(findings(&changed(index, pointer, value)), expected, "{pointer}");
    }
}

#[test]
fn operator_group_decides_the_install_mode_and_the_setting() {
    let group = |targets: &[&str], selector: Value, namespaces: &[&str]| {
        let mut objects = Objects::default();
        objects.add(&json!({"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"namespace": "ops", "name": "g"},
            "spec": {"targetNamespaces": targets, "selector": selector}, "status": {"namespaces": namespaces}}));
        watched("ops", &objects.groups[&("ops".to_owned(), "g".to_owned())])
    };
    let labels = json!({"matchLabels": {"team": "a"}});
    let gate = "gate MultiWatchNamespaces must be on";
    for (found, modes, setting) in [
        (group(&[], json!(null), &[""]), vec!["AllNamespaces"], None),
        (group(&[], json!({}), &[""]), vec!["AllNamespaces"], None),
        (group(&[""], json!(null), &[""]), vec!["AllNamespaces"], None),
        (group(&["", "a"], labels.clone(), &[""]), vec!["AllNamespaces"], None),
        (
            group(&["ops"], json!(null), &["ops"]),
            vec!["OwnNamespace"],
            Some("watchNamespace: ops".to_owned()),
        ),
        (group(&["a"], json!(null), &["a"]), vec!["SingleNamespace"], Some("watchNamespace: a".to_owned())),
        (
            group(&["a", "ops"], json!(null), &[]),
            vec!["MultiNamespace", "OwnNamespace"],
            Some(format!("watchNamespaces: [a, ops]; {gate}")),
        ),
        (
            group(&[], labels.clone(), &["a"]),
            vec!["SingleNamespace"],
            Some(format!("watchNamespaceSelector, which selects 1 namespace; {gate}")),
        ),
        (
            group(&[], labels, &[]),
            vec![],
            Some(format!("watchNamespaceSelector, which selects 0 namespaces; {gate}")),
        ),
    ] {
        assert_eq!(found, (modes, setting));
    }
}

#[test]
fn bundle_missing_from_catalog_yields_migration_finding() {
    let of = |objects: &[Value], offered: &[&str]| -> Vec<&str> {
        reports(objects, offered)[0].findings.iter().map(|finding| finding.rule.id).collect()
    };
    assert_eq!(of(&ready(), &[]), ["DECISION-4"]);
    assert_eq!(of(&changed(4, "/spec/image", json!("r.example/hub:v2")), &[]), ["SETTING-4"]);
    assert_eq!(of(&changed(4, "/spec/image", json!(null)), &[]), ["DECISION-5"]);
}

#[test]
fn dependents_migrate_before_their_dependencies() {
    let mut objects = ready();
    let mut app = ready();
    app.truncate(2);
    for object in &mut app {
        *object = serde_json::from_str(&object.to_string().replace("lamp.v1.0.0", "app.v2.0.0")).unwrap();
    }
    app[0]["metadata"]["name"] = json!("app");
    app[0]["spec"]["name"] = json!("app");
    app[1]["spec"]["customresourcedefinitions"] =
        json!({"required": [{"name": "lamps.lamp.example", "kind": "Lamp"}]});
    objects.extend(app);
    let reports = reports(&objects, &["lamp.v1.0.0", "app.v2.0.0"]);
    let of = |index: usize| -> Vec<String> {
        let findings = reports[index].findings.iter();
        findings.map(|finding| format!("{}: {}", finding.rule.id, finding.message)).collect()
    };
    assert_eq!(of(0), ["DECISION-2: requires Lamp.lamp.example, provided by lamp.v1.0.0"]);
    assert_eq!(of(1), ["DECISION-3: required by app.v2.0.0"]);
    assert_eq!((reports[0].after.len(), reports[1].after.as_slice()), (0, &["ops/app".to_owned()][..]));
}

#[test]
fn api_of_two_packages_needs_a_decision() {
    let mut objects = ready();
    let mut other = [objects[0].clone(), objects[1].clone()];
    other[0]["metadata"]["name"] = json!("sun");
    other[0]["spec"]["name"] = json!("sun");
    other[0]["status"] = json!({"installedCSV": "sun.v1.0.0", "currentCSV": "sun.v1.0.0"});
    other[1]["metadata"]["name"] = json!("sun.v1.0.0");
    objects.extend(other);
    for (report, other) in reports(&objects, &["lamp.v1.0.0", "sun.v1.0.0"]).iter().zip(["sun", "lamp"]) {
        let finding = &report.findings[0];
        let expected = format!("Lamp.lamp.example is also provided by {other}.v1.0.0");
        assert_eq!((finding.rule.id, &finding.message), ("DECISION-8", &expected));
    }
}

#[test]
fn other_objects_that_share_the_package_are_named() {
    let mut objects = ready();
    let mut twin = objects[0].clone();
    twin["metadata"]["namespace"] = json!("team");
    let mut copy = objects[1].clone();
    copy["metadata"] =
        json!({"namespace": "team", "name": "lamp.v1.0.0", "labels": {"olm.copiedFrom": "ops"}});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": "team", "name": "users"},
        "roleRef": {"kind": "ClusterRole", "name": group_role::name("ops", "global", "view")}});
    let condition = json!({"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition",
        "metadata": {"namespace": "ops", "name": "lamp.v1.0.0"}, "spec": {"overrides": [{"type": "Upgradeable"}]}});
    let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": "lamp"}, "spec": {"source": {"catalog": {"packageName": "lamp"}}}});
    let orphan = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"namespace": "ops", "name": "shade.v1.0.0"}, "spec": {"version": "1.0.0"}});
    objects.push(json!({"kind": "List", "items": [twin, copy, binding, condition, extension, orphan]}));
    let reports = reports(&objects, &["lamp.v1.0.0"]);
    let ids = |index: usize| -> Vec<&str> {
        reports[index].findings.iter().map(|finding| finding.rule.id).collect()
    };
    assert_eq!(reports.len(), 3);
    // The orphan has no package name.
    assert_eq!((reports[0].csv.as_str(), ids(0)), ("shade.v1.0.0", vec!["STATE-6"]));
    assert_eq!(ids(1), ["STATE-5", "DECISION-6", "SETTING-5", "DECISION-1", "NOTE-1"]);
    // The copy in the namespace of the twin is not an installation.
    assert_eq!(ids(2), ["STATE-1", "STATE-5", "STATE-3", "DECISION-1"]);
    assert_eq!((reports[1].class, reports[2].class), (Class::NotPossible, Class::NotPossible));
}

#[test]
fn only_upgrade_that_nobody_approved_is_no_obstacle() {
    let with_plan = |approved: bool, phase: &str| {
        let mut objects = changed(0, "/status/currentCSV", json!("lamp.v2.0.0"));
        objects[0]["status"]["installPlanRef"]["name"] = json!("install-2");
        let mut plan = objects[2].clone();
        plan["metadata"]["name"] = json!("install-2");
        plan["spec"] = json!({"clusterServiceVersionNames": ["lamp.v2.0.0"], "approved": approved});
        plan["status"]["phase"] = json!(phase);
        objects.push(plan);
        findings(&objects)
    };
    let waits = "the upgrade to lamp.v2.0.0 waits for approval in InstallPlan install-2".to_owned();
    assert_eq!(with_plan(false, "RequiresApproval"), [("SETTING-7", waits)]);
    let rules = |found: Vec<(&'static str, String)>| found.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(rules(with_plan(true, "Installing")), ["STATE-2", "STATE-2"]);
    assert_eq!(rules(with_plan(true, "Failed")), ["STATE-2"]);
}

#[test]
fn begun_and_foreign_migrations_are_not_ready() {
    let mut all = Objects::default();
    ready().iter().for_each(|object| all.add(object));
    all.offered = Some([("lamp.v1.0.0".to_owned(), Offer::default())].into());
    let first = |all: &Objects| classify(all).remove(0).findings.first().map(|finding| finding.rule.id);
    all.migrations.insert(("ops".to_owned(), "lamp".to_owned()), true);
    assert_eq!(first(&all), None);
    all.migrations.insert(("ops".to_owned(), "lamp".to_owned()), false);
    assert_eq!(first(&all), Some("STATE-7"));
    let mark = json!({"olm.operatorframework.io/migration-invocation": "1"});
    assert_eq!(findings(&changed(0, "/metadata/annotations", mark.clone()))[0].0, "STATE-9");
    let manager = json!([{"manager": "olm.operatorframework.io/migration"}]);
    assert_eq!(findings(&changed(0, "/metadata/managedFields", manager))[0].0, "STATE-9");
    let mut objects = ready();
    objects.push(json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": "lamp", "annotations": mark}, "spec": {"source": {"catalog": {"packageName": "lamp"}}}}));
    assert_eq!(findings(&objects)[0], ("STATE-9", "marks on ClusterExtension lamp".to_owned()));
}

#[test]
fn csv_of_installation_in_progress_is_no_orphan() {
    let mut objects = changed(0, "/status", json!({"currentCSV": "lamp.v1.0.0"}));
    objects.truncate(2);
    let reports = reports(&objects, &["lamp.v1.0.0"]);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].subscription, "lamp");
}

#[test]
fn operator_that_uses_the_classic_api_needs_a_decision() {
    let of = |groups: Value, resources: Value| {
        let rules = json!([{"rules": [{"apiGroups": groups, "resources": resources, "verbs": ["get"]}]}]);
        findings(&changed(1, "/spec/install", json!({"spec": {"clusterPermissions": rules}})))
    };
    let uses = "uses subscriptions of operators.coreos.com".to_owned();
    let classic = json!(["operators.coreos.com"]);
    assert_eq!(
        of(classic.clone(), json!(["subscriptions/status", "operatorconditions"])),
        [("DECISION-9", uses)]
    );
    assert_eq!(of(classic, json!(["operatorconditions", "operatorconditions/status"])), []);
    assert_eq!(of(json!(["apps"]), json!(["deployments"])), []);
}

#[test]
fn operators_of_classic_olm_itself_are_left_out() {
    let mut objects = ready();
    objects.push(json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"namespace": "olm", "name": "packageserver"},
        "spec": {"version": "0.30.0", "apiservicedefinitions": {"owned": [
            {"kind": "PackageManifest", "group": "packages.operators.coreos.com", "version": "v1"}]}}}));
    assert_eq!(reports(&objects, &["lamp.v1.0.0"]).len(), 1);
}

#[test]
fn installations_of_one_package_do_not_depend_on_each_other() {
    let mut objects = ready();
    let apis = json!({"owned": [{"name": "lamps.lamp.example", "kind": "Lamp"}],
        "required": [{"name": "lamps.lamp.example", "kind": "Lamp"}]});
    objects[1]["spec"]["customresourcedefinitions"] = apis;
    let twins = [objects[0].clone(), objects[1].clone(), objects[3].clone()].map(|mut object| {
        object["metadata"]["namespace"] = json!("team");
        object
    });
    objects.extend(twins);
    for report in reports(&objects, &["lamp.v1.0.0"]) {
        assert_eq!(report.after, Vec::<String>::new());
        assert!(
            report.findings.iter().all(|finding| finding.rule.id == "DECISION-1"),
            "{:?}",
            report.findings
        );
    }
}
