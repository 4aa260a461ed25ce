//! Newer bundles that an extension does not move to (docs/design/additions.md#update-notifications).

mod fixture;

use fixture::{Content, RequestFixture, down, entry, one, replacing, request, skipping};
use olm_resolve::{Catalog, DependencyMode, Rules, UpgradeScope, Waiting, waiting};

/// `<version> from <catalog>` with range, rule and last version, `-` without a newer bundle, or the error.
fn shown(request: &RequestFixture<'_>, catalogs: &[Catalog]) -> String {
    let resolution = request.resolve(catalogs);
    match request.on(|request| waiting(request, catalogs, &resolution)) {
        Ok(None) => "-".to_owned(),
        Err(error) => format!("error: {error}"),
        Ok(Some(Waiting { version, catalog, pre_release, deprecated, range, rule, last, .. })) => {
            assert_eq!(pre_release, version.contains("-rc"));
            let deprecated = if deprecated { " deprecated" } else { "" };
            let range = range.map_or_else(String::new, |range| format!("; outside of {range}"));
            let rule = rule.map_or_else(String::new, |rule| format!("; {rule}"));
            let last = last.map_or_else(String::new, |last| format!("; last {last}"));
            format!("{version} from {catalog}{deprecated}{range}{rule}{last}")
        }
    }
}

fn from(request: &RequestFixture<'_>, content: &Content) -> String {
    shown(request, &[content.at("main", 0)])
}

/// Channel in which each of these versions replaces the one before.
fn chain(versions: &[&str]) -> Content {
    let entries = versions.iter().enumerate().map(|(index, version)| match index {
        0 => entry(version),
        _ => replacing(version, versions[index - 1]),
    });
    Content::default().channel("stable", &entries.collect::<Vec<_>>())
}

#[test]
fn newer_version_outside_of_range_is_found_along_upgrade_edges() {
    let three = chain(&["1.0.0", "1.1.0", "2.0.0"]);
    let installed = || request().installed("1.0.0");
    for (request, expected) in [
        (installed().version("1.0.0"), "1.1.0 from main; outside of 1.0.0; last 2.0.0"),
        (installed().version("1.0.x").self_certified(), "2.0.0 from main; outside of 1.0.x"),
        (request().installed("1.1.0").version("1.x"), "2.0.0 from main; outside of 1.x"),
        // The extension moves by itself, or has the newest version.
        (installed().version("1.x"), "-"),
        (installed(), "-"),
        (request().installed("2.0.0").version("2.0.0"), "-"),
        // Outside of the channel.
        (installed().version("1.0.0").channels(&["other"]), "-"),
    ] {
        assert_eq!(from(&request, &three), expected);
    }
    // A target that is not the newest one within reach.
    let jump = Content::default().channel(
        "stable",
        &[entry("1.0.0"), replacing("1.1.0", "1.0.0"), skipping("2.0.0", ">=1.0.0 <2.0.0")],
    );
    assert_eq!(from(&installed().version("1.x"), &jump), "2.0.0 from main; outside of 1.x");
}

#[test]
fn pre_release_is_offered_to_a_release_only_if_nothing_else_is_newer() {
    let pinned = |installed| request().installed(installed).version(installed);
    let both = Content::default().channel(
        "stable",
        &[entry("1.0.0"), skipping("1.1.0", "<1.1.0"), skipping("2.0.0-rc.1", ">=1.0.0 <2.0.0-rc.1")],
    );
    assert_eq!(from(&pinned("1.0.0"), &both), "1.1.0 from main; outside of 1.0.0");
    assert_eq!(from(&pinned("1.1.0"), &both), "2.0.0-rc.1 from main; outside of 1.1.0");
    // A rule holds both.
    let rules = Rules { upgrade_scope: Some(UpgradeScope::Patch), ..Rules::default() };
    let held =
        r#"1.1.0 from main; outside of 1.0.0; outside of the upgrade scope "patch" of installed 1.0.0"#;
    assert_eq!(from(&pinned("1.0.0").rules(rules), &both), held);
    let candidates = chain(&["1.0.0-rc.1", "1.0.0-rc.2"]);
    assert_eq!(from(&pinned("1.0.0-rc.1"), &candidates), "1.0.0-rc.2 from main; outside of 1.0.0-rc.1");
}

