//! Installation of bundles on a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector;
use olm_api::ClusterObjectSet;
use olm_control_plane::ControlPlane;
use olm_controller_core::install_error::InstallErrorClass;
use olm_request::ExtensionRules;
use serde_json::json;
use tempfile::TempDir;

use super::super::choice::Together;
use super::super::decide::tests::observed;
use super::super::fixture::{SYSTEM, parts, start_api_server};
use super::super::parts::ExtensionController;
use super::*;
use crate::bundles::fixture;

const CRD: &str = "widgets.example.com";

/// API server with a context of the controller.
struct Fixture {
    plane: Arc<ControlPlane>,
    context: ExtensionController,
    cache: TempDir,
    /// Other members of the upgrade group's step.
    together: Together,
}

impl Fixture {
    async fn start() -> Self {
        let plane = start_api_server(Default::default()).await;
        let cache = tempfile::tempdir().unwrap();
        let parts = parts(plane.client(), cache.path(), reflector::store().0);
        let context = ExtensionController::new(parts, reflector::store().0);
        Self { plane, context, cache, together: Together::new() }
    }

    /// Creates the extension `demo` if needed, and returns it with additional fields in `spec`.
    async fn extension(&self, more: &Value) -> ClusterExtension {
        let mut extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "demo"},
            "spec": {"namespace": "ns", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}}});
        extension["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let api: Api<ClusterExtension> = Api::all(self.plane.client());
        let mut extension: ClusterExtension = serde_json::from_value(extension).unwrap();
        let existing = api.get_opt("demo").await.unwrap();
        extension.metadata.uid = match existing {
            Some(existing) => existing.uid(),
            None => api.create(&PostParams::default(), &extension).await.unwrap().uid(),
        };
        extension
    }

    async fn install(
        &self,
        version: &str,
        manifests: &[Value],
        more: &Value,
        annotated: Option<CrdCheck>,
    ) -> Installation {
        self.install_files(version, &fixture::files(version, manifests), more, annotated).await
    }

    async fn install_files(
        &self,
        version: &str,
        files: &BTreeMap<String, Vec<u8>>,
        more: &Value,
        annotated: Option<CrdCheck>,
    ) -> Installation {
        self.context.parts.bundles.store_pulled(files);
        let (name, version) = (format!("demo.v{version}"), version.to_owned());
        let (package, image) = ("demo".to_owned(), fixture::image(files));
        let target = BundleIdentity { name, version, package, image, ..BundleIdentity::default() };
        let extension = self.extension(more).await;
        let rules = ExtensionRules { crd_check: annotated, ..ExtensionRules::default() };
        let observed = observed(&extension, rules, &[]);
        let target = Target { inputs: observed.inputs(&target), catalog: None, together: &self.together };
        self.context.installer().install(&observed, target).await.unwrap()
    }

    /// Names of all revisions and of their Secrets.
    async fn written(&self) -> (Vec<String>, Vec<String>) {
        let sets: Api<ClusterObjectSet> = Api::all(self.plane.client());
        let secrets: Api<Secret> = Api::namespaced(self.plane.client(), SYSTEM);
        let sets = sets.list(&ListParams::default()).await.unwrap().items;
        let secrets = secrets.list(&ListParams::default()).await.unwrap().items;
        (
            sets.iter().map(ResourceExt::name_any).collect(),
            secrets.iter().map(ResourceExt::name_any).collect(),
        )
    }
}

/// CRD whose version v1 has these fields in `spec`.
fn crd(fields: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CRD},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

/// The failure, if the attempt failed.
fn applied(installation: &Installation) -> Result<(), InstallError> {
    match &installation.result {
        InstallResult::Failed(failure) => Err(failure.clone()),
        _ => Ok(()),
    }
}

