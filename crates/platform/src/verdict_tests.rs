use olm_api::cluster_upgrade_status::VersionSource;
use proptest::prelude::*;

use super::*;
use crate::platform::{Facts, OpenShiftVersionMap};
use crate::property::declarations;

fn openshift(version: &str) -> Platform {
    let facts = Facts {
        openshift_apis: true,
        cluster_version: version.parse().ok(),
        kubernetes: "1.31".parse().ok(),
        ..Facts::default()
    };
    Platform::of(&facts)
}

fn kubernetes() -> Platform {
    Platform::of(&Facts { kubernetes: "1.36".parse().ok(), ..Facts::default() })
}

fn revision(extension: &str, bundle: &str, properties: &str) -> ConstrainedRevision {
    ConstrainedRevision {
        extension: extension.to_owned(),
        extension_uid: None,
        bundle: bundle.to_owned(),
        version: "1.0.0".to_owned(),
        declared: declarations(properties, None),
    }
}

/// Returns a revision whose bundle `<extension>.v1` supports OpenShift up to the version of this raw value.
fn limited(extension: &str, value: &str) -> ConstrainedRevision {
    let properties = format!("[{{\"type\":\"olm.maxOpenShiftVersion\",\"value\":{value}}}]");
    revision(extension, &format!("{extension}.v1"), &properties)
}

fn kubernetes_limited(extension: &str, value: &str) -> ConstrainedRevision {
    let kind = PlatformConstraint::Kubernetes.property();
    let properties = format!("[{{\"type\":\"{kind}\",\"value\":{value}}}]");
    revision(extension, &format!("{extension}.v1"), &properties)
}

fn conclusion(platform: &Platform, revisions: &[ConstrainedRevision]) -> String {
    let verdict = evaluate(platform, &[], revisions);
    format!("{}/{}: {}", verdict.status.as_str(), verdict.reason, verdict.message)
}

const WELL: &str = "True/AsExpected: All is well";
const BLOCKED: &str = "False/IncompatibleOperatorsInstalled: Found ClusterExtensions that require upgrades prior to \
                       upgrading cluster to version ";

// docs/design/operations.md#verdict; cases operations-a34 to operations-a40, operations-e27 to operations-e31,
// seeds-s2-7, seeds-s2-8
#[test]
fn verdict_on_openshift_compares_with_next_version() {
    let blocked = |next: &str| format!("{BLOCKED}{next}: bundle \"a.v1\" for ClusterExtension \"a\".");
    let bad = "error(s) with cluster extension bad: error in bundle bad.v1: error converting to semver for version \
               \"4.18.0\": invalid version format";
    let rows: [(&str, &[ConstrainedRevision], String); 16] = [
        ("4.17", &[], WELL.into()),
        ("4.17", &[revision("a", "a.v1", "[]"), revision("b", "b.v1", "null")], WELL.into()),
        // Case operations-a34
        ("4.17.3", &[limited("a", "\"4.17\"")], blocked("4.18")),
        // Cases operations-a35, seeds-s2-7
        ("4.17.9", &[limited("a", "\"4.18\"")], WELL.into()),
        ("4.18.0", &[limited("a", "\"4.18\"")], blocked("4.19")),
        ("4.18.0-rc1", &[limited("a", "4.18")], blocked("4.19")),
        // Case operations-a36
        (
            "4.18",
            &[limited("b", "4.18"), limited("a", "4.18")],
            format!(
                "{BLOCKED}4.19: bundle \"a.v1\" for ClusterExtension \"a\",bundle \"b.v1\" for ClusterExtension \"b\"."
            ),
        ),
        // Case operations-a37: 4.20 is not 4.2
        ("4.19", &[limited("a", "4.20")], WELL.into()),
        ("4.19", &[limited("a", "4.2")], blocked("4.20")),
        // Case operations-a38
        ("4.23", &[limited("a", "5.0")], blocked("5.1")),
        ("4.23", &[limited("a", "5.1")], WELL.into()),
        ("5.1", &[limited("a", "5.1")], blocked("5.2")),
        // Case operations-a39
        ("4.17", &[limited("bad", "\"4.18.0\"")], format!("False/FailureGettingExtensionMetadata: {bad}")),
        // Case operations-a40
        (
            "4.18",
            &[limited("bad", "\"4.18.0\""), limited("a", "4.18")],
            format!(
                "{BLOCKED}4.19: bundle \"a.v1\" for ClusterExtension \"a\".\n Additionally the following errors were \
                 encountered while getting extension metadata: {bad}"
            ),
        ),
        // Case operations-e29: an older revision that is still active counts.
        ("4.18", &[revision("a", "a.v2", "[]"), limited("a", "4.18")], blocked("4.19")),
        // Two revisions of one bundle
        ("4.18", &[limited("a", "4.18"), limited("a", "4.18")], blocked("4.19")),
    ];
    for (version, revisions, expected) in rows {
        assert_eq!(conclusion(&openshift(version), revisions), expected);
    }
}

