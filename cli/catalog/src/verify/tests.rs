use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;
use olm_fbc::Origin;

use super::super::finding::MISSING;
use super::*;
use crate::CatalogCommand;

fn verification() -> Verification {
    let origin = Origin { file: Arc::from(Path::new("lamp/index.yaml")), line: 7, document: 2 };
    let place = Place { image: "r.example/lamp:v1".to_owned(), ..Place::bundle("lamp", "lamp.v1") };
    let missing = Finding::new(
        &MISSING,
        Place { origin: Some(origin.clone()), ..place },
        "it is <gone> & \"lost\"\u{1b}",
    );
    let structure =
        Finding::new(&olm_fbc::RULES[0].rule, Place { origin: Some(origin), ..Place::default() }, "no head");
    Verification {
        catalog: "./catalog".to_owned(),
        passed: false,
        packages: 1,
        bundles: 2,
        images: 2,
        resumed: 0,
        findings: vec![structure, missing],
        names: BTreeMap::from([("lamp".to_owned(), vec!["lamp.v1".to_owned(), "lamp.v2".to_owned()])]),
    }
}

#[test]
fn table_names_rule_bundle_image_and_counts() {
    assert_eq!(
        table(&verification()).lines().map(str::trim_end).collect::<Vec<_>>(),
        [
            "RULE        PACKAGE   BUNDLE    FINDING",
            "CATALOG-1   -         -         lamp/index.yaml:7: document 2: no head",
            "IMAGE-1     lamp      lamp.v1   r.example/lamp:v1: it is <gone> & \"lost\"\\u{1b}",
            "",
            "./catalog: 1 package, 2 bundles, 2 images: 2 findings",
        ]
    );
    let none = Verification { passed: true, findings: Vec::new(), ..verification() };
    assert_eq!(table(&none), "./catalog: 1 package, 2 bundles, 2 images: no findings\n");
}

#[test]
fn junit_has_a_case_for_each_bundle_and_escapes_text() {
    assert_eq!(
        junit(&verification()),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="./catalog" tests="1" failures="1">
    <testcase classname="" name="structure">
      <failure type="CATALOG-1" message="CATALOG-1: lamp/index.yaml:7: document 2: no head">CATALOG-1: lamp/index.yaml:7: document 2: no head</failure>
    </testcase>
  </testsuite>
  <testsuite name="lamp" tests="2" failures="1">
    <testcase classname="lamp" name="lamp.v1">
      <failure type="IMAGE-1" message="IMAGE-1: r.example/lamp:v1: it is &lt;gone&gt; &amp; &quot;lost&quot;"#
            .to_owned()
            + "\u{fffd}\">IMAGE-1: r.example/lamp:v1: it is &lt;gone&gt; &amp; &quot;lost&quot;\u{fffd}</failure>\n"
            + r#"    </testcase>
    <testcase classname="lamp" name="lamp.v2">
    </testcase>
  </testsuite>
</testsuites>
"#
    );
}

#[test]
fn sarif_results_name_their_rule_file_and_line() {
    let report = sarif(&verification());
    assert_eq!(report["version"], "2.1.0");
    let run = &report["runs"][0];
    assert_eq!(run["tool"]["driver"]["rules"].as_array().map(Vec::len), Some(RULES.len()));
    assert_eq!(
        run["results"][1],
        json!({
            "ruleId": "IMAGE-1",
            "level": "error",
            "message": { "text": "r.example/lamp:v1: it is <gone> & \"lost\"\u{1b}" },
            "locations": [{
                "physicalLocation": {
                    "artifactLocation": { "uri": "lamp/index.yaml" },
                    "region": { "startLine": 7 },
                },
                "logicalLocations": [{ "fullyQualifiedName": "lamp/lamp.v1" }],
            }],
        })
    );
}

#[test]
fn help_lists_every_rule() {
    let mut catalog = CatalogCommand::augment_subcommands(clap::Command::new("catalog"));
    let verify = catalog.find_subcommand_mut("verify").unwrap();
    let help = verify.render_long_help().to_string();
    for rule in RULES {
        assert!(help.contains(&format!("\n  {} ", rule.id)), "{}", rule.id);
    }
}
