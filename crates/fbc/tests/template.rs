//! Templates compared with manually derived graphs.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use olm_fbc::{
    Meta, PackageContent,
    template::{BasicTemplate, SemverBundle, SemverTemplate},
};

fn bundles(versions: &[&str]) -> BTreeMap<String, SemverBundle> {
    let identity = |version: &str| SemverBundle {
        package: "op".to_owned(),
        name: format!("op.v{version}"),
        version: version.to_owned(),
    };
    versions.iter().map(|version| (format!("i:{version}"), identity(version))).collect()
}

fn stream(name: &str, versions: &[&str]) -> String {
    let images: Vec<String> = versions.iter().map(|version| format!("  - Image: i:{version}\n")).collect();
    format!("{name}:\n  Bundles:\n{}", images.concat())
}

/// Default channel and, for each channel, lines `entry < replaced - skipped …` without the package name.
fn expand(template: &str, versions: &[&str]) -> Result<Vec<String>, String> {
    let template = SemverTemplate::parse(template.as_bytes()).map_err(|problem| problem.to_string())?;
    let metas = template.expand(&bundles(versions)).map_err(|problem| problem.to_string())?;
    let lines = metas.iter().map(|meta| meta.blob.as_slice());
    let content = PackageContent::from_metas("op", lines).unwrap();
    let mut shown = vec![format!("default {}", content.packages[0].default_channel)];
    for channel in &content.channels {
        assert_eq!(channel.package, "op");
        shown.push(channel.name.clone());
        for entry in &channel.entries {
            let mut line = entry.name.replace("op.v", "  ");
            if !entry.replaces.is_empty() {
                line += &entry.replaces.replace("op.v", " < ");
            }
            if !entry.skips.is_empty() {
                line += &format!(" - {}", entry.skips.join(" ").replace("op.v", ""));
            }
            shown.push(line);
        }
    }
    Ok(shown)
}

const ELEVEN: [&str; 11] =
    ["0.1.0", "0.1.1", "0.1.2", "0.2.0", "0.2.1", "0.10.0", "1.0.0", "1.0.1", "1.1.0", "1.2.0", "2.0.0"];

// Case additions-a57
#[test]
fn semver_template_creates_major_and_minor_channels() {
    let template = [
        "Schema: olm.semver\nGenerateMajorChannels: true\nGenerateMinorChannels: true\nDefaultChannelTypePreference: major\n",
        &stream(
            "Candidate",
            &[
                "1.2.0", "0.1.0", "2.0.0", "0.1.2", "0.1.1", "0.10.0", "0.2.1", "0.2.0", "1.0.1", "1.0.0",
                "1.1.0",
            ],
        ),
        &stream("Fast", &["0.2.1", "1.0.0", "1.0.1"]),
        &stream("Stable", &["1.0.1"]),
    ];
    let minor = [
        "candidate-v0.1",
        "  0.1.0",
        "  0.1.1",
        "  0.1.2 - 0.1.0 0.1.1",
        "candidate-v0.10",
        "  0.10.0 < 0.2.1 - 0.1.0 0.1.1 0.1.2 0.2.0",
        "candidate-v0.2",
        "  0.2.0",
        "  0.2.1 < 0.1.2 - 0.1.0 0.1.1 0.2.0",
    ];
    let expected = [
        &["default stable-v1", "candidate-v0", "  0.1.0", "  0.1.1", "  0.1.2 - 0.1.0 0.1.1", "  0.2.0"][..],
        &["  0.2.1 < 0.1.2 - 0.1.0 0.1.1 0.2.0", "  0.10.0 < 0.2.1 - 0.1.0 0.1.1 0.1.2 0.2.0"],
        &minor,
        &[
            "candidate-v1",
            "  1.0.0",
            "  1.0.1 - 1.0.0",
            "  1.1.0 < 1.0.1 - 1.0.0",
            "  1.2.0 < 1.1.0 - 1.0.0 1.0.1",
        ],
        &["candidate-v1.0", "  1.0.0", "  1.0.1 - 1.0.0"],
        &["candidate-v1.1", "  1.1.0 < 1.0.1 - 1.0.0"],
        &["candidate-v1.2", "  1.2.0 < 1.1.0 - 1.0.0 1.0.1"],
        &["candidate-v2", "  2.0.0", "candidate-v2.0", "  2.0.0"],
        &["fast-v0", "  0.2.1", "fast-v0.2", "  0.2.1"],
        &["fast-v1", "  1.0.0", "  1.0.1 - 1.0.0", "fast-v1.0", "  1.0.0", "  1.0.1 - 1.0.0"],
        &["stable-v1", "  1.0.1", "stable-v1.0", "  1.0.1"],
    ];
    assert_eq!(expand(&template.concat(), &ELEVEN).unwrap(), expected.concat());
}

