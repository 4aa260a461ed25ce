//! Schemas of the objects of a catalog in document 000: each text that must not be empty.

use regex::Regex;
use serde_json::{Value, json};

use super::folder::{api, package, run, write};
use super::texts::{cut, seeds};

/// Lines with fields, and their place in the objects of a package. Empty names of images are accepted: `olm catalog
/// render` writes them, as `opm` does.
const SCHEMAS: &[(&str, &str)] = &[
    ("000:250-253", "/3/properties/0"),
    ("000:277-288", "/0"),
    ("000:306-310", "/1"),
    ("000:313-330", "/1/entries/1"),
    ("000:342-347", "/3"),
    ("000:351-353", "/3/properties/0"),
    ("000:359-361", "/3/relatedImages/0"),
    ("000:471-474", "/3/properties/0/value"),
    ("000:485-489", "/3/properties/1/value"),
    ("000:500-503", "/3/properties/2/value"),
    ("000:514-518", "/3/properties/3/value"),
];

/// Valid objects with all fields.
fn objects() -> Vec<Value> {
    let mut required = api("example.com", "v1", "Bulb");
    required["type"] = json!("olm.gvk.required");
    let range = json!({ "packageName": "blue", "versionRange": ">=1.0.0" });
    let range = json!({ "type": "olm.package.required", "value": range });
    let properties = [api("example.com", "v1", "Lamp"), range, required];
    let mut objects = package(["lamp", "lamp", "stable"], &["1.0.0", "1.1.0"], &properties);
    objects[1]["entries"][1]["skips"] = json!(["lamp.v1.0.1"]);
    objects[1]["entries"][1]["skipRange"] = json!("<1.1.0");
    objects[3]["relatedImages"] = json!([{ "name": "lamp", "image": "registry.example/lamp:v1" }]);
    objects
}

/// `olm validate --strict` of these objects, in one file.
fn validate(objects: &[Value]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    write(folder.path(), "catalog/index.json", text);
    run(folder.path(), &["validate", "catalog", "--strict"])
}

#[test]
fn empty_texts_are_found() {
    let Some(seeds) = seeds() else { return };
    assert_eq!(validate(&objects()), (0, String::new()));
    let field = Regex::new(r#"(?m)^ *(\w+)\??: (\[\.\.\.)?string & !="""#).unwrap();
    let mut count = 0;
    for (at, parent) in SCHEMAS {
        for found in field.captures_iter(&cut(&seeds, at)) {
            let mut objects = json!(objects());
            let empty = if found.get(2).is_some() { json!([""]) } else { json!("") };
            objects.pointer_mut(parent).unwrap()[&found[1]] = empty;
            let (code, output) = validate(objects.as_array().unwrap());
            assert_eq!(code, 3, "{at}, {}: {output}", &found[1]);
            count += 1;
        }
    }
    assert_eq!(count, 24);
}
