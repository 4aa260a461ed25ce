//! Which plan is found (docs/design/additions.md#requirement-texts, docs/design/additions.md#order-of-preference,
//! docs/design/additions.md#dependency-modes).

use olm_resolve::UpgradeScope;
use olm_solve::{Because, SolveError};

use crate::world::{World, wish};

/// Both languages of the order of preference: what is wanted gets the highest version, what is required the bundle
/// nearest to the head of the preferred channel.
#[test]
fn the_order_of_preference_holds() {
    let app = "app 1.0.0 @stable pkg:base:>=1.0.0";
    for (name, world, plan) in [
        (
            "a wanted package: the highest version wins, whatever the channel",
            World::default()
                .catalog("main", 0, &["app 1.0.0 @stable default:stable", "app 2.0.0 @alpha"])
                .wants("app"),
            "app.v2.0.0@main",
        ),
        (
            "a required package: the default channel comes first",
            World::default()
                .catalog("main", 0, &[app, "base 1.0.0 @stable default:stable", "base 2.0.0 @alpha"])
                .wants("app"),
            "base.v1.0.0@main; app.v1.0.0@main",
        ),
        (
            "then channels by name",
            World::default()
                .catalog(
                    "main",
                    0,
                    &[app, "base 0.9.0 @stable default:stable", "base 2.0.0 @beta", "base 1.5.0 @alpha"],
                )
                .wants("app"),
            "base.v1.5.0@main; app.v1.0.0@main",
        ),
        (
            "in a channel the head comes first, though its version is lower",
            World::default()
                .catalog("main", 0, &[app, "base 1.2.0 @stable>2.0.0", "base 2.0.0 @stable default:stable"])
                .wants("app"),
            "base.v1.2.0@main; app.v1.0.0@main",
        ),
        (
            "of two heads the higher version",
            World::default()
                .catalog("main", 0, &[app, "base 1.2.0 @stable", "base 2.0.0 @stable"])
                .wants("app"),
            "base.v2.0.0@main; app.v1.0.0@main",
        ),
        (
            "a head by skipRange",
            World::default()
                .catalog("main", 0, &[app, "base 1.2.0 @stable", "base 1.1.0 @stable~<5.0.0"])
                .wants("app"),
            "base.v1.1.0@main; app.v1.0.0@main",
        ),
        (
            "a bundle of no channel comes last",
            World::default().catalog("main", 0, &[app, "base 9.0.0", "base 1.0.0 @zeta"]).wants("app"),
            "base.v1.0.0@main; app.v1.0.0@main",
        ),
        (
            "the catalog of the requirer comes before higher priority",
            World::default()
                .catalog("main", 0, &[app, "base 1.0.0 @s"])
                .catalog("other", 9, &["base 2.0.0 @s"])
                .wants("app"),
            "base.v1.0.0@main; app.v1.0.0@main",
        ),
        (
            "then priority",
            World::default()
                .catalog("main", 0, &[app])
                .catalog("alpha", 1, &["base 2.0.0 @s"])
                .catalog("beta", 2, &["base 1.0.0 @s"])
                .wants("app"),
            "base.v1.0.0@beta; app.v1.0.0@main",
        ),
        (
            "then the catalog's name",
            World::default()
                .catalog("main", 0, &[app])
                .catalog("beta", 0, &["base 2.0.0 @s"])
                .catalog("alpha", 0, &["base 1.0.0 @s"])
                .wants("app"),
            "base.v1.0.0@alpha; app.v1.0.0@main",
        ),
        (
            "what is installed comes before all of them",
            World::default()
                .catalog("main", 0, &[app, "base 2.0.0 @s>1.0.0"])
                .installed("base 1.0.0")
                .wants("app"),
            "app.v1.0.0@main",
        ),
        (
            "what is deprecated comes last",
            World::default()
                .catalog("main", 0, &[app, "base 2.0.0 @s deprecated", "base 1.0.0 @s"])
                .wants("app"),
            "base.v1.0.0@main; app.v1.0.0@main",
        ),
        (
            "among packages that provide a kind: default channel, then the package's name",
            World::default()
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
            "wanted packages: priority decides, not the version",
            World::default()
                .catalog("low", 0, &["app 2.0.0 @s"])
                .catalog("high", 5, &["app 1.0.0 @s"])
                .wants("app"),
            "app.v1.0.0@high",
        ),
    ] {
        assert_eq!(world.plan(), plan, "{name}");
    }
}

