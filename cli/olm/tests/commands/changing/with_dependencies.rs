//! `olm install --with-dependencies`.

use kube::ResourceExt;
use kube::api::DeleteParams;
use olm_require::Need;

use super::fixture::{Fixture, compare, ended};

const LINE: [&str; 5] = ["install", "app", "-n", "pipe-system", "--with-dependencies"];

#[tokio::test(flavor = "multi_thread")]
async fn dependencies_are_installed_first() {
    let fixture = Fixture::start(&[]).await;
    plan_is_shown_before_confirmation(&fixture).await;
    failure_prints_installed_started_and_remaining_packages(&fixture).await;
    same_command_continues(&fixture).await;
    installed_packages_are_unchanged(&fixture).await;
}

async fn plan_is_shown_before_confirmation(fixture: &Fixture) {
    let ran = fixture.olm(&LINE).await;
    assert_eq!(ran.code, 2);
    compare("together.txt", &ran.stdout);
    assert_eq!(
        ran.stderr,
        "error: Install them? Standard input or standard error is not a terminal; confirm with --yes\n"
    );
    let ran = fixture.olm(&[&LINE[..], &["--dry-run=server", "-o", "yaml"]].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("together.yaml", &ran.stdout);
    // A terminal gets a prompt.
    let program = env!("CARGO_BIN_EXE_olm");
    let (cas, config) = (fixture.path("cas"), fixture.path("kubeconfig"));
    let line = format!("{program} {} --ca-dir {}", LINE.join(" "), cas.display());
    if olm_require::find("script").is_none() {
        olm_require::skip(Need::Tools, "there is no script: install the Debian package bsdutils");
    }
    let mut terminal = std::process::Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("KUBECONFIG", &config);
    terminal.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = terminal.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"no\n").unwrap();
    let ran = ended(child).await;
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("Install them? [y/N] "), "{}", ran.stdout);
    assert!(ran.stdout.contains("not confirmed; nothing has been changed"), "{}", ran.stdout);
    assert_eq!(fixture.extensions().list(&Default::default()).await.unwrap().items.len(), 0);
}

async fn failure_prints_installed_started_and_remaining_packages(fixture: &Fixture) {
    let child = fixture.begin(&[&LINE[..], &["--yes"]].concat());
    let base = fixture.extension("base").await;
    assert!(fixture.extensions().get_opt("app").await.unwrap().is_none());
    fixture.say(&base, None, &[["Progressing", "False", "Blocked", "error parsing image reference"]]).await;
    let ran = ended(child).await;
    assert_eq!(ran.code, 1);
    let account = "installed: none\nstarted: base (base.v1.4.0)\nnot started: app (app.v2.0.0)\nrun the same command again to continue\n";
    assert!(ran.stderr.contains("error: base: Blocked: error parsing image reference\n"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with(account), "{}", ran.stderr);
    assert!(fixture.extensions().get_opt("app").await.unwrap().is_none());
}

async fn same_command_continues(fixture: &Fixture) {
    let base = fixture.extension("base").await;
    fixture.settle(&base, 1, "base.v1.4.0").await;
    let child = fixture.begin(&[&LINE[..], &["--yes", "--wait"]].concat());
    let app = fixture.extension("app").await;
    let mode = app.annotations().get("ext.olm.operatorframework.io/dependency-mode");
    assert_eq!(mode.map(String::as_str), Some("Check"));
    assert_eq!(fixture.extension("base").await.metadata.uid, base.metadata.uid);
    fixture.settle(&app, 1, "app.v2.0.0").await;
    let ran = ended(child).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.ends_with("app is installed: app.v2.0.0, version 2.0.0\n"), "{}", ran.stdout);
}

async fn installed_packages_are_unchanged(fixture: &Fixture) {
    let ran = fixture.olm(&[&LINE[..], &["--yes"]].concat()).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "app already has its best bundle\n"));
    // The command never changes an existing extension of a dependency that has a different spec.
    for name in ["app", "base"] {
        fixture.extensions().delete(name, &DeleteParams::default()).await.unwrap();
        fixture.sets().delete(&format!("{name}-1"), &DeleteParams::default()).await.unwrap();
    }
    let ran = fixture.olm(&["install", "base", "-n", "pipe-system"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = fixture.olm(&[&LINE[..], &["--yes"]].concat()).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("ClusterExtension \"base\" exists with other settings and is not changed"),
        "{}",
        ran.stderr
    );
    assert!(fixture.extensions().get_opt("app").await.unwrap().is_none());
}
