//! `olm bundle run`: the loop of an author.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use olm_e2e::{PATIENCE, Scenario, Tool, replace_in};
use sample_operator::content::Sample;

/// Running `olm bundle run`, with the lines of its output.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(tool: &Tool, arguments: &[&str]) -> Result<Self> {
        let mut child = tool.start(arguments)?;
        let (sender, lines) = channel();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                // The test may have ended.
                BufReader::new(stream).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
            });
        }
        Ok(Self { child, lines })
    }

    /// Waits for a line with `text`.
    fn wait_for(&self, text: &str) -> Result<()> {
        let mut seen = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.with_context(|| format!("no line with {text:?} after {seen:#?}"))?;
            if line.contains(text) {
                return Ok(());
            }
            seen.push(line);
        }
    }

    /// Sends SIGINT, and waits for the end of a successful process.
    fn interrupt(mut self) -> Result<()> {
        let kill = Command::new("kill").arg("-INT").arg(self.child.id().to_string()).status()?;
        ensure!(kill.success(), "kill: {kill}");
        let status = self.child.wait()?;
        let lines: Vec<_> = self.lines.iter().collect();
        ensure!(status.success(), "{status}: {lines:#?}");
        Ok(())
    }
}

impl Drop for Running {
    /// Ends the process after a failed assertion.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(tool: &Tool, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (path, content) in files {
        let path = tool.path("bundle").join(path);
        std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        std::fs::write(path, content)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_directory_runs_until_interrupt_and_upgrades_a_kept_run() -> Result<()> {
    let scenario = Scenario::of("loop", Sample::scoped, &[]).await?;
    let tool = Tool::new(&scenario.cluster)?;
    let name = scenario.name.as_str();
    let namespace = format!("{name}-run");
    let bundle = tool.path("bundle");
    let ca = tool.path("ca");
    let [bundle, ca] = [&bundle, &ca].map(|path| path.to_str().unwrap_or_default());
    let (push, pull) =
        (format!("{}/e2e/{name}", tool.registry), format!("{}/e2e/{name}", scenario.cluster.registry));
    let line =
        ["bundle", "run", bundle, "-n", &namespace, "--push-to", &push, "--pull-from", &pull, "--ca-dir", ca];
    let mut files = scenario.sample.bundle("1.0.0");
    write(&tool, &files)?;
    let first = Running::start(&tool, &[&line[..], &["--keep"]].concat())?;
    first.wait_for("following the logs; Ctrl-C ends the command")?;
    first.wait_for("serving greetings")?;
    scenario.wait_installed("1.0.0").await?;
    first.interrupt()?;

    // The same version with another content becomes the next revision.
    let scripts = "manifests/scripts.configmap.yaml";
    replace_in(&mut files, scripts, "{{ .Values.a }}", "changed");
    write(&tool, &files)?;
    let second = Running::start(&tool, &[&line[..], &["--keep"]].concat())?;
    second.wait_for("following the logs")?;
    scenario.wait_revision(2, "Succeeded", "True").await?;
    let scripts = scenario.cluster.within::<ConfigMap>(&namespace).get(&format!("{name}-scripts")).await?;
    let template = scripts.data.and_then(|mut data| data.remove("template"));
    ensure!(template.as_deref() == Some("changed"), "{template:?}");
    second.interrupt()?;

    write(&tool, &scenario.sample.bundle("1.1.0"))?;
    let third = Running::start(&tool, &line)?;
    third.wait_for("following the logs; Ctrl-C removes the operator")?;
    scenario.wait_installed("1.1.0").await?;
    third.interrupt()?;
    ensure!(scenario.extensions().get_opt(name).await?.is_none(), "the extension exists");
    let catalog = format!("{name}-bundle-run");
    ensure!(scenario.catalogs().get_opt(&catalog).await?.is_none(), "the catalog exists");
    let namespaces = scenario.cluster.all::<Namespace>();
    ensure!(namespaces.get_opt(&namespace).await?.is_none(), "the namespace exists");
    scenario.finish().await
}
