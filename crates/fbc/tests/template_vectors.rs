//! Templates of `tests/vectors/templates.json`: rendered and converted as by the reference.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use olm_fbc::{
    Form, Meta, MetaReader, PackageContent,
    template::{SemverBundle, Template, TemplateError, TemplateKind, convert},
    write,
};
use olm_yaml::Limits;
use proptest::prelude::*;
use serde_json::Value;

fn vectors() -> Value {
    let folder = std::env::var_os("OLM_VECTORS_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors"), PathBuf::from);
    serde_json::from_slice(&fs::read(folder.join("templates.json")).unwrap()).unwrap()
}

/// Text of the catalog that `template` expands to.
fn rendered(template: &str, bundles: &BTreeMap<String, Meta>) -> Result<String, TemplateError> {
    let template = Template::parse(template.as_bytes())?;
    let metas = match &template {
        Template::Basic(template) => template.expand(bundles)?,
        Template::Substitutes(template) => template.expand(bundles)?,
        Template::Semver(semver) => {
            let named: BTreeMap<_, _> =
                bundles.iter().filter(|(image, _)| template.images().contains(image.as_str())).collect();
            let identities = named.iter().map(|(image, meta)| ((*image).clone(), identity(meta))).collect();
            let mut metas = semver.expand(&identities)?;
            metas.extend(named.into_values().cloned());
            metas
        }
    };
    let mut text = Vec::new();
    write(metas, Form::Json, &mut text).unwrap();
    Ok(String::from_utf8(text).unwrap())
}

fn identity(bundle: &Meta) -> SemverBundle {
    let content = PackageContent::from_metas(&bundle.package, [bundle.blob.as_slice()]).unwrap();
    let value: Value = content.bundles[0].properties[0].parse().unwrap();
    let version = value["version"].as_str().unwrap().to_owned();
    SemverBundle { package: bundle.package.clone(), name: bundle.name.clone(), version }
}

