//! Plans that the solver prefers (docs/design/additions.md#requirement-texts,
//! docs/design/additions.md#order-of-preference, docs/design/additions.md#dependency-modes).

use olm_resolve::UpgradeScope;
use olm_solve::{ChangeReason, SolveError};

use crate::fixture::{Fixture, constraints};

/// Order of preference: a requested package gets the highest version, a required one the bundle nearest to the head of
/// the preferred channel.
#[test]
fn plan_follows_the_order_of_preference() {
    let app = "app 1.0.0 @stable pkg:base:>=1.0.0";
    for (name, fixture, plan) in [
        (
            "a requested package: the highest version wins, whatever the channel",
            Fixture::default()
                .catalog("main", 0, &["app 1.0.0 @stable default:stable", "app 2.0.0 @alpha"])
                .wants("app"),
            "app.v2.0.0@main",
        ),
        (
            "a required package: the default channel comes first",
            Fixture::default()
                .catalog("main", 0, &[app, "base 1.0.0 @stable default:stable", "base 2.0.0 @alpha"])
                .wants("app"),
            "base.v1.0.0@main; app.v1.0.0@main",
        ),
        (
            "a required package: after the default channel, channels by name",
            Fixture::default()
                .catalog(
                    "main",
                    0,
                    &[app, "base 0.9.0 @stable default:stable", "base 2.0.0 @beta", "base 1.5.0 @alpha"],
                )
                .wants("app"),
            "base.v1.5.0@main; app.v1.0.0@main",
        ),
        (
            "the head of a channel precedes a higher version",
            Fixture::default()
                .catalog("main", 0, &[app, "base 1.2.0 @stable>2.0.0", "base 2.0.0 @stable default:stable"])
                .wants("app"),
            "base.v1.2.0@main; app.v1.0.0@main",
        ),
        (
            "of two heads the higher version wins",
            Fixture::default()
                .catalog("main", 0, &[app, "base 1.2.0 @stable", "base 2.0.0 @stable"])
                .wants("app"),
            "base.v2.0.0@main; app.v1.0.0@main",
        ),
        (
            "a skipRange makes a head",
            Fixture::default()
                .catalog("main", 0, &[app, "base 1.2.0 @stable", "base 1.1.0 @stable~<5.0.0"])
                .wants("app"),
            "base.v1.1.0@main; app.v1.0.0@main",
        ),
        (
            "a bundle without a channel is last",
            Fixture::default().catalog("main", 0, &[app, "base 9.0.0", "base 1.0.0 @zeta"]).wants("app"),
            "base.v1.0.0@main; app.v1.0.0@main",
        ),
    ] {
        assert_eq!(fixture.plan(), plan, "{name}");
    }
}

#[test]
fn plan_prefers_the_catalog_of_the_requirement_then_by_priority() {
    let app = "app 1.0.0 @stable pkg:base:>=1.0.0";
    for (name, fixture, plan) in [
        (
            "the catalog of the requiring bundle precedes higher priority",
            Fixture::default()
                .catalog("main", 0, &[app, "base 1.0.0 @s"])
                .catalog("other", 9, &["base 2.0.0 @s"])
                .wants("app"),
            "base.v1.0.0@main; app.v1.0.0@main",
        ),
        (
            "then the catalog with the higher priority wins",
            Fixture::default()
                .catalog("main", 0, &[app])
                .catalog("alpha", 1, &["base 2.0.0 @s"])
                .catalog("beta", 2, &["base 1.0.0 @s"])
                .wants("app"),
            "base.v1.0.0@beta; app.v1.0.0@main",
        ),
        (
            "then the catalog's name decides",
            Fixture::default()
                .catalog("main", 0, &[app])
                .catalog("beta", 0, &["base 2.0.0 @s"])
                .catalog("alpha", 0, &["base 1.0.0 @s"])
                .wants("app"),
            "base.v1.0.0@alpha; app.v1.0.0@main",
        ),
    ] {
        assert_eq!(fixture.plan(), plan, "{name}");
    }
}

