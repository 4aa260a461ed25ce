//! `olm catalog verify` against a registry with planted faults.

use std::collections::{BTreeMap, BTreeSet};

use olm_image::Image;
use olm_image::registry::{Access, Fault};
use serde_json::{Value, json};

use super::fixture::{Fixture, bundle};

/// Media type of an index.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Catalog directory `catalog` with this number of bundles of package lamp, each by digest.
async fn catalog(fixture: &Fixture, bundles: u32) -> Vec<Value> {
    fixture.works("init lamp -c stable -o json --to catalog").await;
    let publish = |minor: u32| {
        let image = Image::bundle(&bundle(minor)).unwrap();
        let digest = fixture.registry.add_image("team/lamp", &format!("v1.{minor}.0"), &image);
        fixture.reference(&format!("team/lamp@{digest}"))
    };
    let references: Vec<_> = (0..bundles).map(publish).collect();
    fixture.works(&format!("add catalog --ca-dir cas {}", references.join(" "))).await;
    let text = fixture.read("catalog/lamp/index.json");
    serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().unwrap()
}

fn write(fixture: &Fixture, objects: &[Value]) {
    let text: Vec<_> = objects.iter().map(ToString::to_string).collect();
    fixture.write("catalog/lamp/index.json", &text.join("\n"));
}

/// Bundle of version `1.<minor>.0` in the catalog.
fn of(objects: &mut [Value], minor: u32) -> &mut Value {
    let name = format!("lamp.v1.{minor}.0");
    objects.iter_mut().find(|object| object["schema"] == "olm.bundle" && object["name"] == name).unwrap()
}

fn digest(object: &Value) -> String {
    object["image"].as_str().unwrap().split_once('@').unwrap().1.to_owned()
}

/// Publishes an index with images for `architectures`. Returns its reference.
fn index(fixture: &Fixture, tag: &str, architectures: &[&str], digest: &str) -> String {
    let entries: Vec<_> = architectures
        .iter()
        .map(|architecture| {
            json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 1,
                "platform": { "os": "linux", "architecture": architecture },
            })
        })
        .collect();
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries }).to_string();
    let digest = fixture.registry.add_manifest("team/lamp", tag, INDEX, index.into());
    fixture.reference(&format!("team/lamp@{digest}"))
}

