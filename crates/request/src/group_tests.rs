//! Steps of upgrade groups.

use std::sync::Arc;

use olm_fbc::{PackageContent, Property};
use olm_resolve::{
    AvailableProviders, CatalogError, DependencyMode, Dependent, Indexing, PackageIndex, Requirement,
};
use serde_json::{Value, json};

use super::*;

fn requires(package: &str, range: &str) -> Value {
    json!({"type": "olm.package.required", "value": {"packageName": package, "versionRange": range}})
}

fn property(value: &Value) -> Property {
    let value_of = serde_json::value::to_raw_value(&value["value"]).unwrap();
    Property { kind: value["type"].as_str().unwrap().to_owned(), value: value_of }
}

fn provider(package: &str, version: &str) -> Provider {
    let identity = json!({"type": "olm.package", "value": {"packageName": package, "version": version}});
    Provider::new(Some(package.to_owned()), format!("{package}.v{version}"), vec![property(&identity)])
}

/// Catalog with 1.0.0 and its successor 2.0.0, which has these requirements.
fn catalog(package: &str, required: &[Value]) -> Catalog {
    let name = |version: &str| format!("{package}.v{version}");
    let entries = [json!({"name": name("1.0.0")}), json!({"name": name("2.0.0"), "replaces": name("1.0.0")})];
    let bundle = |version: &str, more: &[Value]| {
        let identity = json!({"type": "olm.package", "value": {"packageName": package, "version": version}});
        let properties = [&[identity], more].concat();
        json!({"schema": "olm.bundle", "package": package, "name": name(version), "image": "i", "properties": properties})
    };
    let metas = [
        json!({"schema": "olm.channel", "package": package, "name": "stable", "entries": entries}),
        bundle("1.0.0", &[]),
        bundle("2.0.0", required),
    ];
    let metas: Vec<String> = metas.iter().map(ToString::to_string).collect();
    let content = PackageContent::from_metas(package, metas.iter().map(String::as_bytes)).unwrap();
    let index = PackageIndex::new(&content, Indexing { properties: true, release_support: false });
    Catalog { name: "main".to_owned(), priority: 0, package: Ok(Some(Arc::new(index))) }
}

/// Member with 1.0.0 installed.
fn member(package: &str, required: &[Value]) -> GroupMember {
    let mut rules = ExtensionRules::default();
    rules.settings.dependencies = DependencyMode::Check;
    GroupMember {
        extension: package.to_owned(),
        filter: serde_json::from_value(json!({"packageName": package})).unwrap(),
        installed: BundleMetadata {
            name: format!("{package}.v1.0.0"),
            version: "1.0.0".to_owned(),
            release: None,
        },
        rules,
        catalogs: vec![catalog(package, required)],
        moved: None,
    }
}

/// The deadlocked pair of seed 001.
fn pair() -> Vec<GroupMember> {
    vec![member("a", &[requires("b", ">=2.0.0")]), member("b", &[requires("a", ">=2.0.0")])]
}

/// Dependent that requires `package` in this range.
fn dependent(extension: &str, package: &str, range: &str) -> Dependent {
    let requirements = Requirement::all(&[property(&requires(package, range))]);
    Dependent { extension: extension.to_owned(), bundle: format!("{extension}.v1.0.0"), requirements }
}

/// Step for the member `extension`, with 1.0.0 of every member, and the other providers, installed.
fn shown(extension: &str, members: &[GroupMember], others: &[Provider], dependents: &[Dependent]) -> String {
    let installed = members.iter().map(|member| provider(&member.extension, "1.0.0"));
    let providers = installed.chain(others.iter().cloned()).filter(|one| one.extension() != Some(extension));
    let around = ClusterState {
        providers: Some(AvailableProviders { providers: providers.collect(), ..Default::default() }),
        dependents: dependents.iter().filter(|one| one.extension != extension).cloned().collect(),
        ..ClusterState::default()
    };
    match step(extension, members, &around) {
        None => "none".to_owned(),
        Some(GroupStep::Held { member, cause }) => format!("held by {member}: {cause}"),
        Some(GroupStep::Together { bundle, others, .. }) => {
            let others: Vec<&str> = others.values().map(String::as_str).collect();
            format!("{bundle} with {}", others.join(", "))
        }
    }
}

/// Steps for `a` and `b`, which must not depend on the order of the members.
fn steps(mut members: Vec<GroupMember>, others: &[Provider], dependents: &[Dependent]) -> [String; 2] {
    let of = |members: &[GroupMember]| ["a", "b"].map(|name| shown(name, members, others, dependents));
    let steps = of(&members);
    members.reverse();
    assert_eq!(steps, of(&members), "the order of the members must not matter");
    steps
}

