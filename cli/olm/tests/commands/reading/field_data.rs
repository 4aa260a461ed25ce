//! Real catalog of `OLM_FIELD_DATA`. Only counts are compared.

use serde_json::Value;

use super::fixture::olm;

#[test]
fn real_catalog_reads_and_validates() {
    let Some(root) = olm_require::field_data() else { return };
    let root = root.join("catalogs/community-v4.20").canonicalize().unwrap();
    let root = root.to_str().unwrap();
    let json = |args: &[&str]| -> Value {
        let ran = olm(args);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let packages = json(&["catalog", "ls", root, "-o", "json"]);
    let packages = packages["items"].as_array().unwrap();
    assert_eq!(packages.len(), 37);
    let bundles: u64 = packages.iter().map(|package| package["bundles"].as_u64().unwrap()).sum();
    let rendered = olm(&["catalog", "render", root]);
    let objects: Vec<Value> =
        serde_json::Deserializer::from_str(&rendered.stdout).into_iter().collect::<Result<_, _>>().unwrap();
    let of_schema = |schema: &str| objects.iter().filter(|object| object["schema"] == schema).count();
    assert_eq!((of_schema("olm.package"), of_schema("olm.bundle") as u64), (37, bundles));
    // Each run reads the whole catalog. Unit tests of the CLI compare the graphs of all packages.
    for package in packages.iter().step_by(12) {
        let name = package["name"].as_str().unwrap();
        let graph = json(&["catalog", "graph", root, name, "--format", "json"]);
        assert_eq!(
            graph["nodes"].as_array().unwrap().len() as u64,
            package["bundles"].as_u64().unwrap(),
            "{name}"
        );
        let shown = json(&["catalog", "show", root, name, "-o", "json"]);
        assert!(shown["items"][0]["bundle"]["version"].is_string(), "{name}");
    }
    let ran = olm(&["validate", root, "-o", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
}
