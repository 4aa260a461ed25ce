//! Objects of classic OLM, in the fields that a migration needs. Missing and mistyped fields are empty: a dump may have
//! objects of any version.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::{LabelSelector, annotations};
use olm_cli_core::output::qualified;
use serde::Deserialize;
use serde_json::Value;

/// Label of copies of a ClusterServiceVersion in other namespaces.
pub(super) const COPIED_FROM: &str = "olm.copiedFrom";
/// Annotation with the properties of the bundle.
const PROPERTIES: &str = "operatorframework.io/properties";

/// Properties of bundles that require packages or APIs.
const REQUIREMENTS: [&str; 3] = ["olm.package.required", "olm.gvk.required", "olm.constraint"];

/// Keys of labels and annotations that operator-framework/library-olm sets in a migration.
const OTHER_TOOL: [&str; 5] = [
    "olm.operatorframework.io/migrated-from-catalogsource",
    "olm.operatorframework.io/migrated-from-subscription",
    "olm.operatorframework.io/migration-invocation",
    "olm.operatorframework.io/migration-operatorgroup-backup",
    "olm.operatorframework.io/migration-subscription-backup",
];
/// Its field manager.
const OTHER_MANAGER: &str = "olm.operatorframework.io/migration";

/// Namespace and name.
pub(super) type Key = (String, String);

/// Subscription to a package.
#[derive(Debug, Clone, Default)]
pub(super) struct Subscription {
    pub(super) package: String,
    pub(super) channel: String,
    pub(super) source: Key,
    pub(super) is_manual: bool,
    pub(super) config: Option<Value>,
    pub(super) installed_csv: String,
    pub(super) current_csv: String,
    pub(super) state: String,
    pub(super) install_plan: String,
}

/// ClusterServiceVersion: an installed operator.
#[derive(Debug, Clone, Default)]
pub(super) struct Csv {
    pub(super) version: String,
    pub(super) package: String,
    pub(super) phase: String,
    pub(super) reason: String,
    pub(super) modes: BTreeSet<String>,
    /// `kind.group` of CRDs and aggregated APIs.
    pub(super) owned: BTreeSet<String>,
    pub(super) required: BTreeSet<String>,
    pub(super) api_services: usize,
    pub(super) webhooks: usize,
    pub(super) copied_from: String,
    pub(super) replaces: String,
    pub(super) uid: String,
    /// Resources of the API of classic OLM that the operator uses, except for OperatorConditions.
    pub(super) classic_resources: BTreeSet<String>,
    /// `plural.group` and version of the owned CRDs and aggregated APIs.
    pub(super) apis: BTreeSet<(String, String)>,
}

/// OperatorGroup: the namespaces that operators of its namespace watch.
#[derive(Debug, Clone, Default)]
pub(super) struct OperatorGroup {
    pub(super) targets: Vec<String>,
    pub(super) selector: Option<LabelSelector>,
    /// Namespaces that classic OLM computed.
    pub(super) namespaces: Vec<String>,
    pub(super) service_account: String,
    /// Set fields of the specification that v1 does not have.
    pub(super) unmatched: Vec<String>,
    pub(super) uid: String,
}

/// CatalogSource.
#[derive(Debug, Clone, Default)]
pub(super) struct CatalogSource {
    pub(super) image: String,
    /// Duration between polls in the notation of Go. Empty without polls.
    pub(super) poll_interval: String,
    pub(super) priority: i64,
    /// Annotation with the template of the image. May be empty.
    pub(super) image_template: String,
    /// Names of pull secrets.
    pub(super) secrets: Vec<String>,
    /// Fields of the specification that a ClusterCatalog does not have.
    pub(super) unmatched: Vec<String>,
}

/// InstallPlan.
#[derive(Debug, Clone, Default)]
pub(super) struct InstallPlan {
    pub(super) phase: String,
    pub(super) csvs: Vec<String>,
    pub(super) uid: String,
    pub(super) is_approved: bool,
}

impl InstallPlan {
    pub(super) fn of(object: &Value) -> Self {
        Self {
            phase: string(object, "/status/phase"),
            csvs: strings(object, "/spec/clusterServiceVersionNames"),
            uid: string(object, "/metadata/uid"),
            is_approved: object["spec"]["approved"] == true,
        }
    }

    /// Reports whether the plan is neither complete nor failed.
    fn is_open(&self) -> bool {
        !matches!(self.phase.as_str(), "Complete" | "Failed")
    }

    /// Reports whether classic OLM executes the plan.
    pub(super) fn is_running(&self) -> bool {
        self.is_open() && self.is_approved
    }

