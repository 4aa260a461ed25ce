//! Explanations of resolutions: one sentence for each bundle, and the same as data.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod fixture;

use olm_resolve::{Catalog, Explanation, Rules, UpgradeScope};
use serde_json::json;

use fixture::{Content, RequestFixture, down, entry, one, replacing, request, skipping};

/// Lines of the explanation. Also runs the usual checks.
fn lines(request: &RequestFixture<'_>, catalogs: &[Catalog]) -> Vec<String> {
    let _ = request.resolve(catalogs);
    request.explain(catalogs).to_string().lines().map(str::to_owned).collect()
}

fn graph() -> Content {
    Content::default()
        .default_channel("stable")
        .channel("stable", &[entry("1.0.0"), replacing("1.1.0", "1.0.0"), replacing("1.2.0", "1.1.0")])
        .channel("fast", &[skipping("2.0.0", "<2.0.0"), replacing("1.1.0", "1.0.0")])
}

#[test]
fn explanation_has_one_sentence_per_bundle() {
    let minor = Rules { upgrade_scope: Some(UpgradeScope::Minor), ..Rules::default() };
    let content = graph().bundle("1.0.5", &[]).bundle("0.9.0", &[]).deprecated(&["0.9.0"]);
    assert_eq!(
        lines(
            &request().installed("1.0.0").version("<3").rules(minor),
            &[content.at("main", 0), Content::default().at("other", 1)]
        ),
        [
            r#"catalog "other" (priority 1): does not have the package"#,
            r#"catalog "main" (priority 0)"#,
            r#"  passed over demo.v2.0.0: outside of the upgrade scope "minor" of installed 1.0.0"#,
            "  passed over demo.v1.2.0: no successor of installed demo.v1.0.0",
            "  chose demo.v1.1.0: a successor by replaces in channel fast, replaces in channel stable",
            "  passed over demo.v1.0.5: no successor of installed demo.v1.0.0",
            "  passed over demo.v1.0.0: demo.v1.1.0 is preferred",
            "  passed over demo.v0.9.0: no successor of installed demo.v1.0.0",
            r#"chosen: demo.v1.1.0 from catalog "main""#,
        ]
    );
    assert_eq!(
        lines(&request().channels(&["stable"]).version("<1.2"), &[content.at("main", 0)]),
        [
            r#"catalog "main" (priority 0)"#,
            "  passed over demo.v2.0.0: not in channels [stable]",
            r#"  passed over demo.v1.2.0: not within version range "<1.2""#,
            "  chose demo.v1.1.0",
            "  passed over demo.v1.0.5: not in channels [stable]",
            "  passed over demo.v1.0.0: demo.v1.1.0 is preferred",
            "  passed over demo.v0.9.0: not in channels [stable]",
            r#"chosen: demo.v1.1.0 from catalog "main""#,
        ]
    );
    assert_eq!(
        lines(&request().installed("1.2.0").channels(&["stable"]), &[content.at("main", 0)])[2..4],
        [
            "  chose demo.v1.2.0: the installed version",
            "  passed over demo.v1.1.0: no successor of installed demo.v1.2.0"
        ]
    );
}

#[test]
fn explanation_hints_at_edges_of_other_channels() {
    let content = Content::default()
        .channel("stable", &[entry("1.0.0"), entry("1.1.0")])
        .channel("fast", &[replacing("1.1.0", "1.0.0")]);
    assert_eq!(
        lines(&request().installed("1.0.0").channels(&["stable"]), &[content.at("main", 0)])[1],
        "  passed over demo.v1.1.0: no successor of installed demo.v1.0.0 in these channels"
    );
}

// docs/design/cli.md#default-channel
#[test]
fn explanation_notes_a_choice_outside_of_the_default_channel() {
    let outside = |request: RequestFixture<'_>, content: &Content| {
        let explanation = request.explain(&[content.at("main", 0)]);
        explanation.chosen.unwrap().missed_default_channel
    };
    assert_eq!(outside(request(), &graph()), Some("stable".to_owned()));
    assert_eq!(outside(request().version("<2"), &graph()), None);
    assert_eq!(outside(request().channels(&["fast"]), &graph()), None, "channel requested");
    assert_eq!(outside(request(), &one("1.0.0")), None, "no default channel");
    assert_eq!(
        lines(&request(), &[graph().at("main", 0)])[5..],
        [
            r#"note: the chosen bundle is not in the default channel "stable""#,
            r#"chosen: demo.v2.0.0 from catalog "main""#,
        ]
    );
}