// docs/design/operations.md#verdict; cases operations-e26, operations-e27, seeds-s2-8
#[test]
fn errors_are_sorted_by_extension() {
    let twice = "[{\"type\":\"olm.maxOpenShiftVersion\",\"value\":4},{\"type\":\"olm.maxOpenShiftVersion\",\"value\":4.18}]";
    let revisions = [
        limited("z", "\"<cluster_version>\""),
        revision("broken", "broken.v1", "abcd"),
        revision("a", "a.v1", twice),
    ];
    let expected = "False/FailureGettingExtensionMetadata: \
        error(s) with cluster extension a: error in bundle a.v1: error converting to semver for version 4: invalid \
        semver format \"4\": expected <major>.<minor>\nmore than one olm.maxOpenShiftVersion found in bundle\n\
        error with cluster extension broken: error in bundle broken.v1: could not convert olm.properties: failed to \
        unmarshal properties annotation: invalid character 'a' looking for beginning of value\n\
        error(s) with cluster extension z: error in bundle z.v1: error converting to semver for version \
        \"<cluster_version>\": invalid version format";
    assert_eq!(conclusion(&openshift("4.17"), &revisions), expected);
    let results: Vec<_> = evaluate(&openshift("4.17"), &[], &revisions).extensions;
    assert!(results.iter().all(|row| row.result == VerdictResult::Invalid));
    assert_eq!(
        results.iter().map(|row| row.value.as_str()).collect::<Vec<_>>(),
        ["4", "", "<cluster_version>"]
    );
}

// docs/design/operations.md#verdict; case operations-a47
#[test]
fn unknown_version_gives_unknown_verdict() {
    let unknown = openshift("");
    assert_eq!(unknown.current, None);
    assert_eq!(conclusion(&unknown, &[revision("a", "a.v1", "[]")]), WELL);
    let text = "Unknown/PlatformVersionUnknown: Cannot determine the cluster version; ";
    let one = format!("{text}1 installed extension declares a maximum version: a");
    assert_eq!(conclusion(&unknown, &[limited("a", "4.18"), limited("a", "4.18")]), one);
    let two = format!("{text}2 installed extensions declare a maximum version: a, b");
    assert_eq!(conclusion(&unknown, &[limited("b", "4.18"), limited("a", "4.18")]), two);
    let rows = evaluate(&unknown, &[], &[limited("a", "4.18")]).extensions;
    assert_eq!(rows[0].result, VerdictResult::Unknown);
    // An error is reported even if the version is not known.
    let failed = conclusion(&unknown, &[limited("a", "4.18"), limited("b", "4")]);
    assert!(failed.starts_with("False/FailureGettingExtensionMetadata: "), "{failed}");
    // The version of Kubernetes is known.
    let blocked = conclusion(&unknown, &[kubernetes_limited("a", "1.31")]);
    assert_eq!(blocked, format!("{BLOCKED}1.32: bundle \"a.v1\" for ClusterExtension \"a\"."));
}

