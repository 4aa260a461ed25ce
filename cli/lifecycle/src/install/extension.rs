//! ClusterExtension from command line flags, and its differences to an existing one. Pure.

use kube::ResourceExt;
use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec, ConfigType, ExtensionConfig};
use olm_api::{ClusterExtension, LabelSelector, annotations, labels};
use olm_cli_core::error::CliError;
use serde_json::{Map, Value, json};

use super::InstallArgs;

/// Valid namespace of an extension until that of its bundle is known.
const UNKNOWN_NAMESPACE: &str = "default";

/// Builds the extension. `file` is the content of the configuration file. Without `--namespace`, the caller sets the
/// namespace.
///
/// # Errors
/// The configuration is not an object, or sets a value that a flag sets, too.
pub(super) fn extension(args: &InstallArgs, file: Option<Value>) -> Result<ClusterExtension, CliError> {
    let filter = CatalogFilter {
        package_name: args.package.clone(),
        version: args.version.clone(),
        channels: args.channels.clone(),
        selector: args.catalog.as_deref().map(of_catalog),
        upgrade_constraint_policy: None,
    };
    let config = config(file, args.watch_namespaces.clone())?;
    let namespace = args.namespace.as_deref().unwrap_or(UNKNOWN_NAMESPACE);
    let mut extension = of_package(args.name.as_ref().unwrap_or(&args.package), namespace, filter, config);
    if args.aggregate_api_roles {
        extension
            .annotations_mut()
            .insert(annotations::EXT_AGGREGATE_API_ROLES.to_owned(), "true".to_owned());
    }
    Ok(extension)
}

/// Sets `spec.namespace`.
pub(super) fn set_namespace(extension: &mut ClusterExtension, namespace: &str) {
    if let Some(spec) = &mut extension.spec {
        namespace.clone_into(&mut spec.namespace);
    }
}

/// Extension with this request and `spec.config.inline`.
pub fn of_package(
    name: &str,
    namespace: &str,
    filter: CatalogFilter,
    config: Option<Map<String, Value>>,
) -> ClusterExtension {
    let mut spec = ClusterExtensionSpec::of_package(namespace, filter);
    spec.config =
        config.map(|inline| ExtensionConfig { config_type: ConfigType::Inline, inline: Some(inline) });
    ClusterExtension::new(name, spec)
}

/// Selector of the ClusterCatalog `name`.
pub fn of_catalog(name: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some([(labels::METADATA_NAME.to_owned(), name.to_owned())].into()),
        match_expressions: None,
    }
}

fn config(file: Option<Value>, mut namespaces: Vec<String>) -> Result<Option<Map<String, Value>>, CliError> {
    let mut config = match file {
        None => Map::new(),
        Some(Value::Object(config)) => config,
        Some(_) => {
            return Err(CliError::usage(
                "--config: expected an object with fields such as watchNamespace and deploymentConfig",
            ));
        }
    };
    let fields = ["watchNamespace", "watchNamespaces", "watchNamespaceSelector"];
    let conflicting = fields.into_iter().find(|field| config.contains_key(*field));
    if let Some(field) = conflicting.filter(|_| !namespaces.is_empty()) {
        return Err(CliError::usage(format!("the file of --config sets {field}: omit --watch-namespace")));
    }
    match namespaces.len() {
        0 => {}
        1 => drop(config.insert("watchNamespace".to_owned(), json!(namespaces.remove(0)))),
        _ => drop(config.insert("watchNamespaces".to_owned(), json!(namespaces))),
    }
    Ok((!config.is_empty()).then_some(config))
}

/// Fields in which `existing` differs from `desired`: path, existing value, desired value. Ignores fields that no flag
/// sets, such as preflight checks.
pub(super) fn differences(existing: &ClusterExtension, desired: &ClusterExtension) -> Vec<String> {
    let (old, new) = (json!({"spec": existing.spec}), json!({"spec": desired.spec}));
    let fields = [
        ("spec.config.inline", Value::Null),
        ("spec.namespace", Value::Null),
        ("spec.source.catalog.channels", json!([])),
        ("spec.source.catalog.packageName", Value::Null),
        ("spec.source.catalog.selector", Value::Null),
        ("spec.source.catalog.upgradeConstraintPolicy", json!("CatalogProvided")),
        ("spec.source.catalog.version", Value::Null),
    ];
    let mut differences = Vec::new();
    for (path, default) in fields {
        let pointer = format!("/{}", path.replace('.', "/"));
        let value = |side| Value::pointer(side, &pointer).unwrap_or(&default);
        let shown = |value: &Value| if value.is_null() { "unset".to_owned() } else { value.to_string() };
        let (old, new) = (value(&old), value(&new));
        if old != new {
            differences.push(format!("{path}: {} on the cluster, {} requested", shown(old), shown(new)));
        }
    }
    for (key, value) in desired.metadata.annotations.iter().flatten() {
        let found = existing.metadata.annotations.as_ref().and_then(|there| there.get(key));
        if found != Some(value) {
            let found = found.map_or_else(|| "unset".to_owned(), |found| format!("{found:?}"));
            differences
                .push(format!("metadata.annotations[{key}]: {found} on the cluster, {value:?} requested"));
        }
    }
    differences
}

