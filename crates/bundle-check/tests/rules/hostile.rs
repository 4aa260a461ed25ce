//! Arbitrary files: checks must not panic, must be deterministic, and must terminate.

use std::collections::BTreeMap;

use olm_bundle_check::check;
use proptest::prelude::*;
use proptest::sample::select;

use super::fixture::{ANNOTATIONS, CRD, CSV, Files};

/// The valid bundle with a piece of one file replaced.
fn damaged() -> impl Strategy<Value = Files> {
    let texts = [
        ("metadata/annotations.yaml", ANNOTATIONS),
        ("manifests/csv.yaml", CSV),
        ("manifests/lamps.crd.yaml", CRD),
    ];
    let piece = select(vec![
        "",
        "null",
        "[]",
        "{}",
        "- ",
        "'",
        "1.10",
        "99999999999",
        "&a [*a]",
        "!!binary x",
        "\t",
        "---\n",
        "kind: List\nitems: [1]\n",
        "\u{feff}",
        "\"\\ud800\"",
        "*",
        "<<: {a: b}",
    ]);
    (select(texts.to_vec()), any::<prop::sample::Index>(), 0_usize..40, piece).prop_map(
        |((path, text), at, length, piece)| {
            let start = at.index(text.len());
            let end = (start + length).min(text.len());
            Files::good().with(path, &format!("{}{piece}{}", &text[..start], &text[end..]))
        },
    )
}

proptest! {
    #[test]
    fn checks_of_damaged_bundles_are_deterministic(files in damaged()) {
        let kubernetes = "1.31".parse().ok();
        prop_assert_eq!(check(&files.0, kubernetes), check(&files.0, kubernetes));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(metadata in any::<Vec<u8>>(), manifest in any::<Vec<u8>>(),
                                    path in "manifests/[a-z/.]{0,5}") {
        let files = BTreeMap::from([("metadata/annotations.yaml".to_owned(), metadata), (path, manifest)]);
        check(&files, None);
    }
}

// docs/design/bundles.md#author-checks
#[test]
fn reports_are_bounded_for_hostile_bundles() {
    let many = |count: usize| (0..count).map(|n| format!("x{n}: 1\n")).collect::<String>();
    let files = Files::good().with("manifests/csv.yaml", &format!("{CSV}{}", many(5000)));
    let report = check(&files.0, None);
    assert_eq!((report.findings.len(), report.omitted_of(|_| true)), (100, 100));
    let pods: String =
        (0..3000).map(|n| format!("---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}}}\n")).collect();
    let report = check(&Files::good().with("manifests/p.yaml", &pods).0, None);
    assert_eq!((report.findings.len(), report.omitted_of(|_| true)), (101, 2900));
    let deep =
        format!("kind: ConfigMap\nmetadata: {{name: c}}\ndata: {}{}", "[".repeat(20_000), "]".repeat(20_000));
    assert_eq!(Files::good().with("manifests/d.yaml", &deep).findings().len(), 1);
    let laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, \
                  *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, \
                  *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\ng: [*f, *f, *f, *f, *f, *f, *f, *f, *f, *f]\n";
    let found = Files::good().with("manifests/l.yaml", laughs).findings();
    assert_eq!(found.len(), 1, "{found:?}");
    let files: BTreeMap<_, _> = (0..100_000).map(|n| (format!("manifests/{n}.yaml"), Vec::new())).collect();
    let report = check(&files, None);
    assert_eq!(report.findings.iter().map(|finding| finding.rule.id).collect::<Vec<_>>(), ["FILE-4"]);
}

// docs/design/bundles.md#author-checks
#[test]
fn loading_errors_are_bounded_in_number_and_length() {
    let found = |path: &str, text: &str| Files::good().with(path, text).findings();
    let nested = format!("{}{}{}", "{\"items\":[".repeat(249), "1,".repeat(100_000) + "1", "]}".repeat(249));
    let found_nested = found("manifests/a.yaml", &format!("kind: List\nitems: [{nested}]\n"));
    assert_eq!(found_nested.len(), 1, "{found_nested:?}");
    // The loader quotes the whole object in its error.
    let long = found("manifests/a.yaml", &format!("a: {}\n", "x".repeat(1 << 20)));
    assert_eq!(long.len(), 1);
    assert!(long[0].chars().count() < 2_100 && long[0].ends_with("xx… [FILE-2]"), "{}", long[0].len());
    // The loader stops at the first unreadable manifest. The size limit is still reported.
    let items = format!("kind: List\nitems: [{}1]\n", "1,".repeat(1 << 20));
    let files = Files::good().with("manifests/a.yaml", "[").with("manifests/b.yaml", &items);
    let rules: Vec<&str> = check(&files.0, None).findings.iter().map(|finding| finding.rule.id).collect();
    assert_eq!(rules, ["FILE-4", "FILE-2"]);
}
