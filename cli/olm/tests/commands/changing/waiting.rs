//! Progress and end of `--wait`.

use super::fixture::{Fixture, ended, interrupt};

const LINE: [&str; 6] = ["install", "lamp", "-n", "pipe-system", "--version", "1.0.0"];

#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_on_success_failure_timeout_or_signal() {
    let fixture = Fixture::start(&[]).await;
    until_a_signal_comes(&fixture).await;
    until_it_is_installed(&fixture).await;
    until_it_cannot_go_on(&fixture).await;
    not_longer_than_allowed(&fixture).await;
    not_where_nothing_can_happen(&fixture).await;
}

async fn until_a_signal_comes(fixture: &Fixture) {
    let child = fixture.begin(&[&LINE[..], &["--wait"]].concat());
    let made = fixture.extension("lamp").await;
    fixture.say(&made, None, &[["Installed", "False", "Absent", "No bundle installed"]]).await;
    // The command waits once it has printed progress. Standard error is read after its end.
    interrupt(&child);
    let ran = ended(child).await;
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    let said = "error: interrupted while waiting; the change is written, and operator-controller continues to apply it; run `olm status lamp` for details\n";
    assert!(ran.stderr.ends_with(said) || ran.stderr.ends_with("error: interrupted\n"), "{}", ran.stderr);
    assert_eq!(fixture.extension("lamp").await.metadata.uid, made.metadata.uid);
}

async fn until_it_is_installed(fixture: &Fixture) {
    let child = fixture.begin(&[&LINE[..], &["--wait"]].concat());
    let made = fixture.extension("lamp").await;
    let message = "Object Deployment.apps/v1 pipe-system/lamp: no replicas";
    fixture
        .add_revision(
            &made,
            1,
            "lamp.v1.0.0",
            &[
                ["Progressing", "True", "RollingOut", "Revision 1.0.0 is rolling out."],
                ["Available", "False", "ProbeFailure", message],
            ],
        )
        .await;
    let rolling = ["Progressing", "True", "RollingOut", "Revision 1.0.0 is rolling out."];
    fixture.say(&made, None, &[["Installed", "False", "Absent", "No bundle installed"], rolling]).await;
    let mut child = child;
    let stderr = child.stderr.take().unwrap();
    let error = tokio::task::spawn_blocking(move || first_line_with(stderr, message)).await.unwrap();
    assert_eq!(
        error.as_deref(),
        Some(format!("lamp: revision lamp-1: Revision 1.0.0 is rolling out. {message}").as_str())
    );
    fixture.settle(&made, 1, "lamp.v1.0.0").await;
    let ran = ended(child).await;
    let expected = "clusterextension.olm.operatorframework.io/lamp unchanged\nlamp is installed: lamp.v1.0.0, version 1.0.0\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, expected));
}

/// First line that contains `text`. A thread reads the remaining lines, so that the writer never blocks.
fn first_line_with(stderr: std::process::ChildStderr, text: &str) -> Option<String> {
    use std::io::BufRead;
    let mut lines = std::io::BufReader::new(stderr).lines();
    let found = lines.by_ref().map(Result::unwrap).find(|line| line.contains(text));
    std::thread::spawn(move || lines.for_each(drop));
    found
}

async fn until_it_cannot_go_on(fixture: &Fixture) {
    let child = fixture.begin(&["upgrade", "lamp", "--version", "1.1.0", "--wait"]);
    let changed = fixture.generation("lamp", 2).await;
    let message = "invalid ClusterExtension configuration: unknown field";
    let installed = ["Installed", "True", "Succeeded", "Installed bundle x successfully"];
    fixture
        .say(
            &changed,
            Some(("lamp.v1.0.0", "1.0.0")),
            &[installed, ["Progressing", "False", "InvalidConfiguration", message]],
        )
        .await;
    let ran = ended(child).await;
    assert_eq!(ran.code, 1);
    let said = "error: lamp: InvalidConfiguration: invalid ClusterExtension configuration: unknown field\nthe change is written";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    // The wait continues while the controller retries. The other bundle is installed.
    let child = fixture.begin(&["upgrade", "lamp", "--version", "1.1.0", "--wait", "-o", "name"]);
    fixture.settle(&changed, 2, "lamp.v1.1.0").await;
    let ran = ended(child).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "clusterextension.olm.operatorframework.io/lamp\n"));
    assert!(ran.stderr.ends_with("lamp is installed: lamp.v1.1.0, version 1.1.0\n"), "{}", ran.stderr);
}

async fn not_longer_than_allowed(fixture: &Fixture) {
    let ran = fixture.olm(&["upgrade", "lamp", "--latest", "--wait", "--timeout", "1s"]).await;
    assert_eq!(ran.code, 1);
    let said = "error: timed out after 1s waiting for lamp: operator-controller has not reconciled it yet\nthe change is written";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}

async fn not_where_nothing_can_happen(fixture: &Fixture) {
    use kube::api::{Patch, PatchParams};
    let paused =
        serde_json::json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/paused": "true"}}});
    fixture.extensions().patch("lamp", &PatchParams::default(), &Patch::Merge(&paused)).await.unwrap();
    let ran = fixture.olm(&["upgrade", "lamp", "--wait"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("Warning:            the extension is paused"), "{}", ran.stdout);
    let said = "error: lamp is paused: operator-controller applies nothing while annotation ext.olm.operatorframework.io/paused is set\n";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}
