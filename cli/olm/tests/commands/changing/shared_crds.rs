//! Packages with a CRD that another extension owns (docs/design/apply.md#collision-protection).

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::Value;

use super::fixture::Fixture;

const CRD: &str =
    "CustomResourceDefinition pipes.example.com belongs to ClusterExtension \"pipe\" (revision pipe-1)\n";

#[tokio::test(flavor = "multi_thread")]
async fn crd_of_another_extension_is_refused_before_any_write() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    second_package_with_the_crd_is_refused(&fixture).await;
    second_installation_of_the_package_is_refused(&fixture).await;
    upgrade_to_the_crd_is_refused(&fixture).await;
    diff_shows_the_owner_and_fails(&fixture).await;
}

async fn extensions(fixture: &Fixture) -> usize {
    fixture.extensions().list(&Default::default()).await.unwrap().items.len()
}

async fn second_package_with_the_crd_is_refused(fixture: &Fixture) {
    let head = "the rollout would collide with objects of another extension:\n  ";
    for (flags, prefix) in [
        (&["-n", "tubes", "--create-namespace"][..], "error: "),
        (&["-n", "tubes", "--create-namespace", "--dry-run=client"], "error: "),
        (&["-n", "tubes", "--create-namespace", "--with-dependencies", "--yes"], "error: tube: "),
        (&["-n", "pipe-system"], "error: "),
    ] {
        let ran = fixture.olm(&[&["install", "tube"], flags].concat()).await;
        assert_eq!(ran.code, 3, "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with(&format!("{prefix}{head}{CRD}")), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("\nan object has only one owner: "), "{}", ran.stderr);
    }
    assert_eq!(extensions(fixture).await, 1);
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    assert!(namespaces.get_opt("tubes").await.unwrap().is_none());
}

// Case additions-e08
async fn second_installation_of_the_package_is_refused(fixture: &Fixture) {
    let line = ["install", "pipe", "--name", "second", "-n", "second", "--create-namespace"];
    let ran = fixture.olm(&line).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    let head = "error: package \"pipe\" is already installed by ClusterExtension \"pipe\", which owns its objects:\n  \
                CustomResourceDefinition pipes.example.com\nan object has only one owner: ";
    assert!(ran.stderr.starts_with(head), "{}", ran.stderr);
    assert_eq!(extensions(fixture).await, 1);
}

async fn upgrade_to_the_crd_is_refused(fixture: &Fixture) {
    let ran = fixture.olm(&["install", "tube", "-n", "pipe-system", "--version", "1.0.0"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let before = fixture.extension("tube").await;
    fixture.settle(&before, 1, "tube.v1.0.0").await;
    let ran = fixture.olm(&["upgrade", "tube", "--version", "1.1.0"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.contains(CRD), "{}", ran.stderr);
    assert_eq!(fixture.extension("tube").await.spec, before.spec);
}

async fn diff_shows_the_owner_and_fails(fixture: &Fixture) {
    let mut extension = serde_json::to_value(fixture.extension("tube").await).unwrap();
    extension["spec"]["source"]["catalog"]["version"] = Value::from("1.1.0");
    let file = fixture.path("tube.yaml");
    std::fs::write(&file, extension.to_string()).unwrap();
    let line = ["diff", "-f", file.to_str().unwrap(), "--exit-code"];
    let ran = fixture.olm(&line).await;
    assert_eq!(ran.code, 3, "{}", ran.stdout);
    assert!(ran.stderr.contains(CRD), "{}", ran.stderr);
    let noted = format!("  ~ CustomResourceDefinition pipes.example.com\n      ! collision: {CRD}");
    assert!(ran.stdout.contains(&noted), "{}", ran.stdout);
    let ran = fixture.olm(&[&line[..], &["-o", "json"]].concat()).await;
    let diff: Value = serde_json::from_str(&ran.stdout).unwrap();
    let collisions = diff["collisions"].as_array().unwrap();
    let crd = collisions.iter().find(|one| one["kind"] == "CustomResourceDefinition").unwrap();
    assert_eq!([&crd["name"], &crd["extension"], &crd["revision"]], ["pipes.example.com", "pipe", "pipe-1"]);
}