// docs/design/additions.md#ignored-constraints; cases operations-a45, operations-a48
#[test]
fn verdict_on_kubernetes_ignores_openshift_constraints() {
    let ignored = [limited("b", "\"4.1\""), limited("a", "null"), revision("c", "c.v1", "[]")];
    let expected = "True/AsExpected: All is well; olm.maxOpenShiftVersion was not evaluated because the platform is \
                    not OpenShift: bundle \"a.v1\" for ClusterExtension \"a\",bundle \"b.v1\" for ClusterExtension \"b\"";
    assert_eq!(conclusion(&kubernetes(), &ignored), expected);
    let rows = evaluate(&kubernetes(), &[], &ignored).extensions;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.result == VerdictResult::NotApplicable));

    assert_eq!(conclusion(&kubernetes(), &[kubernetes_limited("a", "\"1.37\"")]), WELL);
    let blocked = conclusion(&kubernetes(), &[kubernetes_limited("a", "1.36"), limited("b", "4.1")]);
    assert_eq!(blocked, format!("{BLOCKED}1.37: bundle \"a.v1\" for ClusterExtension \"a\"."));
    // On OpenShift, the Kubernetes constraint is compared with the API server, too.
    let blocked = conclusion(&openshift("4.18"), &[kubernetes_limited("a", "1.31")]);
    assert_eq!(blocked, format!("{BLOCKED}4.19: bundle \"a.v1\" for ClusterExtension \"a\"."));
    assert_eq!(conclusion(&openshift("4.18"), &[kubernetes_limited("a", "1.32")]), WELL);
}

// docs/design/operations.md#verdict, --openshift-version-map
#[test]
fn openshift_constraint_on_kubernetes_uses_version_map() {
    let openshift_map = OpenShiftVersionMap::K8sOffset;
    let mapped = |kubernetes: &str| {
        Platform::of(&Facts { kubernetes: kubernetes.parse().ok(), openshift_map, ..Facts::default() })
    };
    let rows = [
        ("1.30", "4.18", true),
        ("1.31", "4.18", false),
        ("1.35", "4.23", true),
        ("1.36", "4.23", false),
        ("1.35", "5.0", true),
        ("1.36", "5.0", false),
        ("1.36", "5.1", true),
    ];
    for (kubernetes, max, is_supported) in rows {
        let verdict = evaluate(&mapped(kubernetes), &[], &[limited("a", max)]);
        assert_eq!(verdict.status == Status::True, is_supported, "{max} on {kubernetes}");
    }
    let blocked = evaluate(&mapped("1.31"), &[], &[limited("a", "4.18")]);
    assert_eq!(blocked.extensions[0].result, VerdictResult::Blocking);
    let why = "supports at most 4.18 with Kubernetes 1.31, the next version is 1.32";
    assert_eq!(blocked.extensions[0].message.as_deref(), Some(why));
    assert!(blocked.message.ends_with(" to version 1.32: bundle \"a.v1\" for ClusterExtension \"a\"."));
    // A malformed version is an error here, too. A version without a known Kubernetes version is ignored.
    let results =
        |value: &str| evaluate(&mapped("1.31"), &[], &[limited("a", value)]).extensions[0].result.clone();
    assert_eq!(results("null"), VerdictResult::Invalid);
    assert_eq!(results("6.0"), VerdictResult::NotApplicable);
    assert_eq!(results("\"3.11\""), VerdictResult::NotApplicable);
    // OpenShift itself needs no map.
    let openshift = Facts {
        openshift_apis: true,
        cluster_version: "4.17".parse().ok(),
        openshift_map,
        ..Facts::default()
    };
    assert_eq!(conclusion(&Platform::of(&openshift), &[limited("a", "4.18")]), WELL);
}