#[test]
fn plan_keeps_installed_bundles_and_avoids_deprecated_ones() {
    let app = "app 1.0.0 @stable pkg:base:>=1.0.0";
    for (name, fixture, plan) in [
        (
            "an installed bundle precedes all others",
            Fixture::default()
                .catalog("main", 0, &[app, "base 2.0.0 @s>1.0.0"])
                .installed("base 1.0.0")
                .wants("app"),
            "app.v1.0.0@main",
        ),
        (
            "a deprecated bundle is last",
            Fixture::default()
                .catalog("main", 0, &[app, "base 2.0.0 @s deprecated", "base 1.0.0 @s"])
                .wants("app"),
            "base.v1.0.0@main; app.v1.0.0@main",
        ),
        (
            "among packages that provide a kind: default channel, then the package's name",
            Fixture::default()
                .catalog(
                    "main",
                    0,
                    &[
                        "app 1.0.0 @s gvk:Bucket",
                        "abel 1.0.0 @s +Bucket",
                        "cain 1.0.0 @s +Bucket default:s",
                        "seth 1.0.0 @s +Bucket default:s",
                    ],
                )
                .wants("app"),
            "cain.v1.0.0@main; app.v1.0.0@main",
        ),
        (
            "requested packages: priority decides, not the version",
            Fixture::default()
                .catalog("low", 0, &["app 2.0.0 @s"])
                .catalog("high", 5, &["app 1.0.0 @s"])
                .wants("app"),
            "app.v1.0.0@high",
        ),
    ] {
        assert_eq!(fixture.plan(), plan, "{name}");
    }
}

#[test]
fn lower_version_is_chosen_if_the_highest_is_unsatisfiable() {
    let fixture = Fixture::default()
        .catalog(
            "main",
            0,
            &[
                "app 3.0.0 @s>2.0.0 pkg:base:>=9.0.0",
                "app 2.0.0 @s>1.0.0 pkg:base:>=2.0.0",
                "app 1.0.0 @s",
                "base 2.0.0 @s pkg:store:1.x",
                "store 1.3.0 @s",
            ],
        )
        .wants("app");
    assert_eq!(fixture.plan(), "store.v1.3.0@main; base.v2.0.0@main; app.v2.0.0@main");
    let plan = fixture.solve().unwrap();
    let because = |package: &str| {
        let changes = plan.steps.iter().flat_map(|step| &step.changes);
        changes.filter(|c| c.package == package).map(|c| c.because.clone()).next().unwrap()
    };
    assert_eq!(because("app"), ChangeReason::Requested);
    let requires = "with package: store and with version in range: 1.x".to_owned();
    assert_eq!(because("store"), ChangeReason::Required { by: "base.v2.0.0".to_owned(), requires });
    assert_eq!(
        plan.to_string(),
        "1. install store 1.3.0 (store.v1.3.0, catalog main, channel s): base.v2.0.0 requires an operator with package: store \
         and with version in range: 1.x\n2. install base 2.0.0 (base.v2.0.0, catalog main, channel s): app.v2.0.0 requires an \
         operator with package: base and with version in range: >=2.0.0\n3. install app 2.0.0 (app.v2.0.0, catalog main, \
         channel s): requested"
    );
}

#[test]
fn installed_extensions_follow_edges_only_where_needed() {
    let catalog = [
        "app 1.0.0 @s pkg:base:>=2.0.0",
        "base 3.0.0 @s>2.0.0",
        "base 2.0.0 @s>1.0.0",
        "base 1.0.0 @s",
        "idle 2.0.0 @s>1.0.0",
    ];
    let fixture =
        Fixture::default().catalog("main", 0, &catalog).installed("base 1.0.0").installed("idle 1.0.0");
    assert_eq!(fixture.plan(), "", "no constraints, no change");
    assert_eq!(fixture.clone().wants("app").plan(), "base.v2.0.0@main; app.v1.0.0@main");
    assert_eq!(fixture.clone().wants("idle").plan(), "idle.v2.0.0@main");
    assert_eq!(fixture.wants("base").plan(), "base.v2.0.0@main", "one upgrade edge, not to the head");

    let current = Fixture::default().catalog("main", 0, &catalog).installed("base 3.0.0").wants("base");
    let plan = current.solve().unwrap();
    assert_eq!((plan.steps.len(), plan.kept), (0, vec!["base".to_owned()]));
    // An installed bundle that the constraints exclude is not kept, as in the controller.
    let mut elsewhere = Fixture::default().catalog("main", 0, &catalog).installed("base 3.0.0").wants("base");
    elsewhere.requested[0].channels = vec!["t".to_owned()];
    assert!(matches!(elsewhere.solve(), Err(SolveError::Conflict(_))));
    let gone = Fixture::default().installed("base 1.0.0").wants("base");
    assert_eq!(gone.plan(), "", "a bundle that no catalog offers any more is kept");
}

