//! A bundle becomes a revision on a real API server, or does not.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ListParams, PostParams};
use kube::runtime::reflector;
use kube::{Api, Client};
use olm_api::cluster_extension::BundleMetadata;
use olm_bundle::Certificates;
use olm_control_plane::ControlPlane;
use olm_extension::Settings;
use olm_service::Component;
use olm_service::ca_pool::{CaPool, CaSources};
use olm_service::events::Events;
use olm_service::tls_profile::{ProfileName, TlsProfile, Version};
use serde_json::json;
use tempfile::TempDir;

use super::super::{
    Arc, CancellationToken, Catalogs, ClusterObjectSet, Dependencies, Features, Mutex, Parts,
};
use super::*;
use crate::bundles::fixture;
use crate::certificates::WebhookCertificates;
use crate::extension::apply::Revisions;
use crate::failure::Class;
use crate::preflight::Preflight;

const SYSTEM: &str = "olmv1-system";
const CRD: &str = "widgets.example.com";

/// An API server, and the controller's view of it.
struct World {
    plane: ControlPlane,
    context: Context,
    _cache: TempDir,
}

impl World {
    async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.apply_crds(&olm_api::crds::crds()).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(plane.client());
        for name in [SYSTEM, "ns"] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        let cache = tempfile::tempdir().unwrap();
        let context = context(plane.client(), &cache);
        Self { plane, context, _cache: cache }
    }

    /// What the extension `demo` with these annotations and more of `spec` would be on the API server.
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

    /// Installs a version with these manifests.
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
        self.context.parts.bundles.keep_pulled("demo", files);
        let bundle =
            BundleMetadata { name: format!("demo.v{version}"), version: version.to_owned(), release: None };
        let (package, image) = ("demo".to_owned(), fixture::image(files));
        let wanted = Wanted { bundle, package, image, catalog_properties: None };
        let extension = self.extension(more).await;
        self.context.install(&extension, &wanted, annotated, &RevisionStates::default(), false).await
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

fn context(client: Client, cache: &TempDir) -> Context {
    let profile = TlsProfile::new(ProfileName::Modern, Version::Tls12, &[], &[]).unwrap();
    let pool = CaPool::load(CaSources { directory: None, bundle: None }, profile).unwrap();
    let (sets, _) = reflector::store();
    let features = Features {
        single_own_namespace: false,
        deployment_config: true,
        multi_watch_namespaces: true,
        releases: false,
        best_effort: false,
        cluster_constraints: false,
        certificates: Certificates::CertManager,
    };
    let events = Events::new(client.clone(), Component::OperatorController);
    let parts = Parts {
        client: client.clone(),
        system_namespace: SYSTEM.to_owned(),
        features,
        dependency_mode: Default::default(),
        events: events.clone(),
        catalogs: Arc::new(Catalogs::open(cache.path().join("catalogs"), Arc::new(pool)).unwrap()),
        catalog_store: reflector::store().0,
        bundles: fixture::open(&cache.path().join("unpack")),
        certificates: WebhookCertificates::new(client.clone(), SYSTEM, events),
    };
    Context {
        parts,
        settings: Settings::default(),
        extensions: Api::all(client.clone()),
        extensions_in_store: reflector::store().0,
        dependencies: Arc::new(Dependencies::new(client.clone(), sets.clone())),
        sets,
        sets_listed: CancellationToken::new(),
        revisions: Revisions::new(client.clone(), SYSTEM),
        preflight: Preflight::new(client),
        settled: Mutex::default(),
        honoured: Mutex::default(),
        waiting: Mutex::default(),
    }
}

/// A CRD whose version v1 has these fields in `spec`.
fn crd(fields: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CRD},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

// spec 05 acceptance 49, 50, 51
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_endangers_custom_resources_makes_no_revision() {
    let world = World::start().await;
    let text = || json!({"type": "string"});
    let (before, after) = (crd(&json!({"x": text(), "y": text()})), crd(&json!({"y": text(), "z": text()})));
    let plain = json!({});
    let first = world.install("1.0.0", std::slice::from_ref(&before), &plain, None).await;
    assert_eq!(first, Installation { applied: Ok(true), ..Installation::unchanged(CrdVerdict::Safe) });
    world.plane.apply_crds(std::slice::from_ref(&before)).await.unwrap();
    let written = world.written().await;
    assert_eq!(written.0, ["demo-1"]);

    let text = format!(
        "validating upgrade for CRD \"{CRD}\": existingFieldRemoval: removed field : v1.^.spec.x\n\
         v1: ^.spec.x: type: type changed : \"string\" -> \"\""
    );
    let upgrade = async |more: &Value, annotated| {
        world.install("2.0.0", std::slice::from_ref(&after), more, annotated).await
    };
    let refused = upgrade(&plain, None).await;
    assert_eq!(refused.applied, Err(Failure::retry(&text)));
    assert_eq!(refused.definitions, CrdVerdict::Held(text.clone()));
    assert_eq!(world.written().await, written, "no revision, no Secret");
    // What changes no content needs no look: the revision in force is kept, whatever its definitions.
    let settings = json!({"progressDeadlineMinutes": 20});
    let patched = world.install("1.0.0", std::slice::from_ref(&after), &settings, None).await;
    assert_eq!(patched.applied, Err(Failure::retry(&text)));
    let patched = world.install("1.0.0", std::slice::from_ref(&before), &settings, None).await;
    assert_eq!(patched.applied, Ok(false));

    let unchecked = json!({"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}});
    let made = upgrade(&unchecked, None).await;
    assert_eq!(made, Installation { applied: Ok(true), ..Installation::unchanged(CrdVerdict::Safe) });
    assert_eq!(world.written().await.0, ["demo-1", "demo-2"]);
    // Nothing is made twice.
    assert_eq!(upgrade(&plain, None).await.applied, Ok(false));

    // What was accepted is told as long as the revision is the newest.
    for made in [true, false] {
        let third = world.install("3.0.0", std::slice::from_ref(&after), &plain, Some(CrdCheck::Warn)).await;
        assert_eq!((third.applied, third.definitions), (Ok(made), CrdVerdict::Accepted(text.clone())));
    }
}

// spec 07 A-45, §4.6
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_applied_makes_no_revision() {
    let world = World::start().await;
    let nothing = (Vec::new(), Vec::new());
    let twins = ["a", "b"].map(|data| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twin"}, "data": {"x": data}})
    });
    let refused = world.install("1.0.0", &twins, &json!({}), None).await;
    let failure = refused.applied.unwrap_err();
    assert_eq!(failure.class, Class::Blocked);
    assert!(failure.message.starts_with("bundle cannot be applied: ConfigMap \"twin\""), "{failure}");
    assert_eq!(world.written().await, nothing);

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
    let refused = world.install_files("1.0.0", &files, &json!({}), None).await;
    let failure = refused.applied.unwrap_err();
    assert_eq!(failure.class, Class::Retry);
    let text = "webhook \"all.example.com\" contains forbidden rule: admission webhook rules cannot reference API group \"*\"";
    assert_eq!(failure.message, text);
    assert_eq!(world.written().await, nothing);

    let watching =
        json!({"config": {"configType": "Inline", "inline": {"watchNamespaces": ["gone", "default"]}}});
    let refused = world.install("1.0.0", &[], &watching, None).await;
    let text = "namespaces to watch do not exist: gone";
    assert_eq!((refused.applied, refused.look_again), (Err(Failure::retry(text)), true));
    assert_eq!(world.written().await, nothing);
}