// Cases apply-49, apply-50, apply-51
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_that_breaks_custom_resources_creates_no_revision() {
    let fixture = Fixture::start().await;
    let text = || json!({"type": "string"});
    let (before, after) = (crd(&json!({"x": text(), "y": text()})), crd(&json!({"y": text(), "z": text()})));
    let plain = json!({});
    let first = fixture.install("1.0.0", std::slice::from_ref(&before), &plain, None).await;
    let made = |installation: &Installation| {
        (applied(installation), installation.created().is_some(), installation.crds.clone())
    };
    assert_eq!(made(&first), (Ok(()), true, CrdVerdict::Safe));
    fixture.plane.apply_crds(std::slice::from_ref(&before)).await.unwrap();
    let written = fixture.written().await;
    assert_eq!(written.0, ["demo-1"]);

    let text = format!(
        "validating upgrade for CRD \"{CRD}\": existingFieldRemoval: removed field : v1.^.spec.x\n\
         v1: ^.spec.x: type: type changed : \"string\" -> \"\""
    );
    let upgrade = async |more: &Value, annotated| {
        fixture.install("2.0.0", std::slice::from_ref(&after), more, annotated).await
    };
    let refused = upgrade(&plain, None).await;
    assert_eq!(applied(&refused), Err(InstallError::retry(&text)));
    assert_eq!(refused.crds, CrdVerdict::Held(text.clone()));
    assert_eq!(fixture.written().await, written, "neither a revision nor a Secret was written");
    // The check runs only for changed content. Unchanged content keeps the active revision, whatever its CRDs.
    let settings = json!({"progressDeadlineMinutes": 20});
    let patched = fixture.install("1.0.0", std::slice::from_ref(&after), &settings, None).await;
    assert_eq!(applied(&patched), Err(InstallError::retry(&text)));
    let patched = fixture.install("1.0.0", std::slice::from_ref(&before), &settings, None).await;
    assert_eq!(patched.result, InstallResult::Unchanged);

    let unchecked = json!({"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}});
    let upgraded = upgrade(&unchecked, None).await;
    assert_eq!(made(&upgraded), (Ok(()), true, CrdVerdict::Safe));
    assert_eq!(fixture.written().await.0, ["demo-1", "demo-2"]);
    // A repeated install creates no second revision.
    assert_eq!(made(&upgrade(&plain, None).await), (Ok(()), false, CrdVerdict::Safe));

    // The accepted findings are reported as long as the revision is the newest.
    for is_made in [true, false] {
        let third =
            fixture.install("3.0.0", std::slice::from_ref(&after), &plain, Some(CrdCheck::Warn)).await;
        assert_eq!(made(&third), (Ok(()), is_made, CrdVerdict::Accepted(text.clone())));
    }
}

// docs/design/additions.md#several-namespaces; case additions-a45
#[tokio::test(flavor = "multi_thread")]
async fn invalid_bundle_or_namespace_creates_no_revision() {
    let fixture = Fixture::start().await;
    let nothing = (Vec::new(), Vec::new());
    let twins = ["a", "b"].map(|data| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twin"}, "data": {"x": data}})
    });
    let refused = fixture.install("1.0.0", &twins, &json!({}), None).await;
    let failure = applied(&refused).unwrap_err();
    assert_eq!(failure.class, InstallErrorClass::Blocked);
    assert!(failure.message.starts_with("bundle cannot be applied: ConfigMap \"twin\""), "{failure}");
    assert_eq!(fixture.written().await, nothing);

    let mut files = fixture::files("1.0.0", &[]);
    let csv = files.get_mut("manifests/csv.yaml").unwrap();
    let mut greedy: Value = serde_json::from_slice(csv).unwrap();
    let rule =
        json!({"apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    greedy["spec"]["webhookdefinitions"] = json!([{"type": "ValidatingAdmissionWebhook", "generateName": "all.example.com",
        "deploymentName": "d", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"]}]);
    greedy["spec"]["install"] =
        json!({"strategy": "deployment", "spec": {"deployments": [{"name": "d", "spec": {}}]}});
    *csv = greedy.to_string().into_bytes();
    let refused = fixture.install_files("1.0.0", &files, &json!({}), None).await;
    let failure = applied(&refused).unwrap_err();
    assert_eq!(failure.class, InstallErrorClass::Retry);
    let text = "webhook \"all.example.com\" contains forbidden rule: admission webhook rules cannot reference API group \"*\"";
    assert_eq!(failure.message, text);
    assert_eq!(fixture.written().await, nothing);

    let watching =
        json!({"config": {"configType": "Inline", "inline": {"watchNamespaces": ["gone", "default"]}}});
    let refused = fixture.install("1.0.0", &[], &watching, None).await;
    let text = "namespaces to watch do not exist: gone";
    assert_eq!((applied(&refused), refused.requeue), (Err(InstallError::retry(text)), true));
    assert_eq!(fixture.written().await, nothing);
}

impl Fixture {
    async fn archive(&self, name: &str) {
        let sets: Api<ClusterObjectSet> = Api::all(self.plane.client());
        let patch = Patch::Merge(json!({"spec": {"lifecycleState": "Archived"}}));
        sets.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Starts a new controller.
    fn restart(&mut self) {
        let parts = parts(self.plane.client(), self.cache.path(), reflector::store().0);
        self.context = ExtensionController::new(parts, reflector::store().0);
    }
}

// docs/design/apply.md#numbering-and-history, docs/design/apply.md#recreated-extensions; cases apply-14, api-49:
// archived and deleted by a user
#[tokio::test(flavor = "multi_thread")]
async fn revisions_are_numbered_and_old_ones_deleted() {
    let fixture = Fixture::start().await;
    let settings = [json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})];
    let install = async |version: &str| fixture.install(version, &settings, &json!({}), None).await;
    for number in 1..=8 {
        let made = install(&format!("{number}.0.0")).await;
        assert_eq!(made.created().unwrap().set.name_any(), format!("demo-{number}"));
        if number > 1 {
            fixture.archive(&format!("demo-{}", number - 1)).await;
        }
    }
    assert_eq!(fixture.written().await.0, ["demo-3", "demo-4", "demo-5", "demo-6", "demo-7", "demo-8"]);
    // An archived revision cannot be reactivated. The bundle is installed in a new one.
    fixture.archive("demo-8").await;
    let again = install("8.0.0").await.created().unwrap().clone();
    assert_eq!(
        (again.set.name_any(), again.before.unwrap().name),
        ("demo-9".to_owned(), "demo-8".to_owned())
    );
    let sets: Api<ClusterObjectSet> = Api::all(fixture.plane.client());
    sets.delete("demo-9", &DeleteParams::default()).await.unwrap();
    let again = install("8.0.0").await.created().unwrap().clone();
    assert_eq!(again.set.name_any(), "demo-9");
}

// Case apply-66: whichever step an attempt ended after, the next one completes
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_attempt_is_completed_by_the_next() {
    let mut fixture = Fixture::start().await;
    let settings =
        [json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": "y"}})];
    let secrets: Api<Secret> = Api::namespaced(fixture.plane.client(), SYSTEM);
    let sets: Api<ClusterObjectSet> = Api::all(fixture.plane.client());
    let install = async |fixture: &Fixture| fixture.install("1.0.0", &settings, &json!({}), None).await;
    let set = install(&fixture).await.created().unwrap().set.clone();
    let [name] = <[String; 1]>::try_from(fixture.written().await.1).unwrap();
    let whole = secrets.get(&name).await.unwrap();
    assert_eq!(whole.owner_references()[0].uid, set.uid().unwrap());

    // After the ClusterObjectSet, before the owners of its Secrets.
    let disowned = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    secrets.patch(&name, &PatchParams::default(), &disowned).await.unwrap();
    fixture.restart();
    let kept = install(&fixture).await;
    assert_eq!(kept.result, InstallResult::Unchanged);
    let (extension, active) = (fixture.extension(&json!({})).await, sets.get("demo-1").await.unwrap());
    let observed = observed(&extension, ExtensionRules::default(), &[Arc::new(active)]);
    fixture.context.installer().verify_content(&observed).await.unwrap();
    assert_eq!(secrets.get(&name).await.unwrap().owner_references(), whole.owner_references());
    assert_eq!(sets.get("demo-1").await.unwrap().metadata.generation, set.metadata.generation);

    // After the Secrets, before the ClusterObjectSet. Without a garbage collector the Secrets remain.
    sets.delete("demo-1", &DeleteParams::default()).await.unwrap();
    fixture.restart();
    let again = install(&fixture).await.created().unwrap().set.clone();
    assert_ne!(again.uid(), set.uid());
    let reused = secrets.get(&name).await.unwrap();
    assert_eq!(reused.uid(), whole.uid());
    assert_eq!(reused.owner_references()[0].uid, again.uid().unwrap());

    // A Secret of that name with other content is not reused.
    sets.delete("demo-1", &DeleteParams::default()).await.unwrap();
    secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    let other = Secret {
        data: None,
        metadata: kube::core::ObjectMeta { resource_version: None, uid: None, ..whole.metadata },
        ..whole
    };
    secrets.create(&PostParams::default(), &other).await.unwrap();
    fixture.restart();
    let text = format!(
        "creating ref Secret {name:?}: a Secret of this name exists and is being deleted, mutable, or of different \
         content"
    );
    assert_eq!(applied(&install(&fixture).await), Err(InstallError::retry(text)));
    assert_eq!(fixture.written().await.0, [""; 0]);
}

// docs/design/additions.md#upgrade-groups; case additions-a72
#[tokio::test(flavor = "multi_thread")]
async fn revision_waits_until_members_of_upgrade_group_are_ready() {
    let mut fixture = Fixture::start().await;
    fixture.together = [("peer".to_owned(), "peer.v1".to_owned())].into();
    let settings = [json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}})];
    let install = async || fixture.install("1.0.0", &settings, &json!({}), None).await;
    let ready = |of: &str| fixture.context.memories.with(of, |memory| memory.ready.clone());
    for other in [None, Some("peer.v0")] {
        fixture.context.memories.with("peer", |memory| memory.ready = other.map(str::to_owned));
        let waiting = install().await;
        let cause = "member peer is not ready for bundle peer.v1".to_owned();
        assert_eq!((waiting.result, waiting.requeue), (InstallResult::AwaitsGroup(cause), true));
        assert_eq!(ready("demo").as_deref(), Some("demo.v1.0.0"));
    }
    fixture.context.memories.with("peer", |memory| memory.ready = Some("peer.v1".to_owned()));
    let made = install().await;
    assert!(made.created().is_some(), "{made:?}");
}