// docs/design/additions.md#downgrades: only from a deprecated or removed bundle.
#[test]
fn deprecated_bundle_is_downgraded_along_an_edge() {
    let catalog = |state: &str| {
        let current = format!("base 2.0.0 @s {state}");
        Fixture::default()
            .catalog("main", 0, &[&current, "base 1.9.9 @s>2.0.0"])
            .installed("base 2.0.0")
            .wants("base")
    };
    assert_eq!(catalog("").plan(), "");
    let plan = catalog("deprecated").solve().unwrap().to_string();
    assert_eq!(
        plan,
        "1. downgrade base from 2.0.0 to 1.9.9 (base.v1.9.9, catalog main, channel s): requested"
    );
}

#[test]
fn upgrade_names_a_channel_with_an_edge() {
    let fixture = Fixture::default()
        .catalog("main", 0, &["base 2.0.0 @stable @fast>1.0.0 default:stable"])
        .installed("base 1.0.0")
        .wants("base");
    let plan = fixture.solve().unwrap();
    assert_eq!(plan.steps[0].changes[0].to.channel.as_deref(), Some("fast"));
}

// Case additions-a32: neither can be upgraded first.
#[test]
fn mutual_upgrades_form_one_group() {
    let fixture = Fixture::default()
        .catalog(
            "main",
            0,
            &[
                "a 2.0.0 @s>1.0.0 pkg:b:>=2.0.0",
                "a 1.0.0 @s pkg:b:<2.0.0",
                "b 2.0.0 @s>1.0.0 pkg:a:>=2.0.0 +Bucket",
                "b 1.0.0 @s pkg:a:<2.0.0 +Bucket",
            ],
        )
        .installed("a 1.0.0 pkg:b:<2.0.0")
        .installed("b 1.0.0 pkg:a:<2.0.0 +Bucket")
        .wants("a");
    // The provider of a kind is first in the group.
    assert_eq!(fixture.plan(), "b.v2.0.0@main + a.v2.0.0@main");
    let plan = fixture.solve().unwrap();
    assert!(plan.to_string().starts_with("1. together:\n   - upgrade b from 1.0.0 to 2.0.0 ("), "{plan}");
    assert_eq!(plan.requirements.len(), 2);
}

#[test]
fn installed_extension_that_would_break_is_upgraded_too() {
    let fixture = Fixture::default()
        .catalog(
            "main",
            0,
            &["base 2.0.0 @s>1.0.0", "user 1.1.0 @s>1.0.0 pkg:base:>=1.0.0", "user 1.0.0 @s pkg:base:<2.0.0"],
        )
        .installed("base 1.0.0")
        .installed("user 1.0.0 pkg:base:<2.0.0")
        .wants("base");
    // The new bundle of `user` works with both versions of `base`, so it is upgraded first.
    assert_eq!(fixture.plan(), "user.v1.1.0@main; base.v2.0.0@main");
    let because = &fixture.solve().unwrap().steps[0].changes[0].because;
    let what =
        "user.v1.0.0 requires an operator with package: base and with version in range: <2.0.0".to_owned();
    assert_eq!(*because, ChangeReason::WouldBreak { what });
}

#[test]
fn kind_moves_to_the_new_provider_after_the_old_one_drops_it() {
    let fixture = Fixture::default()
        .catalog("main", 0, &["new 1.0.0 @s +Bucket", "old 2.0.0 @s>1.0.0"])
        .installed("old 1.0.0 +Bucket")
        .wants("new");
    assert_eq!(fixture.plan(), "old.v2.0.0@main; new.v1.0.0@main");
    let because = &fixture.solve().unwrap().steps[0].changes[0].because;
    let what = "old.v1.0.0 and new.v1.0.0 provide group: ex.io, version: v1, kind: Bucket".to_owned();
    assert_eq!(*because, ChangeReason::WouldBreak { what });
}

