//! ClusterExtension from command line flags, and its differences to an existing one. Pure.

use olm_api::cluster_extension::{
    CatalogFilter, ClusterExtensionSpec, ConfigType, ExtensionConfig, ExtensionSource, SourceType,
};
use olm_api::{ClusterExtension, LabelSelector, labels};
use serde_json::{Map, Value, json};

use crate::error::CliError;

/// Values of the flags.
#[derive(Debug, Clone, Default)]
pub(super) struct ExtensionFlags {
    pub(super) name: String,
    pub(super) package: String,
    pub(super) namespace: String,
    pub(super) version: Option<String>,
    pub(super) channels: Vec<String>,
    /// Name of a ClusterCatalog.
    pub(super) catalog: Option<String>,
    pub(super) watch_namespaces: Vec<String>,
    /// Content of the configuration file.
    pub(super) config: Option<Value>,
}

impl ExtensionFlags {
    /// Builds the extension.
    ///
    /// # Errors
    /// The configuration is no object, or sets a value that a flag sets, too.
    pub(super) fn extension(self) -> Result<ClusterExtension, CliError> {
        let selector = self.catalog.map(|name| LabelSelector {
            match_labels: Some([(labels::METADATA_NAME.to_owned(), name)].into()),
            match_expressions: None,
        });
        let spec = ClusterExtensionSpec {
            namespace: self.namespace,
            service_account: None,
            source: ExtensionSource {
                source_type: SourceType::Catalog,
                catalog: Some(CatalogFilter {
                    package_name: self.package,
                    version: self.version,
                    channels: self.channels,
                    selector,
                    upgrade_constraint_policy: None,
                }),
            },
            install: None,
            config: config(self.config, self.watch_namespaces)?
                .map(|inline| ExtensionConfig { config_type: ConfigType::Inline, inline: Some(inline) }),
            progress_deadline_minutes: None,
        };
        Ok(ClusterExtension::new(&self.name, spec))
    }
}

fn config(file: Option<Value>, mut namespaces: Vec<String>) -> Result<Option<Map<String, Value>>, CliError> {
    let mut config = match file {
        None => Map::new(),
        Some(Value::Object(config)) => config,
        Some(_) => {
            return Err(CliError::usage(
                "--config: expected fields, such as watchNamespace and deploymentConfig",
            ));
        }
    };
    let said = ["watchNamespace", "watchNamespaces"].into_iter().find(|field| config.contains_key(*field));
    if let Some(field) = said.filter(|_| !namespaces.is_empty()) {
        return Err(CliError::usage(format!(
            "the file of --config has {field}: leave out --watch-namespace"
        )));
    }
    match namespaces.len() {
        0 => {}
        1 => drop(config.insert("watchNamespace".to_owned(), json!(namespaces.remove(0)))),
        _ => drop(config.insert("watchNamespaces".to_owned(), json!(namespaces))),
    }
    Ok((!config.is_empty()).then_some(config))
}

/// Fields in which `existing` differs from `wanted`: path, existing value, wanted value. Ignores fields that no flag
/// sets, such as preflight checks.
pub(super) fn differences(existing: &ClusterExtension, wanted: &ClusterExtension) -> Vec<String> {
    let (old, new) = (asked(existing), asked(wanted));
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let mut differences: Vec<String> = new
        .iter()
        .filter(|(path, value)| old.get(*path) != Some(*value))
        .map(|(path, value)| {
            let shown = |value: Option<&Value>| match value {
                None | Some(Value::Null) => "nothing".to_owned(),
                Some(value) => value.to_string(),
            };
            format!("{path}: {} there, {} wanted", shown(old.get(path)), shown(Some(value)))
        })
        .collect();
    for (key, value) in wanted.metadata.annotations.iter().flatten() {
        let found = existing.metadata.annotations.as_ref().and_then(|there| there.get(key));
        if found != Some(value) {
            let found = found.map_or_else(|| "nothing".to_owned(), |found| format!("{found:?}"));
            differences.push(format!("metadata.annotations[{key}]: {found} there, {value:?} wanted"));
        }
    }
    differences
}