/// Package of an extension. Empty if it has none.
pub(super) fn package(extension: &ClusterExtension) -> &str {
    let catalog = extension.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
    catalog.map_or("", |catalog| catalog.package_name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use olm_cli_core::manifest::validation_errors;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: InstallArgs,
    }

    fn args(flags: &[&str]) -> InstallArgs {
        let line = [&["install", "pipe", "--namespace", "ns"], flags].concat();
        Line::try_parse_from(line).unwrap().args
    }

    fn desired(flags: &[&str]) -> ClusterExtension {
        extension(&args(flags), None).unwrap()
    }

    #[test]
    fn flags_become_extension_that_api_server_accepts() {
        let flags =
            ["--version", "1.x", "--channel", "stable", "--catalog", "hub", "--watch-namespace", "apps"];
        let extension = extension(&args(&flags), Some(json!({"deploymentConfig": {}}))).unwrap();
        let value = serde_json::to_value(&extension).unwrap();
        assert_eq!(validation_errors(&value), [""; 0]);
        let spec = json!({
            "namespace": "ns",
            "source": {"sourceType": "Catalog", "catalog": {"packageName": "pipe", "version": "1.x",
                "channels": ["stable"], "selector": {"matchLabels": {"olm.operatorframework.io/metadata.name": "hub"}}}},
            "config": {"configType": "Inline", "inline": {"deploymentConfig": {}, "watchNamespace": "apps"}},
        });
        assert_eq!(value["spec"], spec);
        let value = serde_json::to_value(desired(&["--watch-namespace", "b,a"])).unwrap();
        assert_eq!(value["spec"]["config"]["inline"], json!({"watchNamespaces": ["b", "a"]}));
        let shared = desired(&["--aggregate-api-roles"]);
        assert_eq!(shared.annotations()[annotations::EXT_AGGREGATE_API_ROLES], "true");
    }

    #[test]
    fn invalid_configuration_is_rejected_with_its_field() {
        let text =
            |flags: &[&str], config: Value| extension(&args(flags), Some(config)).unwrap_err().to_string();
        let list = text(&[], json!([]));
        assert_eq!(
            list,
            "--config: expected an object with fields such as watchNamespace and deploymentConfig"
        );
        let twice = text(&["--watch-namespace", "apps"], json!({"watchNamespace": "a"}));
        assert_eq!(twice, "the file of --config sets watchNamespace: omit --watch-namespace");
        let odd = InstallArgs { namespace: Some("N_S".to_owned()), ..args(&["--name", "Pipe"]) };
        let odd = serde_json::to_value(extension(&odd, None).unwrap()).unwrap();
        assert_eq!(
            validation_errors(&odd),
            [
                "metadata.name: \"Pipe\": allowed: lowercase letters, digits, - and ., at most 253",
                "spec.namespace: \"N_S\": namespace must be a valid DNS1123 label",
            ]
        );
    }

    #[test]
    fn differences_cover_only_fields_that_flags_set() {
        let new = desired(&["--version", "1.x"]);
        let mut existing = serde_json::to_value(&new).unwrap();
        existing["spec"]["source"]["catalog"]["upgradeConstraintPolicy"] = json!("CatalogProvided");
        existing["spec"]["progressDeadlineMinutes"] = json!(10);
        existing["metadata"]["annotations"] = json!({"a": "b"});
        let read = |value: &Value| serde_json::from_value::<ClusterExtension>(value.clone()).unwrap();
        assert_eq!(differences(&read(&existing), &new), [""; 0]);
        existing["spec"]["source"]["catalog"]["version"] = json!("2.x");
        existing["spec"]["source"]["catalog"]["channels"] = json!(["fast"]);
        let mut new = new;
        new.metadata.annotations = Some([("a".to_owned(), "c".to_owned())].into());
        assert_eq!(
            differences(&read(&existing), &new),
            [
                "spec.source.catalog.channels: [\"fast\"] on the cluster, [] requested",
                "spec.source.catalog.version: \"2.x\" on the cluster, \"1.x\" requested",
                "metadata.annotations[a]: \"b\" on the cluster, \"c\" requested",
            ]
        );
        let bare: ClusterExtension = serde_json::from_value(json!({"metadata": {"name": "pipe"}})).unwrap();
        assert_eq!(package(&bare), "");
        assert_eq!(differences(&bare, &new).len(), 4);
    }
}
