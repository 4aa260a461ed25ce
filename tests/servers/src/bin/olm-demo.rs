//! `hack/demo --control-plane`: the servers as processes on etcd and kube-apiserver, without node and pods.

use std::io::{BufRead, IsTerminal, stdin};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use olm_servers::{Bundle, Catalog, PATIENCE, Programs, ServerFixture, Workloads, extension};
use serde_json::json;

/// Name of the package and of the extension.
const NAME: &str = "greeter";
const NAMESPACE: &str = "demo";

struct Demo {
    start: Instant,
    olm: PathBuf,
    fixture: ServerFixture,
}

#[tokio::main]
async fn main() -> Result<()> {
    let start = Instant::now();
    let beside = |name| std::env::current_exe().map(|path| path.with_file_name(name));
    say(start, "starting etcd, kube-apiserver and a registry on loopback");
    let programs = Programs::beside(beside("operator-controller")?)?;
    let fixture = ServerFixture::start_without_controllers(programs).await?;
    say(start, "starting catalogd and operator-controller as processes");
    let _catalogd = fixture.start_catalogd().await?;
    let _controller = fixture.start_controller().await?;
    let demo = Demo { start, olm: beside("olm")?, fixture };
    demo.serve().await?;
    let workloads = demo.install().await?;
    drop(workloads);
    let _workloads = demo.upgrade().await?;
    demo.repair().await?;
    demo.wait_for_user()
}

impl Demo {
    async fn serve(&self) -> Result<()> {
        self.say("publishing three versions of an operator, and their catalog");
        let publish = |version: &&str| self.fixture.publish(&Bundle::sample(NAME, version));
        let bundles = ["1.0.0", "1.1.0", "2.0.0"].iter().map(publish).collect::<Result<Vec<_>>>()?;
        self.fixture.serve("sample", &Catalog::default().chain(&bundles)).await?;
        self.kubectl(&["get", "clustercatalogs"])
    }

    async fn install(&self) -> Result<Workloads> {
        self.say("installing the operator, version 1.x");
        println!("         No pods run here: the demo itself writes the status of each Deployment.");
        let workloads = Workloads::start(self.fixture.client());
        self.fixture.create_namespace(NAMESPACE).await?;
        let object = extension(NAME, NAMESPACE, NAME, Some("1.x"));
        let apply = PatchParams::apply("demo");
        self.fixture.extensions().patch(NAME, &apply, &Patch::Apply(&object)).await?;
        self.fixture.until_installed(NAME, "1.1.0").await?;
        self.kubectl(&["get", "clusterextension", NAME])?;
        self.kubectl(&["-n", NAMESPACE, "get", "deployments,services,configmaps"])?;
        Ok(workloads)
    }

    /// Upgrades to 2.0.0. The Deployment of the new version is available only after the status was shown.
    async fn upgrade(&self) -> Result<Workloads> {
        self.say("upgrading it by editing the version range to 2.x");
        self.fixture.edit(NAME, json!({"spec": {"source": {"catalog": {"version": "2.x"}}}})).await?;
        self.fixture
            .until(NAME, "rolls out 2.0.0", |extension| {
                let status = extension.status.as_ref();
                status.is_some_and(|status| status.active_revisions.len() > 1)
            })
            .await?;
        println!("         The demo does not mark the new Deployment yet, so that the rollout waits for it:");
        self.olm(&["status", NAME])?;
        let workloads = Workloads::start(self.fixture.client());
        self.fixture.until_installed(NAME, "2.0.0").await?;
        self.say("the Deployment is available, and the rollout has ended");
        self.olm(&["status", NAME])?;
        Ok(workloads)
    }

    async fn repair(&self) -> Result<()> {
        let settings = format!("{NAME}-settings");
        self.say("repairing drift: an object of the operator is deleted");
        self.kubectl(&["-n", NAMESPACE, "delete", "configmap", &settings])?;
        let maps: Api<ConfigMap> = Api::namespaced(self.fixture.client(), NAMESPACE);
        let exists = await_condition(maps, &settings, |map: Option<&ConfigMap>| map.is_some());
        tokio::time::timeout(PATIENCE, exists).await.context("the object was not restored")??;
        self.kubectl(&["-n", NAMESPACE, "get", "configmap", &settings, "-o", "jsonpath={.data}"])?;
        println!();
        self.kubectl(&["get", "clusterextensions,clusterobjectsets"])
    }

    fn wait_for_user(&self) -> Result<()> {
        self.say("done");
        if stdin().is_terminal() {
            println!("         The API server runs until you press Enter. To use it from another shell:");
            println!("         export KUBECONFIG={}", self.fixture.plane.kubeconfig().display());
            stdin().lock().read_line(&mut String::new())?;
        }
        Ok(())
    }

    fn say(&self, text: &str) {
        say(self.start, text);
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        show("kubectl", &mut self.fixture.plane.kubectl()?, arguments)
    }

    fn olm(&self, arguments: &[&str]) -> Result<()> {
        let mut olm = Command::new(&self.olm);
        show("olm", olm.env("KUBECONFIG", self.fixture.plane.kubeconfig()), arguments)
    }
}

fn say(start: Instant, text: &str) {
    println!("\n[{:4} s] {text}", start.elapsed().as_secs());
}

/// Prints and runs a command.
fn show(name: &str, command: &mut Command, arguments: &[&str]) -> Result<()> {
    println!("         $ {name} {}", arguments.join(" "));
    let output = command.args(arguments).output().context(name.to_owned())?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        println!("         {line}");
    }
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