/// Spec fields that flags can set, by path, with defaults.
fn asked(extension: &ClusterExtension) -> Value {
    let spec = serde_json::to_value(&extension.spec).unwrap_or_default();
    let catalog = &spec["source"]["catalog"];
    let or = |value: &Value, default: Value| if value.is_null() { default } else { value.clone() };
    json!({
        "spec.config.inline": or(&spec["config"]["inline"], Value::Null),
        "spec.namespace": spec["namespace"],
        "spec.source.catalog.channels": or(&catalog["channels"], json!([])),
        "spec.source.catalog.packageName": catalog["packageName"],
        "spec.source.catalog.selector": or(&catalog["selector"], Value::Null),
        "spec.source.catalog.upgradeConstraintPolicy": or(&catalog["upgradeConstraintPolicy"], json!("CatalogProvided")),
        "spec.source.catalog.version": or(&catalog["version"], Value::Null),
    })
}

/// Package of an extension. Empty if it has none.
pub(super) fn package(extension: &ClusterExtension) -> &str {
    let catalog = extension.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
    catalog.map_or("", |catalog| catalog.package_name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::validation_errors;

    fn wanted() -> ExtensionFlags {
        ExtensionFlags {
            name: "pipe".to_owned(),
            package: "pipe".to_owned(),
            namespace: "ns".to_owned(),
            ..ExtensionFlags::default()
        }
    }

    #[test]
    fn flags_become_extension_that_api_server_accepts() {
        let extension = ExtensionFlags {
            version: Some("1.x".to_owned()),
            channels: vec!["stable".to_owned()],
            catalog: Some("hub".to_owned()),
            watch_namespaces: vec!["apps".to_owned()],
            config: Some(json!({"deploymentConfig": {}})),
            ..wanted()
        }
        .extension()
        .unwrap();
        let value = serde_json::to_value(&extension).unwrap();
        assert_eq!(validation_errors(&value), [""; 0]);
        let spec = json!({
            "namespace": "ns",
            "source": {"sourceType": "Catalog", "catalog": {"packageName": "pipe", "version": "1.x",
                "channels": ["stable"], "selector": {"matchLabels": {"olm.operatorframework.io/metadata.name": "hub"}}}},
            "config": {"configType": "Inline", "inline": {"deploymentConfig": {}, "watchNamespace": "apps"}},
        });
        assert_eq!(value["spec"], spec);
        let several = ExtensionFlags { watch_namespaces: vec!["b".to_owned(), "a".to_owned()], ..wanted() };
        let value = serde_json::to_value(several.extension().unwrap()).unwrap();
        assert_eq!(value["spec"]["config"]["inline"], json!({"watchNamespaces": ["b", "a"]}));
    }

    #[test]
    fn invalid_configuration_is_rejected_with_its_field() {
        let text = |wanted: ExtensionFlags| wanted.extension().unwrap_err().to_string();
        let list = text(ExtensionFlags { config: Some(json!([])), ..wanted() });
        assert_eq!(list, "--config: expected fields, such as watchNamespace and deploymentConfig");
        let watch = vec!["apps".to_owned()];
        let twice = ExtensionFlags {
            config: Some(json!({"watchNamespace": "a"})),
            watch_namespaces: watch,
            ..wanted()
        };
        assert_eq!(text(twice), "the file of --config has watchNamespace: leave out --watch-namespace");
        let odd = ExtensionFlags { name: "Pipe".to_owned(), namespace: "N_S".to_owned(), ..wanted() };
        let odd = serde_json::to_value(odd.extension().unwrap()).unwrap();
        assert_eq!(
            validation_errors(&odd),
            [
                "metadata.name: \"Pipe\": allowed are lowercase letters, digits, - and ., at most 253",
                "spec.namespace: \"N_S\": namespace must be a valid DNS1123 label",
            ]
        );
    }

    #[test]
    fn differences_cover_only_fields_that_flags_set() {
        let new = ExtensionFlags { version: Some("1.x".to_owned()), ..wanted() }.extension().unwrap();
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
                "spec.source.catalog.channels: [\"fast\"] there, [] wanted",
                "spec.source.catalog.version: \"2.x\" there, \"1.x\" wanted",
                "metadata.annotations[a]: \"b\" there, \"c\" wanted",
            ]
        );
        let bare: ClusterExtension = serde_json::from_value(json!({"metadata": {"name": "pipe"}})).unwrap();
        assert_eq!(package(&bare), "");
        assert_eq!(differences(&bare, &new).len(), 4);
    }
}
