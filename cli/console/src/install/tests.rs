use axum::http::{Method, StatusCode};

use crate::tests::Rig;

/// Nothing listens at the address of the image.
const CATALOG: &str = r#"---
schema: olm.package
name: lamp
defaultChannel: stable
---
schema: olm.channel
package: lamp
name: stable
entries: [{name: lamp.v1.0.0}]
---
schema: olm.bundle
package: lamp
name: lamp.v1.0.0
image: 127.0.0.1:1/lamp:v1
properties:
- {type: olm.package, value: {packageName: lamp, version: 1.0.0}}
"#;

const INSTALL: &str = "/catalogs/hostile/packages/lamp/install";

#[tokio::test(flavor = "multi_thread")]
async fn hidden_characters_of_the_catalog_are_escaped_on_the_form() {
    let folder = tempfile::tempdir().unwrap();
    let hidden = CATALOG.replace("lamp.v1.0.0", "lamp\u{202e}.v1.0.0");
    let rig = Rig::with_catalog(folder.path(), &hidden).await;
    let form = rig.get(INSTALL).await;
    assert_eq!(form.status, StatusCode::OK, "{}", form.text);
    assert!(form.text.contains("lamp\\u{202e}.v1.0.0") && !form.text.contains('\u{202e}'), "{}", form.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn form_shows_errors_at_their_field_and_the_manifest_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with_catalog(folder.path(), CATALOG).await;
    let empty = rig.get(INSTALL).await;
    assert_eq!(empty.status, StatusCode::OK, "{}", empty.text);
    assert!(empty.text.contains("The bundle lamp.v1.0.0 cannot be read"), "{}", empty.text);
    assert!(!empty.text.contains("aria-invalid"), "{}", empty.text);
    let wrong = rig.get(&format!("{INSTALL}?namespace=N_S&preview=yes")).await.text;
    let at = wrong.find("id=\"namespace-errors\"").unwrap();
    assert!(wrong[at..].starts_with("id=\"namespace-errors\"><li>"), "{wrong}");
    assert!(!wrong.contains("id=\"manifest\""), "{wrong}");
    let right = rig.get(&format!("{INSTALL}?namespace=ns&version=1.x&preview=yes")).await.text;
    assert!(right.contains("id=\"manifest\"") && right.contains("packageName: lamp"), "{right}");
    // The catalog is not a ClusterCatalog: its name selects nothing, and nothing can be written.
    assert!(!right.contains("matchLabels") && !right.contains("data-apply"), "{right}");
    let none = rig.get(&format!("{INSTALL}?version=2.x")).await.text;
    assert!(
        none.contains("Nothing can be installed with this choice: no bundles found for package"),
        "{none}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn write_is_refused_if_it_differs_from_the_preview() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with_catalog(folder.path(), CATALOG).await;
    let page = rig.get(&format!("{INSTALL}?namespace=ns&preview=yes")).await.text;
    let manifest = page.split_once("id=\"manifest\"").and_then(|(_, rest)| rest.split_once('>'));
    let manifest = manifest.and_then(|(_, rest)| rest.split_once("</pre>")).unwrap().0;
    let digest = |namespace: &str| {
        let manifest = manifest.replace("namespace: ns", &format!("namespace: {namespace}"));
        olm_pack::digest_of(format!("false\n{manifest}").as_bytes())
    };
    for (form, status, text) in [
        ("namespace=ns".to_owned(), StatusCode::CONFLICT, "has changed since the preview"),
        ("namespace=ns&previewed=sha256:0".to_owned(), StatusCode::CONFLICT, "has changed since the preview"),
        (
            format!("namespace=ns&previewed={}", digest("other")),
            StatusCode::CONFLICT,
            "has changed since the preview",
        ),
        (
            format!("namespace=ns&create_namespace=yes&previewed={}", digest("ns")),
            StatusCode::CONFLICT,
            "preview",
        ),
        // The bundle cannot be read, so that the form has no such field.
        (
            "namespace=ns&watchNamespace=a".to_owned(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "name=\"watchNamespace\"",
        ),
        ("namespace=N_S".to_owned(), StatusCode::UNPROCESSABLE_ENTITY, "aria-invalid"),
        // Only the cluster is absent.
        (
            format!("namespace=ns&previewed={}", digest("ns")),
            StatusCode::BAD_REQUEST,
            "the console uses no cluster",
        ),
    ] {
        let answer = rig.submit(INSTALL, &form).await;
        assert_eq!(answer.status, status, "{form}: {}", answer.text);
        assert!(answer.text.contains(text), "{form}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_needs_the_token_and_is_absent_when_read_only() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("catalog.yaml"), CATALOG).unwrap();
    let source = format!("hostile={}", folder.path().display());
    let rig = Rig::new(&["--catalog", &source]).await;
    assert_eq!(rig.post(INSTALL, "namespace=ns").await.status, StatusCode::FORBIDDEN);
    let rig = Rig::new(&["--catalog", &source, "--read-only"]).await;
    assert_eq!(rig.submit(INSTALL, "namespace=ns").await.status, StatusCode::METHOD_NOT_ALLOWED);
    let headers = [("host", "127.0.0.1:8000"), ("origin", "http://127.0.0.1:8000")];
    let answer = rig.send(Method::POST, INSTALL, &headers, "").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}