#[test]
fn default_channel_follows_stability_version_and_preference() {
    let both = "generateMajorChannels: true\ngenerateMinorChannels: true\n";
    let cases = [
        ("", "candidate", &["1.0.0", "1.1.0"][..], "candidate-v1.1"),
        ("generateMajorChannels: true\n", "fast", &["1.0.0", "1.1.0"], "fast-v1"),
        (both, "stable", &["1.0.0"], "stable-v1.0"),
        (&format!("{both}defaultChannelTypePreference: major\n"), "stable", &["1.0.0"], "stable-v1"),
        // The version of a channel is that of its lowest bundle, and takes precedence over the preference.
        (
            &format!("{both}defaultChannelTypePreference: major\n"),
            "stable",
            &["1.0.0", "1.1.0"],
            "stable-v1.1",
        ),
        ("", "candidate", &["0.0.0-alpha"], "candidate-v0.0"),
    ];
    for (options, name, versions, expected) in cases {
        let template = format!("schema: olm.semver\n{options}{}", stream(name, versions));
        assert_eq!(expand(&template, versions).unwrap()[0], format!("default {expected}"), "{template}");
    }
}

/// Start of an error about the bundles of a semver template.
const BUNDLE_INFO: &str = "render: unable to post-process bundle info: ";

/// Semver template with these versions in the stream `fast`.
fn fast(versions: &[&str]) -> String {
    format!("schema: olm.semver\n{}", stream("fast", versions))
}

fn compare_semver_errors(cases: &[(String, String)]) {
    for (template, expected) in cases {
        let found = expand(template, &["1.0.0", "1.0.0+1", "1.0.0+2", "v1"]).unwrap_err();
        assert!(found.starts_with(expected), "{template}: {found}");
    }
}

#[test]
fn invalid_semver_template_is_rejected() {
    let read = "render: unable to read file: ";
    let json = "render: unable to read file: error unmarshaling JSON: while decoding JSON: ";
    compare_semver_errors(&[
        ("a: [".to_owned(), format!("{read}error converting YAML to JSON: yaml: ")),
        ("schema: olm.semver\nextra: 1\n".to_owned(), format!("{json}json: unknown field \"extra\"")),
        (
            "schema: olm.semver\nfast: {bundles: [{img: a}]}\n".to_owned(),
            format!("{json}json: unknown field \"img\""),
        ),
        (
            "schema: olm.semver\nschema: olm.semver\n".to_owned(),
            format!("{json}key \"schema\" already set in map"),
        ),
        (
            "schema: olm.semver\nfast: []\n".to_owned(),
            format!(
                "{json}json: cannot unmarshal array into Go struct field SemverTemplateData.fast of type semver.channelBundles"
            ),
        ),
        (
            "schema: x\n".to_owned(),
            format!("{read}readFile: input file has unknown schema, should be \"olm.semver\""),
        ),
        (
            "schema: olm.semver\ndefaultChannelTypePreference: major\n".to_owned(),
            format!(
                "{read}schema attribute mismatch: DefaultChannelTypePreference set to 'major' doesn't make sense if not \
                 generating major-version channels"
            ),
        ),
        (
            "schema: olm.semver\ndefaultChannelTypePreference: x\n".to_owned(),
            format!("{read}unknown DefaultChannelTypePreference: \"x\"\nValid values are 'major' or 'minor'"),
        ),
        (
            "schema: olm.semver\n".to_owned(),
            "render: no bundles specified or no bundles could be rendered".to_owned(),
        ),
    ]);
}