#[test]
fn a_lower_version_is_taken_where_the_highest_cannot_be() {
    let world = World::default()
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
    assert_eq!(world.plan(), "store.v1.3.0@main; base.v2.0.0@main; app.v2.0.0@main");
    let plan = world.solve().unwrap();
    let because = |package: &str| {
        let changes = plan.steps.iter().flat_map(|step| &step.changes);
        changes.filter(|c| c.package == package).map(|c| c.because.clone()).next().unwrap()
    };
    assert_eq!(because("app"), Because::Wanted);
    let requires = "with package: store and with version in range: 1.x".to_owned();
    assert_eq!(because("store"), Because::Required { by: "base.v2.0.0".to_owned(), requires });
    assert_eq!(
        plan.to_string(),
        "1. install store 1.3.0 (store.v1.3.0, catalog main, channel s): base.v2.0.0 requires an operator with package: store \
         and with version in range: 1.x\n2. install base 2.0.0 (base.v2.0.0, catalog main, channel s): app.v2.0.0 requires an \
         operator with package: base and with version in range: >=2.0.0\n3. install app 2.0.0 (app.v2.0.0, catalog main, \
         channel s): wanted"
    );
}

#[test]
fn installed_extensions_move_along_edges_only_and_only_where_needed() {
    let catalog = [
        "app 1.0.0 @s pkg:base:>=2.0.0",
        "base 3.0.0 @s>2.0.0",
        "base 2.0.0 @s>1.0.0",
        "base 1.0.0 @s",
        "idle 2.0.0 @s>1.0.0",
    ];
    let world = World::default().catalog("main", 0, &catalog).installed("base 1.0.0").installed("idle 1.0.0");
    assert_eq!(world.plan(), "", "nothing is wanted, so nothing moves");
    assert_eq!(world.clone().wants("app").plan(), "base.v2.0.0@main; app.v1.0.0@main");
    assert_eq!(world.clone().wants("idle").plan(), "idle.v2.0.0@main");
    assert_eq!(world.wants("base").plan(), "base.v2.0.0@main", "one hop, not to the head");

    let current = World::default().catalog("main", 0, &catalog).installed("base 3.0.0").wants("base");
    let plan = current.solve().unwrap();
    assert_eq!((plan.steps.len(), plan.kept), (0, vec!["base".to_owned()]));
    // What the wish excludes does not stay by itself, as the controller would say.
    let mut elsewhere = World::default().catalog("main", 0, &catalog).installed("base 3.0.0").wants("base");
    elsewhere.wanted[0].channels = vec!["t".to_owned()];
    assert!(matches!(elsewhere.solve(), Err(SolveError::Conflict(_))));
    let gone = World::default().installed("base 1.0.0").wants("base");
    assert_eq!(gone.plan(), "", "what no catalog offers any more stays");
}

// docs/design/additions.md#downgrades: down only from what is deprecated or gone
#[test]
fn a_deprecated_bundle_may_be_left_for_a_lower_one() {
    let catalog = |state: &str| {
        let current = format!("base 2.0.0 @s {state}");
        World::default()
            .catalog("main", 0, &[&current, "base 1.9.9 @s>2.0.0"])
            .installed("base 2.0.0")
            .wants("base")
    };
    assert_eq!(catalog("").plan(), "");
    let plan = catalog("deprecated").solve().unwrap().to_string();
    assert_eq!(plan, "1. downgrade base from 2.0.0 to 1.9.9 (base.v1.9.9, catalog main, channel s): wanted");
}

#[test]
fn an_upgrade_names_a_channel_that_leads_to_it() {
    let world = World::default()
        .catalog("main", 0, &["base 2.0.0 @stable @fast>1.0.0 default:stable"])
        .installed("base 1.0.0")
        .wants("base");
    let plan = world.solve().unwrap();
    assert_eq!(plan.steps[0].changes[0].to.channel.as_deref(), Some("fast"));
}

