//! `olm doctor` with the real binary on a real API server, in which faults and secrets are planted.

mod fixture;

use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use self::fixture::{HEALTHY, Installation, SYSTEM, named};
use crate::fixture::{olm_in, tests};

#[test]
fn help_and_rules_match_golden_files() {
    for (name, option) in [("doctor-help.txt", "--help"), ("doctor-rules.txt", "--rules")] {
        let ran: crate::fixture::Ran = olm_in(&tests("data"), &["doctor", option]).output().unwrap().into();
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        crate::fixture::compare("commands/doctor", name, &ran.stdout);
    }
}

#[test]
fn existing_archive_is_refused_before_the_cluster_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.tar.gz"), "kept").unwrap();
    for (path, why) in [("a.tar.gz", "already exists"), ("none/a.tar.gz", "there is no folder none")] {
        let ran: crate::fixture::Ran =
            olm_in(folder.path(), &["doctor", "--bundle", path]).output().unwrap().into();
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn healthy_installation_has_no_findings() {
    let installation = Installation::start().await;
    assert_eq!(installation.findings().await, [""; 0]);
    let text = installation.doctor(&[]).await;
    assert!(text.stdout.ends_with("\n0 errors, 0 warnings, 0 notes\n"), "{}", text.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_extensions_are_found() {
    let installation = Installation::start().await;
    let fixture = &installation.fixture;
    let bundle = "error for resolved bundle \"demo.v2\" with version \"2.0.0\": ";
    for (status, message, rule) in [
        ("True/Retrying", "no bundles found for package \"demo\"".to_owned(), "RESOLVE-1"),
        (
            "True/Retrying",
            "found bundles for package \"demo\" in multiple catalogs with the same priority [a b]".to_owned(),
            "RESOLVE-2",
        ),
        ("True/Retrying", "catalog \"hub\" is not being served".to_owned(), "RESOLVE-3"),
        (
            "True/Retrying",
            "bundle \"demo.v2\" has a dependency declared via property \"olm.gvk.required\" which is currently not \
             supported"
                .to_owned(),
            "RESOLVE-4",
        ),
        ("True/Retrying", format!("{bundle}lookup r.example: no such host"), "INSTALL-1 CAUSE-1"),
        ("True/Retrying", format!("{bundle}phase 0 validation error: namespaces \"x\" not found"), "INSTALL-2"),
        ("False/InvalidConfiguration", format!("{bundle}invalid ClusterExtension configuration: x"), "INSTALL-3"),
        ("True/Retrying", "revision object collisions in phase 1".to_owned(), "INSTALL-4"),
        ("True/Retrying", format!("{bundle}validating upgrade for CRD \"a\": x"), "INSTALL-5"),
        ("False/ProgressDeadlineExceeded", "Revision has not rolled out for 1 minute(s). x".to_owned(), "ROLLOUT-2"),
    ] {
        let progress = format!("Progressing={status} {message}");
        fixture.set_installed("demo", "1.0.0", &[&progress, HEALTHY[1], HEALTHY[2]], &[]).await;
        assert_eq!(installation.findings().await, [format!("{rule}: ClusterExtension demo")], "{message}");
    }
    for (texts, rule) in [
        (&[HEALTHY[0], HEALTHY[1], "Available=False/ProbeFailure Deployment outdated"][..], "ROLLOUT-3"),
        (&[HEALTHY[0], HEALTHY[1], "Deprecated=True/Deprecated use another"], "UPGRADE-1"),
        (&[HEALTHY[0], HEALTHY[1], "UpgradeAvailable=True/OutsideVersionRange 2.0.0"], "UPGRADE-2"),
    ] {
        fixture.set_installed("demo", "1.0.0", texts, &[]).await;
        assert_eq!(installation.findings().await, [format!("{rule}: ClusterExtension demo")]);
    }
    fixture.make("demo", 1, "1.0.0", vec![crate::revisions::fixture::deployment("demo")]).await;
    fixture.set_revision("demo-1", &["Available=False/ProbeFailure Deployment demo is missing"]).await;
    let rolling = "Progressing=True/RollingOut Revision 1.0.0 is rolling out.";
    fixture.set_installed("demo", "1.0.0", &[rolling], &["demo-1"]).await;
    assert_eq!(installation.findings().await, ["ROLLOUT-1: ClusterExtension demo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_catalogs_and_platform_are_found() {
    let installation = Installation::start().await;
    for (message, rule) in [
        ("Progressing=True/Retrying source catalog content: unauthorized", "CATALOG-1 CAUSE-3"),
        ("Progressing=False/Blocked error storing fbc: no channel", "CATALOG-2"),
    ] {
        installation.set_catalog(message).await;
        assert_eq!(installation.findings().await, [format!("{rule}: ClusterCatalog hub")]);
    }
    installation.set_catalog("Progressing=True/Succeeded ok").await;

    let status = json!({"apiVersion": "ext.olm.operatorframework.io/v1alpha1", "kind": "ClusterUpgradeStatus",
        "metadata": {"name": "cluster"}});
    installation.create(status.clone()).await;
    let texts = ["Upgradeable=False/IncompatibleOperatorsInstalled demo"];
    let conditions = crate::revisions::fixture::conditions(&texts, 1);
    installation.fixture.set_status(&status, json!({"conditions": conditions})).await;
    assert_eq!(installation.findings().await, ["PLATFORM-1: ClusterUpgradeStatus cluster"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_servers_are_found() {
    let installation = Installation::start().await;
    *installation.log.lock().unwrap() = "starting\nError: unrecognized feature gate: Nope\n".to_owned();
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    installation.set_pod("catalogd", 2, waiting, "False").await;
    let pod = format!("Pod {SYSTEM}/catalogd-controller-manager");
    assert_eq!(installation.findings().await, [format!("SERVER-1 LOG-1: {pod}")]);
    *installation.log.lock().unwrap() = "waiting\n".to_owned();
    installation.set_pod("catalogd", 0, json!({"running": {}}), "False").await;
    assert_eq!(installation.findings().await, [format!("SERVER-2: {pod}")]);
    installation.set_pod("catalogd", 0, json!({"running": {}}), "True").await;

    // The Service has an address that nothing answers.
    let bundle = BASE64_STANDARD.encode(&installation.ca);
    let client = json!({"service": {"namespace": SYSTEM, "name": "catalogd-service", "port": 9443}, "caBundle": bundle});
    let webhook = json!({"name": "inject-metadata-name.olm.operatorframework.io", "admissionReviewVersions": ["v1"],
        "sideEffects": "None", "timeoutSeconds": 1, "clientConfig": client,
        "rules": [{"apiGroups": ["olm.operatorframework.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["clustercatalogs"]}]});
    let name = "catalogd-mutating-webhook-configuration";
    let mut configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration", "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "olm"}},
        "webhooks": [webhook]});
    installation.create(configuration.clone()).await;
    let failure = format!("CATALOG-3: MutatingWebhookConfiguration {name}");
    let found = olm_control_plane::eventually("the API server calls the webhook", async || {
        Some(installation.findings().await).filter(|found| !found.is_empty())
    });
    assert_eq!(found.await, std::slice::from_ref(&failure));
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!("");
    installation.merge(&configuration, json!({"webhooks": configuration["webhooks"]})).await;
    assert_eq!(
        installation.findings().await,
        [failure, format!("CERT-4: MutatingWebhookConfiguration {name}")]
    );
    installation.delete(&configuration).await;
    let gone = olm_control_plane::eventually("the API server forgets the webhook", async || {
        installation.findings().await.is_empty().then_some(())
    });
    gone.await;
}

/// Plants a fault of each rule that reads no message.
async fn plant_faults_without_message(installation: &Installation) {
    let lease = named("coordination.k8s.io/v1", "Lease", "catalogd-operator-lock");
    installation.merge(&lease, json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})).await;
    let slice = named("discovery.k8s.io/v1", "EndpointSlice", "catalogd-service");
    installation.merge(&slice, json!({"endpoints": []})).await;
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": SYSTEM}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}});
    installation.create(policy.clone()).await;
    let labels = json!({"app.kubernetes.io/part-of": "olm"});
    let old =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old-olm", "labels": labels}});
    installation.create(old).await;
    let spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": "a"}]}}});
    installation
        .create(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec,
        "metadata": {"name": "catalogd-controller-manager", "namespace": "old-olm", "labels": labels}}))
        .await;
    let owner = json!({"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": "gone"});
    installation
        .create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
        "metadata": {"name": "lost", "labels": owner}}))
        .await;
    let pull = named("v1", "Secret", "pull");
    installation.merge(&pull, json!({"data": {".dockerconfigjson": BASE64_STANDARD.encode("{}")}})).await;
    let certificate = named("v1", "Secret", "catalogd-service-cert");
    installation.merge(&certificate, json!({"data": {"tls.crt": BASE64_STANDARD.encode("none")}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_without_message_are_found() {
    let installation = Installation::start().await;
    plant_faults_without_message(&installation).await;
    assert_eq!(
        installation.findings().await,
        [
            "CERT-1: Secret olmv1-system/catalogd-service-cert",
            "INSTALLATION-1: Namespace old-olm",
            "LEASE-1: Lease olmv1-system/catalogd-operator-lock",
            "NETWORK-1: Service olmv1-system/catalogd-service",
            "NETWORK-2: Pod olmv1-system/catalogd-controller-manager",
            "NETWORK-2: Pod olmv1-system/operator-controller-controller-manager",
            "ORPHAN-1: ClusterExtension gone",
            "SECRET-1: Secret olmv1-system/pull",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_objects_are_named() {
    let installation = Installation::start().await;
    plant_faults_without_message(&installation).await;
    installation.fixture.allow("viewer", &["olm.operatorframework.io/clusterextensions"]).await;
    let ran = installation.fixture.olm_as("viewer", &["doctor", "-o", "json"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["findings"], json!([]), "{}", ran.stdout);
    for what in [
        "clustercatalogs: ",
        "leases in namespace olmv1-system: ",
        "Secret olmv1-system/catalogd-service-cert: ",
    ] {
        assert!(ran.stderr.contains(&format!("warning: not read: {what}")), "{}", ran.stderr);
        assert!(
            report["unreadable"]
                .as_array()
                .unwrap()
                .iter()
                .any(|why| why.as_str().unwrap().starts_with(what))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_deletion_is_found() {
    let installation = Installation::start().await;
    let fixture = &installation.fixture;
    let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "demo"}});
    installation.merge(&extension, json!({"metadata": {"finalizers": ["example.com/test"]}})).await;
    installation.delete(&extension).await;
    let texts = ["Progressing=False/Blocked cannot uninstall: 1 custom resources exist (first: a)"];
    fixture.set_installed("demo", "1.0.0", &texts, &[]).await;
    assert!(installation.findings().await.contains(&"DELETE-2: ClusterExtension demo".to_owned()));
}

/// Plants secrets in objects, conditions, Events and logs. All begin with `planted-`.
async fn plant_secrets(installation: &Installation) {
    let fixture = &installation.fixture;
    let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "demo"}});
    let config = json!({"configType": "Inline", "inline": {"adminPassword": "planted-config",
        "deploymentConfig": {"env": [{"name": "API_TOKEN", "value": "planted-config-env"}]}}});
    let applied = "{\"spec\": \"planted-applied\"}";
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
    installation
        .merge(&extension, json!({"metadata": {"annotations": annotations}, "spec": {"config": config}}))
        .await;
    let message = "Progressing=True/Retrying source: GET https://user:planted-url@registry.example.com/v2/: unauthorized";
    fixture.set_installed("demo", "1.0.0", &[message, HEALTHY[1]], &[]).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "pipe-system"},
        "stringData": {"a": "planted-bundle"}});
    let set = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": "demo-1",
        "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": "demo"}},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent",
            "phases": [{"name": "deploy", "objects": [{"object": secret}]}]}});
    installation.create(set).await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": SYSTEM},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": SYSTEM}, "reason": "Failed", "type": "Warning",
        "message": "pull with password=planted-event"});
    installation.create(event).await;
    installation.log.lock().unwrap().push_str(
        "GET Authorization: Bearer planted-header\nlogin with planted-pull\nsecret: \"planted-field\"\n\
         -----BEGIN PRIVATE KEY-----\nplanted-key\n-----END PRIVATE KEY-----\nthe last line\n",
    );
}

