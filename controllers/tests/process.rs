//! operator-controller as a process: command line, probes, metrics authorization, leader election, and exit.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Resource};
use olm_control_plane::{ControlPlane, eventually, ports};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use reqwest::Identity;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_operator-controller");

/// Exit code, output and errors of the program.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

// docs/design/operations.md#flag-syntax, docs/design/operations.md#start-up-errors
#[test]
fn command_line_errors_print_like_the_reference() {
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
}

// Case operations-a59
#[test]
fn subcommands_and_help_print_like_the_reference() {
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
    assert!(!help.contains("WebhookProviderCertManager"), "help lists a locked feature gate");
}

/// Status and body of a probe. `None` without a response.
async fn probe(port: u16, path: &str) -> Option<(u16, String)> {
    let answer = reqwest::get(format!("http://127.0.0.1:{port}/{path}")).await.ok()?;
    Some((answer.status().as_u16(), answer.text().await.ok()?))
}

// docs/design/operations.md#probes; case operations-a57. The profiling flag is accepted.
#[tokio::test(flavor = "multi_thread")]
async fn probes_report_readiness_and_sigterm_exits_0() {
    let plane = ControlPlane::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = ports::free_port().unwrap();
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

    // The server is not ready without its CRDs, and reports that.
    let unsynced =
        "[-]informers failed: reason withheld\n[+]readyz ok\n[+]startup ok\nhealthz check failed\n";
    eventually("not ready without the CRDs", async || {
        probe(port, "readyz").await.filter(|said| *said == (500, unsynced.to_owned()))
    })
    .await;
    assert_eq!(probe(port, "healthz").await, Some((200, "ok".to_owned())));
    // docs/design/operations.md#process
    let about = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", process.id())).unwrap();
    assert!(about("status").lines().any(|line| line == "Umask:\t0077"));
    let limits = about("limits");
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>(), ["0", "0", "bytes"]);
    plane.apply_crds(&olm_api::crds::crds()).await.unwrap();
    eventually("ready with the CRDs", async || {
        probe(port, "readyz").await.filter(|said| *said == (200, "ok".to_owned()))
    })
    .await;
    assert!(
        said().contains("flags accepted without effect") && said().contains("pprof-bind-address"),
        "{}",
        said()
    );

    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let ended = tokio::task::spawn_blocking(move || process.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", said());
}

/// Process that is killed on drop.
struct Running(Child);

impl Running {
    fn start(plane: &ControlPlane, folder: &Path, arguments: &[&str]) -> Self {
        let child = Command::new(PROGRAM)
            .arg(format!("--kubeconfig={}", plane.kubeconfig().display()))
            .arg(format!("--cache-path={}", folder.join("cache").display()))
            .args(arguments)
            .env("TMPDIR", folder)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

async fn apply<K>(api: &Api<K>, object: Value)
where
    K: Resource + DeserializeOwned + Clone + std::fmt::Debug,
{
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
}

/// Creates a namespace with these labels and a Deployment of operator-controller without pods.
async fn installation(plane: &ControlPlane, namespace: &str, labels: &Value) {
    const NAME: &str = "operator-controller-controller-manager";
    let namespaces: Api<Namespace> = Api::all(plane.client());
    let metadata = json!({"name": namespace, "labels": labels});
    apply(&namespaces, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).await;
    let labels = json!({"app.kubernetes.io/part-of": "olm"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "x"}]}});
    let deployments: Api<Deployment> = Api::namespaced(plane.client(), namespace);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template}});
    apply(&deployments, deployment).await;
}