/// Case, members, other installed bundles, and the steps for `a` and `b`.
type Row = (&'static str, Vec<GroupMember>, Vec<Provider>, [String; 2]);

fn compare(rows: Vec<Row>) {
    for (case, members, others, expected) in rows {
        let found = steps(members, &others, &[]);
        for (found, expected) in found.iter().zip(&expected) {
            // The rest of a resolver error is not part of the case.
            assert!(
                found == expected || expected == "held by b" && found.starts_with("held by b: "),
                "{case}: {found}"
            );
        }
    }
}

/// Changed pair of members.
fn with(change: &dyn Fn(&mut Vec<GroupMember>)) -> Vec<GroupMember> {
    let mut members = pair();
    change(&mut members);
    members
}

fn same(text: &str) -> [String; 2] {
    [text.to_owned(), text.to_owned()]
}

// Cases additions-a71, additions-a72
#[test]
fn upgrade_group_moves_together_unless_requirement_is_unmet() {
    let together = ["a.v2.0.0 with b.v2.0.0".to_owned(), "b.v2.0.0 with a.v2.0.0".to_owned()];
    let missing = "an operator with package: c and with version in range: >=1.0.0";
    let needs_c = || member("c-user", &[requires("c", ">=1.0.0")]);
    compare(vec![
        ("deadlocked pair", pair(), vec![], together.clone()),
        (
            "third member without a newer bundle",
            with(&|all| {
                let mut third = member("c", &[]);
                third.filter.version = Some("1.0.0".to_owned());
                all.push(third);
            }),
            vec![],
            together.clone(),
        ),
        (
            "third member that lacks a requirement",
            with(&|all| all.push(needs_c())),
            vec![],
            same(&format!("held by c-user: bundle c-user.v2.0.0 requires {missing}")),
        ),
        (
            "requirement that another extension meets",
            with(&|all| all.push(needs_c())),
            vec![provider("c", "1.0.0")],
            [
                "a.v2.0.0 with b.v2.0.0, c-user.v2.0.0".to_owned(),
                "b.v2.0.0 with a.v2.0.0, c-user.v2.0.0".to_owned(),
            ],
        ),
    ]);
}

#[test]
fn upgrade_group_is_held_by_paused_or_unavailable_member() {
    compare(vec![
        (
            "paused member",
            with(&|all| all[1].rules.paused = true),
            vec![],
            [
                "held by b: bundle b.v2.0.0 waits: annotation ext.olm.operatorframework.io/paused is set"
                    .to_owned(),
                "none".to_owned(),
            ],
        ),
        (
            "member that its range keeps",
            with(&|all| all[1].filter.version = Some("1.x".to_owned())),
            vec![],
            same("none"),
        ),
        (
            "unavailable catalog of a member",
            with(&|all| all[1].catalogs[0].package = Err(CatalogError::NotServing("main".to_owned()))),
            vec![],
            ["held by b".to_owned(), "none".to_owned()],
        ),
        // After a restart between the two revisions.
        (
            "member that already rolls out",
            with(&|all| all[0].moved = Some(provider("a", "2.0.0"))),
            vec![],
            ["none".to_owned(), "b.v2.0.0 with ".to_owned()],
        ),
    ]);
}

// Case additions-a72
#[test]
fn upgrade_group_is_held_by_dependent_outside_of_the_group() {
    let text = "held by a: installed extension user (bundle user.v1.0.0) requires an operator with package: a and with \
                version in range: <2.0.0";
    let holds = ["none", text];
    let together = ["a.v2.0.0 with b.v2.0.0", "b.v2.0.0 with a.v2.0.0"];
    assert_eq!(steps(pair(), &[], &[dependent("user", "a", "<2.0.0")]), holds);
    assert_eq!(steps(pair(), &[], &[dependent("user", "a", ">=1.0.0")]), together);
    // Installed bundles of members do not count: the step replaces them.
    let mutual = [dependent("a", "b", "<2.0.0"), dependent("b", "a", "<2.0.0")];
    assert_eq!(steps(pair(), &[], &mutual), together);
    for (ignoring, expected) in [(1, holds), (2, together)] {
        let mut members = pair();
        members.iter_mut().take(ignoring).for_each(|member| member.rules.ignore_dependents = true);
        assert_eq!(steps(members, &[], &[dependent("user", "a", "<2.0.0")]), expected);
    }
}

#[test]
fn upgrade_group_requires_dependency_mode_check() {
    let extension = |deleted: bool| -> ClusterExtension {
        let mut extension = json!({"metadata": {"name": "a"}});
        if deleted {
            extension["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(extension).unwrap()
    };
    for (mode, deleted, group) in [
        (DependencyMode::Check, false, Some("pair")),
        (DependencyMode::Check, true, None),
        (DependencyMode::Report, false, None),
        (DependencyMode::Reject, false, None),
    ] {
        let mut rules =
            ExtensionRules { upgrade_group: Some("pair".to_owned()), ..ExtensionRules::default() };
        rules.settings.dependencies = mode;
        assert_eq!(rules.group_of(&extension(deleted)), group, "{mode:?} {deleted}");
    }
}