    /// Reports whether the plan waits for approval.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_open() && !self.is_approved
    }

    /// Reports whether the plan waits for approval, and has the ClusterServiceVersion `current` that a Subscription found after
    /// `installed`.
    pub(super) fn is_upgrade(&self, current: &str, installed: &str) -> bool {
        self.is_waiting() && current != installed && self.csvs.iter().any(|csv| csv == current)
    }
}

/// RoleBinding or ClusterRoleBinding.
#[derive(Debug, Clone, Default)]
pub(super) struct Binding {
    pub(super) role: String,
    pub(super) subjects: Vec<Value>,
}

/// Bundle of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) image: String,
    /// Sources that offer it: the name of a ClusterCatalog, else as given.
    pub(super) catalogs: BTreeSet<String>,
    /// `true` if the bundle requires packages or APIs.
    pub(super) has_requirements: bool,
}

impl Offer {
    /// Adds the bundle object `blob` of a catalog. The image is that of the first catalog.
    pub(super) fn add(&mut self, catalog: &str, blob: &[u8]) {
        #[derive(Deserialize)]
        struct Bundle {
            #[serde(default)]
            image: String,
            #[serde(default)]
            properties: Vec<Property>,
        }
        #[derive(Deserialize)]
        struct Property {
            #[serde(default, rename = "type")]
            type_: String,
        }
        self.catalogs.insert(catalog.to_owned());
        let Ok(bundle) = serde_json::from_slice::<Bundle>(blob) else { return };
        let is_requirement = |one: &Property| REQUIREMENTS.contains(&one.type_.as_str());
        self.has_requirements |= bundle.properties.iter().any(is_requirement);
        if self.image.is_empty() {
            self.image = bundle.image;
        }
    }
}

/// Bundles that catalogs offer, by name.
pub(super) type Offered = BTreeMap<String, Offer>;

/// Objects of classic OLM and of v1 in a cluster or a dump, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) subscriptions: BTreeMap<Key, Subscription>,
    pub(super) csvs: BTreeMap<Key, Csv>,
    pub(super) groups: BTreeMap<Key, OperatorGroup>,
    pub(super) sources: BTreeMap<Key, CatalogSource>,
    pub(super) plans: BTreeMap<Key, InstallPlan>,
    /// Names of the OperatorConditions with a condition that an operator or an administrator set.
    pub(super) used_conditions: BTreeSet<Key>,
    /// Package of each ClusterExtension.
    pub(super) extensions: BTreeMap<String, String>,
    /// Image reference of each ClusterCatalog.
    pub(super) catalogs: BTreeMap<String, String>,
    /// Priority and image template of each ClusterCatalog.
    pub(super) catalog_settings: BTreeMap<String, (i64, String)>,
    /// The namespace of a ClusterRoleBinding is empty.
    pub(super) bindings: BTreeMap<Key, Binding>,
    /// Installed bundles that the ClusterCatalogs offer, if these were read.
    pub(super) offered: Option<Offered>,
    /// Migrations with a backup, by namespace and package: `true` once they have ended.
    pub(super) migrations: BTreeMap<Key, bool>,
    /// Objects with marks of another migration tool, and the packages that they concern.
    pub(super) foreign: BTreeMap<String, String>,
    /// Kinds and catalogs that could not be read, each with the reason.
    pub(super) unreadable: Vec<String>,
}

impl Objects {
    /// Names of the installed bundles.
    pub(super) fn installed(&self) -> BTreeSet<String> {
        let installed = self.subscriptions.values().map(|subscription| subscription.installed_csv.clone());
        installed.filter(|name| !name.is_empty()).collect()
    }

    /// Name of the unapproved InstallPlan with the next version of a Subscription in `namespace`.
    pub(super) fn waiting(&self, namespace: &str, subscription: &Subscription) -> Option<&str> {
        let (current, installed) = (&subscription.current_csv, &subscription.installed_csv);
        let mut here = self.plans.iter().filter(|((found, _), _)| found == namespace);
        let found = here.find(|(_, plan)| plan.is_upgrade(current, installed));
        found.map(|((_, name), _)| name.as_str())
    }

