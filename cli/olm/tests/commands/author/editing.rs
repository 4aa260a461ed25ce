//! `olm catalog promote` and `olm catalog deprecate` on files with comments.

use serde_json::{Value, json};

use super::fixture::Fixture;

/// Catalog file of package lamp. `stable` ends with 1.0.0.
const CATALOG: &str = "# Lamps.
schema: olm.package
name: lamp
defaultChannel: stable # for new users
---
schema: olm.channel
package: lamp
name: stable
entries: # oldest first
  - name: 'lamp.v1.0.0'
  # The next release.
---
schema: olm.channel
package: lamp
name: fast
entries:
- name: lamp.v1.0.0
- {name: lamp.v1.1.0, replaces: lamp.v1.0.0}
- name: lamp.v1.2.0
  replaces: lamp.v1.1.0
  skips: [lamp.v0.9.0]
  skipRange: '>=0.1.0 <1.2.0'
";
const FILE: &str = "catalog/lamp/index.yaml";

async fn fixture() -> Fixture {
    let fixture = Fixture::open().await;
    fixture.write(FILE, &(CATALOG.to_owned() + &["1.0.0", "1.1.0", "1.2.0"].map(bundle).concat()));
    assert_eq!(fixture.works("validate catalog").await, "");
    fixture
}

fn bundle(version: &str) -> String {
    format!(
        "---\nschema: olm.bundle\npackage: lamp\nname: lamp.v{version}\nimage: r.example/lamp:v{version}\nproperties:\n\
         - type: olm.package\n  value: {{packageName: lamp, version: {version}}}\n"
    )
}

/// Catalog file with `new` in place of `old`.
fn edited(old: &str, new: &str) -> String {
    assert_eq!(CATALOG.matches(old).count(), 1, "{old}");
    CATALOG.replace(old, new) + &["1.0.0", "1.1.0", "1.2.0"].map(bundle).concat()
}

#[tokio::test]
async fn promoted_bundle_becomes_head_and_all_other_text_stays() {
    let fixture = fixture().await;
    let printed = fixture.works("promote catalog lamp 1.2.0 --channel stable").await;
    assert_eq!(
        printed,
        "lamp.v1.2.0 added to channel stable\n  replaces: lamp.v1.0.0\n  skips: lamp.v0.9.0\n  \
         skipRange: >=0.1.0 <1.2.0\n  default channel of the package\nchanged: lamp/index.yaml\n"
    );
    let added = "  - name: lamp.v1.2.0\n    replaces: lamp.v1.0.0\n    skipRange: \">=0.1.0 <1.2.0\"\n    skips:\n    - lamp.v0.9.0\n";
    let first = "  - name: 'lamp.v1.0.0'\n";
    assert_eq!(fixture.read(FILE), edited(first, &format!("{first}{added}")));
    assert_eq!(fixture.works("validate catalog").await, "");
    // A repeated promotion changes nothing.
    let before = fixture.read(FILE);
    let again = fixture.works("promote catalog lamp lamp.v1.2.0 --channel stable").await;
    assert!(
        again.starts_with("lamp.v1.2.0 is in channel stable\n") && again.ends_with("no file changed\n"),
        "{again}"
    );
    assert_eq!(fixture.read(FILE), before);
    // A late patch below the head: the head skips it, so that upgrades lead on from it.
    let printed = fixture.works("promote catalog lamp 1.1.0 --channel stable -o json").await;
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["entry"], json!({ "name": "lamp.v1.1.0", "replaces": "lamp.v1.0.0" }), "{printed}");
    assert_eq!(printed["skippedBy"], "lamp.v1.2.0");
    let passed = fixture.works("verify catalog --no-images").await;
    assert_eq!(passed, "catalog: 1 package, 3 bundles, 0 images: no findings\n");
}

#[tokio::test]
async fn edges_of_a_listed_bundle_change_in_place() {
    let fixture = fixture().await;
    fixture.works("promote catalog lamp 1.2.0 --channel fast --skips +lamp.v0.8.0 --skip-range=").await;
    let old = "- name: lamp.v1.2.0\n  replaces: lamp.v1.1.0\n  skips: [lamp.v0.9.0]\n  skipRange: '>=0.1.0 <1.2.0'\n";
    let new = "- name: lamp.v1.2.0\n  replaces: lamp.v1.1.0\n  skips:\n  - lamp.v0.9.0\n  - lamp.v0.8.0\n";
    assert_eq!(fixture.read(FILE), edited(old, new));
}

#[tokio::test]
async fn new_channel_is_created_only_on_request_and_can_be_the_default() {
    let fixture = fixture().await;
    let ran = fixture.olm("promote catalog lamp 1.2.0 --channel candidate").await;
    assert_eq!(ran.code, 4);
    assert!(
        ran.stderr.contains("no channel \"candidate\"; its channels: fast, stable; create it with --create"),
        "{}",
        ran.stderr
    );
    fixture.works("promote catalog lamp 1.2.0 --channel candidate --create --default-channel").await;
    let text = fixture.read(FILE);
    assert!(text.contains("\nname: lamp\ndefaultChannel: candidate\n---\n"), "{text}");
    assert!(text.starts_with("# Lamps.\n") && text.contains("  # The next release.\n"), "{text}");
    assert_eq!(fixture.works("validate catalog").await, "");
}

