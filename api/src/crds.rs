//! CustomResourceDefinitions, generated from the Rust types (docs/design/api.md#crd-envelope,
//! docs/design/operations.md#clusterupgradestatus, docs/design/approvals.md#plan-objects).

use crate::{
    ClusterCatalog, ClusterExtension, ClusterObjectSet, ClusterUpgradeStatus, ExtensionPlan,
    OperatorCondition, annotations,
};
use kube::Resource;
use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// All CRDs of this project with the experimental schema, ready to apply, in a fixed order.
pub fn crds() -> Vec<Value> {
    let columns = [
        Column("Upgradeable", ".status.conditions[?(@.type=='Upgradeable')].status", "string"),
        Column("Reason", ".status.conditions[?(@.type=='Upgradeable')].reason", "string"),
        Column("Current", ".status.platform.currentVersion", "string"),
        Column("Next", ".status.platform.nextVersion", "string"),
        Column("Blocking", ".status.blockingExtensions", "integer"),
    ];
    let mut upgrade_status = crd::<ClusterUpgradeStatus>(&columns, &[]);
    upgrade_status["spec"]["names"]["shortNames"] = json!(["cus"]);
    vec![
        crd::<ClusterCatalog>(
            &[
                Column("LastUnpacked", ".status.lastUnpacked", "date"),
                Column("Serving", r#".status.conditions[?(@.type=="Serving")].status"#, "string"),
            ],
            &[READY],
        ),
        crd::<ClusterExtension>(
            &[
                Column("Installed Bundle", ".status.install.bundle.name", "string"),
                Column("Version", ".status.install.bundle.version", "string"),
                Column("Installed", ".status.conditions[?(@.type=='Installed')].status", "string"),
                Column("Progressing", ".status.conditions[?(@.type=='Progressing')].status", "string"),
            ],
            &[
                Column("Available Version", ".status.availableVersion", "string"),
                Column("Package", ".spec.source.catalog.packageName", "string"),
                READY,
            ],
        ),
        crd::<ClusterObjectSet>(
            &[
                Column("Available", ".status.conditions[?(@.type=='Available')].status", "string"),
                Column("Progressing", ".status.conditions[?(@.type=='Progressing')].status", "string"),
            ],
            &[READY],
        ),
        upgrade_status,
        crd::<ExtensionPlan>(
            &[
                Column("Extension", ".spec.plan.extension", "string"),
                Column("Version", ".spec.plan.bundle.version", "string"),
                Column("Phase", ".status.phase", "string"),
            ],
            &[Column("Digest", ".spec.plan.digest", "string")],
        ),
    ]
}

/// CRD of OperatorConditions. Not part of an installation: classic OLM may own it
/// (docs/design/approvals.md#operator-conditions).
pub fn operator_condition() -> Value {
    let columns = [
        Column("Upgradeable", ".status.conditions[?(@.type=='Upgradeable')].status", "string"),
        Column("Reason", ".status.conditions[?(@.type=='Upgradeable')].reason", "string"),
    ];
    let mut crd = crd::<OperatorCondition>(&columns, &[]);
    crd["spec"]["scope"] = json!("Namespaced");
    // As in classic OLM.
    crd["spec"]["names"]["shortNames"] = json!(["condition"]);
    crd["spec"]["names"]["categories"] = json!(["olm"]);
    let mut first = crd["spec"]["versions"][0].clone();
    first["name"] = json!("v1");
    first["storage"] = json!(false);
    crd["spec"]["versions"] = json!([first, crd["spec"]["versions"][0]]);
    crd
}

/// Printer column: header, JSONPath and type.
struct Column(&'static str, &'static str, &'static str);

const AGE: Column = Column("Age", ".metadata.creationTimestamp", "date");
const READY: Column = Column("Ready", ".status.conditions[?(@.type=='Ready')].status", "string");

/// CRD of a kind with these printer columns and the age. `wide` columns follow, and are printed only on request.
fn crd<K: Resource<DynamicType = ()> + JsonSchema>(columns: &[Column], wide: &[Column]) -> Value {
    let (group, kind, plural) = (K::group(&()), K::kind(&()), K::plural(&()));
    let column = |Column(name, path, type_): &Column| json!({"name": name, "jsonPath": path, "type": type_});
    let mut all: Vec<Value> = columns.iter().chain(&[AGE]).map(column).collect();
    all.extend(wide.iter().map(|wide| {
        let mut column = column(wide);
        column["priority"] = json!(1);
        column
    }));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {annotations::GENERATOR: "experimental"},
        },
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_lowercase(),
            },
            "scope": "Cluster",
            "versions": [{
                "name": K::version(&()),
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": all,
                "schema": {"openAPIV3Schema": structural_schema::<K>()},
            }],
        },
    })
}

/// Schema of the type in the subset of JSON Schema that CRDs accept.
///
/// It describes serialized objects: a field is required if and only if it is always serialized.
fn structural_schema<K: JsonSchema>() -> Schema {
    let settings = SchemaSettings::openapi3().for_serialize().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.transforms = vec![Box::new(forbid_null), Box::new(join_lines)];
    });
    let mut schema = settings.into_generator().into_root_schema_for::<K>();
    schema.remove("title");
    schema
}

/// Removes the null type that `Option` adds: the API has absent fields, not null ones.
fn forbid_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|type_| type_ != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    transform_subschemas(&mut forbid_null, schema);
}

/// Joins the lines of each paragraph and list item of descriptions: their breaks are those of the source code.
fn join_lines(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        let mut joined = String::new();
        for line in description.lines().map(str::trim) {
            let begins = line.is_empty() || line.starts_with("- ") || joined.ends_with('\n');
            joined += if joined.is_empty() {
                ""
            } else if begins {
                "\n"
            } else {
                " "
            };
            joined += line;
        }
        *description = joined;
    }
    transform_subschemas(&mut join_lines, schema);
}