/// Extension, bundle and platform version.
type Entry = (&'static str, &'static str, &'static str);

fn acknowledgement(extension: &str, bundle: &str, platform_version: &str) -> Acknowledgement {
    let owned = str::to_owned;
    Acknowledgement {
        extension: owned(extension),
        bundle: owned(bundle),
        platform_version: owned(platform_version),
        comment: None,
    }
}

// docs/design/operations.md#acknowledgements; cases operations-a46, operations-e38
#[test]
fn acknowledgement_unblocks_exactly_one_bundle_and_version() {
    let revisions = [limited("a", "4.18"), limited("b", "\"4.18.0\"")];
    let results = |version: &str, acknowledged: &[Entry]| {
        let all: Vec<_> = acknowledged.iter().map(|(a, b, c)| acknowledgement(a, b, c)).collect();
        let verdict = evaluate(&openshift(version), &all, &revisions);
        let results: Vec<&str> = verdict.extensions.iter().map(|row| row.result.as_str()).collect();
        format!("{} {} {}", results.join(" "), verdict.reason, verdict.blocking)
    };
    let b = ("b", "b.v1", "4.19");
    let rows: [(&str, &[Entry], &str); 8] = [
        ("4.18", &[("a", "a.v1", "4.19")], "Acknowledged Invalid FailureGettingExtensionMetadata 0"),
        ("4.18", &[b], "Blocking Acknowledged IncompatibleOperatorsInstalled 1"),
        ("4.18", &[b, ("a", "a.v1", "4.19")], "Acknowledged Acknowledged AsExpected 0"),
        // It is for another bundle, extension or version.
        ("4.18", &[b, ("a", "a.v2", "4.19")], "Blocking Acknowledged IncompatibleOperatorsInstalled 1"),
        ("4.18", &[b, ("c", "a.v1", "4.19")], "Blocking Acknowledged IncompatibleOperatorsInstalled 1"),
        ("4.18", &[b, ("a", "a.v1", "4.20")], "Blocking Acknowledged IncompatibleOperatorsInstalled 1"),
        ("4.19", &[b, ("a", "a.v1", "4.19")], "Blocking Invalid IncompatibleOperatorsInstalled 1"),
        // A compatible bundle needs none.
        ("4.17", &[("a", "a.v1", "4.18")], "Compatible Invalid FailureGettingExtensionMetadata 0"),
    ];
    for (version, acknowledged, expected) in rows {
        assert_eq!(results(version, acknowledged), expected, "{acknowledged:?}");
    }
}

// docs/design/operations.md#acknowledgements
#[test]
fn acknowledgement_names_the_platform_version_for_every_constraint() {
    // The Kubernetes constraint is compared with 1.32, the acknowledgement with 4.19.
    let revisions = [kubernetes_limited("a", "1.31")];
    let of =
        |version: &str| evaluate(&openshift("4.18"), &[acknowledgement("a", "a.v1", version)], &revisions);
    assert_eq!((of("4.19").status, of("1.32").status), (Status::True, Status::False));
    // During a rollout, the old bundle blocks as long as it runs.
    let revisions =
        [limited("a", "4.18"), ConstrainedRevision { bundle: "a.v2".to_owned(), ..limited("a", "4.18") }];
    let verdict = evaluate(&openshift("4.18"), &[acknowledgement("a", "a.v2", "4.19")], &revisions);
    assert!(verdict.message.ends_with(" to version 4.19: bundle \"a.v1\" for ClusterExtension \"a\"."));
    // Without a next version there is nothing to acknowledge.
    let unknown = evaluate(&openshift(""), &[acknowledgement("a", "a.v1", "4.19")], &revisions);
    assert_eq!(unknown.status, Status::Unknown);
}

#[test]
fn verdict_rows_state_maximum_and_next_openshift_version() {
    let platform = openshift("4.18");
    let verdict =
        evaluate(&platform, &[], &[limited("b", "4.18"), limited("a", "\"4.19\""), limited("b", "4.18")]);
    let row = |name: &str, value: &str, result, message: Option<&str>| ExtensionVerdict {
        name: name.to_owned(),
        bundle: format!("{name}.v1"),
        version: "1.0.0".to_owned(),
        constraint: "olm.maxOpenShiftVersion".to_owned(),
        value: value.to_owned(),
        result,
        upgrade_to: None,
        message: message.map(str::to_owned),
        operator_condition: None,
    };
    let expected = [
        row("a", "4.19", VerdictResult::Compatible, None),
        row("b", "4.18", VerdictResult::Blocking, Some("supports at most 4.18, the next version is 4.19")),
    ];
    assert_eq!(verdict.extensions, expected);
    assert_eq!(verdict.blocking, 1);
    assert_eq!(verdict.platform, Some(platform.clone()));
    assert_eq!(platform.current, Some(("4.18".parse().unwrap(), VersionSource::ClusterVersion)));
}

// docs/design/approvals.md#operator-conditions
#[test]
fn operator_conditions_are_shown_without_changing_the_verdict() {
    let report = |status: &str| OperatorConditionMirror {
        status: status.to_owned(),
        reason: "Migrating".to_owned(),
        message: String::new(),
    };
    let revisions = [revision("c", "c.v1", "[]"), revision("b", "b.v1", "[]"), limited("a", "4.18")];
    let plain = evaluate(&openshift("4.18"), &[], &revisions);
    let reports = |extension: &str, bundle: &str| match (extension, bundle) {
        ("a", "a.v1") => Some(report("True")),
        ("b", "b.v1") => Some(report("False")),
        _ => None,
    };
    let verdict = plain.clone().with_operator_conditions(&revisions, reports);
    let shown: Vec<_> = verdict
        .extensions
        .iter()
        .map(|row| (row.name.as_str(), row.result.clone(), row.operator_condition.clone()))
        .collect();
    let expected = [
        ("a", VerdictResult::Blocking, Some(report("True"))),
        ("b", VerdictResult::NotApplicable, Some(report("False"))),
    ];
    assert_eq!(shown, expected);
    let unchanged = Verdict { extensions: plain.extensions.clone(), ..verdict };
    assert_eq!(unchanged, plain);
    let initial = Verdict::initializing();
    assert_eq!(initial.clone().with_operator_conditions(&revisions, reports), initial);
}

// Cases operations-e36, operations-e37
#[test]
fn quotes_in_names_are_escaped_and_long_messages_cut() {
    let odd = [revision("a", "a\"b\nc", "[{\"type\":\"olm.maxOpenShiftVersion\",\"value\":4.18}]")];
    let expected = format!("{BLOCKED}4.19: bundle \"a\\\"b\\nc\" for ClusterExtension \"a\".");
    assert_eq!(conclusion(&openshift("4.18"), &odd), expected);

    let many: Vec<ConstrainedRevision> =
        (0..3000).map(|number| limited(&format!("extension-{number:04}"), "4.18")).collect();
    let verdict = evaluate(&openshift("4.18"), &[], &many);
    assert_eq!(verdict.blocking, 3000);
    assert!(verdict.message.len() <= olm_api::conditions::MAX_MESSAGE_BYTES);
    let (kept, rest) = verdict.message.rsplit_once(",... and ").unwrap();
    let kept = kept.matches(" for ClusterExtension ").count();
    assert_eq!(rest, format!("{} more.", 3000 - kept));
}

proptest! {
    #[test]
    fn verdict_is_independent_of_revision_order(
        values in proptest::collection::vec((0..5_usize, 0..6_usize), 0..12),
        seed: u64,
    ) {
        let raw = ["4.17", "4.18", "4.19", "\"x\"", "null", "\"4.18.0\""];
        let mut revisions: Vec<ConstrainedRevision> =
            values.iter().map(|(name, value)| limited(&format!("e{name}"), raw[*value])).collect();
        let before = evaluate(&openshift("4.18"), &[], &revisions);
        let turns = usize::try_from(seed % 13).unwrap_or(0) % revisions.len().max(1);
        revisions.rotate_left(turns);
        revisions.reverse();
        prop_assert_eq!(evaluate(&openshift("4.18"), &[], &revisions), before);
    }
}
