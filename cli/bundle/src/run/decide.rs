//! Decisions of `olm bundle run`: names, ownership of existing objects, and the objects to write. Pure.

use std::collections::BTreeMap;

use clap::ValueEnum;
use kube::ResourceExt;
use olm_api::annotations::EXT_CRD_CHECK;
use olm_api::cluster_extension::{
    CatalogFilter, ClusterExtensionSpec, ConfigType, ExtensionConfig, UpgradeConstraintPolicy,
};
use olm_api::labels::{EXT_BUNDLE_RUN, METADATA_NAME};
use olm_api::{ClusterExtension, LabelSelector, ObjectMeta};
use olm_cli_catalog::author::CatalogBundle;
use olm_cli_core::error::CliError;
use olm_cli_core::names::is_label;
use olm_version::quote;
use serde_json::{Map, Value, json};

/// Settings of the extension.
pub(super) struct Settings {
    /// `spec.config.inline`
    pub(super) config: Option<Map<String, Value>>,
    pub(super) crd_check: Option<CrdCheck>,
}

/// Value of the annotation crd-check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CrdCheck {
    /// Any change that may break custom resources holds the upgrade
    #[value(name = "Strict")]
    Strict,
    /// Only custom resources that do not match the new schema hold the upgrade
    #[value(name = "Live")]
    Live,
    /// Changes are only reported
    #[value(name = "Warn")]
    Warn,
}

impl CrdCheck {
    fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Live => "Live",
            Self::Warn => "Warn",
        }
    }
}

/// Only channel of the catalog.
const CHANNEL: &str = "run";
/// Name of a catalog: that of the package, and this.
const CATALOG_SUFFIX: &str = "-bundle-run";
/// Longest name of a catalog, which is a label value.
const LONGEST_NAME: usize = 63;
/// Hex digits of a digest in tags and labels.
const SHORT_DIGEST: usize = 12;

/// Names of the objects of one package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// Name of the package and of the ClusterExtension.
    pub(super) package: String,
    pub(super) catalog: String,
}

impl Names {
    /// Names for `package`.
    ///
    /// # Errors
    /// The package name is not a DNS label, or too long.
    pub(super) fn of(package: &str) -> Result<Self, CliError> {
        let longest = LONGEST_NAME - CATALOG_SUFFIX.len();
        if !is_label(package) || package.len() > longest {
            let allowed =
                format!("run accepts lowercase letters, digits and -, at most {longest} characters");
            return Err(CliError::findings(format!("package {}: {allowed}", quote(package))));
        }
        Ok(Self { package: package.to_owned(), catalog: format!("{package}{CATALOG_SUFFIX}") })
    }
}

/// State of an object that a run may have left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftover {
    None,
    /// Adopted by this run.
    Own,
    /// Of a run, and being deleted.
    Deleting,
}

/// Reports whether a run created the object.
pub(super) fn is_own(metadata: &ObjectMeta) -> bool {
    metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXT_BUNDLE_RUN))
}

/// Judges an object with a name that the run needs. `what` is its kind and name.
///
/// # Errors
/// The object is not of a run.
pub(super) fn leftover(what: &str, found: Option<&ObjectMeta>) -> Result<Leftover, CliError> {
    match found {
        None => Ok(Leftover::None),
        Some(metadata) if !is_own(metadata) => Err(CliError::findings(format!(
            "{what} exists, was not created by `olm bundle run` (it has no label {EXT_BUNDLE_RUN}), and is not changed: uninstall it \
             first, or use another cluster"
        ))),
        Some(metadata) if metadata.deletion_timestamp.is_some() => Ok(Leftover::Deleting),
        Some(_) => Ok(Leftover::Own),
    }
}