// docs/design/operations.md#multiple-installations; cases operations-a30, operations-e12
#[tokio::test(flavor = "multi_thread")]
async fn second_installation_does_not_become_leader() {
    const ARGUMENTS: [&str; 3] =
        ["--leader-elect", "--system-namespace=second", "--health-probe-bind-address=0"];
    let plane = ControlPlane::start().await.unwrap();
    plane.apply_crds(&olm_api::crds::crds()).await.unwrap();
    // Installations created in the same second are ordered by name. The oldest Deployment here only has the same
    // name.
    installation(&plane, "called-so", &json!({})).await;
    let of_olm = json!({"app.kubernetes.io/part-of": "olm"});
    installation(&plane, "first", &of_olm).await;
    installation(&plane, "second", &of_olm).await;
    let leases: Api<Lease> = Api::namespaced(plane.client(), "second");
    let is_led = async || leases.get_opt("9c4404e7.operatorframework.io").await.unwrap().is_some();
    let folder = tempfile::tempdir().unwrap();
    let second = Running::start(&plane, folder.path(), &ARGUMENTS);

    let events: Api<Event> = Api::namespaced(plane.client(), "second");
    let about = ListParams::default().fields("reason=MultipleInstallations");
    let event = eventually("the Event", async || events.list(&about).await.unwrap().items.pop()).await;
    assert_eq!(
        event.note.as_deref(),
        Some(
            "Deployment first/operator-controller-controller-manager is an older installation for the same cluster: \
             this installation leads only once the older one is removed, or with --allow-multiple-installations. To \
             return to the older installation, apply its manifest again, because installing this one removed its \
             cluster permissions. Then delete only the namespace second: kubectl delete -f with the manifest of this \
             installation would also delete the CRDs that both use, and with them all extensions"
        )
    );
    assert_eq!(event.regarding.and_then(|object| object.kind).as_deref(), Some("Deployment"));
    assert!(!is_led().await);
    // The time would have sufficed: a process that is allowed to lead acquires the Lease.
    let other = tempfile::tempdir().unwrap();
    let allowed = [&ARGUMENTS[..], &["--allow-multiple-installations"]].concat();
    let forced = Running::start(&plane, other.path(), &allowed);
    eventually("the allowed installation becomes leader", async || is_led().await.then_some(())).await;
    drop(forced);
    leases.delete("9c4404e7.operatorframework.io", &DeleteParams::default()).await.unwrap();

    let first: Api<Deployment> = Api::namespaced(plane.client(), "first");
    first.delete("operator-controller-controller-manager", &DeleteParams::default()).await.unwrap();
    eventually("leader after deletion of the older installation", async || is_led().await.then_some(()))
        .await;
    drop(second);
}

/// Response of the metrics endpoint.
async fn scrape(port: u16, identity: Option<&Identity>, token: Option<&str>) -> Option<(u16, String)> {
    let mut client = reqwest::Client::builder().danger_accept_invalid_certs(true);
    if let Some(identity) = identity {
        client = client.identity(identity.clone());
    }
    let mut request = client.build().unwrap().get(format!("https://127.0.0.1:{port}/metrics"));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.ok()?;
    Some((answer.status().as_u16(), answer.text().await.ok()?))
}

/// Client certificate for this user and group, with its key.
fn client_certificate(authority: &Issuer<'_, KeyPair>, user: &str, group: &str) -> Identity {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    Identity::from_pem((certificate.pem() + &key.serialize_pem()).as_bytes()).unwrap()
}

/// CA and its certificate as PEM text.
fn authority() -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

// docs/design/operations.md#metrics-endpoint
#[tokio::test(flavor = "multi_thread")]
async fn metrics_require_an_authorized_client_certificate() {
    let plane = ControlPlane::start().await.unwrap();
    let (cluster, pem) = authority();
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "kube-system");
    let trusted = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication"}, "data": {"client-ca-file": pem}});
    apply(&maps, trusted).await;
    let roles: Api<ClusterRole> = Api::all(plane.client());
    let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    let named = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "scraper"}});
    let mut role = named("ClusterRole");
    role["rules"] = rules;
    apply(&roles, role).await;
    let bindings: Api<ClusterRoleBinding> = Api::all(plane.client());
    let mut binding = named("ClusterRoleBinding");
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"});
    binding["subjects"] =
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "monitoring"}]);
    apply(&bindings, binding).await;

    let folder = tempfile::tempdir().unwrap();
    let serving = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&certificate, serving.cert.pem()).unwrap();
    std::fs::write(&key, serving.signing_key.serialize_pem()).unwrap();
    let port = ports::free_port().unwrap();
    let arguments = [
        format!("--tls-cert={}", certificate.display()),
        format!("--tls-key={}", key.display()),
        format!("--metrics-bind-address=127.0.0.1:{port}"),
        "--metrics-auth=token-or-mtls".to_owned(),
        "--health-probe-bind-address=0".to_owned(),
    ];
    let _process = Running::start(&plane, folder.path(), &arguments.each_ref().map(String::as_str));

    let scraper = client_certificate(&cluster, "prometheus", "monitoring");
    let metrics = eventually("metrics readable with the group of the certificate", async || {
        scrape(port, Some(&scraper), None).await.filter(|(status, _)| *status == 200)
    })
    .await;
    assert!(metrics.1.contains("# HELP"), "{}", metrics.1);
    let stranger = client_certificate(&cluster, "prometheus", "others");
    let denied = "Authorization denied for user prometheus\n".to_owned();
    assert_eq!(scrape(port, Some(&stranger), None).await, Some((403, denied)));
    let unknown = (401, "Unauthorized\n".to_owned());
    assert_eq!(scrape(port, None, None).await, Some(unknown.clone()));
    assert_eq!(scrape(port, None, Some("wrong")).await, Some(unknown));
    let administrator = scrape(port, None, Some("control-plane-test")).await;
    assert_eq!(administrator.map(|(status, _)| status), Some(200));
    let (elsewhere, _) = authority();
    let forged = client_certificate(&elsewhere, "prometheus", "monitoring");
    assert_eq!(scrape(port, Some(&forged), None).await, None, "certificate of a different CA");
}
