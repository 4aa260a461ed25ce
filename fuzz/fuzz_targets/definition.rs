//! Fuzzes manifests: any bytes beside a valid ClusterServiceVersion yield the same objects each time or an error,
//! and rendered objects are already normalized.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use olm_bundle::{BundleContent, Certificates, RenderOptions, render};

const ANNOTATIONS: &str = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";
const CSV: &str = "{kind: ClusterServiceVersion, metadata: {name: a.v1}, spec: {installModes: [{type: AllNamespaces, \
                   supported: true}]}}";

fuzz_target!(|input: &[u8]| {
    let Some(objects) = rendered(input) else { return };
    assert_eq!(rendered(input).as_ref(), Some(&objects));
    let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
    assert_eq!(rendered(text.join("\n---\n").as_bytes()).as_ref(), Some(&objects), "{text:?}");
});

fn rendered(manifest: &[u8]) -> Option<Vec<serde_json::Value>> {
    let files = BTreeMap::from([
        ("metadata/annotations.yaml".to_owned(), ANNOTATIONS.into()),
        ("manifests/a-csv.yaml".to_owned(), CSV.into()),
        ("manifests/b.yaml".to_owned(), manifest.to_vec()),
    ]);
    let options = RenderOptions {
        install_namespace: "ns",
        config: None,
        certificates: Certificates::CertManager,
        single_own_namespace: true,
        deployment_config: true,
        multi_watch_namespaces: false,
        owned_api_services: true,
        selected_namespaces: None,
        operator_condition: false,
        aggregate_api_roles: true,
    };
    let bundle = BundleContent::load(&files).ok()?;
    if bundle.csv_files().len() > 1 {
        return None;
    }
    render(&bundle, &options).ok()
}
