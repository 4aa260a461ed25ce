//! `olm catalog template-check` and `olm catalog ls` with image templates: a registry, and an API server of version
//! v1.36.3.

use std::collections::BTreeMap;

use olm_image::registry::{Fault, Registry};
use olm_image::{Image, Layer, Runtime};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster::{Cluster, catalog};
use super::fixture::Ran;

struct Templates {
    registry: Registry,
    cluster: Cluster,
    folder: TempDir,
}

impl Templates {
    /// Catalogs `plain`, without a template, and `team`. Images v1.36, and 1.37, which is not a catalog.
    async fn start() -> Self {
        let registry = Registry::start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        registry.write_ca(folder.path()).unwrap();
        let files = BTreeMap::from([("a.yaml".to_owned(), b"schema: a\n".to_vec())]);
        registry.add_image("team/catalog", "v1.36", &Image::catalog(&files).unwrap());
        let layers = vec![Layer::new(&BTreeMap::new()).unwrap()];
        let other = Image::new(layers, &BTreeMap::new(), &Runtime::default()).unwrap();
        registry.add_image("team/catalog", "v1.37", &other);
        let cluster = Cluster::start(vec![catalog("plain", true), templated(&registry)], |_| {
            unreachable!("no content is read")
        })
        .await;
        Self { registry, cluster, folder }
    }

    async fn check(&self, source: &str, options: &[&str]) -> Ran {
        let authorities = format!("--ca-dir={}", self.folder.path().display());
        self.cluster.olm(&[&["catalog", "template-check", source, &authorities], options].concat()).await
    }
}

fn templated(registry: &Registry) -> Value {
    let mut object = catalog("team", true);
    let template = format!("{}/team/catalog:v{{kube_major_version}}.{{kube_minor_version}}", registry.host());
    object["spec"]["source"]["image"]["ref"] = json!(format!("{}/team/catalog:v1", registry.host()));
    object["metadata"]["annotations"] = json!({ "ext.olm.operatorframework.io/image-template": template });
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn template_check_reports_each_version() {
    let templates = Templates::start().await;
    let host = templates.registry.host();
    let ran = templates.check("cluster/team", &["--kube=1.35..1.37"]).await;
    let pad = " ".repeat(host.len());
    assert_eq!(
        ran.stdout,
        format!(
            "KUBERNETES   IMAGE{pad}                 RESULT\n\
             1.35         {host}/team/catalog:v1.35   missing\n\
             1.36         {host}/team/catalog:v1.36   found\n\
             1.37         {host}/team/catalog:v1.37   not a catalog: the image has no label \
             operators.operatorframework.io.index.configs.v1\n"
        )
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));

    // The version of the cluster, and the next one.
    let ran = templates.check("cluster", &["-o", "json"]).await;
    let list: Value = serde_json::from_str(&ran.stdout).unwrap();
    let results: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| format!("{} {} {}", item["catalog"], item["kubernetes"], item["result"]))
        .collect();
    assert_eq!(results, ["\"team\" \"1.36.3\" \"Found\"", "\"team\" \"1.37\" \"NotACatalog\""]);
    assert_eq!((ran.code, &list["kind"]), (3, &json!("TemplateImageList")));

    let file = templates.folder.path().join("catalogs.yaml");
    std::fs::write(&file, format!("kind: Other\n---\n{}", templated(&templates.registry))).unwrap();
    let ran = templates.check(file.to_str().unwrap(), &["--kube=1.36"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);

    let text = format!("{host}/team/catalog:v1.{{kube_minor_version}}-{{kube_patch_version}}");
    let ran = templates.check(&text, &["--kube=1.36", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &list["items"][0]["result"]), (3, &json!("Unresolved")));
    let ran = templates.check(&text, &["--kube=1.36.2"]).await;
    assert!(ran.stdout.contains("/team/catalog:v1.36-2   missing"), "{}", ran.stdout);

    templates.registry.add_fault("/v2/team/", usize::MAX, Fault::Status(403, Vec::new(), String::new()));
    let ran = templates.check("cluster/team", &["--kube=1.36"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (1, "error: 1 images could not be checked\n"));
    assert!(ran.stdout.contains("/team/catalog:v1.36   unknown: "), "{}", ran.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn template_check_refuses_source_without_template() {
    let templates = Templates::start().await;
    let file = templates.folder.path().join("plain.yaml");
    std::fs::write(&file, catalog("plain", true).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let key = "the annotation ext.olm.operatorframework.io/image-template";
    for (source, code, expected) in [
        ("cluster/plain", 2, format!("error: ClusterCatalog \"plain\" does not have {key}\n")),
        ("cluster/none", 4, "error: there is no ClusterCatalog \"none\"; catalogs: plain, team\n".to_owned()),
        (file, 2, format!("error: {file}: no ClusterCatalog of olm.operatorframework.io/v1 has {key}\n")),
    ] {
        let ran = templates.check(source, &["--kube=1.36"]).await;
        assert_eq!((ran.code, ran.stderr), (code, expected), "{source}");
    }
    let ran = templates.check("team", &["--kube=1.36"]).await;
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.starts_with("error: SOURCE \"team\" is not an existing file, cluster, "),
        "{}",
        ran.stderr
    );
    let ran = templates.check("cluster", &["--kube=1.36..1.35"]).await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("a range is from a minor release to a later one"), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catalog_ls_shows_reference_of_template() {
    let templates = Templates::start().await;
    let ran = templates.cluster.olm(&["catalog", "ls", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&ran.stdout).unwrap();
    let image = format!("{}/team/catalog:v1.36", templates.registry.host());
    assert_eq!(
        (&list["items"][0]["image"], &list["items"][0]["imageTemplate"]),
        (&json!("r.example/plain:v1"), &Value::Null)
    );
    assert_eq!(list["items"][1]["image"], image);
    assert!(list["items"][1]["imageTemplate"].as_str().unwrap().ends_with("{kube_minor_version}"));
}
