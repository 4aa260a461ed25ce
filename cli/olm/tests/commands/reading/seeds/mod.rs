//! Examples of five documents about OLM, in the folder `seeds` beside `OLM_FIELD_DATA`: each is cut out by its lines,
//! changed where a web page or a slip made it unreadable, and given to `olm`. Their text is not part of the project.

mod cluster;
mod drawn;
mod folder;
mod ranges;
mod schemas;
mod texts;

use regex::Regex;

use Place::{Fields, File};
use folder::{check, folder, put};
use texts::{
    aligned, annotation, cleaned, completed, completed_with_minimum, completed_with_patches,
    completed_with_quoted_minimum, cut, dependency, document, entries, filled, filled_annotation, in_value,
    indented, place, printed, quoted_entries, renamed, seeds, unserved,
};

/// Where the text of an example goes.
#[derive(Clone, Copy)]
enum Place {
    /// It is this file.
    File(&'static str),
    /// It has fields for the object in this file.
    Fields(&'static str),
}

type Edit = fn(&str) -> String;

/// Command, its exit code, and a part of its output. An empty text stands for no output.
type Step = (&'static str, i32, &'static str);

/// Name, document and lines, edit, place, commands.
type Example = (&'static str, &'static str, Edit, Place, &'static [Step]);

const ANY: Place = File("any.yaml");
const ANNOTATIONS: Place = File("bundle/metadata/annotations.yaml");
const CATALOG: Place = File("old/index.yaml");
const CSV: Place = Fields("bundle/manifests/lamp.clusterserviceversion.yaml");
const DEPENDENCIES: Place = File("bundle/metadata/dependencies.yaml");
const DEPRECATIONS: Place = File("catalog/my-operator/deprecations.yaml");
const ENTRIES: Place = File("catalog/steps/stable.json");
const PROPERTIES: Place = File("bundle/metadata/properties.yaml");
const RED: Place = Fields("catalog/red/red.v1.0.0.json");

const ADD: &str = "catalog add catalog bundle --image registry.example/lamp:v1 --channel added";
const CHECK: &str = "bundle validate bundle";
const RENDER: &str = "catalog render bundle --image registry.example/lamp:v1";
const RESOLVE: &str = "resolve -f any.yaml --catalog catalog";
const SOLVE_LAMP: &str = "resolve lamp --version 1.2.0 --catalog catalog --solve";
const SOLVE_RED: &str = "resolve red --catalog catalog --solve";
const STRICT: &str = "bundle validate bundle --strict";
const VERIFY: &str = "catalog verify catalog --no-images";

const NO_MANIFEST: &[Step] = &[("validate old", 3, "\nhint: a package manifest is a format before bundles")];
const CONDITION: &[Step] =
    &[("validate old", 3, "\nhint: OperatorCondition is an object of classic OLM: in v1, with the feature")];
const RED_NEEDS_BLUE: &[Step] =
    &[(VERIFY, 0, "no findings"), (SOLVE_RED, 0, "1. install blue 1.1.0 (blue.v1.1.0,")];
const UNKNOWN_NAME: &[Step] = &[(VERIFY, 3, "unknown field \"name\" (use packageName in place of name)")];

/// Examples with call-outs, as printed.
const PRINTED: &[Example] = &[
    ("annotations", "000:84-101", printed, ANNOTATIONS, &[(CHECK, 3, "remove the call-out 1\n")]),
    (
        "deprecations",
        "000:402-431",
        printed,
        DEPRECATIONS,
        &[("validate catalog", 3, "remove the call-out 1\n")],
    ),
    ("condition", "001:1529-1540", printed, ANY, &[(RESOLVE, 3, "\n  remove the call-out 2\n")]),
    ("maximum", "002:304-308", printed, ANY, &[(RESOLVE, 3, "\n  remove the call-out (1)\n")]),
];

/// Objects of classic OLM, to which `olm` answers with their form in v1.
const CLASSIC: &[Example] = &[
    (
        "source",
        "001:85-124",
        cleaned,
        ANY,
        &[(RESOLVE, 3, "(here: quay.io/example-org/example-catalog:v1),")],
    ),
    (
        "template",
        "001:213-226",
        printed,
        ANY,
        &[(RESOLVE, 3, "spec.priority. It has the same annotation olm.catalogImageTemplate\n")],
    ),
    ("priority", "001:902-913", cleaned, ANY, &[(RESOLVE, 3, "(here: example.com/my/operator-index:v1)")]),
    (
        "subscription",
        "001:172-181",
        printed,
        ANY,
        &[(RESOLVE, 3, "packageName (here: example-operator), channels")],
    ),
    ("subscription", "001:257-266", printed, ANY, &[(RESOLVE, 3, "channels (here: [stable]) and version")]),
    (
        "install plan",
        "001:289-365",
        cleaned,
        ANY,
        &[(RESOLVE, 3, "v1 has no InstallPlan: the installed objects")],
    ),
    ("package manifest", "001:538-544", printed, CATALOG, NO_MANIFEST),
    ("package manifest", "003:32-38", printed, CATALOG, NO_MANIFEST),
    (
        "CSV alone",
        "001:574-585",
        printed,
        ANY,
        &[(RESOLVE, 3, "belongs in the manifests folder of a bundle")],
    ),
    (
        "one namespace",
        "001:1103-1110",
        printed,
        ANY,
        &[(RESOLVE, 3, "spec.targetNamespaces is watchNamespaces")],
    ),
    ("namespaces", "004:60-69", printed, ANY, &[(RESOLVE, 3, "spec.targetNamespaces is watchNamespaces")]),
    ("selector", "001:1123-1130", printed, ANY, &[(RESOLVE, 3, "spec.selector is watchNamespaceSelector")]),
    ("selector", "004:48-56", printed, ANY, &[(RESOLVE, 3, "spec.selector is watchNamespaceSelector")]),
    (
        "all namespaces",
        "001:1137-1141",
        printed,
        ANY,
        &[(RESOLVE, 3, "the operator watches all namespaces, or")],
    ),
    ("all namespaces", "004:76-80", printed, ANY, &[(RESOLVE, 3, "the operator watches all namespaces, or")]),
    ("APIs of a group", "001:1173-1191", cleaned, ANY, &[(RESOLVE, 3, "v1 has no OperatorGroup")]),
    ("APIs of a group", "004:112-130", cleaned, ANY, &[(RESOLVE, 3, "v1 has no OperatorGroup")]),
    (
        "static group",
        "001:1368-1379",
        printed,
        ANY,
        &[(RESOLVE, 3, "\n  monitoring.coreos.com: extension:NAME\n")],
    ),
    (
        "static group",
        "004:262-273",
        printed,
        ANY,
        &[(RESOLVE, 3, "\n  monitoring.coreos.com: extension:NAME\n")],
    ),
    ("OLMConfig", "001:1342-1348", printed, ANY, &[(RESOLVE, 3, "v1 has no OLMConfig: it copies no CSVs")]),
    ("OLMConfig", "001:1353-1359", printed, ANY, &[(RESOLVE, 3, "v1 has no OLMConfig: it copies no CSVs")]),
    // Operators report in it, and version v1 is served beside v2.
    ("condition", "001:1529-1540", cleaned, CATALOG, CONDITION),
];

const DEPENDS_ON_TWO: &[Step] = &[
    (CHECK, 0, "if one bundle must satisfy both, write one olm.constraint with all [DEP-3]"),
    (ADD, 0, "lamp.v1.2.0 added to channel added"),
    (
        "resolve lamp --version 1.2.0 --catalog catalog",
        4,
        "which is currently not supported\nhint: --with-dependencies",
    ),
    (SOLVE_LAMP, 0, "install prometheus 0.28.0 (prometheus.v0.28.0,"),
    (SOLVE_LAMP, 0, "install etcd 3.2.0 (etcd.v3.2.0,"),
];
const DEPENDS_ON_ETCD: &[Step] = &[
    (CHECK, 0, "if one bundle must satisfy both, write one olm.constraint with all [DEP-3]"),
    (ADD, 0, "lamp.v1.2.0 added to channel added"),
    (SOLVE_LAMP, 0, "1. install etcd 3.2.0 (etcd.v3.2.0,"),
];
const DEPENDS_ON_CERTIFIED: &[Step] = &[
    (
        CHECK,
        0,
        "has a dependency declared via property \"olm.constraint\" which is currently not supported [V1-1]",
    ),
    (ADD, 0, "lamp.v1.2.0 added to channel added"),
    (SOLVE_LAMP, 0, "1. install blue 1.1.0 (blue.v1.1.0,"),
];
const SKIPS: &[Step] = &[
    (STRICT, 0, ""),
    (
        "catalog add catalog bundle --image registry.example/lamp:v1 --channel stable",
        0,
        "added to channel stable",
    ),
    ("resolve lamp --catalog catalog --installed etcdoperator.v0.9.0", 0, "upgrade to etcdoperator.v0.9.2\n"),
    ("resolve lamp --catalog catalog --installed etcdoperator.v0.9.1", 0, "upgrade to etcdoperator.v0.9.2\n"),
];
const SKIPS_RANGE: &[Step] = &[
    (STRICT, 0, ""),
    (ADD, 0, "elasticsearch-operator.v4.1.2 added to channel added"),
    (
        "resolve lamp --catalog catalog --installed o.v4.1.0@4.1.0",
        0,
        "upgrade to elasticsearch-operator.v4.1.2\n",
    ),
    (
        "resolve lamp --catalog catalog --installed o.v4.0.9@4.0.9",
        4,
        "error upgrading from currently installed version",
    ),
];

/// Files of a bundle.
const BUNDLES: &[Example] = &[
    ("annotations", "000:84-101", cleaned, ANNOTATIONS, &[(STRICT, 0, "")]),
    ("dependencies", "000:137-146", printed, DEPENDENCIES, DEPENDS_ON_TWO),
    ("dependencies", "001:728-737", printed, DEPENDENCIES, DEPENDS_ON_TWO),
    ("package and API", "001:1008-1017", printed, DEPENDENCIES, DEPENDS_ON_ETCD),
    ("rule", "001:759-763", dependency, DEPENDENCIES, DEPENDS_ON_CERTIFIED),
    ("two rules", "001:769-773", dependency, DEPENDENCIES, DEPENDS_ON_CERTIFIED),
    (
        "property",
        "001:682-685",
        printed,
        PROPERTIES,
        &[(STRICT, 0, ""), (RENDER, 0, "\"type\": \"olm.kubeversion\"")],
    ),
    (
        "properties",
        "001:695-707",
        printed,
        PROPERTIES,
        &[(CHECK, 3, "write its type and value directly [PROP-1]")],
    ),
    ("skips", "001:574-585", printed, CSV, SKIPS),
    ("skips", "003:69-80", printed, CSV, SKIPS),
    ("skipRange", "001:617-623", filled, CSV, SKIPS_RANGE),
    ("skipRange", "003:116-122", filled, CSV, SKIPS_RANGE),
    ("form of skipRange", "001:602", annotation, CSV, &[(CHECK, 3, "[CSV-14]")]),
    ("form of skipRange", "003:99", filled_annotation, CSV, &[(STRICT, 0, "")]),
    (
        "form of a maximum",
        "002:304-308",
        cleaned,
        CSV,
        &[(CHECK, 0, "such as \"4.18\", got \"<cluster_version>\" [PROP-5]")],
    ),
    ("maximum", "002:304-308", filled, CSV, &[(STRICT, 0, ""), (RENDER, 0, "\"olm.maxOpenShiftVersion\"")]),
];

const DEPRECATED: &[Step] = &[
    ("validate catalog --strict", 0, ""),
    ("catalog show catalog my-operator", 0, "'my-operator-new' package for support."),
    ("resolve my-operator --catalog catalog --version 1.68.0", 0, "my-operator.v1.68.0 is deprecated"),
];
const STEPS: &[Step] = &[
    ("validate catalog --strict", 0, ""),
    ("resolve steps --catalog catalog --installed example.v1.0.0@1.0.0", 0, "upgrade to example.v2.0.0\n"),
    (
        "catalog graph catalog steps --semantics classic",
        0,
        "example.v2.0.0 (stable) [skipped] [unreachable]\n",
    ),
];
const COMPOSED: &[Step] = &[(
    "catalog build --file any.yaml built",
    1,
    "error: image 127.0.0.1:1/etcd-operator/index@sha256:5891b5b",
)];

/// Objects of catalogs, and the list of images for one.
const CATALOGS: &[Example] = &[
    (
        "deprecations",
        "000:402-431",
        cleaned,
        DEPRECATIONS,
        &[("validate catalog", 3, "indent the text of message deeper than message\n")],
    ),
    ("deprecations", "000:402-431", indented, DEPRECATIONS, DEPRECATED),
    ("images", "000:532-539", unserved, ANY, COMPOSED),
    (
        "entries",
        "002:17-20",
        entries,
        ENTRIES,
        &[("validate catalog", 3, "quote it: skipRange: \">=1.0.0 <2.0.0\"\n")],
    ),
    ("entries", "002:17-20", quoted_entries, ENTRIES, STEPS),
    ("all", "001:783-799", printed, RED, UNKNOWN_NAME),
    ("all", "001:783-799", renamed, RED, RED_NEEDS_BLUE),
    ("any", "001:805-824", printed, RED, RED_NEEDS_BLUE),
    (
        "not",
        "001:830-847",
        printed,
        RED,
        &[(VERIFY, 3, "constraint is empty (one of gvk, package, all, any, not, cel")],
    ),
    ("not", "001:830-847", in_value, RED, RED_NEEDS_BLUE),
    ("nested", "001:861-886", printed, RED, UNKNOWN_NAME),
    ("nested", "001:861-886", renamed, RED, RED_NEEDS_BLUE),
];

const FORCED: &[Step] = &[
    (RESOLVE, 0, "install example.v1.14.0\n"),
    ("resolve -f any.yaml --catalog catalog --installed 1.16.0", 0, "downgrade to example.v1.14.0\n"),
];
const ABOVE: &[Step] = &[
    (RESOLVE, 0, "install example.v1.16.0\n"),
    (RESOLVE, 0, "spec.serviceAccount is deprecated, ignored, and will be removed"),
];

/// ClusterExtensions.
const EXTENSIONS: &[Example] = &[
    (
        "as printed",
        "002:75-87",
        printed,
        ANY,
        &[(RESOLVE, 3, "\n  kind is indented deeper than apiVersion, which")],
    ),
    ("form", "002:75-87", aligned, ANY, &[(RESOLVE, 3, "\n  replace <package_name> with a value\n")]),
    ("range", "002:75-87", completed, ANY, &[(RESOLVE, 0, "install example.v1.12.4\n")]),
    ("channel", "002:191-204", completed, ANY, &[(RESOLVE, 0, "install example.v1.16.0\n")]),
    ("version", "002:212-224", completed, ANY, &[(RESOLVE, 0, "install example.v1.11.1\n")]),
    ("above a version", "002:230-242", completed, ANY, ABOVE),
    (
        "form of all fields",
        "002:267-282",
        aligned,
        ANY,
        &[(RESOLVE, 3, "\n  replace <channel_name> with a value\n")],
    ),
    ("all fields", "002:267-282", completed, ANY, FORCED),
    ("patches", "002:267-282", completed_with_patches, ANY, FORCED),
    (
        "minimum",
        "002:267-282",
        completed_with_minimum,
        ANY,
        &[(RESOLVE, 3, "quote it: version: \">=1.16\"\n")],
    ),
    (
        "minimum",
        "002:267-282",
        completed_with_quoted_minimum,
        ANY,
        &[(RESOLVE, 0, "install example.v1.16.0\n")],
    ),
];

fn replay(examples: &[Example]) {
    let Some(seeds) = seeds() else { return };
    for (name, at, edit, place, steps) in examples {
        let folder = folder();
        put(folder.path(), *place, &edit(&cut(&seeds, at)));
        for (line, code, expected) in *steps {
            check(folder.path(), line, *code, expected, &format!("{name}, {at}"));
        }
    }
}

#[test]
fn call_outs_are_named() {
    replay(PRINTED);
}

#[test]
fn objects_of_classic_olm_yield_their_form_in_v1() {
    replay(CLASSIC);
}

#[test]
fn files_of_bundles_are_checked_and_take_effect() {
    replay(BUNDLES);
}

#[test]
fn objects_of_catalogs_are_checked_and_take_effect() {
    replay(CATALOGS);
}

#[test]
fn extensions_choose_their_versions() {
    replay(EXTENSIONS);
}

/// Blocks that are neither YAML nor a part of [`CLASSIC`], [`BUNDLES`], [`CATALOGS`] and [`EXTENSIONS`]: schemas.
const SCHEMAS: [&str; 8] = [
    "000:239-256",
    "000:277-294",
    "000:306-330",
    "000:342-366",
    "000:469-475",
    "000:483-490",
    "000:498-504",
    "000:512-519",
];

#[test]
fn every_line_of_yaml_belongs_to_an_example() {
    let Some(seeds) = seeds() else { return };
    let examples = [CLASSIC, BUNDLES, CATALOGS, EXTENSIONS].concat();
    let known: Vec<_> = examples.iter().map(|(_, at, ..)| *at).chain(SCHEMAS).map(place).collect();
    let field = Regex::new(r#"^ *(- )?"?[A-Za-z][\w.]*"?:( .*)?$"#).unwrap();
    let mut count = 0;
    for digits in ["000", "001", "002", "003", "004"] {
        for (at, line) in document(&seeds, digits).iter().enumerate() {
            if field.is_match(line.trim_end()) && line.is_ascii() {
                let is_known = |(known, first, last): &(&str, usize, usize)| {
                    *known == digits && (*first..=*last).contains(&(at + 1))
                };
                assert!(known.iter().any(is_known), "{digits}:{} belongs to no example: {line}", at + 1);
                count += 1;
            }
        }
    }
    assert_eq!(count, 606);
}
