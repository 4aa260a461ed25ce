//! Choice of a bundle: cases of docs/design/cases.md#resolution, and the worked examples of
//! docs/design/resolution.md#successors.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod fixture;

use olm_resolve::{
    Catalog, EdgeRule, Indexing, Installed, Request, Rules, UpgradeOrigin, UpgradePolicy, resolve,
};
use olm_version::VersionRelease;
use serde_json::{Value, json};

use fixture::{Content, RequestFixture, down, entry, one, replacing, request, skipping};

fn chain() -> Content {
    Content::default()
        .channel("stable", &[entry("1.0.0"), replacing("1.1.0", "1.0.0"), replacing("1.2.0", "1.1.0")])
}

// Cases resolution-12, resolution-13, resolution-14, resolution-15, resolution-16
#[test]
fn install_chooses_the_highest_version_that_passes_the_filters() {
    let content = Content::default()
        .channel("stable", &[entry("1.0.0"), entry("1.1.0")])
        .channel("candidate", &[entry("2.0.0")]);
    for (request, expected) in [
        (request(), "2.0.0"),
        (request().channels(&["stable"]), "1.1.0"),
        (request().channels(&["nope"]), r#"no bundles found for package "demo" in channels [nope]"#),
        (request().version(">=1.0, <2.0"), "1.1.0"),
        (request().version("4.0.0"), r#"no bundles found for package "demo" matching version "4.0.0""#),
        (request().version(""), "2.0.0"),
    ] {
        assert_eq!(request.from(&content), expected);
    }
}

// Cases seeds-s2-2, additions-a17, additions-a18, additions-a19
#[test]
fn documented_version_ranges_choose_the_documented_versions() {
    let versions = [
        "0.2.3", "0.2.9", "0.3.0", "1.11.0", "1.11.1", "1.11.9", "1.12.0", "1.13.4", "1.14.2", "1.16.0",
        "2.0.0",
    ];
    let content = Content::default().channel("latest", &versions.map(entry));
    let content = content.channel("pipelines-1.14", &[entry("1.14.1"), entry("1.14.2")]);
    for (version, expected) in [
        ("1.11.1", "1.11.1"),
        (">1.11.1", "2.0.0"),
        ("1.14.x", "1.14.2"),
        (">=1.16", "2.0.0"),
        ("1.11.x || 1.13.x", "1.13.4"),
        (">=1.11, <1.13", "1.12.0"),
        ("~1.11.0", "1.11.9"),
        ("~1", "1.16.0"),
        ("^0.2.3", "0.2.9"),
        ("^1.11", "1.16.0"),
        ("*", "2.0.0"),
    ] {
        assert_eq!(request().channels(&["latest"]).version(version).from(&content), expected, "{version}");
    }
    assert_eq!(request().channels(&["pipelines-1.14"]).from(&content), "1.14.2");
    // A pinned version is kept whatever the catalog adds.
    let pinned = request().installed("1.11.1").version("1.11.1");
    let grown = content.object(json!({"schema": "olm.channel", "package": "demo", "name": "more",
        "entries": [{"name": "demo.v1.12.0", "replaces": "demo.v1.11.1"}]}));
    assert_eq!(pinned.from(&grown), "1.11.1");
}

// Case seeds-s2-3
#[test]
fn self_certified_upgrade_obeys_channels_and_range() {
    let content = Content::default()
        .channel("latest", &[entry("1.11.0"), entry("1.12.0"), entry("1.13.0")])
        .channel("preview", &[entry("1.12.5")]);
    let range = request().channels(&["latest"]).version(">=1.11, <1.13").installed("1.11.0");
    assert_eq!(range.clone().self_certified().from(&content), "1.12.0");
    // Without a policy, upgrades need edges in the catalog, and there are none.
    assert_eq!(range.from(&content), "1.11.0");
}

// Case resolution-62
#[test]
fn explicit_release_requires_the_feature_gate() {
    let bundle = |name: &str, value: Value| json!({"schema": "olm.bundle", "package": "demo", "name": name, "properties": [{"type": "olm.package", "value": value}]});
    let content = Content::default()
        .object(bundle("explicit", json!({"version": "1.0.0", "release": "5"})))
        .object(bundle("legacy", json!({"version": "1.0.0+2"})));
    for (release_support, name, version, release) in
        [(true, "explicit", "1.0.0", Some("5")), (false, "legacy", "1.0.0+2", None)]
    {
        let package = content.index(Indexing { release_support, ..Indexing::default() });
        let catalog = Catalog { name: "main".to_owned(), priority: 0, package: Ok(package) };
        let resolved = request().resolve(&[catalog]).unwrap();
        let shown = (version.to_owned(), release.map(str::to_owned));
        assert_eq!((resolved.bundle.as_str(), resolved.version.shown(release_support)), (name, shown));
    }
}

// Cases resolution-17, resolution-18
#[test]
fn pre_releases_and_releases_are_ordered_as_versions() {
    let content = one("1.0.0").bundle("2.0.0-rc.1", &[]);
    assert_eq!(request().from(&content), "2.0.0-rc.1");
    assert_eq!(request().version(">=1.0.0").from(&content), "1.0.0");
    assert_eq!(request().version(">=1.0.0-0").from(&content), "2.0.0-rc.1");
    assert_eq!(request().from(&one("1.0.0+9").bundle("1.0.0+10", &[])), "1.0.0+10");
}

// Case resolution-19
#[test]
fn invalid_range_is_reported_before_catalog_errors() {
    assert_eq!(
        request().version("foobar").of(&[down("main", 0)]),
        r#"desired version range "foobar" is invalid: improper constraint: "foobar""#
    );
}

// docs/design/resolution.md#releases; case resolution-20
#[test]
fn unreadable_version_is_the_last_choice_and_an_error_if_chosen() {
    let bundle = |properties: Value| {
        let object =
            json!({"schema": "olm.bundle", "package": "demo", "name": "demo.odd", "properties": properties});
        Content::default().object(object)
    };
    let package = |value: Value| json!([{"type": "olm.package", "value": value}]);
    for (properties, fault) in [
        (json!([]), r#"no package property found in bundle "demo.odd""#),
        (package(json!({})), "Version string empty"),
        (package(Value::Null), "Version string empty"),
        (package(json!({"version": "1.0"})), "No Major.Minor.Patch elements found"),
        (
            package(json!({"version": 1})),
            "error unmarshalling package property: json: cannot unmarshal number into Go struct field \
             Package.version of type string",
        ),
        (
            package(json!({"VERSION": "1.0.0", "release": true})),
            "error unmarshalling package property: json: cannot unmarshal bool into Go struct field \
             Package.release of type string",
        ),
        (
            package(json!("1.0.0")),
            "error unmarshalling package property: json: cannot unmarshal string into Go value of type \
             property.Package",
        ),
    ] {
        let content = bundle(properties);
        let message = format!(r#"error getting resolved bundle version for bundle "demo.odd": {fault}"#);
        assert_eq!(request().from(&content), message);
        assert_eq!(request().from(&content.bundle("0.0.1", &[])), "0.0.1");
    }
    // docs/design/resolution.md#successors edge 19
    assert_eq!(request().from(&bundle(package(json!({"VERSION": "1.0.0", "release": null})))), "1.0.0");
}

// Cases resolution-21, resolution-22, resolution-23, resolution-24, resolution-25
#[test]
fn priority_alone_decides_between_catalogs() {
    let (low, high) = (one("1.0.0"), one("1.5.0"));
    for (priorities, expected) in [
        (
            (0, 0),
            r#"found bundles for package "demo" in multiple catalogs with the same priority [alpha beta]"#,
        ),
        ((10, 5), "1.0.0 from alpha"),
        ((-10, -5), "1.5.0 from beta"),
        ((i32::MIN, i32::MAX), "1.5.0 from beta"),
    ] {
        assert_eq!(request().of(&[low.at("alpha", priorities.0), high.at("beta", priorities.1)]), expected);
    }
    assert_eq!(
        request().channels(&["z", "z"]).version("1.x").of(&[]),
        r#"no bundles found for package "demo" matching version "1.x" in channels [z z]"#
    );
    assert_eq!(
        request().version("1.x").of(&[low.at("a", 7), low.at("b", 1), low.at("c", 7)]),
        r#"found bundles for package "demo" matching version "1.x" in multiple catalogs with the same priority [a b c]"#
    );
    assert_eq!(request().version(">=1.5").of(&[low.at("alpha", 100), high.at("beta", 0)]), "1.5.0 from beta");
}

// Case resolution-26. The named catalog does not depend on the order.
#[test]
fn unavailable_catalog_fails_the_resolution() {
    let failed = |name| {
        format!(
            "error walking catalogs: error getting package \"demo\" from catalog \"{name}\": catalog \"{name}\" is \
             not being served"
        )
    };
    assert_eq!(request().of(&[one("1.0.0").at("alpha", 0), down("beta", 0)]), failed("beta"));
    assert_eq!(request().of(&[down("b", 0), down("a", 0)]), failed("a"));
    assert_eq!(request().of(&[down("b", 1), down("a", 0)]), failed("b"));
    assert_eq!(request().of(&[one("1.0.0").at("alpha", 0)]), "1.0.0 from alpha");
}

// Cases resolution-29, resolution-31, resolution-32, resolution-33, resolution-38, resolution-39, additions-a15,
// additions-a20
#[test]
fn upgrade_follows_one_edge_unless_self_certified() {
    let content = chain();
    let nothing = |version: &str, rest: &str| {
        format!(
            "error upgrading from currently installed version \"{version}\": no bundles found for package \
             \"demo\"{rest}"
        )
    };
    for (request, expected) in [
        (request().installed("1.0.0"), "1.1.0".to_owned()),
        (request().installed("1.1.0"), "1.2.0".to_owned()),
        (request().installed("1.2.0"), "1.2.0".to_owned()),
        (request().installed("1.0.0").version("1.2.0"), nothing("1.0.0", r#" matching version "1.2.0""#)),
        (request().installed("1.0.0").version("1.2.0").self_certified(), "1.2.0".to_owned()),
        (request().installed("2.0.0").version("1.0.0").self_certified(), "1.0.0".to_owned()),
        (request().installed("0.9.0"), nothing("0.9.0", "")),
    ] {
        assert_eq!(request.from(&content), expected);
    }
    let vanished = Content::default().channel("stable", &[replacing("1.6.0", "1.5.0")]);
    assert_eq!(request().installed("1.5.0").from(&vanished), "1.6.0");
}

// Cases resolution-30, seeds-s0-1, additions-a14
#[test]
fn skipped_bundle_is_a_successor() {
    let content = Content::default().channel(
        "stable",
        &[
            entry("1.0.0"),
            skipping("2.0.0", ">=1.0.0 <2.0.0"),
            json!({"name": "demo.v3.0.0", "skips": ["demo.v2.0.0"]}),
        ],
    );
    assert_eq!(request().installed("1.0.0").from(&content), "2.0.0");
    assert_eq!(request().installed("2.0.0").from(&content), "3.0.0");
}

// Cases resolution-34, resolution-35, resolution-36
#[test]
fn skip_range_uses_the_blang_language() {
    for (range, installed, expected) in [
        (">=1.0.0 <2.0.0", "1.0.0", "2.0.0"),
        (">=1.0.0, <2.0.0", "1.0.0", "1.0.0"),
        (">=1.0 <2.0", "1.0.0", "1.0.0"),
        ("1.x.x", "1.5.0", "1.5.0"),
        ("1.x.x", "1.0.7", "2.0.0"),
        ("1.0.0 || || 1.0.0", "1.0.0", "1.0.0"),
        ("<1.0.0", "1.0.0-rc.1", "2.0.0"), // docs/design/resolution.md#successors edge 16
    ] {
        let content = one(installed).channel("stable", &[skipping("2.0.0", range)]);
        assert_eq!(request().installed(installed).from(&content), expected, "{range}");
    }
}

// Case resolution-37
#[test]
fn edges_of_unselected_channels_are_ignored() {
    let content = Content::default()
        .channel("stable", &[entry("1.0.0"), entry("1.1.0")])
        .channel("fast", &[replacing("1.1.0", "1.0.0")]);
    assert_eq!(request().installed("1.0.0").channels(&["stable"]).from(&content), "1.0.0");
    assert_eq!(request().installed("1.0.0").from(&content), "1.1.0");
}

// docs/design/resolution.md#successors: upgrade edges are listed by channel.
#[test]
fn edges_report_channel_and_rule() {
    let all = json!({"name": "demo.v1.1.0", "replaces": "demo.v0.9.0", "skips": ["demo.v1.0.0"], "skipRange": ">=1.0.0 <1.1.0"});
    let index = Content::default()
        .channel("fast", &[all])
        .channel("slow", &[replacing("1.1.0", "1.0.0")])
        .channel("wide", &[skipping("1.1.0", "<1.1.0")])
        .channel("none", &[entry("1.1.0")])
        .index(Indexing::default())
        .unwrap();
    let offer = index.offers().next().unwrap();
    let edges = |name: &str, version: &str, channels: &[&str]| -> Vec<(String, EdgeRule)> {
        let origin = UpgradeOrigin { name, version: VersionRelease::parse(version, None).unwrap() };
        let channels: Vec<_> = channels.iter().map(ToString::to_string).collect();
        offer.edges_from(&origin, &channels).map(|edge| (edge.channel.to_owned(), edge.rule)).collect()
    };
    let edge = |channel: &str, rule| (channel.to_owned(), rule);
    use EdgeRule::{Replaces, SkipRange, Skips};
    assert_eq!(
        edges("demo.v1.0.0", "1.0.0", &[]),
        [edge("fast", Skips), edge("slow", Replaces), edge("wide", SkipRange)]
    );
    assert_eq!(edges("demo.v1.0.0", "1.0.0", &["slow", "none"]), [edge("slow", Replaces)]);
    assert_eq!(edges("other", "1.0.5", &["fast"]), [edge("fast", SkipRange)]);
    assert_eq!(edges("other", "2.0.0", &[]), []);
}

// docs/design/additions.md#downgrades; cases resolution-40, resolution-41, resolution-43
#[test]
fn deprecated_bundles_are_the_last_choice() {
    let down = Content::default().channel("stable", &[entry("2.0.0"), replacing("1.9.9", "2.0.0")]);
    assert_eq!(request().installed("2.0.0").from(&down), "2.0.0");
    assert_eq!(request().installed("2.0.0").from(&down.clone().deprecated(&["2.0.0"])), "1.9.9");

    let up = Content::default()
        .channel("stable", &[entry("1.0.0"), replacing("1.1.0", "1.0.0")])
        .deprecated(&["1.1.0"]);
    assert_eq!(request().installed("1.0.0").from(&up), "1.0.0");
    assert_eq!(request().installed("1.0.0").version("1.1.0").from(&up), "1.1.0");

    let preferred = one("2.0.0").deprecated(&["2.0.0"]);
    assert_eq!(request().of(&[preferred.at("alpha", 100), one("1.0.0").at("beta", 0)]), "1.0.0 from beta");
    assert_eq!(
        request().of(&[preferred.at("alpha", 100), preferred.at("beta", 0)]),
        "2.0.0 from alpha",
        "among deprecated candidates only, priority decides"
    );
}

// docs/design/resolution.md#successors; case resolution-42
#[test]
fn another_release_needs_an_edge_but_other_build_metadata_does_not() {
    let content = one("1.0.0+1").bundle("1.0.0+2", &[]).channel("stable", &[replacing("1.1.0", "1.0.0")]);
    assert_eq!(request().installed("1.0.0+1").from(&content), "1.0.0+1");
    assert_eq!(request().installed("1.0.0+007").from(&one("1.0.0+008")), "1.0.0+008");
}

// docs/design/resolution.md#successors; cases resolution-45, resolution-46 edges 1, 2, 15
#[test]
fn declared_dependency_rejects_only_the_chosen_bundle() {
    let content = one("1.0.0").bundle("2.0.0", &["other", "olm.constraint", "olm.gvk.required"]);
    assert_eq!(
        request().from(&content),
        r#"validating bundle "demo.v2.0.0": bundle "demo.v2.0.0" has a dependency declared via property "olm.constraint" which is currently not supported"#
    );
    assert_eq!(request().version("<2").from(&content), "1.0.0");
    assert_eq!(request().from(&Content::default().bundle("1.0.0", &["olm.label.required"])), "1.0.0");
    let object = json!({"schema": "olm.channel", "package": "demo", "name": "c", "entries": [
        {"name": "demo.v9.0.0"}, {"name": "demo.v1.0.0", "replaces": "demo.v1.0.0"},
    ]});
    assert_eq!(request().installed("1.0.0").from(&one("1.0.0").object(object)), "1.0.0");
}

// docs/design/resolution.md#fallback; cases resolution-47, resolution-48, resolution-49
#[test]
fn installed_bundle_is_kept_only_without_any_catalog() {
    let outcome = |request: &RequestFixture<'_>, catalogs: &[Catalog], exists: bool| {
        request.on(|request| match resolve(request, catalogs) {
            Ok(resolved) => resolved.bundle,
            Err(_) if request.keeps_installed(exists) => "kept".to_owned(),
            Err(_) => "retry".to_owned(),
        })
    };
    let installed = request().installed("1.0.0");
    assert_eq!(outcome(&installed, &[], false), "kept");
    assert_eq!(outcome(&installed.clone().version("1.0.0"), &[], false), "kept");
    for other in ["1.x", "=1.0.0", "foobar"] {
        assert_eq!(outcome(&installed.clone().version(other), &[], false), "retry");
    }
    assert_eq!(outcome(&installed, &[], true), "retry");
    assert_eq!(outcome(&request(), &[], false), "retry");
    assert_eq!(outcome(&installed, &[chain().at("main", 0)], true), "demo.v1.1.0");
}

// docs/design/resolution.md#algorithm
#[test]
fn unreadable_installed_version_fails_only_if_the_package_exists() {
    let content = one("1.0.0");
    let fault = "error walking catalogs: error finding upgrade edges: failed to get version and release of \
                 installed bundle: No Major.Minor.Patch elements found";
    assert_eq!(request().installed("1junk").from(&content), fault);
    assert_eq!(request().installed("1junk").self_certified().from(&content), "1.0.0");
    let absent =
        r#"error upgrading from currently installed version "1junk": no bundles found for package "demo""#;
    assert_eq!(request().installed("1junk").from(&Content::default()), absent);

    let request = Request {
        package: "demo",
        channels: &[],
        version: None,
        policy: UpgradePolicy::CatalogProvided,
        installed: Some(Installed { name: "demo.v1.0.0", version: "1.0.0", release: Some("01") }),
        rules: Rules::default(),
    };
    assert_eq!(
        resolve(&request, &[content.at("main", 0)]).unwrap_err().to_string(),
        "error walking catalogs: error finding upgrade edges: failed to parse installed bundle version and \
         release: error parsing release \"01\": invalid release \"01\": segment 0: Numeric PreRelease version \
         must not contain leading zeroes \"01\""
    );
}

// docs/design/resolution.md#successors
#[test]
fn worked_examples_of_successors_hold() {
    let content = Content::default()
        .channel(
            "fast",
            &[
                replacing("2.0.0", "1.2.0"),
                json!({"name": "demo.v1.3.0", "skips": ["demo.v1.0.0"]}),
                json!({"name": "demo.v1.2.0", "replaces": "demo.v1.1.0", "skipRange": ">=1.0.0 <1.2.0"}),
                entry("1.1.0"),
                entry("1.0.0"),
            ],
        )
        .channel("slow", &[replacing("1.1.0", "1.0.0"), entry("1.0.0")]);
    let blocked = r#"error upgrading from currently installed version "1.0.0": no bundles found for package "demo" matching version "2.0.0""#;
    for (request, expected) in [
        (request(), "2.0.0"),
        (request().channels(&["slow"]), "1.1.0"),
        (request().installed("1.0.0"), "1.3.0"),
        (request().installed("1.0.0").channels(&["slow"]), "1.1.0"),
        (request().installed("1.0.0").version("<1.3"), "1.2.0"),
        (request().installed("1.0.0").version("2.0.0"), blocked),
        (request().installed("1.0.0").version("2.0.0").self_certified(), "2.0.0"),
        (request().installed("1.1.5"), "1.2.0"),
        (request().installed("1.3.0"), "1.3.0"),
    ] {
        assert_eq!(request.from(&content), expected);
    }
    assert_eq!(request().installed("1.3.0").from(&content.deprecated(&["1.3.0"])), "1.3.0");
}