// Cases additions-a24, additions-a25, additions-a26 in a complete solve.
#[test]
fn requirement_is_met_by_one_bundle_or_by_the_cluster() {
    let served =
        Fixture::default().catalog("main", 0, &["app 1.0.0 @s gvk:Bucket", "store 1.0.0 @s +Bucket"]);
    assert_eq!(served.clone().wants("app").plan(), "store.v1.0.0@main; app.v1.0.0@main");
    let served = served.serves("Bucket").wants("app");
    assert_eq!(served.plan(), "app.v1.0.0@main");
    let met = &served.solve().unwrap().requirements[0];
    assert_eq!((met.by.as_str(), met.external), ("group: ex.io, version: v1, kind: Bucket", true));

    let gvk = r#"{"gvk":{"group":"ex.io","version":"v1","kind":"Bucket"}}"#;
    let package = r#"{"package":{"packageName":"store","versionRange":">=2.0.0"}}"#;
    let any = format!("app 1.0.0 @s con:{{\"any\":{{\"constraints\":[{package},{gvk}]}}}}");
    let all = format!("app 1.0.0 @s con:{{\"all\":{{\"constraints\":[{package},{gvk}]}}}}");
    let others = ["store 2.0.0 @s", "cups 1.0.0 @s +Bucket"];
    let fixture =
        |app: &str| Fixture::default().catalog("main", 0, &[app, others[0], others[1]]).wants("app");
    assert_eq!(fixture(&any).plan(), "cups.v1.0.0@main; app.v1.0.0@main");
    assert!(matches!(fixture(&all).solve(), Err(SolveError::Conflict(_))));
}

#[test]
fn served_kind_of_an_installed_extension_is_not_external() {
    let fixture = Fixture::default()
        .catalog("main", 0, &["app 1.0.0 @s gvk:Bucket", "store 2.0.0 @s>1.0.0", "spare 1.0.0 @s +Bucket"])
        .installed("store 1.0.0 +Bucket")
        .serves("Bucket")
        .wants("app")
        .wants("store");
    // The upgraded `store` drops the kind, so only `spare` provides it. The old `store` must be replaced before.
    assert_eq!(fixture.plan(), "store.v2.0.0@main; spare.v1.0.0@main; app.v1.0.0@main");
}

#[test]
fn cyclic_requirements_form_one_group_and_self_requirement_is_met() {
    let fixture = Fixture::default()
        .catalog(
            "main",
            0,
            &["x 1.0.0 @s pkg:y:1.x", "y 1.0.0 @s pkg:x:1.x +Bucket gvk:Bucket", "app 1.0.0 @s pkg:x:1.x"],
        )
        .wants("app");
    assert_eq!(fixture.plan(), "y.v1.0.0@main + x.v1.0.0@main; app.v1.0.0@main");
}

#[test]
fn unneeded_bundles_are_not_installed() {
    let fixture = Fixture::default()
        .catalog(
            "main",
            0,
            &[
                "app 1.0.0 @s gvk:Bucket pkg:cain:1.x",
                "abel 1.0.0 @s +Cup +Bucket pkg:helper:1.x",
                "cain 1.0.0 @s +Lid",
                "helper 1.0.0 @s pkg:abel:1.x",
            ],
        )
        .wants("app");
    assert_eq!(fixture.plan(), "abel.v1.0.0@main + helper.v1.0.0@main; cain.v1.0.0@main; app.v1.0.0@main");
    // The first requirement prefers `abel`, but the second one needs `cain`, which meets both.
    let any = r#"con:{"any":{"constraints":[{"package":{"packageName":"abel","versionRange":"1.x"}},{"package":{"packageName":"cain","versionRange":"1.x"}}]}}"#;
    let app = format!("app 1.0.0 @s {any} pkg:cain:1.x");
    let fixture = Fixture::default()
        .catalog(
            "main",
            0,
            &[&app, "abel 1.0.0 @s pkg:helper:1.x", "cain 1.0.0 @s", "helper 1.0.0 @s pkg:abel:1.x"],
        )
        .wants("app");
    assert_eq!(fixture.plan(), "cain.v1.0.0@main; app.v1.0.0@main");
}

#[test]
fn solver_rejects_invalid_range_and_duplicate_packages() {
    let fixture = Fixture::default().catalog("main", 0, &["app 1.0.0 @s"]);
    let error = |fixture: &Fixture| fixture.solve().unwrap_err().to_string();
    assert_eq!(
        error(&fixture.clone().wants("app foobar")),
        "package app: desired version range \"foobar\" is invalid: improper constraint: \"foobar\""
    );
    assert_eq!(error(&fixture.clone().wants("app").wants("app")), "package app is requested more than once");
    let mut twice = fixture.clone().installed("app 1.0.0").installed("app 1.0.0").wants("app");
    twice.installed[0].extension = "other".to_owned();
    assert_eq!(error(&twice), "package app is installed more than once, by app and other");
    let mut late = fixture.input();
    late.requested.push(constraints("app"));
    late.deadline = std::time::Instant::now();
    assert_eq!(
        olm_solve::solve(&late).unwrap_err().to_string(),
        "resolution exceeded time budget; the largest package involved is app with 1 bundles"
    );
}