#[test]
fn last_version_is_omitted_after_too_many_upgrades() {
    let versions: Vec<String> = (0..12).map(|minor| format!("1.{minor}.0")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let pinned = request().installed("1.0.0").version("1.0.0");
    assert_eq!(from(&pinned, &chain(&versions[..10])), "1.1.0 from main; outside of 1.0.0; last 1.9.0");
    assert_eq!(from(&pinned, &chain(&versions[..11])), "1.1.0 from main; outside of 1.0.0");
}

#[test]
fn withdrawn_and_deprecated_versions_are_not_newer_ones() {
    let pinned = || request().installed("1.0.0").version("1.0.0");
    // The installed version was withdrawn, with and without a successor.
    let vanished = Content::default().channel("stable", &[replacing("1.1.0", "1.0.0")]);
    assert_eq!(from(&pinned(), &vanished), "1.1.0 from main; outside of 1.0.0");
    assert_eq!(from(&pinned(), &one("0.9.0")), "-");
    assert_eq!(from(&request().installed("1.0.0"), &one("0.9.0")), "-");
    // The newer version was withdrawn.
    assert_eq!(from(&pinned(), &chain(&["1.0.0"])), "-");
    // A deprecated version is chosen only from another deprecated one.
    let two = || chain(&["1.0.0", "2.0.0"]);
    assert_eq!(from(&pinned(), &two().deprecated(&["2.0.0"])), "-");
    let all = two().deprecated(&["1.0.0", "2.0.0"]);
    assert_eq!(from(&pinned(), &all), "2.0.0 from main deprecated; outside of 1.0.0");
    // An edge from a deprecated version down.
    let down = Content::default()
        .channel("stable", &[entry("1.0.0"), replacing("0.9.0", "1.0.0")])
        .deprecated(&["1.0.0"]);
    assert_eq!(from(&pinned(), &down), "-");
}

#[test]
fn rules_take_precedence_and_are_reported_with_the_range() {
    let two = chain(&["1.0.0", "2.0.0"]);
    let minor = Rules { upgrade_scope: Some(UpgradeScope::Minor), ..Rules::default() };
    let scope = r#"outside of the upgrade scope "minor" of installed 1.0.0"#;
    let installed = || request().installed("1.0.0").rules(minor);
    assert_eq!(from(&installed(), &two), format!("2.0.0 from main; {scope}"));
    assert_eq!(
        from(&installed().version("1.0.0"), &two),
        format!("2.0.0 from main; outside of 1.0.0; {scope}")
    );
    assert_eq!(from(&installed().version(">=2"), &two), format!("2.0.0 from main; {scope}"));
    let three = Content::default()
        .channel("stable", &[entry("1.0.0"), replacing("1.1.0", "1.0.0"), replacing("2.0.0", "1.0.0")]);
    assert_eq!(from(&installed().version("1.0.0"), &three), "1.1.0 from main; outside of 1.0.0");

    let needs = Content::default()
        .object(serde_json::json!({"schema": "olm.channel", "package": "demo", "name": "stable",
            "entries": [entry("1.0.0"), replacing("2.0.0", "1.0.0")]}))
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &["olm.gvk.required"]);
    let refused = r#"declares a dependency via property "olm.gvk.required", which mode Reject refuses"#;
    let plain = || request().installed("1.0.0");
    assert_eq!(from(&plain(), &needs), format!("2.0.0 from main; {refused}"));
    assert_eq!(
        from(&plain().version("1.0.0"), &needs),
        format!("2.0.0 from main; outside of 1.0.0; {refused}")
    );
    // The installed version itself is refused.
    let needy = one("1.0.0").bundle("1.0.0", &["olm.gvk.required"]);
    assert!(from(&plain(), &needy).starts_with("error: validating bundle"));
    let report = Rules { dependencies: DependencyMode::Report, ..Rules::default() };
    assert_eq!(from(&plain().version("1.0.0").rules(report), &needs), "2.0.0 from main; outside of 1.0.0");
}

#[test]
fn unavailable_catalog_fails_search_for_newer_version() {
    let pinned = request().installed("1.0.0").version("1.0.0");
    let two = || chain(&["1.0.0", "2.0.0"]);
    assert!(shown(&pinned, &[two().at("a", 0), down("b", 0)]).contains("is not being served"));
    assert!(shown(&pinned, &[]).starts_with("error: error upgrading from currently installed version"));
    // Both catalogs have the newer version, only one has the installed version.
    let newer = Content::default().channel("stable", &[replacing("2.0.0", "1.0.0")]);
    let ambiguous = shown(&pinned, &[two().at("a", 0), newer.at("b", 0)]);
    assert!(ambiguous.ends_with("in multiple catalogs with the same priority [a b]"), "{ambiguous}");
    assert_eq!(shown(&pinned, &[two().at("a", 0), newer.at("b", 1)]), "2.0.0 from b; outside of 1.0.0");
}
