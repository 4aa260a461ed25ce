//! Templates of catalogs, migrations, and Dockerfiles.

use super::fixture::Fixture;

/// Creates package lamp in `catalog` with the bundles of this number of versions from the registry.
async fn begin(fixture: &Fixture, bundles: u32) -> Vec<String> {
    let images: Vec<_> = (0..bundles).map(|minor| fixture.publish_bundle(minor)).collect();
    fixture.works("init lamp -c stable --to catalog").await;
    fixture.works(&format!("add catalog --ca-dir cas {}", images.join(" "))).await;
    images
}

#[tokio::test]
async fn basic_template_of_catalog_renders_the_same_catalog() {
    let fixture = Fixture::open().await;
    let images = begin(&fixture, 3).await;
    fixture.write("catalog/notes.yaml", "schema: vendor.notes\nlist: [b, a]\n");
    let template = fixture.works("template convert basic catalog -o yaml").await;
    assert!(template.starts_with("---\nentries:\n- defaultChannel: stable\n  name: lamp\n"), "{template}");
    assert!(
        template.contains("- image: REGISTRY/team/lamp-bundle:v1.1.0\n  schema: olm.bundle\n"),
        "{template}"
    );
    assert!(template.ends_with("schema: olm.template.basic\n"), "{template}");
    fixture.write("basic.yaml", &template.replace("REGISTRY", &fixture.registry.host()));
    let rendered = fixture.works("template render basic.yaml --ca-dir cas").await;
    assert_eq!(rendered, fixture.works("render catalog").await);
    // A single file is a source, too.
    fixture.works("template convert basic catalog/lamp/index.yaml").await;

    let chart = fixture.works("template render basic.yaml --ca-dir cas -o mermaid").await;
    assert_eq!(chart, fixture.works("graph catalog lamp --format mermaid").await);
    let two = format!(
        "{{\"schema\":\"olm.template.basic\",\"entries\":[{{\"schema\":\"olm.package\",\"name\":\"bulb\"}},{{\"schema\":\"olm.bundle\",\"image\":\"{}\"}}]}}",
        images[0]
    );
    fixture.write("two.json", &two);
    let chart = fixture.works("template render two.json --ca-dir cas -o mermaid").await;
    let expected = "flowchart LR\n  subgraph p0[\"bulb\"]\n  end\n  subgraph p1[\"lamp\"]\n  p1b0[\"1.0.0<br/>lamp.v1.0.0\"]\n";
    assert!(chart.starts_with(expected), "{chart}");
}

#[tokio::test]
async fn substitutes_template_replaces_bundle_in_graph() {
    let fixture = Fixture::open().await;
    begin(&fixture, 2).await;
    let converted = fixture.works("template convert substitutes catalog -o yaml").await;
    let converted = converted.replace("REGISTRY", &fixture.registry.host());
    fixture.write("substitutes.yaml", &converted);
    assert_eq!(
        fixture.works("template render substitutes.yaml").await,
        fixture.works("render catalog").await
    );

    let image = fixture.publish_bundle(2);
    let substitution = |base: &str| {
        let list = format!("substitutions:\n- name: {image}\n  base: {base}\n");
        fixture.write("substitutes.yaml", &converted.replace("substitutions: []\n", &list));
    };
    substitution("lamp.v1.1.0");
    let path = fixture.works("template render substitutes.yaml --ca-dir cas --to new").await;
    assert_eq!(path, "new/lamp/rendered.yaml\n");
    fixture.works("validate new").await;
    let text = fixture.read("new/lamp/rendered.yaml");
    let entries = "entries:\n- name: lamp.v1.0.0\n- name: lamp.v1.1.0\n- name: lamp.v1.2.0\n  replaces: lamp.v1.0.0\n  skips:\n  - lamp.v1.1.0\n";
    assert!(text.contains(entries), "{text}");

    substitution("lamp.v9.0.0");
    let ran = fixture.olm("template render substitutes.yaml --ca-dir cas").await;
    let expected = "error: substitutes.yaml: render: error processing substitution \"lamp.v9.0.0\" -> \
                    \"REGISTRY/team/lamp-bundle:v1.2.0\": base bundle \"lamp.v9.0.0\" does not exist in catalog\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, expected));
}

#[tokio::test]
async fn migration_replaces_manifests_with_csv_metadata() {
    // `migrated.json` is what opm renders from its own migration.
    let fixture = Fixture::open().await;
    fixture.write("catalog/index.json", include_str!("objects.json"));
    let level = "--migrate-level bundle-object-to-csv-metadata";
    let migrated = include_str!("migrated.json");
    assert_eq!(fixture.works(&format!("render catalog {level}")).await, migrated);
    assert_eq!(fixture.works("render catalog --migrate").await, migrated);
    assert_eq!(fixture.works("render catalog --migrate-level all").await, migrated);
    let unchanged = fixture.works("render catalog").await;
    assert!(unchanged.contains("olm.bundle.object"));
    assert_eq!(fixture.works("render catalog --migrate-level none").await, unchanged);
    let both = fixture.olm(&format!("render catalog --migrate {level}")).await;
    assert_eq!(both.code, 2, "{}", both.stderr);

    let files = "new/catalog.json\nnew/lamp/catalog.json\n";
    assert_eq!(fixture.works(&format!("migrate catalog new {level}")).await, files);
    assert_eq!(fixture.works("render new").await, migrated);
    let files = "yaml/catalog.yaml\nyaml/lamp/catalog.yaml\n";
    assert_eq!(fixture.works("migrate catalog yaml -o yaml").await, files);
    assert_eq!(fixture.works("render yaml").await, unchanged);
    assert!(fixture.read("yaml/catalog.yaml").starts_with("---\nlist:\n"));
}

#[tokio::test]
async fn dockerfile_is_written_beside_the_catalog() {
    let fixture = Fixture::open().await;
    begin(&fixture, 1).await;
    let ran = fixture.olm("generate dockerfile ./catalog -i scratch -l team=storage").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "./catalog.Dockerfile\n"));
    let next = "Next steps:\n  olm validate ./catalog\n  docker build -f ./catalog.Dockerfile -t REGISTRY/REPOSITORY:TAG .\n";
    assert!(ran.stderr.starts_with(next), "{}", ran.stderr);
    let text = fixture.read("catalog.Dockerfile");
    for line in [
        "FROM quay.io/operator-framework/opm:latest AS builder",
        "COPY [\"catalog\", \"/configs\"]",
        "FROM scratch",
        "LABEL operators.operatorframework.io.index.configs.v1=/configs",
        "LABEL \"team\"=\"storage\"",
    ] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
    fixture.works("validate catalog").await;
    std::fs::remove_file(fixture.path("catalog.Dockerfile")).unwrap();
    let ran = fixture.olm("generate dockerfile catalog --content-only").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "catalog.Dockerfile\n"), "{}", ran.stderr);
    assert!(
        fixture.read("catalog.Dockerfile").starts_with("FROM scratch\nCOPY [\"catalog\", \"/configs\"]\n")
    );
}