    /// Adds an object, or the items of a list. Other kinds are ignored.
    pub(super) fn add(&mut self, object: &Value) {
        if let Some(items) = object["items"].as_array() {
            items.iter().for_each(|item| self.add(item));
            return;
        }
        let text = |pointer: &str| string(object, pointer);
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        let group =
            object["apiVersion"].as_str().and_then(|version| version.split_once('/')).unwrap_or_default().0;
        let kind = object["kind"].as_str().unwrap_or_default();
        if is_marked_by_other_tool(object) {
            let package = match kind {
                "Subscription" => text("/spec/name"),
                "ClusterServiceVersion" => package(object),
                _ => text("/spec/source/catalog/packageName"),
            };
            self.foreign.insert(format!("{kind} {}", qualified(&key.0, &key.1)), package);
        }
        match (group, kind) {
            (CLASSIC, "Subscription") => drop(self.subscriptions.insert(key, subscription(object))),
            (CLASSIC, "ClusterServiceVersion") => drop(self.csvs.insert(key, csv(object))),
            (CLASSIC, "OperatorGroup") => drop(self.groups.insert(key, operator_group(object))),
            (CLASSIC, "CatalogSource") => {
                self.sources.insert(key, catalog_source(object));
            }
            (CLASSIC, "InstallPlan") => drop(self.plans.insert(key, InstallPlan::of(object))),
            (CLASSIC, "OperatorCondition") => {
                let is_set = |path: &str| {
                    object.pointer(path).and_then(Value::as_array).is_some_and(|found| !found.is_empty())
                };
                if ["/spec/conditions", "/spec/overrides", "/status/conditions"].into_iter().any(is_set) {
                    self.used_conditions.insert(key);
                }
            }
            ("olm.operatorframework.io", "ClusterExtension") => {
                self.extensions.insert(key.1, text("/spec/source/catalog/packageName"));
            }
            ("olm.operatorframework.io", "ClusterCatalog") => {
                let template = &object["metadata"]["annotations"][annotations::EXT_IMAGE_TEMPLATE];
                let template = template.as_str().unwrap_or_default().to_owned();
                let priority = object["spec"]["priority"].as_i64().unwrap_or_default();
                self.catalog_settings.insert(key.1.clone(), (priority, template));
                self.catalogs.insert(key.1, text("/spec/source/image/ref"));
            }
            // A Role can have the name of a ClusterRole of an OperatorGroup, but gives other permissions.
            ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
                if text("/roleRef/kind") == "ClusterRole" =>
            {
                let subjects = object["subjects"].as_array().cloned().unwrap_or_default();
                self.bindings.insert(key, Binding { role: text("/roleRef/name"), subjects });
            }
            _ => {}
        }
    }
}

/// Reports whether operator-framework/library-olm has changed the object in a migration.
fn is_marked_by_other_tool(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let has = |field: &str| OTHER_TOOL.iter().any(|key| metadata[field].get(key).is_some());
    let mut managers = metadata["managedFields"].as_array().into_iter().flatten();
    has("annotations") || has("labels") || managers.any(|entry| entry["manager"] == OTHER_MANAGER)
}

/// Group of the classic kinds.
pub(super) const CLASSIC: &str = "operators.coreos.com";