// Case additions-a32; the deadlock of S1: neither can be upgraded first
#[test]
fn mutual_upgrades_are_one_group() {
    let world = World::default()
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
    // The provider of a kind stands first in the group.
    assert_eq!(world.plan(), "b.v2.0.0@main + a.v2.0.0@main");
    let plan = world.solve().unwrap();
    assert!(plan.to_string().starts_with("1. together:\n   - upgrade b from 1.0.0 to 2.0.0 ("), "{plan}");
    assert_eq!(plan.requirements.len(), 2);
}

#[test]
fn one_that_would_break_moves_along() {
    let world = World::default()
        .catalog(
            "main",
            0,
            &["base 2.0.0 @s>1.0.0", "user 1.1.0 @s>1.0.0 pkg:base:>=1.0.0", "user 1.0.0 @s pkg:base:<2.0.0"],
        )
        .installed("base 1.0.0")
        .installed("user 1.0.0 pkg:base:<2.0.0")
        .wants("base");
    // The user works with both, so it goes first.
    assert_eq!(world.plan(), "user.v1.1.0@main; base.v2.0.0@main");
    let because = &world.solve().unwrap().steps[0].changes[0].because;
    let what =
        "user.v1.0.0 requires an operator with package: base and with version in range: <2.0.0".to_owned();
    assert_eq!(*because, Because::WouldBreak { what });
}

#[test]
fn a_kind_is_handed_over() {
    let world = World::default()
        .catalog("main", 0, &["new 1.0.0 @s +Bucket", "old 2.0.0 @s>1.0.0"])
        .installed("old 1.0.0 +Bucket")
        .wants("new");
    assert_eq!(world.plan(), "old.v2.0.0@main; new.v1.0.0@main");
    let because = &world.solve().unwrap().steps[0].changes[0].because;
    let what = "old.v1.0.0 and new.v1.0.0 provide group: ex.io, version: v1, kind: Bucket".to_owned();
    assert_eq!(*because, Because::WouldBreak { what });
}

// Cases additions-a24, additions-a25, additions-a26 in a full solve
#[test]
fn requirements_are_met_by_one_bundle_or_by_the_cluster() {
    let served = World::default().catalog("main", 0, &["app 1.0.0 @s gvk:Bucket", "store 1.0.0 @s +Bucket"]);
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
    let world = |app: &str| World::default().catalog("main", 0, &[app, others[0], others[1]]).wants("app");
    assert_eq!(world(&any).plan(), "cups.v1.0.0@main; app.v1.0.0@main");
    assert!(matches!(world(&all).solve(), Err(SolveError::Conflict(_))));
}

#[test]
fn a_served_kind_of_an_installed_extension_is_no_external_one() {
    let world = World::default()
        .catalog("main", 0, &["app 1.0.0 @s gvk:Bucket", "store 2.0.0 @s>1.0.0", "spare 1.0.0 @s +Bucket"])
        .installed("store 1.0.0 +Bucket")
        .serves("Bucket")
        .wants("app")
        .wants("store");
    // Once the store has given the kind up, only the spare provides it; the old store must be gone before.
    assert_eq!(world.plan(), "store.v2.0.0@main; spare.v1.0.0@main; app.v1.0.0@main");
}

#[test]
fn cycles_of_new_bundles_come_together_and_a_bundle_may_meet_its_own_requirement() {
    let world = World::default()
        .catalog(
            "main",
            0,
            &["x 1.0.0 @s pkg:y:1.x", "y 1.0.0 @s pkg:x:1.x +Bucket gvk:Bucket", "app 1.0.0 @s pkg:x:1.x"],
        )
        .wants("app");
    assert_eq!(world.plan(), "y.v1.0.0@main + x.v1.0.0@main; app.v1.0.0@main");
}

#[test]
fn nothing_needless_is_installed() {
    let world = World::default()
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
    assert_eq!(world.plan(), "abel.v1.0.0@main + helper.v1.0.0@main; cain.v1.0.0@main; app.v1.0.0@main");
    // The first requirement prefers `abel`, but the second one needs `cain`, which meets both.
    let any = r#"con:{"any":{"constraints":[{"package":{"packageName":"abel","versionRange":"1.x"}},{"package":{"packageName":"cain","versionRange":"1.x"}}]}}"#;
    let app = format!("app 1.0.0 @s {any} pkg:cain:1.x");
    let world = World::default()
        .catalog(
            "main",
            0,
            &[&app, "abel 1.0.0 @s pkg:helper:1.x", "cain 1.0.0 @s", "helper 1.0.0 @s pkg:abel:1.x"],
        )
        .wants("app");
    assert_eq!(world.plan(), "cain.v1.0.0@main; app.v1.0.0@main");
}

