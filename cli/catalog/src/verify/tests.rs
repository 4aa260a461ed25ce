use std::path::Path;
use std::sync::Arc;

use olm_fbc::Origin;

use super::super::finding::MISSING;
use super::*;

fn verification() -> Verification {
    let origin = Origin { file: Arc::from(Path::new("lamp/index.yaml")), line: 7, document: 2 };
    let place =
        CatalogPlace { image: "r.example/lamp:v1".to_owned(), ..CatalogPlace::bundle("lamp", "lamp.v1") };
    let missing = Finding::new(
        &MISSING,
        CatalogPlace { origin: Some(origin.clone()), ..place },
        "it is <gone> & \"lost\"\u{1b}",
    );
    let structure = Finding::new(
        &olm_fbc::RULES[0].rule,
        CatalogPlace { origin: Some(origin), ..CatalogPlace::default() },
        "no head",
    );
    Verification {
        catalog: "./catalog".to_owned(),
        passed: false,
        packages: 1,
        bundles: 2,
        images: 2,
        resumed: 0,
        findings: vec![structure, missing],
        names: BTreeMap::from([("lamp".to_owned(), vec!["lamp.v1".to_owned(), "lamp.v2".to_owned()])]),
        folder: Some("./catalog".into()),
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
fn report_has_a_case_for_each_bundle_with_files_of_the_working_directory() {
    let report = report(&verification());
    let cases: Vec<_> = report
        .cases
        .iter()
        .map(|case| (case.suite.as_str(), case.name.as_str(), case.findings.len()))
        .collect();
    assert_eq!(cases, [("./catalog", "structure", 1), ("lamp", "lamp.v1", 1), ("lamp", "lamp.v2", 0)]);
    let place = |case: usize| {
        let finding = &report.cases[case].findings[0];
        let Spot { file, line, name } = &finding.place;
        (finding.rule.id, file.as_deref(), *line, name.as_str(), finding.message.as_str())
    };
    assert_eq!(place(0), ("CATALOG-1", Some("catalog/lamp/index.yaml"), Some(7), "", "no head"));
    let message = "r.example/lamp:v1: it is <gone> & \"lost\"\u{1b}";
    assert_eq!(place(1), ("IMAGE-1", Some("catalog/lamp/index.yaml"), Some(7), "lamp/lamp.v1", message));
    assert!(report.rules.iter().any(|rule| rule.id == "CATALOG-1") && report.rules.len() == rules().count());
}

#[test]
fn files_of_an_image_are_part_of_the_message() {
    let report = report(&Verification { folder: None, ..verification() });
    let finding = &report.cases[0].findings[0];
    assert_eq!((finding.place.file.as_deref(), finding.place.line), (None, None));
    assert_eq!(finding.message, "lamp/index.yaml:7: document 2: no head");
}

#[test]
fn rule_ids_are_unique() {
    let ids: std::collections::BTreeSet<_> = rules().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), rules().count());
}
