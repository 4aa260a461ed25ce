//! ClusterExtension from Subscription and OperatorGroup (docs/design/migration.md#clusterextension). Pure.

use kube::ResourceExt;
use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec, ConfigType, ExtensionConfig};
use olm_api::{ClusterExtension, LabelSelector, annotations, labels};
use serde_json::{Map, Value, json};

use crate::objects::{Key, Objects, OperatorGroup, Subscription};

/// Fields of `spec.config` of a Subscription that `deploymentConfig` has, with the same meaning.
const DEPLOYMENT_CONFIG: [&str; 9] = [
    "affinity",
    "annotations",
    "env",
    "envFrom",
    "nodeSelector",
    "resources",
    "tolerations",
    "volumeMounts",
    "volumes",
];

/// Installation by classic OLM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Installation<'a> {
    /// Namespace and name of the Subscription.
    pub(super) key: &'a Key,
    pub(super) subscription: &'a Subscription,
    pub(super) group: &'a OperatorGroup,
    /// Name of the ClusterCatalog.
    pub(super) catalog: &'a str,
    /// `true` if the bundle requires packages or APIs.
    pub(super) has_requirements: bool,
    /// `true` if classic OLM generated roles for the users of the APIs.
    pub(super) has_api_roles: bool,
    /// `true` if upgrades wait for approval: each Subscription with manual approval has this effect on its namespace.
    pub(super) is_approved_by_hand: bool,
}

/// Name of the extension: that of the package, with the namespace if an extension of another package has it.
pub(super) fn name(objects: &Objects, package: &str, namespace: &str) -> String {
    match objects.extensions.get(package) {
        Some(other) if other != package => format!("{package}-{namespace}"),
        _ => package.to_owned(),
    }
}

/// Extension after the migration, and notes about settings without equivalent.
pub(super) fn opened(name: &str, installation: &Installation<'_>) -> (ClusterExtension, Vec<String>) {
    let Installation { key, subscription, catalog, .. } = *installation;
    let metadata_name = (labels::METADATA_NAME.to_owned(), catalog.to_owned());
    let filter = CatalogFilter {
        package_name: subscription.package.clone(),
        version: None,
        channels: Some(subscription.channel.clone())
            .filter(|channel| !channel.is_empty())
            .into_iter()
            .collect(),
        selector: Some(LabelSelector { match_labels: Some([metadata_name].into()), match_expressions: None }),
        upgrade_constraint_policy: None,
    };
    let (config, notes) = config(&key.0, subscription, installation.group);
    let mut spec = ClusterExtensionSpec::of_package(&key.0, filter);
    spec.config = (!config.is_empty())
        .then_some(ExtensionConfig { config_type: ConfigType::Inline, inline: Some(config) });
    let mut extension = ClusterExtension::new(name, spec);
    let settings = [
        (installation.is_approved_by_hand, annotations::EXT_APPROVAL, "ManualUpgrades"),
        // Classic OLM installs whatever the package requires. Extensions never do, and this mode blocks nothing.
        (installation.has_requirements, annotations::EXT_DEPENDENCY_MODE, "Report"),
        (installation.has_api_roles, annotations::EXT_AGGREGATE_API_ROLES, "true"),
        // Classic OLM never deletes CRDs with an operator.
        (true, annotations::EXT_UNINSTALL_POLICY, "BlockIfInUse"),
    ];
    for (_, key, value) in settings.into_iter().filter(|(applies, ..)| *applies) {
        extension.annotations_mut().insert(key.to_owned(), value.to_owned());
    }
    (extension, notes)
}

/// The extension that adopts the objects: pinned to the installed version. It names no channel, because the channel
/// may have dropped the version.
pub(super) fn pinned(opened: &ClusterExtension, version: &str, digest: &str) -> ClusterExtension {
    let mut extension = opened.clone();
    if let Some(catalog) = extension.spec.as_mut().and_then(|spec| spec.source.catalog.as_mut()) {
        catalog.version = Some(version.to_owned());
        catalog.channels.clear();
    }
    extension.annotations_mut().insert(annotations::EXT_ADOPT.to_owned(), digest.to_owned());
    extension
}

/// `spec.config.inline`, and notes about fields without equivalent.
fn config(
    namespace: &str,
    subscription: &Subscription,
    group: &OperatorGroup,
) -> (Map<String, Value>, Vec<String>) {
    let mut config = Map::new();
    match (&group.selector, group.targets.as_slice()) {
        (Some(selector), []) => drop(config.insert("watchNamespaceSelector".to_owned(), json!(selector))),
        (None, []) => {}
        (_, [target]) => drop(config.insert("watchNamespace".to_owned(), json!(target))),
        (_, targets) => {
            let sorted: std::collections::BTreeSet<&String> = targets.iter().collect();
            config.insert("watchNamespaces".to_owned(), json!(sorted));
        }
    }
    let mut notes = Vec::new();
    if !group.service_account.is_empty() {
        notes.push(format!(
            "the OperatorGroup limits installations to ServiceAccount {namespace}/{}: operator-controller installs with \
             its own permissions",
            group.service_account
        ));
    }
    notes.extend(
        group.unmatched.iter().map(|field| format!("no counterpart of spec.{field} of the OperatorGroup")),
    );
    let fields = subscription.config.iter().filter_map(Value::as_object).flatten();
    let (known, unknown): (Vec<_>, Vec<_>) =
        fields.partition(|(field, _)| DEPLOYMENT_CONFIG.contains(&field.as_str()));
    let known: Map<String, Value> =
        known.into_iter().map(|(field, value)| (field.clone(), value.clone())).collect();
    if !known.is_empty() {
        config.insert("deploymentConfig".to_owned(), Value::Object(known));
    }
    // Classic OLM ignores spec.config.selector, too.
    notes.extend(
        unknown.iter().map(|(field, _)| format!("spec.config.{field} of the Subscription has no effect")),
    );
    (config, notes)
}