#[test]
fn faulty_questions_are_refused() {
    let world = World::default().catalog("main", 0, &["app 1.0.0 @s"]);
    let error = |world: &World| world.solve().unwrap_err().to_string();
    assert_eq!(
        error(&world.clone().wants("app foobar")),
        "package app: desired version range \"foobar\" is invalid: improper constraint: \"foobar\""
    );
    assert_eq!(error(&world.clone().wants("app").wants("app")), "package app is wanted more than once");
    let mut twice = world.clone().installed("app 1.0.0").installed("app 1.0.0");
    twice.installed[0].extension = "other".to_owned();
    assert_eq!(error(&twice), "package app is installed more than once, by app and other");
    let mut late = world.question();
    late.wanted.push(wish("app"));
    late.deadline = std::time::Instant::now();
    assert_eq!(
        olm_solve::solve(&late).unwrap_err().to_string(),
        "resolution exceeded time budget; the largest package involved is app with 1 bundles"
    );
}

#[test]
fn a_bundle_without_a_readable_version_is_never_chosen() {
    let world = World::default().catalog("main", 0, &["app 2.x @s", "app 1.0.0 @s"]).wants("app");
    assert_eq!(world.plan(), "app.v1.0.0@main");
    let world = World::default().catalog("main", 0, &["app 2.x @s"]).wants("app");
    assert!(world.conflict().to_string().contains("app.v2.x (main): "), "{}", world.conflict());
}

#[test]
fn wishes_narrow_channels_catalogs_and_requirements() {
    let world = World::default()
        .catalog("main", 0, &["app 2.0.0 @fast", "app 1.0.0 @slow pkg:none:1.x"])
        .catalog("other", 9, &["app 9.0.0 @fast"]);
    let mut narrow = world.clone().wants("app");
    narrow.wanted[0].catalogs = Some(["main".to_owned()].into());
    assert_eq!(narrow.plan(), "app.v2.0.0@main");
    narrow.wanted[0].channels = vec!["slow".to_owned()];
    assert!(narrow.solve().is_err());
    narrow.wanted[0].ignored_requirements = vec!["olm.package.required".to_owned()];
    assert_eq!(narrow.plan(), "app.v1.0.0@main");
}

// docs/design/additions.md#upgrade-scope, docs/design/additions.md#skipped-versions
#[test]
fn the_brakes_of_a_wish_hold() {
    let mut world = World::default()
        .catalog("main", 0, &["app 2.0.0 @s>1.0.0", "app 1.1.0 @s>1.0.0", "app 1.0.0 @s"])
        .installed("app 1.0.0")
        .wants("app");
    assert_eq!(world.plan(), "app.v2.0.0@main");
    world.wanted[0].upgrade_scope = Some(UpgradeScope::Minor);
    assert_eq!(world.plan(), "app.v1.1.0@main");
    world.wanted[0].upgrade_scope = Some(UpgradeScope::Patch);
    assert_eq!(world.plan(), "");

    // An extension that is only to be moved along is held by its own wish.
    let mut along = World::default()
        .catalog("main", 0, &["app 1.0.0 @s pkg:base:>=2.0.0", "base 2.0.0 @s>1.0.0", "base 1.0.0 @s"])
        .installed("base 1.0.0")
        .wants("app");
    assert_eq!(along.plan(), "base.v2.0.0@main; app.v1.0.0@main");
    along.installed[0].wish.upgrade_scope = Some(UpgradeScope::Minor);
    let conflict = along.conflict().to_string();
    let held = "base.v2.0.0 2.0.0 (main): outside of the upgrade scope \"minor\" of installed 1.0.0";
    assert!(conflict.contains(held), "{conflict}");

    let mut skipping = World::default()
        .catalog("main", 0, &["app 1.5.0 @s", "app 1.0.0 @s", "app 2.0.0 @s skips:1.5.0"])
        .wants("app <2.0.0");
    assert_eq!(skipping.plan(), "app.v1.5.0@main");
    skipping.wanted[0].exclude_skipped = true;
    assert_eq!(skipping.plan(), "app.v1.0.0@main");
}
