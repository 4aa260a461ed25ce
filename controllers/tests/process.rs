//! operator-controller as a process: its command line, what its probes say, and how it ends.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use olm_control_plane::ControlPlane;

const PROGRAM: &str = env!("CARGO_BIN_EXE_operator-controller");

// spec 06 A59, §§2.1, 2.9
#[test]
fn command_lines() {
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    for (arguments, error) in [
        (
            &["--tls-cert=a"][..],
            "unable to configure TLS certificates: tls-cert and tls-key flags must be used together\n",
        ),
        (
            &["--metrics-bind-address=0"],
            "metrics-bind-address requires tls-cert and tls-key flags to be set\n",
        ),
        (&["--global-pull-secret=a"], "incorrect number of components\n"),
        (
            &["--feature-gates=X=maybe"],
            "invalid argument \"X=maybe\" for \"--feature-gates\" flag: invalid value of X=maybe, err: \
             strconv.ParseBool: parsing \"maybe\": invalid syntax\n",
        ),
        (
            &["--feature-gates=X"],
            "invalid argument \"X\" for \"--feature-gates\" flag: missing bool value for X\n",
        ),
        (
            &["--image-limits=x=1"],
            "invalid argument \"x=1\" for \"--image-limits\" flag: unknown limit x: want one of ",
        ),
        (
            &["--registry-deny-cidrs=10.0.0.0/33"],
            "invalid argument \"10.0.0.0/33\" for \"--registry-deny-cidrs\" flag: invalid CIDR address: 10.0.0.0/33\n",
        ),
        (&["-leader-elect"], "unknown shorthand flag: 'l' in -leader-elect\n"),
        (&["--LEADER-ELECT"], "unknown flag: --LEADER-ELECT\n"),
        (&["foo"], "unknown command \"foo\" for \"operator-controller\"\n"),
    ] {
        let (code, _, said) = run(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert_eq!(said.matches(&format!("Error: {error}")).count(), 2, "{arguments:?}: {said}");
        assert!(said.contains("Usage: "), "{arguments:?}: {said}");
        let is_logged =
            said.contains("Value of global-pull-secret should be of the format <namespace>/<name>");
        assert_eq!(is_logged, arguments[0].starts_with("--global-pull-secret"), "{said}");
    }
    let (code, version, _) = run(&["version"]);
    assert_eq!(code, Some(0));
    assert!(version.starts_with("version: \"") && version.contains("\", commit: \""), "{version}");
    assert!(version.contains("\", date: \"") && version.contains("\", state: \""), "{version}");
    let (code, script, _) = run(&["completion", "bash"]);
    assert_eq!(code, Some(0));
    assert!(script.contains("_operator__controller()"), "{script}");
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, Some(0));
    for text in
        ["\nRegistries and images:\n", "\nPlatform upgrades:\n", "DeploymentConfig=true|false (ALPHA - "]
    {
        assert!(help.contains(text), "no {text} in {help}");
    }
    assert!(!help.contains("WebhookProviderCertManager"), "settled gates can be set and are not listed");
}

/// Status and text of a probe; none while nobody answers.
async fn probe(port: u16, path: &str) -> Option<(u16, String)> {
    let answer = reqwest::get(format!("http://127.0.0.1:{port}/{path}")).await.ok()?;
    Some((answer.status().as_u16(), answer.text().await.ok()?))
}

async fn eventually(what: &str, ask: impl AsyncFn() -> bool) {
    let asked = async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"));
}

// spec 06 A57, §4.4; the profiling flag is accepted
#[tokio::test(flavor = "multi_thread")]
async fn probes_tell_the_truth_and_a_stop_is_no_failure() {
    let plane = ControlPlane::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let log = folder.path().join("log");
    let mut process = Command::new(PROGRAM)
        .arg(format!("--kubeconfig={}", plane.kubeconfig().display()))
        .arg(format!("--cache-path={}", folder.path().join("cache").display()))
        .arg(format!("--health-probe-bind-address=127.0.0.1:{port}"))
        .args(["--pprof-bind-address=:6060", "--system-namespace=default"])
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();

    // Without its kinds it can do nothing, and says so.
    let unsynced =
        "[-]informers failed: reason withheld\n[+]readyz ok\n[+]startup ok\nhealthz check failed\n";
    eventually("not ready without the kinds", async || {
        probe(port, "readyz").await == Some((500, unsynced.to_owned()))
    })
    .await;
    assert_eq!(probe(port, "healthz").await, Some((200, "ok".to_owned())));
    plane.apply_crds(&olm_api::crds::crds()).await.unwrap();
    eventually("ready with them", async || probe(port, "readyz").await == Some((200, "ok".to_owned()))).await;
    assert!(
        said().contains("flags accepted without effect") && said().contains("pprof-bind-address"),
        "{}",
        said()
    );

    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let ended = tokio::task::spawn_blocking(move || process.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", said());
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name != "operator-controller-global-pull-secrets"), "{left:?}");
}
