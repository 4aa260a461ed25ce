//! Test fixture of an author: a folder with bundles, a registry, and the binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use olm_image::Image;
use olm_image::registry::Registry;
use tempfile::TempDir;

use crate::fixture::Ran;

/// Limit for one command, far above its usual duration.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) registry: Registry,
}

impl Fixture {
    pub(crate) async fn open() -> Self {
        let folder = TempDir::new().unwrap();
        let registry = Registry::start().await.unwrap();
        fs::create_dir(folder.path().join("cas")).unwrap();
        registry.write_ca(&folder.path().join("cas")).unwrap();
        Self { folder, registry }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Image reference of `repository_and_tag` in the registry.
    pub(crate) fn reference(&self, repository_and_tag: &str) -> String {
        format!("{}/{repository_and_tag}", self.registry.host())
    }

    /// Writes a bundle of version `1.<minor>.0` into a folder.
    pub(crate) fn write_bundle(&self, name: &str, minor: u32) {
        for (path, content) in bundle(minor) {
            self.write(&format!("{name}/{path}"), std::str::from_utf8(&content).unwrap());
        }
    }

    /// Pushes the image of a bundle of version `1.<minor>.0`.
    /// Returns its reference.
    pub(crate) fn publish_bundle(&self, minor: u32) -> String {
        let tag = format!("v1.{minor}.0");
        self.registry.add_image("team/lamp-bundle", &tag, &Image::bundle(&bundle(minor)).unwrap());
        self.reference(&format!("team/lamp-bundle:{tag}"))
    }

    /// Runs `olm catalog` with the words of `line` in the folder. The environment is cleared, so that credentials of
    /// the machine are not used.
    pub(crate) async fn olm(&self, line: &str) -> Ran {
        self.run(&line.split_whitespace().collect::<Vec<_>>()).await
    }

    /// `olm catalog` with the words of `line`, for a test that does not wait for its end.
    pub(crate) fn command(&self, line: &str) -> tokio::process::Command {
        let words: Vec<_> = ["catalog"].into_iter().chain(line.split_whitespace()).collect();
        self.command_of(&words, &[])
    }

    fn command_of(&self, words: &[&str], environment: &[(&str, &str)]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_olm"));
        command
            .args(words)
            .current_dir(self.folder.path())
            .env_clear()
            .envs(environment.iter().copied())
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, words: &[&str]) -> Ran {
        self.of(&[&["catalog"], words].concat()).await
    }

    /// Runs `olm` with these words.
    pub(crate) async fn of(&self, words: &[&str]) -> Ran {
        self.run_with(words, &[]).await
    }

    /// Runs `olm` with these words and variables of the environment.
    pub(crate) async fn run_with(&self, words: &[&str], environment: &[(&str, &str)]) -> Ran {
        let child = self.command_of(words, environment).output();
        let output = tokio::time::timeout(PATIENCE, child).await.expect("the command timed out").unwrap();
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            let home = self.folder.path().canonicalize().unwrap();
            let text =
                text.replace(home.to_str().unwrap(), "HOME").replace(&self.registry.host(), "REGISTRY");
            text.replace(self.folder.path().to_str().unwrap(), "HOME")
        };
        Ran { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a command that must succeed with empty standard error. Returns its output.
    pub(crate) async fn works(&self, line: &str) -> String {
        let ran = self.olm(line).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "olm catalog {line}");
        ran.stdout
    }
}

/// Files of a bundle of package lamp. Each version replaces the previous one.
pub(crate) fn bundle(minor: u32) -> BTreeMap<String, Vec<u8>> {
    let replaces = minor.checked_sub(1).map(|before| format!("  replaces: lamp.v1.{before}.0\n"));
    let csv = format!(
        "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata:\n  name: lamp.v1.{minor}.0\nspec:\n  \
         displayName: Lamp\n  version: 1.{minor}.0\n{}  installModes:\n  - {{type: AllNamespaces, supported: true}}\n  install:\n    \
         strategy: deployment\n    spec:\n      deployments: []\n  customresourcedefinitions:\n    owned:\n    \
         - {{name: lamps.x.example, version: v1, kind: Lamp}}\n",
        replaces.unwrap_or_default()
    );
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: lamps.x.example\nspec:\n  \
               group: x.example\n  scope: Namespaced\n  names: {kind: Lamp, plural: lamps}\n  versions:\n  \
               - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n";
    let annotations = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  \
                       operators.operatorframework.io.bundle.package.v1: lamp\n  \
                       operators.operatorframework.io.bundle.channels.v1: stable\n";
    BTreeMap::from([
        ("manifests/csv.yaml".to_owned(), csv.into_bytes()),
        ("manifests/crd.yaml".to_owned(), crd.into()),
        ("metadata/annotations.yaml".to_owned(), annotations.into()),
    ])
}

/// All files below `root`, by path.
pub(crate) fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}