#[test]
fn template_vectors_match() {
    let vectors = vectors();
    let bundle = |bundle: &Value| {
        let meta = Meta::from_json(bundle.to_string().as_bytes()).unwrap();
        (bundle["image"].as_str().unwrap().to_owned(), meta)
    };
    let bundles: BTreeMap<_, _> = vectors["bundles"].as_array().unwrap().iter().map(bundle).collect();
    let mut failures = Vec::new();
    for case in vectors["cases"].as_array().unwrap() {
        let found = rendered(case["template"].as_str().unwrap(), &bundles);
        let matches = match (&found, case["output"].as_str(), case["error"].as_str()) {
            (Ok(found), Some(expected), _) => found == expected,
            // The reference does not name the known schemas.
            (Err(found), _, Some(expected)) => found.to_string().starts_with(expected),
            _ => false,
        };
        if !matches {
            failures.push(format!("{}: {found:?}\n{}{}", case["name"], case["output"], case["error"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn conversion_vectors_match() {
    for case in vectors()["conversions"].as_array().unwrap() {
        let catalog = case["catalog"].as_str().unwrap();
        let metas: Vec<_> =
            MetaReader::new(catalog.as_bytes(), Limits::default()).collect::<Result<_, _>>().unwrap();
        let kind = if case["kind"] == "basic" { TemplateKind::Basic } else { TemplateKind::Substitutes };
        let text = convert(&metas, kind, Form::Json).unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found, case["template"]);
        assert_eq!(
            olm_yaml::from_slice(convert(&metas, kind, Form::Yaml).unwrap().as_bytes()).unwrap(),
            found
        );
    }
}

/// Asserts that the templates of a catalog expand to it.
fn round_trip(metas: &[Meta]) {
    let image = |meta: &Meta| {
        let object: Value = serde_json::from_slice(&meta.blob).unwrap();
        let is_bundle = meta.schema == olm_fbc::SCHEMA_BUNDLE;
        is_bundle.then(|| (object["image"].as_str().unwrap().to_owned(), meta.clone()))
    };
    let bundles: BTreeMap<_, _> = metas.iter().filter_map(image).collect();
    let mut expected = Vec::new();
    write(metas.to_vec(), Form::Json, &mut expected).unwrap();
    let expected = String::from_utf8(expected).unwrap();
    for kind in [TemplateKind::Basic, TemplateKind::Substitutes] {
        for form in [Form::Json, Form::Yaml] {
            let text = convert(metas, kind, form).unwrap();
            assert!(rendered(&text, &bundles).unwrap() == expected, "{kind:?} {form:?}");
        }
    }
}

#[test]
fn templates_of_real_catalog_expand_to_it() {
    let Some(data) = olm_require::field_data() else { return };
    let mut count = 0;
    for folder in fs::read_dir(data.join("catalogs/community-v4.20")).unwrap() {
        let file = fs::read(folder.unwrap().path().join("catalog.yaml")).unwrap();
        // Large files take long in this many conversions, and add nothing.
        if file.len() > 2 << 20 {
            continue;
        }
        let metas: Vec<_> =
            MetaReader::new(file.as_slice(), Limits::default()).collect::<Result<_, _>>().unwrap();
        round_trip(&metas);
        count += 1;
    }
    assert!(count > 20, "{count}");
}

#[test]
fn object_that_no_template_can_hold_is_rejected() {
    let bundle = Meta::from_json(br#"{"schema":"olm.bundle","name":"b","package":"p"}"#).unwrap();
    let found =
        convert(std::slice::from_ref(&bundle), TemplateKind::Basic, Form::Json).unwrap_err().to_string();
    assert!(found.starts_with("bundle \"b\" of package \"p\" has no image: "), "{found}");
    assert!(convert(&[bundle], TemplateKind::Substitutes, Form::Json).is_ok());
    let template = Meta::from_json(br#"{"schema":"olm.semver"}"#).unwrap();
    let found = convert(&[template], TemplateKind::Basic, Form::Json).unwrap_err().to_string();
    assert_eq!(found, "olm.semver is a template, not a catalog");
    let channel = Meta::from_json(br#"{"schema":"olm.channel","entries":1}"#).unwrap();
    let found = convert(&[channel], TemplateKind::Basic, Form::Json).unwrap_err().to_string();
    assert!(found.starts_with("parse channel: json: "), "{found}");
}

/// Catalog of package `p` with a chain of bundles, one per version.
fn catalog(versions: &[(u8, u8)], note: &str) -> Vec<Meta> {
    let name = |(major, minor): &(u8, u8)| format!("p.v{major}.{minor}.0");
    let mut objects = vec![
        serde_json::json!({"schema": "olm.package", "name": "p", "defaultChannel": "c", "description": note}),
    ];
    let entry = |(index, version): (usize, &(u8, u8))| {
        let replaces = index.checked_sub(1).map(|before| name(&versions[before])).unwrap_or_default();
        serde_json::json!({"name": name(version), "replaces": replaces})
    };
    let entries: Vec<_> = versions.iter().enumerate().map(entry).collect();
    objects
        .push(serde_json::json!({"schema": "olm.channel", "package": "p", "name": "c", "entries": entries}));
    objects.extend(versions.iter().map(|version| {
        let property = serde_json::json!({"packageName": "p", "version": &name(version)[3..]});
        serde_json::json!({"schema": "olm.bundle", "package": "p", "name": name(version), "image": format!("r.example/{}", name(version)),
            "properties": [{"type": "olm.package", "value": property}]})
    }));
    objects.push(serde_json::json!({"schema": "custom", "package": "p", "note": note}));
    objects.iter().map(|object| Meta::from_json(object.to_string().as_bytes()).unwrap()).collect()
}

proptest! {
    #[test]
    fn templates_of_any_catalog_expand_to_it(
        versions in prop::collection::btree_set((0..9_u8, 0..9_u8), 1..6),
        note in any::<String>(),
    ) {
        round_trip(&catalog(&versions.into_iter().collect::<Vec<_>>(), &note));
    }

    #[test]
    fn any_text_is_parsed_or_rejected(text in any::<Vec<u8>>(), list in any::<String>()) {
        let _ = Template::parse(&text);
        for schema in ["olm.semver", "olm.template.basic", "olm.template.substitutes"] {
            let _ = Template::parse(format!("schema: {schema}\n{list}").as_bytes());
            let _ = Template::parse(format!("{{\"schema\":\"{schema}\",\"entries\":[{list}]}}").as_bytes());
        }
    }

    /// The substitute of the head is the only new head, and nothing that was reachable is lost.
    #[test]
    fn substitute_of_any_bundle_yields_valid_catalog(
        versions in prop::collection::btree_set((0..9_u8, 0..9_u8), 1..6),
        index in any::<prop::sample::Index>(),
    ) {
        let versions: Vec<_> = versions.into_iter().collect();
        let metas = catalog(&versions, "");
        let (major, minor) = versions[index.index(versions.len())];
        let base = format!("p.v{major}.{minor}.0");
        let mut text = convert(&metas, TemplateKind::Substitutes, Form::Yaml).unwrap();
        text = text.replace("substitutions: []\n", &format!("substitutions: [{{name: r.example/new, base: {base}}}]\n"));
        let substitute = format!(
            r#"{{"schema":"olm.bundle","package":"p","name":"p-v{major}.{minor}.0-1","image":"r.example/new","properties":[{{"type":"olm.package","value":{{"packageName":"p","version":"{major}.{minor}.0","release":"1"}}}}]}}"#
        );
        let bundle = Meta::from_json(substitute.as_bytes()).unwrap();
        let expanded = rendered(&text, &[("r.example/new".to_owned(), bundle)].into()).unwrap();
        let lines: Vec<_> = MetaReader::new(expanded.as_bytes(), Limits::default()).map(|meta| meta.unwrap().blob).collect();
        let content = PackageContent::from_metas("p", lines.iter().map(Vec::as_slice)).unwrap();
        let entries = &content.channels[0].entries;
        prop_assert_eq!(entries.len(), versions.len() + 1);
        let of_base = entries.iter().find(|entry| entry.name == base).unwrap();
        prop_assert!(of_base.replaces.is_empty() && of_base.skips.is_empty());
        let of_new = entries.iter().find(|entry| entry.name.starts_with("p-v")).unwrap();
        prop_assert!(of_new.skips.contains(&base));
    }
}
