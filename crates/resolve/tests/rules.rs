//! Rules beyond the reference that hold bundles back or skip catalogs: upgrade scope, skipped bundles, cluster
//! demands, best effort (docs/design/additions.md#annotations, docs/design/additions.md#best-effort-resolution,
//! docs/design/additions.md#upgrade-scope, docs/design/additions.md#skipped-versions).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod fixture;

use std::collections::BTreeSet;

use olm_resolve::{
    ClusterFacts, DependencyMode, Gvk, HeldReason, ResolveError, Rules, UpgradeScope, left_out_text,
};
use serde_json::{Value, json};

use fixture::{Content, RequestFixture, check_explanation, down, entry, one, replacing, request, skipping};

fn scope(scope: UpgradeScope) -> Rules<'static> {
    Rules { upgrade_scope: Some(scope), ..Rules::default() }
}

fn exclude_skipped() -> Rules<'static> {
    Rules { exclude_skipped: true, ..Rules::default() }
}

fn best_effort() -> Rules<'static> {
    Rules { best_effort: true, ..Rules::default() }
}

/// The S2 example: 3.0.0 skips 2.0.0, which is a successor of every 1.x.
fn skipped() -> Content {
    Content::default().channel(
        "stable",
        &[
            entry("1.0.0"),
            skipping("2.0.0", ">=1.0.0 <2.0.0"),
            json!({"name": "demo.v3.0.0", "skips": ["demo.v2.0.0"]}),
        ],
    )
}

/// Texts of the held bundles of a choice.
fn held(request: &RequestFixture<'_>, content: &Content) -> Vec<String> {
    let resolved = request.resolve(&[content.at("main", 0)]).unwrap();
    resolved.held.iter().map(ToString::to_string).collect()
}

