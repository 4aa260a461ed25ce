//! Image references of a catalog that are also paths of local directories.

use serde_json::{Value, json};

use super::fixture::Fixture;

const EXTENSION: &str = "apiVersion: olm.operatorframework.io/v1
kind: ClusterExtension
metadata: {name: lamp}
spec:
  namespace: lamps
  source: {sourceType: Catalog, catalog: {packageName: lamp}}
";

#[tokio::test]
async fn image_of_a_catalog_is_never_a_local_directory() {
    let fixture = Fixture::open().await;
    let absent = fixture.reference("team/absent:v1");
    fixture.write("extension.yaml", EXTENSION);
    let missing = "image REGISTRY/team/absent:v1: ";
    for (image, expected) in [
        ("planted", "invalid image \"planted\": "),
        ("./planted", "invalid image \"./planted\": "),
        (&absent, missing),
    ] {
        fixture.write_bundle(image, 0);
        let version = json!({ "packageName": "lamp", "version": "1.0.0" });
        let objects = [
            json!({ "schema": "olm.package", "name": "lamp", "defaultChannel": "stable" }),
            json!({ "schema": "olm.channel", "package": "lamp", "name": "stable", "entries": [{ "name": "lamp.v1.0.0" }] }),
            json!({ "schema": "olm.bundle", "package": "lamp", "name": "lamp.v1.0.0", "image": image,
                "properties": [{ "type": "olm.package", "value": version }] }),
        ];
        fixture.write("catalog/catalog.json", &objects.iter().map(Value::to_string).collect::<String>());
        for line in [
            "render -f extension.yaml --catalog ./catalog --ca-dir cas",
            "rbac required -f extension.yaml --catalog ./catalog --ca-dir cas",
            "rbac required lamp -n lamps --catalog ./catalog --ca-dir cas",
        ] {
            let ran = fixture.of(&line.split_whitespace().collect::<Vec<_>>()).await;
            assert_ne!(ran.code, 0, "{line}: {}", ran.stdout);
            assert!(ran.stderr.contains(expected), "{line}: {}", ran.stderr);
        }
        // A user names the same directory.
        let ran = fixture.of(&["render", image, "-n", "lamps"]).await;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
}