#[tokio::test]
async fn invalid_result_is_refused_with_its_findings() {
    let fixture = fixture().await;
    let before = fixture.read(FILE);
    for (options, finding) in [
        // The skipped bundle is on the chain.
        ("promote catalog lamp 1.2.0 --channel fast --skips lamp.v1.1.0", "stranded bundles: lamp.v1.0.0"),
        ("promote catalog lamp 1.2.0 --channel stable --replaces=", "multiple channel heads found in graph"),
        ("promote catalog lamp 1.2.0 --channel fast --skip-range what", "invalid skipRange"),
    ] {
        let ran = fixture.olm(options).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{options}: {}", ran.stderr);
        assert!(ran.stderr.contains(finding), "{options}: {}", ran.stderr);
        assert!(ran.stderr.contains("after the change, no file was changed"), "{}", ran.stderr);
        assert_eq!(fixture.read(FILE), before);
    }
    for (options, code, error) in [
        ("promote catalog none 1.2.0 --channel fast", 4, "has no package \"none\"; its packages: lamp"),
        ("promote catalog lamp 7.0.0 --channel fast", 4, "its versions: 1.2.0, 1.1.0, 1.0.0"),
        ("promote catalog lamp 1.2.0", 2, "--channel <CHANNEL>"),
    ] {
        let ran = fixture.olm(options).await;
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(ran.stderr.contains(error), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn deprecations_are_added_changed_listed_and_removed() {
    const DEPRECATIONS: &str = "catalog/lamp/deprecations.yaml";
    let fixture = fixture().await;
    let run = |words: &'static [&'static str]| {
        let fixture = &fixture;
        async move {
            let ran = fixture.run(&[&["deprecate", "catalog", "lamp"], words].concat()).await;
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{words:?}");
            ran.stdout
        }
    };
    let printed = run(&["--version", "1.1.0", "-m", "1.1.0 flickers: use 1.2.0."]).await;
    let lines: Vec<_> =
        printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "OBJECT CONDITION INSTALLED VERSIONS EXTENSIONS MESSAGE",
            "bundle lamp.v1.1.0 BundleDeprecated 1.1.0 extensions with lamp.v1.1.0 installed 1.1.0 flickers: use 1.2.0.",
            "changed: lamp/deprecations.yaml",
        ]
    );
    assert_eq!(
        fixture.read(DEPRECATIONS),
        "---\nentries:\n- message: \"1.1.0 flickers: use 1.2.0.\"\n  reference:\n    name: lamp.v1.1.0\n    schema: olm.bundle\n\
         package: lamp\nschema: olm.deprecations\n"
    );
    run(&["--channel", "fast", "--message", "Channel fast ends."]).await;
    run(&["--message", "Lamp ends."]).await;
    assert_eq!(fixture.works("validate catalog").await, "");
    // A comment of the author survives later changes, and repeated calls change nothing.
    let text = fixture.read(DEPRECATIONS).replace("---\n", "---\n# Reviewed monthly.\n");
    fixture.write(DEPRECATIONS, &text);
    let again = run(&["--channel", "fast", "--message", "Channel fast ends."]).await;
    assert!(!again.contains("changed:"), "{again}");
    assert_eq!(fixture.read(DEPRECATIONS), text);
    run(&["--channel", "fast", "--message", "Channel fast ends in June."]).await;
    assert_eq!(fixture.read(DEPRECATIONS), text.replace("fast ends.", "fast ends in June."));
    let list: Value = serde_json::from_str(&run(&["--list", "-o", "json"]).await).unwrap();
    let of = |field: &str| {
        list["deprecations"].as_array().unwrap().iter().map(|one| one[field].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("condition"), ["BundleDeprecated", "ChannelDeprecated", "PackageDeprecated"]);
    assert_eq!(of("installedVersions")[1], json!(["1.2.0", "1.1.0", "1.0.0"]));
    assert!(list["files"].as_array().unwrap().is_empty());
    for words in
        [&["--bundle", "lamp.v1.1.0", "--remove"][..], &["--remove"], &["--channel", "fast", "--remove"]]
    {
        run(words).await;
    }
    assert!(!fixture.path(DEPRECATIONS).exists());
    assert_eq!(run(&["--remove"]).await, "not deprecated\n");
}

#[tokio::test]
async fn deprecation_of_an_unknown_object_or_without_text_is_refused() {
    let fixture = fixture().await;
    for (words, code, error) in [
        (&["--channel", "slow", "-m", "x"][..], 4, "no channel \"slow\"; its channels: fast, stable"),
        (
            &["--version", "9.0.0", "-m", "x"],
            4,
            "no bundle or version \"9.0.0\"; its versions: 1.2.0, 1.1.0, 1.0.0",
        ),
        (&["-m", " "], 2, "--message must not be empty"),
        (&[], 2, "<--message <TEXT>|--remove|--list>"),
        (&["--version", "1.0.0", "--channel", "fast", "-m", "x"], 2, "cannot be used with"),
    ] {
        let ran = fixture.run(&[&["deprecate", "catalog", "lamp"], words].concat()).await;
        assert_eq!(ran.code, code, "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(error), "{words:?}: {}", ran.stderr);
    }
    fixture.write("catalog/.indexignore", "deprecations.yaml\n");
    let ran = fixture.run(&["deprecate", "catalog", "lamp", "-m", "x"]).await;
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("ignores this file, see .indexignore; nothing was written"),
        "{}",
        ran.stderr
    );
    assert!(!fixture.path("catalog/lamp/deprecations.yaml").exists());
}