// docs/design/resolution.md#complete-answers, docs/design/additions.md#skipped-versions
#[test]
fn explanation_names_the_catalogs_that_win() {
    let all = |catalogs: &[Catalog]| lines(&request(), catalogs);
    assert_eq!(
        all(&[one("1.0.0").at("b", 7), one("1.0.0").at("a", 7), one("2.0.0").at("c", -1)]),
        [
            r#"catalog "a" (priority 7)"#,
            r#"  passed over demo.v1.0.0: the catalogs "a" and "b" have the same priority 7"#,
            r#"catalog "b" (priority 7)"#,
            r#"  passed over demo.v1.0.0: the catalogs "a" and "b" have the same priority 7"#,
            r#"catalog "c" (priority -1)"#,
            r#"  passed over demo.v2.0.0: priority -1 is lower than 7 of "a" and "b""#,
            r#"error: found bundles for package "demo" in multiple catalogs with the same priority [a b c]"#,
        ]
    );
    assert_eq!(
        all(&[
            one("2.0.0").deprecated(&["2.0.0"]).at("high", 9),
            one("1.0.0").bundle("3.0.0", &[]).deprecated(&["3.0.0"]).at("low", 0)
        ]),
        [
            r#"catalog "high" (priority 9)"#,
            "  passed over demo.v2.0.0: deprecated, unlike the best bundle of another catalog",
            r#"catalog "low" (priority 0)"#,
            "  chose demo.v1.0.0",
            "  passed over demo.v3.0.0: deprecated, demo.v1.0.0 is preferred",
            "note: catalog low is chosen instead of high, whose priority is higher: its best bundle demo.v2.0.0 is deprecated",
            r#"chosen: demo.v1.0.0 from catalog "low""#,
        ]
    );
}

#[test]
fn explanation_shows_the_error_and_undecided_bundles() {
    let refused = one("1.0.0").bundle("2.0.0", &["olm.gvk.required"]);
    let shown = lines(&request(), &[refused.at("main", 0)]);
    assert_eq!(
        shown[1..3],
        [
            r#"  passed over demo.v2.0.0: declares a dependency via property "olm.gvk.required", which mode Reject refuses"#,
            "  passed over demo.v1.0.0: demo.v2.0.0 is preferred",
        ]
    );
    let undecided = "  passed over demo.v1.0.0: the resolution ended with an error before it was compared";
    assert_eq!(
        lines(&request(), &[one("1.0.0").at("main", 0), down("other", 0)]),
        [
            r#"catalog "main" (priority 0)"#,
            undecided,
            r#"catalog "other" (priority 0): catalog "other" is not being served"#,
            r#"error: error walking catalogs: error getting package "demo" from catalog "other": catalog "other" is not being served"#,
        ]
    );
    assert_eq!(lines(&request().version("!"), &[one("1.0.0").at("main", 0)])[1], undecided);
    assert_eq!(lines(&request().installed("junk"), &[one("1.0.0").at("main", 0)])[1], undecided);
    let best_effort = Rules { best_effort: true, ..Rules::default() };
    assert_eq!(
        lines(&request().rules(best_effort), &[one("1.0.0").at("main", 0), down("other", 0)])[2],
        r#"catalog "other" (priority 0): skipped, catalog "other" is not being served"#
    );
    let unreadable =
        Content::default().object(json!({"schema": "olm.bundle", "package": "demo", "name": "demo.odd"}));
    assert_eq!(
        lines(&request().version("1"), &[unreadable.at("main", 0)])[1],
        r#"  passed over demo.odd: no package property found in bundle "demo.odd""#
    );
}

#[test]
fn explanation_serializes_with_api_names() {
    let content = Content::default().default_channel("a").channel("b", &[replacing("1.1.0", "1.0.0")]);
    let explanation: Explanation = request().installed("1.0.0").explain(&[content.at("main", 3)]);
    assert_eq!(
        serde_json::to_value(&explanation).unwrap(),
        json!({
            "package": "demo",
            "installed": "demo.v1.0.0",
            "chosen": {
                "catalog": "main", "bundle": "demo.v1.1.0", "version": "1.1.0", "image": "reg.example/demo.v1.1.0",
                "stays": false, "edges": [{"channel": "b", "rule": "replaces"}],
                "missedDefaultChannel": "a", "requirements": [],
            },
            "catalogs": [{"name": "main", "priority": 3, "skipped": false, "bundles": [{
                "bundle": "demo.v1.1.0", "version": "1.1.0", "deprecated": false, "fate": "chosen",
                "why": "a successor by replaces in channel b",
            }]}],
            "remarks": [],
        })
    );
}