/// Checks the extensions of the cluster.
///
/// # Errors
/// Another extension has the package, or the one of a former run has another namespace, which cannot be changed.
pub(super) fn check_extensions(
    names: &Names,
    namespace: &str,
    extensions: &[ClusterExtension],
) -> Result<(), CliError> {
    let package = |one: &ClusterExtension| {
        let catalog = one.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
        catalog.map(|catalog| catalog.package_name.clone())
    };
    for one in extensions {
        let name = one.name_any();
        let there = one.spec.as_ref().map_or("", |spec| spec.namespace.as_str());
        if name != names.package && package(one).as_ref() == Some(&names.package) {
            return Err(CliError::findings(format!(
                "package {} is already installed by ClusterExtension {}, which owns its objects: uninstall it first, or use \
                 another cluster",
                quote(&names.package),
                quote(&name)
            )));
        }
        if name == names.package && is_own(&one.metadata) && there != namespace {
            return Err(CliError::findings(format!(
                "ClusterExtension {} of a former run is in namespace {}: use --namespace {there}, or `olm uninstall {name}`",
                quote(&name),
                quote(there)
            )));
        }
    }
    Ok(())
}

/// Reports whether the namespace is to be deleted: a run created it, and no other extension is in it.
pub(super) fn removes_namespace(
    name: &str,
    metadata: &ObjectMeta,
    extensions: &[ClusterExtension],
    own: &str,
) -> bool {
    let others = |one: &&ClusterExtension| {
        one.name_any() != own && one.spec.as_ref().is_some_and(|spec| spec.namespace == name)
    };
    is_own(metadata) && !extensions.iter().any(|one| others(&one))
}

/// First hex digits of the digest `sha256:…`, for tags and labels.
pub(super) fn short(digest: &str) -> &str {
    let hex = digest.rsplit(':').next().unwrap_or_default();
    hex.get(..SHORT_DIGEST).unwrap_or(hex)
}

/// Tag of an image of a run. It depends on the content only, so that no tag is ever moved.
pub(super) fn tag(digest: &str) -> String {
    format!("run-{}", short(digest))
}

/// Catalog with one package, one channel and this bundle.
pub(super) fn catalog_files(bundle: &CatalogBundle) -> BTreeMap<String, Vec<u8>> {
    let objects = [
        json!({ "schema": olm_fbc::SCHEMA_PACKAGE, "name": bundle.package, "defaultChannel": CHANNEL }),
        json!({
            "schema": olm_fbc::SCHEMA_CHANNEL, "package": bundle.package, "name": CHANNEL,
            "entries": [{ "name": bundle.name }],
        }),
        bundle.object.clone(),
    ];
    let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
    BTreeMap::from([("catalog.json".to_owned(), lines.into_bytes())])
}

/// ClusterCatalog with the image `reference`.
pub(super) fn catalog(names: &Names, reference: &str, label_value: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
        "metadata": { "name": names.catalog, "labels": { EXT_BUNDLE_RUN: label_value } },
        "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
    })
}

/// ClusterExtension that installs whatever bundle the catalog has. Its selector contains `label_value`, so that each
/// content of the catalog is a new generation of the extension, with conditions of its own.
pub(super) fn extension(
    names: &Names,
    namespace: &str,
    label_value: &str,
    settings: Settings,
) -> ClusterExtension {
    let labels = [(METADATA_NAME, names.catalog.as_str()), (EXT_BUNDLE_RUN, label_value)];
    let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let filter = CatalogFilter {
        package_name: names.package.clone(),
        version: None,
        channels: Vec::new(),
        selector: Some(LabelSelector { match_labels: Some(labels.collect()), match_expressions: None }),
        // The bundle of the folder replaces whatever the run before installed.
        upgrade_constraint_policy: Some(UpgradeConstraintPolicy::SelfCertified),
    };
    let mut spec = ClusterExtensionSpec::of_package(namespace, filter);
    spec.config = settings
        .config
        .filter(|config| !config.is_empty())
        .map(|inline| ExtensionConfig { config_type: ConfigType::Inline, inline: Some(inline) });
    let mut extension = ClusterExtension::new(&names.package, spec);
    extension.labels_mut().insert(EXT_BUNDLE_RUN.to_owned(), label_value.to_owned());
    if let Some(mode) = settings.crd_check {
        extension.annotations_mut().insert(EXT_CRD_CHECK.to_owned(), mode.as_str().to_owned());
    }
    extension
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
