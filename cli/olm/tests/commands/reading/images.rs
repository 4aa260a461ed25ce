//! Catalogs in a registry over TLS.

use std::collections::BTreeMap;
use std::path::Path;

use olm_image::Image;
use olm_image::registry::{Access, Fault, Registry};
use tempfile::TempDir;

use super::fixture::{Ran, command, data, olm};

struct Setting {
    registry: Registry,
    folder: TempDir,
}

impl Setting {
    async fn new() -> Self {
        let registry = Registry::start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["cas", "tmp", "home/.docker"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        registry.write_ca(&folder.path().join("cas")).unwrap();
        registry.add_image("team/catalog", "v1", &Image::catalog(&files(&data().join("catalog"))).unwrap());
        Self { registry, folder }
    }

    fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.registry.host())
    }

    /// Runs `olm` with the registry's CA. Fails if it leaves temporary files.
    async fn olm(&self, args: &[&str]) -> Ran {
        let folder = self.folder.path();
        let mut command = command(args);
        command.arg("--ca-dir").arg(folder.join("cas"));
        command.env("HOME", folder.join("home")).env("TMPDIR", folder.join("tmp"));
        let ran = tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap();
        let left: Vec<_> = folder.join("tmp").read_dir().unwrap().collect();
        assert!(left.is_empty(), "{args:?} left {left:?} behind");
        ran
    }
}

/// All files below `root`, by path.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in path.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catalog_image_prints_the_same_as_its_directory() {
    let setting = Setting::new().await;
    let image = setting.reference("team/catalog:v1");
    for command in [&["catalog", "ls"][..], &["catalog", "render"]] {
        let ran = setting.olm(&[command, &[&image]].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command:?}");
        assert_eq!(ran.stdout, olm(&[command, &["catalog"]].concat()).stdout, "{command:?}");
    }
    let ran = setting.olm(&["catalog", "channels", &image, "pipe"]).await;
    assert_eq!(ran.stdout, olm(&["catalog", "channels", "catalog", "pipe"]).stdout);
    let ran = setting.olm(&["validate", &image]).await;
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crd_check_of_bundle_images_prints_the_same_as_of_their_folders() {
    let setting = Setting::new().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/bundles/data");
    let folder = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for name in ["old", "new"] {
        let bundle = Image::bundle(&files(Path::new(&folder(name)))).unwrap();
        setting.registry.add_image("team/bundle", name, &bundle);
    }
    let image = |name: &str| setting.reference(&format!("team/bundle:{name}"));
    let of_folders = olm(&["crd-check", &folder("old"), &folder("new")]);
    let of_images = setting.olm(&["crd-check", &image("old"), &image("new")]).await;
    assert_eq!((of_images.code, of_images.stderr.as_str()), (3, ""));
    assert_eq!(of_images.stdout, of_folders.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_names_the_image() {
    let setting = Setting::new().await;
    let host = setting.registry.host();
    let image = setting.reference("team/catalog:v2");
    let ran = setting.olm(&["catalog", "ls", &image]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with(&format!("error: image {image}: ")), "{}", ran.stderr);
    assert!(ran.stderr.contains("manifest unknown"), "{}", ran.stderr);
    // Validation reports the findings of an image like those of a directory.
    setting.registry.add_image("team/broken", "v1", &Image::catalog(&files(&data().join("broken"))).unwrap());
    let ran = setting.olm(&["validate", &format!("{host}/team/broken:v1")]).await;
    assert_eq!(ran.code, 3);
    assert!(ran.stdout.ends_with(&format!("{host}/team/broken:v1: 5 errors\n")), "{}", ran.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_login_comes_from_docker_config_or_authfile() {
    let setting = Setting::new().await;
    let image = setting.reference("team/catalog:v1");
    setting.registry.set_access(Access::Basic("ann".to_owned(), "s3cret".to_owned()));
    let refused = setting.olm(&["catalog", "ls", &image]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("authentication required"), "{}", refused.stderr);
    let host = setting.registry.host();
    let login = format!(r#"{{"auths":{{"{host}":{{"username":"ann","password":"s3cret"}}}}}}"#);
    let file = setting.folder.path().join("home/.docker/config.json");
    std::fs::write(&file, &login).unwrap();
    assert_eq!(setting.olm(&["catalog", "ls", &image]).await.code, 0);
    std::fs::write(&file, login.replace("s3cret", "wr0ng")).unwrap();
    let refused = setting.olm(&["catalog", "ls", &image]).await;
    assert_eq!(refused.code, 1);
    assert!(!refused.stderr.contains("wr0ng"), "{}", refused.stderr);
    let other = setting.folder.path().join("other.json");
    std::fs::write(&other, &login).unwrap();
    let ran = setting.olm(&["catalog", "ls", &image, "--authfile", other.to_str().unwrap()]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_pull_leaves_no_files() {
    let setting = Setting::new().await;
    setting.registry.add_fault("GET /v2/team/catalog/blobs/", usize::MAX, Fault::Hang);
    let folder = setting.folder.path();
    let mut child = command(&["catalog", "ls", &setting.reference("team/catalog:v1"), "--ca-dir"]);
    child.arg(folder.join("cas")).env("TMPDIR", folder.join("tmp")).stderr(std::process::Stdio::piped());
    let child = child.spawn().unwrap();
    let asked = async {
        while !setting.registry.take_requests().iter().any(|request| request.contains("/blobs/")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.unwrap();
    let kill = std::process::Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success());
    let ran =
        tokio::task::spawn_blocking(move || Ran::from(child.wait_with_output().unwrap())).await.unwrap();
    assert_eq!((ran.code, ran.stderr.as_str()), (130, "error: interrupted\n"));
    assert_eq!(folder.join("tmp").read_dir().unwrap().count(), 0);
}
