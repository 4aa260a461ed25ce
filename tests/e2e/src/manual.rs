//! Runs the commands of a document of `docs/` on the cluster. `docs/writing.md` states the conventions.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use olm_docs::{Document, Step};
use serde_json::json;
use tokio::process::Command;

use crate::Scenario;

/// Time limit of a document.
const DEADLINE: Duration = Duration::from_secs(600);
/// Prefix of the step number, which is printed before each step.
const MARK: &str = "\u{1}step ";
/// Registry in the documents, which the test registry mirrors. `hack/e2e` configures the mirror, too.
const UPSTREAM: &str = "mirror.olm.test:5000";

/// Shell function `olm` for a machine that cannot resolve the registry's name. Pulls use registries.conf, pushes do
/// not. The reference of `bundle sign` and the repository of `bundle run` stand where the documents put them.
const OLM: &str = r#"
olm() {
  local -a given=("$@")
  case "${1:-} ${2:-}" in
  "catalog push" | "bundle push") given=("${given[@]//$OLM_REGISTRY/$OLM_REGISTRY_ADDRESS}") ;;
  "bundle sign") given=("${given[@]//$OLM_REGISTRY/$OLM_REGISTRY_ADDRESS}" --identity "$3") ;;
  "bundle run") given=("${given[@]//$OLM_REGISTRY/$OLM_REGISTRY_ADDRESS}" --pull-from "$7") ;;
  "catalog mirror")
    local printed
    printed=$("$OLM_TOOL" "${given[@]//$OLM_REGISTRY/$OLM_REGISTRY_ADDRESS}") || return
    printf '%s\n' "${printed//$OLM_REGISTRY_ADDRESS/$OLM_REGISTRY}"
    if [ -d mirror ]; then sed -i "s|$OLM_REGISTRY_ADDRESS|$OLM_REGISTRY|g" mirror/*; fi
    return
    ;;
  esac
  "$OLM_TOOL" "${given[@]}"
}
"#;

/// Runs the document with its own objects, named after `test`, and deletes them. If [`olm_docs::Script::runs_alone`],
/// no other test may run concurrently.
pub async fn follow(test: &str, document: &Document) -> Result<()> {
    let script = document.script()?;
    let mut scenario = Scenario::new(test, &["1.0.0", "1.1.0", "2.0.0"]).await?;
    prepare(&mut scenario, &script.fixture).await?;
    let folder = tempfile::tempdir()?;
    furnish(folder.path(), &scenario)?;
    let steps: Vec<Step> = script.steps.iter().map(|step| named(step, &scenario)).collect();
    let (ended, output) = run(folder.path(), &steps).await?;
    let shown = |step: &Step, output: &str| {
        let place = format!("docs/{}:{}", document.path, step.line);
        format!("{place}\n{}--- printed:\n{output}", step.commands)
    };
    let outputs: Vec<&str> = output.split(MARK).skip(1).collect();
    for (step, output) in steps.iter().zip(&outputs) {
        let output = output.split_once('\n').map_or("", |(_, output)| output);
        if let Some(line) = olm_docs::missing_line(&step.output, output) {
            bail!("not printed: {line:?} of {}", shown(step, output));
        }
    }
    if !ended {
        let failed = outputs.len().checked_sub(1).and_then(|last| Some((steps.get(last)?, outputs[last])));
        let (step, output) = failed.context("the first step did not start")?;
        bail!("failed: {}", shown(step, output));
    }
    // The document may have uninstalled OLM.
    let crds = scenario.cluster.all::<CustomResourceDefinition>();
    if crds.get_opt("clusterextensions.olm.operatorframework.io").await?.is_none() {
        return scenario.cluster.delete(&scenario.cluster.all::<Namespace>(), &scenario.name).await;
    }
    scenario.cluster.delete(&scenario.catalogs(), &scenario.name).await?;
    scenario.finish().await
}

/// Creates the setup that the document requires.
async fn prepare(scenario: &mut Scenario, fixture: &str) -> Result<()> {
    // The operator of this bundle never becomes available.
    let image = scenario.sample.image.clone();
    let fails = |files: &mut _| {
        crate::replace_in(files, sample_operator::content::CSV, &image, "missing.example/operator:v3")
    };
    scenario.push_bundle("3.0.0", fails).await?;
    let stable = scenario.chain(&["1.0.0", "1.1.0"]);
    let fast = scenario.chain(&["1.0.0", "1.1.0", "2.0.0"]);
    let broken = scenario.chain(&["1.0.0", "3.0.0"]);
    let mut text = scenario.catalog_text(&[("stable", stable), ("fast", fast), ("broken", broken)]);
    if fixture == "mirrored" {
        text = text.replace(&scenario.cluster.registry, UPSTREAM);
    }
    let digest = scenario.push_catalog(&text).await?;
    match fixture {
        "nothing" | "mirrored" | "servers" => {}
        "catalog" | "installed" => {
            scenario.apply_catalog(json!({"ref": scenario.catalog_tag(), "pollIntervalMinutes": 10})).await?;
            scenario.wait_served(&digest).await?;
        }
        other => bail!("unknown fixture {other:?}"),
    }
    if fixture == "installed" {
        scenario.install(json!({"version": "1.0.x"})).await?;
        scenario.wait_installed("1.0.0").await?;
    }
    Ok(())
}

/// Prepares the working directory of the commands, which is also their home directory.
fn furnish(folder: &Path, scenario: &Scenario) -> Result<()> {
    let project = olm_docs::project().canonicalize()?;
    for entry in std::fs::read_dir(project.join("manifests"))? {
        let path = entry?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            std::fs::copy(&path, folder.join(name))?;
        }
    }
    std::os::unix::fs::symlink(project.join("docs"), folder.join("docs"))?;
    std::os::unix::fs::symlink(project.join("manifests"), folder.join("manifests"))?;
    std::os::unix::fs::symlink(project.join("manifests/policies"), folder.join("policies"))?;
    let ca = std::env::var("OLM_REGISTRY_CA").context("OLM_REGISTRY_CA is not set; run hack/e2e")?;
    std::fs::copy(&ca, folder.join("ca.crt"))?;
    let address = std::env::var("OLM_REGISTRY_ADDRESS").context("OLM_REGISTRY_ADDRESS is not set")?;
    let mut registries = String::new();
    for prefix in [scenario.cluster.registry.as_str(), UPSTREAM] {
        registries += &format!("[[registry]]\nprefix = \"{prefix}\"\nlocation = \"{address}\"\n");
    }
    std::fs::write(folder.join("test-registries.conf"), registries)?;
    let trusted = folder.join(".config/containers/certs.d").join(&address);
    std::fs::create_dir_all(&trusted)?;
    std::fs::copy(&ca, trusted.join("ca.crt"))?;
    std::fs::create_dir(folder.join("ca"))?;
    std::fs::copy(&ca, folder.join("ca/ca.crt"))?;
    Ok(())
}

/// Replaces the names of the documents in the step by those of the scenario.
fn named(step: &Step, scenario: &Scenario) -> Step {
    let name = scenario.name.as_str();
    let names = [
        ("registry.example.com/team/my-operator:v1", scenario.sample.image.clone()),
        ("team/my-operator-bundle", format!("e2e/{name}")),
        ("team/my-catalog", format!("e2e/{name}-catalog")),
        ("registry.example.com", scenario.cluster.registry.clone()),
        ("upstream.example.com", UPSTREAM.to_owned()),
        ("my-operator", name.to_owned()),
        ("my-catalog", name.to_owned()),
    ];
    let put = |text: &String| names.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to));
    Step { commands: put(&step.commands), output: step.output.iter().map(put).collect(), ..step.clone() }
}

/// Runs the steps in one shell. Returns whether all succeeded, and their output.
async fn run(folder: &Path, steps: &[Step]) -> Result<(bool, String)> {
    let mut script = format!("set -eu\n{OLM}");
    for (number, step) in steps.iter().enumerate() {
        script += &format!("printf '\\n{MARK}{number}\\n'\n");
        if step.exit == 0 {
            script += &step.commands;
        } else {
            script += &format!("code=0\n{{\n{}}} || code=$?\n", step.commands);
            script +=
                &format!("[ $code = {0} ] || {{ echo \"exit code $code, not {0}\"; exit 1; }}\n", step.exit);
        }
    }
    std::fs::write(folder.join("test-script"), script)?;
    let mut command = Command::new("bash");
    command.args(["-c", "exec bash ./test-script 2>&1"]).current_dir(folder).env("HOME", folder);
    command.env("CONTAINERS_REGISTRIES_CONF", folder.join("test-registries.conf"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output()).await;
    let output = output.with_context(|| format!("timed out after {} s", DEADLINE.as_secs()))??;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), printed))
}