#[cfg(test)]
mod tests {
    use olm_cli_core::manifest::validation_errors;

    use super::*;

    fn group(value: &Value) -> OperatorGroup {
        let mut objects = Objects::default();
        let mut object = json!({"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"name": "g", "namespace": "ops"}});
        object["spec"] = value.clone();
        objects.add(&object);
        objects.groups.into_values().next().unwrap()
    }

    fn extension(subscription: &Subscription, group: &OperatorGroup) -> (Value, Vec<String>) {
        let installation = Installation {
            key: &("ops".to_owned(), "lamp-sub".to_owned()),
            subscription,
            group,
            catalog: "hub",
            has_requirements: subscription.channel == "requires",
            has_api_roles: subscription.channel == "roles",
            is_approved_by_hand: subscription.is_manual,
        };
        let (extension, notes) = opened("lamp", &installation);
        let extension = pinned(&extension, "1.0.0", "sha256:0");
        let value = serde_json::to_value(&extension).unwrap();
        assert_eq!(validation_errors(&value), [""; 0]);
        (value, notes)
    }

    #[test]
    fn watched_namespaces_become_configuration() {
        let subscription = Subscription { package: "lamp".to_owned(), ..Subscription::default() };
        let selector = json!({"matchLabels": {"team": "a"}});
        for (spec, expected) in [
            (json!({}), json!(null)),
            (json!({"selector": {}}), json!(null)),
            (json!({"targetNamespaces": ["ops"]}), json!({"watchNamespace": "ops"})),
            (json!({"targetNamespaces": ["shop"], "selector": selector}), json!({"watchNamespace": "shop"})),
            (json!({"targetNamespaces": ["b", "a", "b"]}), json!({"watchNamespaces": ["a", "b"]})),
            (json!({"selector": selector}), json!({"watchNamespaceSelector": selector})),
        ] {
            let (found, notes) = extension(&subscription, &group(&spec));
            assert_eq!(found["spec"]["config"]["inline"], expected, "{spec}");
            assert!(notes.is_empty());
        }
        let (_, notes) = extension(&subscription, &group(&json!({"serviceAccountName": "limited"})));
        assert!(notes[0].contains("ServiceAccount ops/limited"), "{notes:?}");
        let set = json!({"upgradeStrategy": "TechPreviewUnsafeFailForward", "staticProvidedAPIs": true});
        let expected = ["staticProvidedAPIs", "upgradeStrategy"]
            .map(|field| format!("no counterpart of spec.{field} of the OperatorGroup"));
        assert_eq!(extension(&subscription, &group(&set)).1, expected);
        let defaults = json!({"upgradeStrategy": "Default", "staticProvidedAPIs": false});
        assert!(extension(&subscription, &group(&defaults)).1.is_empty());
    }

    #[test]
    fn every_field_of_classic_configuration_is_mapped_or_noted() {
        let config = json!({"selector": {"matchLabels": {"a": "b"}}, "nodeSelector": {"disk": "ssd"}, "tolerations": [],
            "resources": {}, "envFrom": [], "env": [{"name": "A", "value": "b"}], "volumes": [], "volumeMounts": [],
            "affinity": {}, "annotations": {}});
        let subscription = Subscription {
            package: "lamp".to_owned(),
            config: Some(config.clone()),
            ..Subscription::default()
        };
        let (found, notes) = extension(&subscription, &group(&json!({})));
        let mapped = &found["spec"]["config"]["inline"]["deploymentConfig"];
        for field in DEPLOYMENT_CONFIG {
            assert_eq!(mapped[field], config[field], "{field}");
        }
        assert_eq!(mapped.as_object().unwrap().len(), DEPLOYMENT_CONFIG.len());
        assert_eq!(notes, ["spec.config.selector of the Subscription has no effect"]);
    }

    #[test]
    fn settings_of_subscription_become_annotations() {
        let of = |channel: &str, is_manual: bool| {
            let subscription = Subscription {
                package: "lamp".to_owned(),
                channel: channel.to_owned(),
                is_manual,
                ..Subscription::default()
            };
            extension(&subscription, &group(&json!({}))).0["metadata"]["annotations"].clone()
        };
        let expected =
            json!({annotations::EXT_ADOPT: "sha256:0", annotations::EXT_UNINSTALL_POLICY: "BlockIfInUse"});
        assert_eq!(of("stable", false), expected);
        assert_eq!(of("stable", true)[annotations::EXT_APPROVAL], "ManualUpgrades");
        assert_eq!(of("requires", false)[annotations::EXT_DEPENDENCY_MODE], "Report");
        assert_eq!(of("roles", false)[annotations::EXT_AGGREGATE_API_ROLES], "true");
    }

    #[test]
    fn extension_name_used_by_other_package_gets_namespace_suffix() {
        let mut objects = Objects::default();
        assert_eq!(name(&objects, "lamp", "ops"), "lamp");
        objects.extensions.insert("lamp".to_owned(), "lamp".to_owned());
        assert_eq!(name(&objects, "lamp", "ops"), "lamp");
        objects.extensions.insert("lamp".to_owned(), "shade".to_owned());
        assert_eq!(name(&objects, "lamp", "ops"), "lamp-ops");
    }
}