/// Ends of the planted secrets. `env` and `proxy` are in every Deployment.
const PLANTED: [&str; 12] = [
    "env",
    "proxy",
    "config",
    "config-env",
    "applied",
    "url",
    "bundle",
    "event",
    "header",
    "pull",
    "field",
    "key",
];

#[tokio::test(flavor = "multi_thread")]
async fn archive_contains_no_planted_secret() {
    let installation = Installation::start().await;
    plant_secrets(&installation).await;
    let path = installation.fixture.path("support.tar.gz");
    let ran = installation.doctor(&["--bundle", path.to_str().unwrap()]).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let tar = |option: &str| {
        let output = Command::new("tar").arg(option).arg(&path).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let (files, content) = (tar("-tzf"), tar("-xzOf"));
    for file in [
        "report.yaml",
        "objects/ClusterObjectSet.yaml",
        "objects/Secret.yaml",
        "logs/catalogd-controller-manager.manager.log",
    ] {
        assert!(files.lines().any(|line| line == format!("olm-doctor/{file}")), "{files}");
    }
    let planted = PLANTED.map(|secret| format!("planted-{secret}"));
    let encoded = planted.clone().map(|secret| BASE64_STANDARD.encode(secret));
    let auth = BASE64_STANDARD.encode("user:planted-pull");
    let looked_for = planted.into_iter().chain(encoded).chain([auth, "PRIVATE KEY".to_owned()]);
    let text = [content, ran.stdout, ran.stderr].concat();
    let leaks: Vec<String> = looked_for.filter(|secret| text.contains(secret)).collect();
    assert!(leaks.is_empty(), "{leaks:?} in\n{text}");
    assert!(text.contains("the last line") && text.contains("REDACTED"), "{text}");
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}
