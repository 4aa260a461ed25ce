//! Install checks against a real API server.

use std::sync::Arc;

use kube::api::{ListParams, PostParams};
use olm_control_plane::{ControlPlane, Options, eventually};
use serde_json::json;

use super::*;

const NAME: &str = "widgets.example.com";

/// Returns a CRD of widgets whose versions v1 and v2, in this order, have these schemas of `spec`. The storage
/// version is v1.
fn crd(specs: &[Value]) -> Value {
    let version = |(number, spec): (usize, &Value)| {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": format!("v{}", number + 1), "served": true, "storage": number == 0,
            "schema": {"openAPIV3Schema": schema}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": specs.iter().enumerate().map(version).collect::<Vec<_>>()}})
}

fn fields(fields: &Value) -> Value {
    json!({"type": "object", "properties": fields})
}

fn requiring(field: &str) -> Value {
    json!({"type": "object", "properties": {"size": {"type": "integer"}}, "required": [field]})
}

fn loose() -> Value {
    fields(&json!({"size": {"type": "integer"}}))
}

struct Fixture {
    plane: Arc<ControlPlane>,
    preflight: Preflight,
}

impl Fixture {
    async fn start() -> Self {
        let plane = ControlPlane::reused(Options::default(), &[]).await.unwrap();
        let preflight = Preflight::new(plane.client());
        Self { plane, preflight }
    }

    fn widgets(&self) -> Api<DynamicObject> {
        let gvk = kube::core::GroupVersionKind::gvk("example.com", "v1", "Widget");
        Api::namespaced_with(
            self.plane.client(),
            "default",
            &ApiResource::from_gvk_with_plural(&gvk, "widgets"),
        )
    }

    /// Applies a CRD of widgets and waits until they are served.
    async fn serve(&self, crd: &Value) {
        self.plane.apply_crds(std::slice::from_ref(crd)).await.unwrap();
        let one = ListParams::default().limit(1);
        eventually("widgets are served", async || self.widgets().list(&one).await.ok()).await;
    }

    async fn make(&self, name: &str, spec: &Value) {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
        let widget: DynamicObject = serde_json::from_value(widget).unwrap();
        self.widgets().create(&PostParams::default(), &widget).await.unwrap();
    }

    async fn judge(&self, new: &[Value], mode: CrdCheck) -> CrdVerdict {
        let objects: Vec<&Value> = new.iter().collect();
        self.preflight.check_crds("demo", &objects, mode).await.unwrap()
    }

    /// Returns the verdict without the cached result.
    async fn judge_anew(&self, new: &Value, mode: CrdCheck) -> CrdVerdict {
        self.preflight.forget("demo");
        self.judge(std::slice::from_ref(new), mode).await
    }
}

fn held(text: &str) -> CrdVerdict {
    CrdVerdict::Held(text.to_owned())
}

fn accepted(text: &str) -> CrdVerdict {
    CrdVerdict::Accepted(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn new_crd_is_not_checked() {
    let fixture = Fixture::start().await;
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    for mode in [CrdCheck::Strict, CrdCheck::Live, CrdCheck::Warn] {
        let new = [config_map.clone(), crd(&[requiring("size")])];
        assert_eq!(fixture.judge(&new, mode).await, CrdVerdict::Safe, "{mode:?}");
    }
}

fn held_crd(lines: &str) -> CrdVerdict {
    held(&format!("validating upgrade for CRD \"{NAME}\": {lines}"))
}

// docs/design/apply.md#crd-upgrade-safety; cases apply-49, apply-51, apply-52, apply-53, apply-54
#[tokio::test(flavor = "multi_thread")]
async fn findings_have_texts_of_reference() {
    let fixture = Fixture::start().await;
    let text = json!({"type": "string"});
    let before = crd(&[fields(&json!({
        "x": text, "f": text, "e": {"type": "string", "enum": ["a"]},
        "m": {"type": "object", "additionalProperties": fields(&json!({"v": text}))},
    }))]);
    fixture.serve(&before).await;
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut new = before.clone();
        let spec =
            &mut new["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        change(spec);
        new
    };
    let rows = [
        (changed(&|_| {}), CrdVerdict::Safe),
        (
            changed(&|spec| drop(spec.as_object_mut().unwrap().remove("x"))),
            held_crd(
                "existingFieldRemoval: removed field : v1.^.spec.x\n\
                  v1: ^.spec.x: type: type changed : \"string\" -> \"\"",
            ),
        ),
        (changed(&|spec| spec["new"] = json!({"type": "string"})), CrdVerdict::Safe),
        (changed(&|spec| spec["e"]["enum"] = json!(["a", "b"])), CrdVerdict::Safe),
        (changed(&|spec| spec["x"]["description"] = json!("other")), CrdVerdict::Safe),
        (
            changed(&|spec| {
                spec["m"]["additionalProperties"]["properties"]["v"]["description"] = json!("other")
            }),
            CrdVerdict::Safe,
        ),
        (
            changed(&|spec| spec["f"]["format"] = json!("email")),
            held_crd("v1: ^.spec.f: unhandled: unhandled changes found (Format \"\" -> \"email\")"),
        ),
    ];
    for (new, expected) in rows {
        assert_eq!(fixture.judge(std::slice::from_ref(&new), CrdCheck::Strict).await, expected, "{new}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_in_several_versions_have_texts_of_reference() {
    let fixture = Fixture::start().await;
    let text = json!({"type": "string"});
    let number = |more: &Value| {
        let mut fields = json!({"x": {"type": "integer"}, "f": {"type": "string"}});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self::fields(&fields)
    };
    let strings = fields(&json!({"x": text, "f": text}));
    fixture.serve(&crd(&[strings.clone(), number(&json!({}))])).await;
    let known = crd(&[strings.clone(), number(&json!({"g": text}))]);
    assert_eq!(fixture.judge(&[known], CrdCheck::Strict).await, CrdVerdict::Safe);
    let one_more = crd(&[strings, number(&json!({"f": {"type": "string", "maxLength": 5}}))]);
    let lines = "v2: ^.spec.f: maxLength: maximum constraint added when there was none previously : 5\n\
                 v1 -> v2: ^.spec.f: maxLength: maximum constraint added when there was none previously : 5";
    assert_eq!(fixture.judge(&[one_more], CrdCheck::Strict).await, held_crd(lines));
}

// docs/design/additions.md#crd-checks; cases additions-a46, additions-a47
#[tokio::test(flavor = "multi_thread")]
async fn live_mode_checks_existing_objects() {
    let fixture = Fixture::start().await;
    fixture.serve(&crd(&[loose()])).await;
    let strict = crd(&[requiring("size")]);
    let finding =
        format!("validating upgrade for CRD \"{NAME}\": v1: ^.spec: required: new required fields: [size]");
    assert_eq!(fixture.judge_anew(&strict, CrdCheck::Strict).await, held(&finding));
    assert_eq!(fixture.judge_anew(&strict, CrdCheck::Warn).await, accepted(&finding));
    assert_eq!(
        fixture.judge_anew(&strict, CrdCheck::Live).await,
        accepted(&finding),
        "no custom resource exists"
    );
    let mut defaulted = crd(&[loose()]);
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    defaulted.pointer_mut(spec).unwrap()["default"] = json!(3);
    assert!(matches!(fixture.judge_anew(&defaulted, CrdCheck::Live).await, CrdVerdict::Accepted(_)));

    // Many pages.
    let names: Vec<String> = (0..1003).map(|number| format!("w{number:04}")).collect();
    let spec = json!({"size": 1});
    let made = names.iter().map(|name| fixture.make(name, &spec)).collect::<Vec<_>>();
    stream::iter(made).buffer_unordered(32).collect::<Vec<()>>().await;
    // Findings that custom resources cannot refute still count.
    let default = format!(
        "validating upgrade for CRD \"{NAME}\": v1: ^.spec.size: default: default added when there was none previously : \"3\""
    );
    assert_eq!(fixture.judge_anew(&defaulted, CrdCheck::Live).await, held(&default));

    assert_eq!(
        fixture.judge_anew(&strict, CrdCheck::Live).await,
        accepted(&finding),
        "all custom resources conform"
    );
    fixture.make("x-last", &json!({})).await;
    // The result is cached for a while.
    let again = fixture.judge(std::slice::from_ref(&strict), CrdCheck::Live).await;
    assert_eq!(again, accepted(&finding));
    let harmed = |named: &str| {
        held(&format!("validating upgrade for CRD \"{NAME}\": 1 existing object does not fit: {named}"))
    };
    let last = "default/x-last (v1: spec: \"size\" is a required property)";
    assert_eq!(fixture.judge_anew(&strict, CrdCheck::Live).await, harmed(last));
    assert_eq!(fixture.judge_anew(&strict, CrdCheck::Warn).await, accepted(&finding));

    // A violation on an early page ends the check, also without a static finding.
    let few = crd(&[fields(&json!({"size": {"type": "integer", "maximum": 0}}))]);
    let CrdVerdict::Held(text) = fixture.judge_anew(&few, CrdCheck::Live).await else { panic!() };
    let first = format!(
        "validating upgrade for CRD \"{NAME}\": at least 16 existing objects do not fit: default/w0000 ("
    );
    assert!(text.starts_with(&first) && text.ends_with("; and 11 more"), "{text}");
    no_time_leaves_static_findings(&fixture, &strict, &finding).await;
}

/// Needs several pages: one may be listed before a deadline that has passed ends the call.
async fn no_time_leaves_static_findings(fixture: &Fixture, strict: &Value, finding: &str) {
    let hurried = Preflight { budget: Duration::ZERO, ..Preflight::new(fixture.plane.client()) };
    let verdict = hurried.check_crds("demo", &[strict], CrdCheck::Live).await.unwrap();
    let late = "\nexisting objects were not checked: there was not enough time to check all of them";
    assert_eq!(verdict, held(&format!("{finding}{late}")));
    let verdict = hurried.check_crds("demo", &[&crd(&[loose()])], CrdCheck::Live).await.unwrap();
    assert_eq!(verdict, CrdVerdict::Safe);
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_of_stored_version_is_refused_in_each_mode() {
    let fixture = Fixture::start().await;
    let mut renamed = crd(&[loose()]);
    fixture.serve(&renamed).await;
    fixture.make("w", &json!({"size": 1})).await;
    renamed["spec"]["versions"][0]["name"] = json!("v9");
    let gone = format!(
        "validating upgrade for CRD \"{NAME}\": storedVersionRemoval: stored versions removed : [v1]"
    );
    for mode in [CrdCheck::Strict, CrdCheck::Live, CrdCheck::Warn] {
        assert_eq!(fixture.judge_anew(&renamed, mode).await, held(&gone), "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn converted_objects_are_checked_in_each_version() {
    let fixture = Fixture::start().await;
    fixture.serve(&crd(&[loose(), loose()])).await;
    fixture.make("w", &json!({"size": 1})).await;
    fixture.make("x-last", &json!({})).await;
    let converted = |specs: &[Value]| {
        let mut new = crd(specs);
        let client = json!({"url": "https://127.0.0.1:1/convert"});
        new["spec"]["conversion"] = json!({"strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
        new
    };
    // A version that is not served yet is not checked.
    let other = fields(&json!({"size": {"type": "string"}}));
    assert_eq!(
        fixture.judge_anew(&converted(&[loose(), loose(), other.clone()]), CrdCheck::Live).await,
        CrdVerdict::Safe
    );
    let strict = converted(&[loose(), requiring("size"), other]);
    let text = format!(
        "validating upgrade for CRD \"{NAME}\": 1 existing object does not fit: \
         default/x-last (v2: spec: \"size\" is a required property)"
    );
    assert_eq!(fixture.judge_anew(&strict, CrdCheck::Live).await, held(&text));

    // A conversion webhook that does not answer prevents the list.
    fixture.plane.apply_crds(&[converted(&[loose(), loose()])]).await.unwrap();
    fixture.preflight.forget("demo");
    let failure = eventually_fails(&fixture, &strict).await;
    let start = format!(
        "listing existing objects of CRD \"{NAME}\": conversion webhook for example.com/v1, Kind=Widget failed"
    );
    assert_eq!(failure.class, olm_controller_core::install_error::InstallErrorClass::Retry);
    assert!(failure.message.starts_with(&start), "{failure}");
}

/// Retries until the API server uses the new conversion, which it does with a delay.
async fn eventually_fails(fixture: &Fixture, new: &Value) -> InstallError {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        fixture.preflight.forget("demo");
        match fixture.preflight.check_crds("demo", &[new], CrdCheck::Live).await {
            Err(failure) => return failure,
            Ok(verdict) => assert!(Instant::now() < deadline, "{verdict:?}"),
        }
    }
}

// docs/design/additions.md#several-namespaces
#[tokio::test]
async fn missing_namespaces_are_named() {
    let fixture = Fixture::start().await;
    let missing = fixture.preflight.missing_namespaces(&["kube-system", "b", "default", "a", "b"]).await;
    assert_eq!(missing.unwrap(), ["a", "b"]);
    assert_eq!(fixture.preflight.missing_namespaces(&[]).await.unwrap(), [""; 0]);
}

#[test]
fn crd_check_mode_follows_spec_and_annotation() {
    let extension = |enforcement: Option<&str>| -> ClusterExtension {
        let mut extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "demo"}, "spec": {"namespace": "ns", "source": {"sourceType": "Catalog"}}});
        if let Some(enforcement) = enforcement {
            extension["spec"]["install"] =
                json!({"preflight": {"crdUpgradeSafety": {"enforcement": enforcement}}});
        }
        serde_json::from_value(extension).unwrap()
    };
    let rows = [
        (None, None, Some(CrdCheck::Strict)),
        (Some("Strict"), None, Some(CrdCheck::Strict)),
        (Some("Strict"), Some(CrdCheck::Live), Some(CrdCheck::Live)),
        (None, Some(CrdCheck::Warn), Some(CrdCheck::Warn)),
        (Some("None"), None, None),
        (Some("None"), Some(CrdCheck::Live), None),
    ];
    for (enforcement, annotated, expected) in rows {
        assert_eq!(crd_check(&extension(enforcement), annotated), expected, "{enforcement:?} {annotated:?}");
    }
}

// Case additions-a45
#[test]
fn failed_install_checks_block_and_are_all_listed() {
    assert_eq!(reject_failed_checks(&[]), Ok(()));
    let failure = reject_failed_checks(&["a is wrong".to_owned(), "b is wrong".to_owned()]).unwrap_err();
    assert_eq!(failure, InstallError::blocked("bundle cannot be applied: a is wrong; b is wrong"));
}

fn api_service(name: &str, extension: Option<&str>) -> Value {
    let (version, group) = name.split_once('.').unwrap();
    let labels = extension.map(|extension| {
        json!({"olm.operatorframework.io/owner-kind": "ClusterExtension",
            "olm.operatorframework.io/owner-name": extension})
    });
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": name, "labels": labels},
        "spec": {"group": group, "version": version, "groupPriorityMinimum": 2000, "versionPriority": 15,
            "service": {"namespace": "default", "name": "server"}}})
}

// docs/design/bundles.md#aggregated-apis
#[tokio::test]
async fn foreign_api_services_are_named_with_their_owner() {
    let fixture = Fixture::start().await;
    let services: Api<DynamicObject> = Api::all_with(
        fixture.plane.client(),
        &ApiResource::erase::<k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService>(&()),
    );
    for (name, extension) in [
        ("v1.own.example.com", Some("demo")),
        ("v1.other.example.com", Some("other")),
        ("v1.by.example.com", None),
    ] {
        let object = serde_json::from_value(api_service(name, extension)).unwrap();
        services.create(&PostParams::default(), &object).await.unwrap();
    }
    fixture.serve(&crd(&[loose()])).await;
    eventually("the CRD is served by an APIService", async || {
        services.get_opt("v1.example.com").await.unwrap().map(drop)
    })
    .await;
    let names = [
        "v1.new.example.com",
        "v1.own.example.com",
        "v1.other.example.com",
        "v1.by.example.com",
        "v1.example.com",
        "v1.apps",
    ];
    let objects = names.map(|name| api_service(name, None));
    let objects: Vec<&Value> = objects.iter().collect();
    let by_service = "APIService \"v1.by.example.com\" already exists: Service default/server serves it; remove that API \
                      server and its APIService first";
    let foreign = [
        "APIService \"v1.other.example.com\" already exists: it belongs to ClusterExtension \"other\"; only one \
         extension can serve it",
        by_service,
        "APIService \"v1.example.com\" already exists: CustomResourceDefinition widgets.example.com serves it; delete \
         that first",
        "APIService \"v1.apps\" already exists: the API server itself serves this group and version",
    ];
    let checked = fixture.preflight.foreign_api_services("demo", &objects, false).await.unwrap();
    assert_eq!(checked, foreign);
    // docs/design/migration.md#adopted-objects
    let adopting = fixture.preflight.foreign_api_services("demo", &objects, true).await.unwrap();
    assert_eq!(adopting, [foreign[0], foreign[2], foreign[3]]);
    let mut elsewhere = api_service("v1.by.example.com", None);
    elsewhere["spec"]["service"]["name"] = json!("another");
    let adopting = fixture.preflight.foreign_api_services("demo", &[&elsewhere], true).await.unwrap();
    assert_eq!(adopting, [by_service]);
}