// docs/design/additions.md#upgrade-scope; cases additions-a13, additions-e09
#[test]
fn upgrade_scope_holds_back_larger_steps() {
    use UpgradeScope::{Major, Minor, Patch};
    let content = Content::default().channel(
        "stable",
        &[
            entry("1.0.0"),
            replacing("1.0.1", "1.0.0"),
            replacing("1.1.0", "1.0.0"),
            replacing("2.0.0", "1.0.0"),
        ],
    );
    for (rules, expected) in [
        (Rules::default(), "2.0.0"),
        (scope(Major), "2.0.0"),
        (scope(Minor), "1.1.0"),
        (scope(Patch), "1.0.1"),
    ] {
        assert_eq!(request().installed("1.0.0").rules(rules).from(&content), expected);
    }
    let only_major = Content::default().channel("stable", &[entry("1.0.0"), replacing("2.0.0", "1.0.0")]);
    let minor = request().installed("1.0.0").rules(scope(Minor));
    assert_eq!(minor.from(&only_major), "1.0.0");
    assert_eq!(
        held(&minor, &only_major),
        [r#"passed over demo.v2.0.0: outside of the upgrade scope "minor" of installed 1.0.0"#]
    );
    let best = &minor.resolve(&[only_major.at("main", 0)]).unwrap().held[0];
    assert_eq!((best.version.as_str(), best.catalog.as_str()), ("2.0.0", "main"));
    assert!(
        matches!(&best.reason, HeldReason::OutsideScope { scope: Minor, installed } if installed == "1.0.0")
    );
}

#[test]
fn upgrade_scope_allows_installs_downgrades_and_kept_versions() {
    let patch = scope(UpgradeScope::Patch);
    // An installation, a downgrade, the installed version itself.
    assert_eq!(request().rules(patch).from(&one("9.0.0")), "9.0.0");
    let back = request().installed("2.0.0").version("1.0.0").self_certified().rules(patch);
    assert_eq!(back.from(&one("1.0.0")), "1.0.0");
    assert_eq!(request().installed("1.0.0").rules(patch).from(&one("1.0.0")), "1.0.0");
    // The scope also applies without upgrade edges.
    let free = request().installed("1.0.0").self_certified().rules(patch);
    assert_eq!(free.from(&one("1.0.4").bundle("1.1.0", &[])), "1.0.4");
    // Without a readable installed version nothing is held back.
    let unreadable = request().installed("junk").self_certified().rules(patch);
    assert_eq!(unreadable.from(&one("1.1.0")), "1.1.0");
}

#[test]
fn error_lists_held_bundles_with_their_rules() {
    let vanished = Content::default()
        .channel("stable", &[2, 3, 4, 5].map(|major| replacing(&format!("{major}.0.0"), "1.0.0")));
    assert_eq!(
        request().installed("1.0.0").rules(scope(UpgradeScope::Minor)).version(">=1").from(&vanished),
        "error upgrading from currently installed version \"1.0.0\": no bundles found for package \"demo\" matching \
         version \">=1\": passed over demo.v5.0.0: outside of the upgrade scope \"minor\" of installed 1.0.0; passed \
         over demo.v4.0.0: outside of the upgrade scope \"minor\" of installed 1.0.0; passed over demo.v3.0.0: outside \
         of the upgrade scope \"minor\" of installed 1.0.0; and 1 more"
    );
    let error =
        request().installed("1.0.0").rules(scope(UpgradeScope::Minor)).resolve(&[vanished.at("main", 0)]);
    assert_eq!(error.unwrap_err().held().len(), 4);
}

// docs/design/additions.md#skipped-versions; cases additions-a14, additions-a16, seeds-s0-1
#[test]
fn skipped_bundles_are_installed_with_a_remark_or_excluded() {
    let resolved = request().installed("1.0.0").resolve(&[skipped().at("main", 0)]).unwrap();
    assert_eq!(resolved.bundle, "demo.v2.0.0");
    assert_eq!(
        resolved.remarks,
        ["bundle demo.v2.0.0 is skipped in channels [stable] and should not be installed"]
    );

    let excluding = request().installed("1.0.0").rules(exclude_skipped());
    assert_eq!(excluding.from(&skipped()), "1.0.0");
    assert_eq!(held(&excluding, &skipped()), ["passed over demo.v2.0.0: skipped in channels [stable]"]);
    // An extension with a skipped bundle keeps it without a remark, and can be upgraded.
    let on_it = request().installed("2.0.0").rules(exclude_skipped());
    assert_eq!(on_it.from(&skipped()), "3.0.0");
    let stays = request().installed("2.0.0").version("2.0.0");
    for rules in [Rules::default(), exclude_skipped()] {
        let resolved = stays.clone().rules(rules).resolve(&[skipped().at("main", 0)]).unwrap();
        assert_eq!((resolved.bundle.as_str(), resolved.remarks.len()), ("demo.v2.0.0", 0));
    }
    assert_eq!(
        request().version("2.0.0").rules(exclude_skipped()).from(&skipped()),
        "no bundles found for package \"demo\" matching version \"2.0.0\": passed over demo.v2.0.0: skipped in channels \
         [stable]"
    );
}

#[test]
fn bundles_are_skipped_only_by_other_entries_of_considered_channels() {
    let elsewhere = Content::default()
        .channel("stable", &[entry("1.0.0"), replacing("2.0.0", "1.0.0")])
        .channel("fast", &[json!({"name": "demo.v3.0.0", "skips": ["demo.v2.0.0"]})]);
    let stable = request().installed("1.0.0").channels(&["stable"]).rules(exclude_skipped());
    assert_eq!(stable.from(&elsewhere), "2.0.0");
    assert_eq!(request().installed("1.0.0").rules(exclude_skipped()).from(&elsewhere), "1.0.0");
    let itself = Content::default().channel(
        "stable",
        &[entry("1.0.0"), json!({"name": "demo.v2.0.0", "skips": ["demo.v1.0.0", "demo.v2.0.0"]})],
    );
    assert_eq!(request().installed("1.0.0").rules(exclude_skipped()).from(&itself), "2.0.0");
}

// docs/design/additions.md#skipped-versions
#[test]
fn versions_in_skip_range_of_newer_entry_are_excluded() {
    let range = |version: &str, replaces: &str, range: &str| json!({"name": format!("demo.v{version}"), "replaces": format!("demo.v{replaces}"), "skipRange": range});
    let entries = [entry("1.0.0"), replacing("1.1.0", "1.0.0"), range("1.2.0", "1.1.0", ">=1.1.0 <1.2.0")];
    let stable = Content::default().channel("stable", &entries);
    let from = |content: &Content, rules| request().installed("1.0.0").rules(rules).from(content);
    assert_eq!(from(&stable, Rules::default()), "1.1.0");
    assert_eq!(from(&stable, exclude_skipped()), "1.0.0");
    let excluding = request().installed("1.0.0").rules(exclude_skipped());
    assert_eq!(held(&excluding, &stable), ["passed over demo.v1.1.0: skipped in channels [stable]"]);
    // Without the rule, a version in a range is not a reason for a remark.
    let resolved = request().installed("1.0.0").resolve(&[stable.at("main", 0)]).unwrap();
    assert_eq!(resolved.remarks, Vec::<String>::new());
    // The installed version is kept and can be upgraded.
    assert_eq!(request().installed("1.1.0").rules(exclude_skipped()).from(&stable), "1.2.0");
    let pinned = request().installed("1.1.0").version("1.1.0").rules(exclude_skipped());
    assert_eq!(pinned.from(&stable), "1.1.0");
    // Only entries of newer bundles, in a channel that contains the version, and is considered.
    let older = [range("1.1.0", "1.0.0", ">=1.0.0 <9.0.0"), replacing("1.2.0", "1.0.0")];
    assert_eq!(from(&Content::default().channel("stable", &older), exclude_skipped()), "1.2.0");
    let elsewhere = [replacing("1.1.0", "1.0.0")];
    let apart = Content::default()
        .channel("stable", &elsewhere)
        .channel("fast", &[skipping("1.2.0", ">=1.1.0 <1.2.0")]);
    assert_eq!(from(&apart, exclude_skipped()), "1.1.0");
    let stable_only = request().installed("1.0.0").channels(&["fast"]).rules(exclude_skipped());
    let both = [entry("1.0.0"), replacing("1.1.0", "1.0.0")];
    let both = Content::default().channel("fast", &both).channel("stable", &entries);
    assert_eq!(stable_only.from(&both), "1.1.0");
}

fn demanding(version: &str, metadata: Value) -> Content {
    Content::default().bundle("1.0.0", &[]).bundle_with(version, [("olm.csv.metadata", metadata)])
}

// docs/design/additions.md#cluster-constraints
#[test]
fn bundles_with_unmet_cluster_demands_are_held_back() {
    let gvk =
        |kind: &str| Gvk { group: "g.example".to_owned(), version: "v1".to_owned(), kind: kind.to_owned() };
    let facts = ClusterFacts::new("v1.29.3", BTreeSet::from([gvk("Served")]));
    let on_cluster = request().rules(Rules { cluster: Some(&facts), ..Rules::default() });
    let api = |kind: &str| json!({"nativeAPIs": [{"group": "g.example", "version": "v1", "kind": kind}]});
    for (metadata, expected) in [
        (json!({"minKubeVersion": "1.30.0"}), "1.0.0"),
        (json!({"minKubeVersion": "1.29.0"}), "2.0.0"),
        (json!({"minKubeVersion": "next"}), "2.0.0"),
        (api("Served"), "2.0.0"),
        (api("Missing"), "1.0.0"),
    ] {
        let content = demanding("2.0.0", metadata.clone());
        assert_eq!(on_cluster.from(&content), expected, "{metadata}");
        assert_eq!(request().from(&content), "2.0.0", "{metadata} without the gate");
    }
    assert_eq!(
        held(&on_cluster, &demanding("2.0.0", json!({"minKubeVersion": "1.30.0"}))),
        [
            "passed over demo.v2.0.0: CSV version requirement not met: minKubeVersion (1.30.0) > server version (1.29.3)"
        ]
    );
    assert_eq!(
        held(&on_cluster, &demanding("2.0.0", api("Missing"))),
        [
            "passed over demo.v2.0.0: the cluster does not serve the native API group: g.example, version: v1, kind: Missing"
        ]
    );
    // An installed bundle is kept, whatever its demands.
    let content = demanding("2.0.0", json!({"minKubeVersion": "1.30.0"}));
    assert_eq!(on_cluster.clone().installed("2.0.0").from(&content), "2.0.0");
}

/// Bundle and suffix, or the error.
fn effort(request: &RequestFixture<'_>, catalogs: &[olm_resolve::Catalog]) -> String {
    match request.clone().rules(best_effort()).resolve(catalogs) {
        Ok(resolved) => format!("{}{}", resolved.bundle, left_out_text(&resolved.left_out)),
        Err(error) => error.to_string(),
    }
}

// docs/design/additions.md#best-effort-resolution; cases additions-a34, additions-a35
#[test]
fn best_effort_skips_catalogs_that_cannot_be_preferred() {
    let failed = |name: &str, rest: &str| {
        format!(
            "error walking catalogs: error getting package \"demo\" from catalog \"{name}\": catalog \"{name}\" is not \
             being served{rest}"
        )
    };
    let main = || one("1.0.0").at("main", 0);
    assert_eq!(request().of(&[main(), down("other", 0)]), failed("other", ""));
    assert_eq!(
        effort(&request(), &[main(), down("other", 0), down("low", -1)]),
        "demo.v1.0.0; skipped unavailable catalogs: [low other]"
    );
    assert_eq!(effort(&request(), &[main()]), "demo.v1.0.0");
    assert_eq!(
        effort(&request(), &[main(), down("other", 10)]),
        failed(
            "other",
            "; it is not skipped because its priority 10 is higher than that of catalog \"main\""
        )
    );
    assert_eq!(
        effort(&request(), &[down("a", 0), down("b", 1)]),
        failed("b", "; it is not skipped because no available catalog has a matching bundle")
    );
    // A catalog of the same priority without a bundle does not allow skipping the other one.
    assert_eq!(
        effort(&request(), &[main(), Content::default().at("empty", 10), down("other", 10)]),
        failed(
            "other",
            "; it is not skipped because its priority 10 is higher than that of catalog \"main\""
        )
    );
}

#[test]
fn best_effort_never_skips_the_catalog_of_the_installed_bundle() {
    let newer = Content::default().channel("stable", &[replacing("1.1.0", "1.0.0")]);
    let reason = "no available catalog offers the installed bundle \"demo.v1.0.0\"";
    let error = effort(&request().installed("1.0.0"), &[newer.at("main", 0), down("other", -1)]);
    assert!(error.ends_with(&format!("is not being served; it is not skipped because {reason}")), "{error}");
    let both = Content::default().channel("stable", &[entry("1.0.0"), replacing("1.1.0", "1.0.0")]);
    assert_eq!(
        effort(&request().installed("1.0.0"), &[both.at("main", 0), down("other", -1)]),
        "demo.v1.1.0; skipped unavailable catalogs: [other]"
    );
}

#[test]
fn best_effort_does_not_change_to_a_deprecated_bundle() {
    let down = || down("other", 0);
    let chain = Content::default().channel("stable", &[entry("1.0.0"), replacing("1.1.0", "1.0.0")]);
    let retired = || chain.clone().deprecated(&["1.0.0", "1.1.0"]).at("main", 5);
    // If "other" were available, its bundle would be kept unless deprecated there, whatever the priorities.
    let live = [retired(), one("1.0.0").at("other", 0)];
    assert_eq!(request().installed("1.0.0").of(&live), "1.0.0 from other");
    let error = effort(&request().installed("1.0.0"), &[retired(), down()]);
    let reason =
        "it is not skipped because bundle \"demo.v1.1.0\", which would be chosen without it, is deprecated";
    assert!(error.ends_with(&format!("\"other\" is not being served; {reason}")), "{error}");
    let left_out = |version| format!("demo.v{version}; skipped unavailable catalogs: [other]");
    assert_eq!(effort(&request().installed("1.1.0"), &[retired(), down()]), left_out("1.1.0"), "kept");
    assert_eq!(effort(&request(), &[retired(), down()]), left_out("1.1.0"), "nothing installed");
    let sound = chain.clone().deprecated(&["1.0.0"]).at("main", 5);
    assert_eq!(effort(&request().installed("1.0.0"), &[sound, down()]), left_out("1.1.0"), "not deprecated");
}

#[test]
fn errors_with_best_effort_name_skipped_catalogs() {
    let catalogs = [one("1.0.0").at("a", 0), one("1.0.0").at("b", 0), down("c", 0)];
    assert_eq!(
        effort(&request(), &catalogs),
        "found bundles for package \"demo\" in multiple catalogs with the same priority [a b]; skipped unavailable \
         catalogs: [c]"
    );
    let error = request().rules(best_effort()).resolve(&catalogs).unwrap_err();
    assert!(matches!(error.cause(), ResolveError::Ambiguous { catalogs, .. }
        if *catalogs == [("a".to_owned(), 0), ("b".to_owned(), 0)]));
    let refused = Content::default().bundle("1.0.0", &["olm.gvk.required"]);
    let error = effort(&request(), &[refused.at("a", 0), down("c", 0)]);
    assert!(error.ends_with("currently not supported; skipped unavailable catalogs: [c]"), "{error}");
}

// docs/design/resolution.md#complete-answers
#[test]
fn deprecated_bundle_of_a_preferred_catalog_is_remarked() {
    let preferred = one("2.0.0").deprecated(&["2.0.0"]);
    let catalogs = [preferred.at("alpha", 100), one("1.0.0").at("beta", 0)];
    let resolved = request().resolve(&catalogs).unwrap();
    assert_eq!(
        resolved.remarks,
        [
            "catalog beta is chosen instead of alpha, whose priority is higher: its best bundle demo.v2.0.0 is deprecated"
        ]
    );
    let resolved = request().resolve(&[preferred.at("alpha", -1), one("1.0.0").at("beta", 0)]).unwrap();
    assert!(resolved.remarks.is_empty());
}

#[test]
fn held_bundles_of_a_preferred_catalog_are_reported() {
    let request = request().installed("1.0.0").rules(scope(UpgradeScope::Minor));
    let preferred = Content::default().channel("stable", &[replacing("2.0.0", "1.0.0")]);
    let low = Content::default().channel("stable", &[replacing("3.0.0", "1.0.0")]);
    let catalogs = [preferred.at("high", 1), chain().at("main", 0), low.at("low", -1)];
    let resolved = request.resolve(&catalogs).unwrap();
    assert_eq!((resolved.catalog.as_str(), resolved.bundle.as_str()), ("main", "demo.v1.1.0"));
    let held: Vec<_> = resolved.held.iter().map(|held| (&*held.catalog, &*held.bundle)).collect();
    assert_eq!(held, [("high", "demo.v2.0.0")]);
}

fn chain() -> Content {
    Content::default().channel("stable", &[entry("1.0.0"), replacing("1.1.0", "1.0.0")])
}

// Case additions-a01: without rules every text equals the reference's.
#[test]
fn default_rules_behave_like_the_reference() {
    let content = skipped().bundle_with("4.0.0", [("olm.csv.metadata", json!({"minKubeVersion": "99.0.0"}))]);
    let resolved = request().resolve(&[content.at("main", 0)]).unwrap();
    assert_eq!(resolved.bundle, "demo.v4.0.0");
    assert!(resolved.held.is_empty() && resolved.left_out.is_empty() && resolved.requirements.is_empty());
    assert_eq!(Rules::default().dependencies, DependencyMode::Reject);
    request().on(|request| {
        let catalogs = [down("main", 0)];
        check_explanation(request, &catalogs, &olm_resolve::resolve(request, &catalogs));
    });
}