fn string(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn strings(object: &Value, pointer: &str) -> Vec<String> {
    let items = object.pointer(pointer).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn subscription(object: &Value) -> Subscription {
    let text = |pointer: &str| string(object, pointer);
    let config =
        object.pointer("/spec/config").filter(|config| config.as_object().is_some_and(|map| !map.is_empty()));
    Subscription {
        package: text("/spec/name"),
        channel: text("/spec/channel"),
        source: (text("/spec/sourceNamespace"), text("/spec/source")),
        is_manual: text("/spec/installPlanApproval") == "Manual",
        config: config.cloned(),
        installed_csv: text("/status/installedCSV"),
        current_csv: text("/status/currentCSV"),
        state: text("/status/state"),
        install_plan: text("/status/installPlanRef/name"),
    }
}

/// Fields of a ClusterServiceVersion.
pub(super) fn csv(object: &Value) -> Csv {
    let text = |pointer: &str| string(object, pointer);
    let list = |pointer: &str| object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let modes = list("/spec/installModes").filter(|mode| mode["supported"] == true);
    // The name of a CRD is `plural.group`.
    let of_crd = |crd: &Value| {
        let group = crd["name"].as_str()?.split_once('.')?.1;
        Some(format!("{}.{group}", crd["kind"].as_str()?))
    };
    let of_service =
        |service: &Value| Some(format!("{}.{}", service["kind"].as_str()?, service["group"].as_str()?));
    let apis = |state: &str| -> BTreeSet<String> {
        let crds = list(&format!("/spec/customresourcedefinitions/{state}")).filter_map(of_crd);
        crds.chain(list(&format!("/spec/apiservicedefinitions/{state}")).filter_map(of_service)).collect()
    };
    Csv {
        version: text("/spec/version"),
        package: package(object),
        phase: text("/status/phase"),
        reason: text("/status/reason"),
        modes: modes.filter_map(|mode| mode["type"].as_str()).map(str::to_owned).collect(),
        owned: apis("owned"),
        required: apis("required"),
        api_services: list("/spec/apiservicedefinitions/owned").count(),
        webhooks: list("/spec/webhookdefinitions").count(),
        copied_from: object["metadata"]["labels"][COPIED_FROM].as_str().unwrap_or_default().to_owned(),
        replaces: text("/spec/replaces"),
        uid: text("/metadata/uid"),
        classic_resources: classic_resources(object),
        apis: list("/spec/customresourcedefinitions/owned")
            .filter_map(|crd| Some((crd["name"].as_str()?.to_owned(), crd["version"].as_str()?.to_owned())))
            .chain(list("/spec/apiservicedefinitions/owned").filter_map(|api| {
                let text = |field: &str| api[field].as_str();
                Some((format!("{}.{}", text("name")?, text("group")?), text("version")?.to_owned()))
            }))
            .collect(),
    }
}

/// Resources of the API of classic OLM in the permissions of a ClusterServiceVersion and in the CRDs that it requires.
/// Each operator may use its OperatorCondition.
fn classic_resources(csv: &Value) -> BTreeSet<String> {
    let list = |object: &Value, pointer: &str| -> Vec<Value> {
        object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let permissions = ["/spec/install/spec/permissions", "/spec/install/spec/clusterPermissions"];
    let rules =
        permissions.iter().flat_map(|pointer| list(csv, pointer)).flat_map(|one| list(&one, "/rules"));
    let of_classic = rules.filter(|rule| strings(rule, "/apiGroups").iter().any(|group| group == CLASSIC));
    let used = of_classic.flat_map(|rule| strings(&rule, "/resources"));
    let required = list(csv, "/spec/customresourcedefinitions/required")
        .into_iter()
        .filter_map(|crd| Some(crd["name"].as_str()?.strip_suffix(CLASSIC)?.strip_suffix('.')?.to_owned()));
    let name = |resource: String| resource.split('/').next().unwrap_or_default().to_owned();
    used.chain(required).map(name).filter(|resource| resource != "operatorconditions").collect()
}

fn catalog_source(object: &Value) -> CatalogSource {
    let template = &object["metadata"]["annotations"][annotations::CLASSIC_IMAGE_TEMPLATE];
    CatalogSource {
        image: string(object, "/spec/image"),
        poll_interval: string(object, "/spec/updateStrategy/registryPoll/interval"),
        priority: object["spec"]["priority"].as_i64().unwrap_or_default(),
        image_template: template.as_str().unwrap_or_default().to_owned(),
        secrets: strings(object, "/spec/secrets"),
        unmatched: unmatched_fields(&object["spec"]),
    }
}

/// Fields of a CatalogSource that a ClusterCatalog does not have. Those of its pod are named each.
fn unmatched_fields(spec: &Value) -> Vec<String> {
    let keys = |value: &Value| value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
    let pod: Vec<String> = keys(&spec["grpcPodConfig"]);
    let shown: Vec<String> = keys(spec);
    let is_shown = |key: &String| ["description", "displayName", "icon", "publisher"].contains(&key.as_str());
    let pod = pod.into_iter().map(|key| format!("grpcPodConfig.{key}"));
    pod.chain(shown.into_iter().filter(is_shown)).collect()
}

/// Package of a ClusterServiceVersion: its property `olm.package`. Empty without it.
pub(super) fn package(csv: &Value) -> String {
    #[derive(Deserialize)]
    struct Properties {
        #[serde(default)]
        properties: Vec<Value>,
    }
    let annotation = csv["metadata"]["annotations"][PROPERTIES].as_str().unwrap_or_default();
    let Ok(found) = serde_json::from_str::<Properties>(annotation) else { return String::new() };
    let of_package = found.properties.iter().find(|property| property["type"] == "olm.package");
    of_package.map(|property| string(property, "/value/packageName")).unwrap_or_default()
}

fn operator_group(object: &Value) -> OperatorGroup {
    let selector = object.pointer("/spec/selector").cloned();
    let selector: Option<LabelSelector> = selector.and_then(|selector| serde_json::from_value(selector).ok());
    let is_empty = |selector: &LabelSelector| {
        selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    };
    let targets = strings(object, "/spec/targetNamespaces");
    // The empty name stands for all namespaces, as in the status.
    let is_global = targets.iter().any(String::is_empty);
    let strategy = string(object, "/spec/upgradeStrategy");
    let unmatched = [
        ("staticProvidedAPIs", object["spec"]["staticProvidedAPIs"] == true),
        ("upgradeStrategy", !["", "Default"].contains(&strategy.as_str())),
    ];
    OperatorGroup {
        targets: if is_global { Vec::new() } else { targets },
        // An empty selector selects all namespaces.
        selector: selector.filter(|selector| !is_global && !is_empty(selector)),
        namespaces: strings(object, "/status/namespaces"),
        service_account: string(object, "/spec/serviceAccountName"),
        unmatched: unmatched.into_iter().filter(|(_, set)| *set).map(|(field, _)| field.to_owned()).collect(),
        uid: string(object, "/metadata/uid"),
    }
}