#[test]
fn package_that_is_installed_twice_stays_and_stops_no_other() {
    let catalog = ["app 1.0.0 @s pkg:lib:1.x", "new 1.0.0 @s pkg:lib:3.x", "lib 3.0.0 @s", "other 1.0.0 @s"];
    let mut fixture = Fixture::default()
        .catalog("main", 0, &catalog)
        .installed("lib 2.0.0 +Lid")
        .installed("lib 1.0.0 +Lid pkg:other:1.x")
        .installed("other 1.0.0");
    fixture.installed[0].extension = "first".to_owned();
    fixture.installed[1].extension = "second".to_owned();
    // The second installation meets the requirement.
    assert_eq!(fixture.clone().wants("app").plan(), "app.v1.0.0@main");
    let conflict = fixture.wants("new").conflict().to_string();
    let why = "the package is installed more than once, by first and second, and not changed";
    assert!(conflict.contains(why), "{conflict}");
}

#[test]
fn bundle_with_unreadable_version_is_never_chosen() {
    let fixture = Fixture::default().catalog("main", 0, &["app 2.x @s", "app 1.0.0 @s"]).wants("app");
    assert_eq!(fixture.plan(), "app.v1.0.0@main");
    let fixture = Fixture::default().catalog("main", 0, &["app 2.x @s"]).wants("app");
    assert!(fixture.conflict().to_string().contains("app.v2.x (main): "), "{}", fixture.conflict());
}

#[test]
fn constraints_restrict_channels_catalogs_and_requirements() {
    let fixture = Fixture::default()
        .catalog("main", 0, &["app 2.0.0 @fast", "app 1.0.0 @slow pkg:none:1.x"])
        .catalog("other", 9, &["app 9.0.0 @fast"]);
    let mut narrow = fixture.clone().wants("app");
    narrow.requested[0].catalogs = Some(["main".to_owned()].into());
    assert_eq!(narrow.plan(), "app.v2.0.0@main");
    narrow.requested[0].channels = vec!["slow".to_owned()];
    assert!(narrow.solve().is_err());
    narrow.requested[0].ignored_requirements = vec!["olm.package.required".to_owned()];
    assert_eq!(narrow.plan(), "app.v1.0.0@main");
}

// docs/design/additions.md#upgrade-scope, docs/design/additions.md#skipped-versions
#[test]
fn upgrade_scope_and_skipped_versions_limit_the_plan() {
    let mut fixture = Fixture::default()
        .catalog("main", 0, &["app 2.0.0 @s>1.0.0", "app 1.1.0 @s>1.0.0", "app 1.0.0 @s"])
        .installed("app 1.0.0")
        .wants("app");
    assert_eq!(fixture.plan(), "app.v2.0.0@main");
    fixture.requested[0].upgrade_scope = Some(UpgradeScope::Minor);
    assert_eq!(fixture.plan(), "app.v1.1.0@main");
    fixture.requested[0].upgrade_scope = Some(UpgradeScope::Patch);
    assert_eq!(fixture.plan(), "");

    // An installed extension that changes only because of another one obeys its own constraints.
    let mut along = Fixture::default()
        .catalog("main", 0, &["app 1.0.0 @s pkg:base:>=2.0.0", "base 2.0.0 @s>1.0.0", "base 1.0.0 @s"])
        .installed("base 1.0.0")
        .wants("app");
    assert_eq!(along.plan(), "base.v2.0.0@main; app.v1.0.0@main");
    along.installed[0].constraints.upgrade_scope = Some(UpgradeScope::Minor);
    let conflict = along.conflict().to_string();
    let held = "base.v2.0.0 2.0.0 (main): outside of the upgrade scope \"minor\" of installed 1.0.0";
    assert!(conflict.contains(held), "{conflict}");

    let mut skipping = Fixture::default()
        .catalog("main", 0, &["app 1.5.0 @s", "app 1.0.0 @s", "app 2.0.0 @s skips:1.5.0"])
        .wants("app <2.0.0");
    assert_eq!(skipping.plan(), "app.v1.5.0@main");
    skipping.requested[0].exclude_skipped = true;
    assert_eq!(skipping.plan(), "app.v1.0.0@main");
}