/// Pairs of rule and bundle of the findings, and the exit code.
async fn findings(fixture: &Fixture, options: &str) -> (i32, BTreeSet<(String, String)>) {
    let ran = fixture.olm(&format!("verify catalog --ca-dir cas -o json {options}")).await;
    assert_eq!(ran.stderr, "");
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = result["findings"].as_array().unwrap();
    let pairs: BTreeSet<_> = list.iter().map(|one| (text(&one["rule"]), text(&one["bundle"]))).collect();
    assert_eq!(pairs.len(), list.len(), "{}", ran.stdout);
    (ran.code, pairs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_faults_of_200_bundles_are_all_found_and_nothing_else() {
    let fixture = Fixture::open().await;
    let mut objects = catalog(&fixture, 200).await;
    assert_eq!(findings(&fixture, "--content").await, (0, BTreeSet::new()));
    let mut expected = BTreeSet::new();
    let mut expect =
        |rule: &str, minor: u32| expected.insert((rule.to_owned(), format!("lamp.v1.{minor}.0")));
    for minor in [3, 77, 199] {
        let missing = format!("team/lamp@sha256:{minor:064}");
        of(&mut objects, minor)["image"] = json!(fixture.reference(&missing));
        expect("IMAGE-1", minor);
    }
    for minor in [4, 120] {
        let request = format!("GET /v2/team/lamp/manifests/{}", digest(of(&mut objects, minor)));
        fixture.registry.add_fault(&request, usize::MAX, Fault::Corrupt);
        expect("IMAGE-2", minor);
    }
    for minor in [5, 130] {
        let own = digest(of(&mut objects, minor));
        let image = index(&fixture, &format!("arm-{minor}"), &["arm64", "s390x"], &own);
        of(&mut objects, minor)["image"] = json!(image);
        expect("IMAGE-3", minor);
    }
    // An index with the right architecture.
    let own = digest(of(&mut objects, 6));
    of(&mut objects, 6)["image"] = json!(index(&fixture, "both", &["arm64", "amd64"], &own));
    for minor in [8, 140] {
        let added =
            json!({ "type": "olm.gvk", "value": { "group": "x.example", "kind": "Bulb", "version": "v1" } });
        of(&mut objects, minor)["properties"].as_array_mut().unwrap().push(added);
        expect("CONTENT-3", minor);
    }
    // The next bundle does not provide this API. A loss is reported once.
    expect("GRAPH-7", 9);
    // Indexes of which an image or a part of an image is missing.
    for minor in [11, 160] {
        let missing = format!("sha256:{minor:064}");
        let image = index(&fixture, &format!("lost-{minor}"), &["amd64"], &missing);
        of(&mut objects, minor)["image"] = json!(image);
        expect("IMAGE-4", minor);
    }
    for (minor, method, part) in [(12, "", 0), (161, "", 0), (13, "HEAD ", 1), (162, "HEAD ", 1)] {
        let blobs = blobs(&fixture, of(&mut objects, minor)).await;
        let lost = format!("{method}/v2/team/lamp/blobs/{}", blobs[part]);
        fixture.registry.add_fault(&lost, usize::MAX, Fault::Status(404, vec![], String::new()));
        expect("IMAGE-5", minor);
    }
    plant_uninstallable_bundles(&fixture, &mut objects, &mut expect);
    for (minor, other) in [(9, 10), (150, 151)] {
        // The image of another bundle.
        let image = of(&mut objects, other)["image"].clone();
        of(&mut objects, minor)["image"] = image;
        expect("CONTENT-2", minor);
    }
    write(&fixture, &objects);
    let (code, found) = findings(&fixture, "--content --layers").await;
    assert_eq!(code, 3);
    assert_eq!(found, expected);
}

/// Changes bundles so that OLM v1 does not install them. Properties of the catalog match.
fn plant_uninstallable_bundles(
    fixture: &Fixture,
    objects: &mut [Value],
    expect: &mut impl FnMut(&str, u32) -> bool,
) {
    for minor in [14, 163] {
        let image = publish_changed(fixture, minor, "manifests/csv.yaml", |csv| {
            csv.replace("{type: AllNamespaces, supported: true}", "{type: MultiNamespace, supported: true}")
        });
        of(objects, minor)["image"] = json!(image);
        expect("CONTENT-6", minor);
    }
    for minor in [15, 164] {
        let dependency =
            "dependencies:\n- type: olm.package\n  value: {packageName: base, version: '>=1.0.0'}\n";
        let image = publish_changed(fixture, minor, "metadata/dependencies.yaml", |_| dependency.to_owned());
        let object = of(objects, minor);
        object["image"] = json!(image);
        let required = json!({ "packageName": "base", "versionRange": ">=1.0.0" });
        let required = json!({ "type": "olm.package.required", "value": required });
        object["properties"].as_array_mut().unwrap().push(required);
        expect("CONTENT-6", minor);
    }
}

/// Publishes a bundle of version `1.<minor>.0` with a changed file, in one layer more than others, and returns its
/// reference.
fn publish_changed(fixture: &Fixture, minor: u32, path: &str, change: impl Fn(&str) -> String) -> String {
    let mut files = bundle(minor);
    let old = files.remove(path).unwrap_or_default();
    files.insert(path.to_owned(), change(std::str::from_utf8(&old).unwrap()).into_bytes());
    let image = Image::bundle(&files).unwrap();
    let digest = fixture.registry.add_image("team/lamp", &format!("changed-{minor}"), &image);
    fixture.reference(&format!("team/lamp@{digest}"))
}

/// Digests of the configuration and the layers of a bundle's image.
async fn blobs(fixture: &Fixture, object: &Value) -> Vec<String> {
    let manifest = fixture.registry.manifest("team/lamp", &digest(object)).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    let all = [&manifest["config"]].into_iter().chain(layers);
    all.map(|blob| blob["digest"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_run_is_resumed_with_the_images_that_have_not_passed() {
    const MANIFESTS: &str = "GET /v2/team/lamp/manifests/";
    let fixture = Fixture::open().await;
    let mut objects = catalog(&fixture, 40).await;
    let requested = || {
        let requests = fixture.registry.take_requests();
        let digests =
            requests.iter().filter_map(|request| request.strip_prefix(MANIFESTS).map(str::to_owned));
        digests.collect::<BTreeSet<_>>()
    };
    // The registry answers for all but three images. The third does not answer at all.
    let [failing, hanging] = [7, 9].map(|minor| digest(of(&mut objects, minor)));
    of(&mut objects, 8)["image"] = json!(fixture.reference("team/lamp:v1.8.0"));
    write(&fixture, &objects);
    let failure = || Fault::Status(403, vec![], String::new());
    fixture.registry.add_fault(&format!("{MANIFESTS}{failing}"), usize::MAX, failure());
    fixture.registry.add_fault(&format!("{MANIFESTS}{hanging}"), 1, Fault::Hang);
    requested();
    let mut process = fixture.command("verify catalog --ca-dir cas --state state").spawn().unwrap();
    let lines = || std::fs::read_to_string(fixture.path("state")).map_or(0, |text| text.lines().count());
    // A header, and 37 images that passed.
    while lines() < 38 {
        assert!(process.try_wait().unwrap().is_none(), "ended with {} lines", lines());
        tokio::task::yield_now().await;
    }
    let id = process.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(process.wait().await.unwrap().code(), Some(130));
    assert_eq!(requested().len(), 40);
    let expected = ("IMAGE-2".to_owned(), "lamp.v1.7.0".to_owned());
    assert_eq!(findings(&fixture, "--state state").await, (3, BTreeSet::from([expected])));
    let rest = BTreeSet::from([failing.clone(), "v1.8.0".to_owned(), hanging]);
    assert_eq!(requested(), rest);
    // Other flags are another check. The digest of the tag is asked for, too.
    assert_eq!(findings(&fixture, "--state state --content --ignore IMAGE-2").await.0, 0);
    assert!(requested().len() >= 40);
    fixture.registry.clear_faults();
    let ran = fixture.works("verify catalog --ca-dir cas --state state").await;
    assert_eq!(ran, "catalog: 1 package, 40 bundles, 40 images (38 passed in an earlier run): no findings\n");
    assert_eq!(requested(), BTreeSet::from([failing, "v1.8.0".to_owned()]));
    assert!(!fixture.path("state").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn related_images_are_checked_for_the_required_architectures() {
    let fixture = Fixture::open().await;
    let mut objects = catalog(&fixture, 2).await;
    let own = digest(of(&mut objects, 0));
    let (both, single) =
        (index(&fixture, "both", &["arm64", "amd64"], &own), fixture.reference("team/lamp:v1.0.0"));
    let gone = fixture.reference("team/gone:v1");
    for (minor, images) in [(0, vec![both, single]), (1, vec![gone])] {
        let related: Vec<_> = images.iter().map(|image| json!({ "name": "", "image": image })).collect();
        of(&mut objects, minor)["relatedImages"] = json!(related);
    }
    write(&fixture, &objects);
    let found = |rules: &[(&str, u32)]| -> BTreeSet<(String, String)> {
        rules.iter().map(|(rule, minor)| ((*rule).to_owned(), format!("lamp.v1.{minor}.0"))).collect()
    };
    assert_eq!(findings(&fixture, "").await, (0, found(&[])));
    assert_eq!(findings(&fixture, "--related-images").await, (3, found(&[("IMAGE-1", 1)])));
    assert_eq!(findings(&fixture, "--related-images --ignore IMAGE-1").await, (0, found(&[])));
    // Of the bundles themselves, single images are read on every architecture.
    let arm = findings(&fixture, "--related-images --arch amd64,arm64").await;
    assert_eq!(arm, (3, found(&[("IMAGE-1", 1), ("IMAGE-3", 0)])));
    drop(fixture.registry.take_requests());
    assert_eq!(findings(&fixture, "--no-images").await, (0, found(&[])));
    assert_eq!(fixture.registry.take_requests(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_without_access_is_a_finding_of_each_bundle() {
    let fixture = Fixture::open().await;
    catalog(&fixture, 2).await;
    fixture.registry.set_access(Access::Basic("ann".to_owned(), "s3cret".to_owned()));
    let ran = fixture.olm("verify catalog --ca-dir cas").await;
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
    let rows: Vec<_> = ran.stdout.lines().filter(|line| line.starts_with("IMAGE-2 ")).collect();
    assert_eq!(rows.len(), 2, "{}", ran.stdout);
    assert!(rows[0].contains("authentication required"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("catalog: 1 package, 2 bundles, 2 images: 2 findings\n"), "{}", ran.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catalog_image_is_verified_like_its_directory() {
    let fixture = Fixture::open().await;
    let objects = catalog(&fixture, 2).await;
    fixture
        .works("push catalog REF --ca-dir cas".replace("REF", &fixture.reference("team/catalog:v1")).as_str())
        .await;
    let image = fixture.reference("team/catalog:v1");
    let passed = fixture.works(&format!("verify {image} --ca-dir cas --content -o junit")).await;
    assert!(passed.contains("<testsuite name=\"lamp\" tests=\"2\" failures=\"0\">"), "{passed}");
    // An invalid catalog has the findings of `validate`. Its other checks are made as far as it loads.
    let channel = json!({ "schema": "olm.channel", "package": "none", "name": "c" });
    write(&fixture, &[objects, vec![channel]].concat());
    let ran = fixture.olm("verify catalog --ca-dir cas").await;
    assert_eq!(ran.code, 3);
    assert!(ran.stdout.contains("unknown package \"none\" for channel \"c\""), "{}", ran.stdout);
    fixture.write("catalog/lamp/index.json", "{");
    let ran = fixture.olm("verify catalog --ca-dir cas").await;
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
    assert!(ran.stdout.ends_with("catalog: 0 packages, 0 bundles, 0 images: 1 finding\n"), "{}", ran.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_of_another_kind_is_found_and_one_of_another_channel_passes() {
    let fixture = Fixture::open().await;
    let mut objects = catalog(&fixture, 3).await;
    let other = Image::catalog(&BTreeMap::new()).unwrap();
    fixture.registry.add_image("team/other", "v1", &other);
    of(&mut objects, 0)["image"] = json!(fixture.reference("team/other:v1"));
    // The head is only in channel candidate so far, while its image names stable.
    let channel = objects.iter_mut().find(|object| object["schema"] == "olm.channel").unwrap();
    let head = channel["entries"].as_array_mut().unwrap().pop().unwrap();
    objects
        .push(json!({ "schema": "olm.channel", "package": "lamp", "name": "candidate", "entries": [head] }));
    write(&fixture, &objects);
    assert_eq!(findings(&fixture, "").await, (0, BTreeSet::new()));
    let expected = BTreeSet::from([("CONTENT-1".to_owned(), "lamp.v1.0.0".to_owned())]);
    assert_eq!(findings(&fixture, "--content").await, (3, expected));
}