#[test]
fn invalid_bundles_of_semver_template_are_rejected() {
    let bundle = BUNDLE_INFO;
    compare_semver_errors(&[
        (
            fast(&["9.9.9"]),
            format!("{bundle}supplied bundle image name \"i:9.9.9\" not found in rendered bundle images"),
        ),
        (fast(&["1.0.0", "1.0.0"]), format!("{bundle}duplicate bundle name \"op.v1.0.0\"")),
        (
            fast(&["v1"]),
            format!(
                "{bundle}bundle \"op.vv1\" has invalid version \"v1\": No Major.Minor.Patch elements found"
            ),
        ),
        (
            fast(&["1.0.0+1", "1.0.0+2"]),
            format!(
                "{bundle}encountered bundle versions which differ only by build metadata, which cannot be ordered: \
                 bundle version \"1.0.0+2\" cannot be compared to \"1.0.0\""
            ),
        ),
    ]);
    let mut two = bundles(&["1.0.0", "1.0.1"]);
    two.get_mut("i:1.0.1").unwrap().package = "other".to_owned();
    let template = SemverTemplate::parse(fast(&["1.0.0", "1.0.1"]).as_bytes()).unwrap();
    assert_eq!(template.images().into_iter().collect::<Vec<_>>(), ["i:1.0.0", "i:1.0.1"]);
    let found = template.expand(&two).unwrap_err().to_string();
    assert_eq!(found, format!("{bundle}bundle \"other\" does not belong to this package: \"op\""));
}

#[test]
fn basic_template_is_expanded_or_rejected() {
    let template = "schema: olm.template.basic\nentries:\n- {schema: olm.package, name: p, defaultChannel: a}\n\
                    - {schema: olm.bundle, image: i}\n- {schema: own}\n";
    let template = BasicTemplate::parse(template.as_bytes()).unwrap();
    assert_eq!(template.images().into_iter().collect::<Vec<_>>(), ["i"]);
    let bundle = Meta::from_json(br#"{"schema":"olm.bundle","name":"b","package":"p"}"#).unwrap();
    let catalog = template.expand(&[("i".to_owned(), bundle)].into()).unwrap();
    let shown: Vec<_> = catalog.iter().map(|meta| format!("{} {}", meta.schema, meta.name)).collect();
    assert_eq!(shown, ["olm.package p", "olm.bundle b", "own "]);
    let found = template.expand(&BTreeMap::new()).unwrap_err().to_string();
    assert_eq!(found, "supplied bundle image name \"i\" not found in rendered bundle images");
    let cases = [
        ("schema: x", "template has unknown schema (\"x\"), should be \"olm.template.basic\""),
        ("a: [", "decoding template schema: error converting YAML to JSON: yaml: "),
        (
            "schema: olm.template.basic\nentries: [{schema: olm.bundle, image: i, package: p}]",
            "unexpected fields present in basic template bundle",
        ),
        (
            "schema: olm.template.basic\nentries: [1]",
            "unmarshalling template: json: cannot unmarshal number into ",
        ),
        (
            "schema: olm.template.basic\nentries: {schema: olm.bundle, image: i}",
            "unmarshalling template: json: cannot unmarshal object into Go struct field \
             BasicTemplateData.entries of type []*declcfg.Meta",
        ),
        ("[]", "unmarshalling template: json: cannot unmarshal array into "),
        (
            "schema: olm.template.basic\nentries: [{image: i}]",
            "object '{\"image\":\"i\"}\n' is missing root schema field",
        ),
    ];
    for (template, expected) in cases {
        let found = BasicTemplate::parse(template.as_bytes()).unwrap_err().to_string();
        assert!(found.starts_with(expected), "{template}: {found}");
    }
}
