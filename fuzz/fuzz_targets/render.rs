//! Fuzzes rendering: any bundle that loads yields the same objects in the same order, or the same error, each time.
//! Objects round-trip through JSON, and all checks of them terminate.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use olm_bundle::{BundleContent, Certificates, RenderOptions, injections, install_checks, losses, render, validate};
use serde_json::Value;

mod shapes;
use shapes::Shapes;

const ANNOTATIONS: &str = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";

fuzz_target!(|input: &[u8]| {
    // Input that is too short is ignored.
    let _ = run(&mut Unstructured::new(input));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let certificates = *input.choose(&[
        Certificates::Builtin,
        Certificates::CertManager,
        Certificates::OpenshiftServiceCa,
        Certificates::None,
    ])?;
    let mut shapes = Shapes(input);
    let (single_own_namespace, deployment_config, multi_watch_namespaces) =
        (shapes.flag()?, shapes.flag()?, shapes.flag()?);
    let config = if shapes.flag()? { Some(shapes.config()?) } else { None };
    let csv = shapes.service_version()?;
    let others = [shapes.crd()?, shapes.crd()?, shapes.other()?];
    let others: Vec<String> = others.iter().map(Value::to_string).collect();
    let files = BTreeMap::from([
        ("metadata/annotations.yaml".to_owned(), ANNOTATIONS.into()),
        ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
        ("manifests/others.yaml".to_owned(), others.join("\n---\n").into_bytes()),
    ]);
    let loaded = BundleContent::load(&files);
    losses(&csv, 10);
    let Ok(bundle) = loaded else {
        assert_eq!(loaded.err(), BundleContent::load(&files).err());
        return Ok(());
    };
    let options = RenderOptions {
        install_namespace: "ns",
        config: config.as_ref(),
        certificates,
        single_own_namespace,
        deployment_config,
        multi_watch_namespaces,
        owned_api_services: true,
        selected_namespaces: None,
        operator_condition: false,
        aggregate_api_roles: true,
    };
    let rendered = render(&bundle, &options);
    let again = BundleContent::load(&files).ok();
    let again = again.as_ref().map(|bundle| render(bundle, &options));
    assert_eq!(again.as_ref(), Some(&rendered));
    if let Err(error) = &rendered {
        assert!(!error.to_string().is_empty());
    }
    let Ok(objects) = rendered else { return Ok(()) };
    assert!(validate(&bundle).is_empty());
    for object in &objects {
        assert!(object["kind"].is_string() && object["metadata"].is_object(), "{object}");
        let text = serde_json::to_vec(object).expect("an object serializes to JSON");
        assert_eq!(&serde_json::from_slice::<Value>(&text).expect("the text is JSON"), object);
    }
    let found = install_checks(&bundle, &objects, "ns", "olmv1-system");
    assert!(found.is_sorted() && found.iter().all(|text| !text.is_empty()), "{found:?}");
    let injections = injections(&objects.iter().collect::<Vec<_>>());
    assert!(certificates == Certificates::Builtin || injections.is_empty(), "{injections:?}");
    Ok(())
}
