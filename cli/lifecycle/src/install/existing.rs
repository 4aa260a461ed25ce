//! Checks before an installation: other extensions, and the namespace.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, PartialObjectMeta};
use olm_api::ClusterExtension;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_version::quote;

use super::extension::{differences, package};
use crate::diff::ALTERNATIVES;

/// Finds the extension of this name and package. `None` if the name is not in use.
///
/// # Errors
/// The name belongs to an extension of another package, or the existing extension is being deleted.
pub fn find_existing<'a>(
    extensions: &'a [ClusterExtension],
    desired: &ClusterExtension,
) -> Result<Option<&'a ClusterExtension>, CliError> {
    let name = desired.name_any();
    let desired = package(desired);
    if let Some(existing) = extensions.iter().find(|one| one.name_any() == name) {
        let (other, shown) = (package(existing), quote(&name));
        if other != desired {
            let other = quote(other);
            let desired = quote(desired);
            return Err(CliError::findings(format!(
                "ClusterExtension {shown} exists with package {other} and is not changed: use --name to install package \
                 {desired} under another name"
            )));
        }
        if existing.metadata.deletion_timestamp.is_some() {
            return Err(CliError::findings(format!(
                "ClusterExtension {shown} is being deleted; run the command again afterwards"
            )));
        }
        return Ok(Some(existing));
    }
    Ok(None)
}

/// Extension under another name that already installs the package of `desired`. The name of `desired` is not in use.
pub fn find_twin<'a>(
    extensions: &'a [ClusterExtension],
    desired: &ClusterExtension,
) -> Option<&'a ClusterExtension> {
    extensions.iter().find(|one| package(one) == package(desired))
}

/// Error for a second installation of a package. `crds` are the names of the CRDs of the existing extension.
pub fn twin_error(existing: &ClusterExtension, crds: &[String]) -> CliError {
    let name = existing.name_any();
    let has_revision = existing
        .status
        .as_ref()
        .is_some_and(|status| status.install.is_some() || !status.active_revisions.is_empty());
    if crds.is_empty() && !has_revision {
        return CliError::findings(format!(
            "package {} is already requested by ClusterExtension {}, which has installed nothing yet: `olm status \
             {name}` shows why; change it, or uninstall it first",
            quote(package(existing)),
            quote(&name)
        ));
    }
    let owned: String = crds.iter().map(|crd| format!("\n  CustomResourceDefinition {crd}")).collect();
    let colon = if owned.is_empty() { "" } else { ":" };
    CliError::findings(format!(
        "package {} is already installed by ClusterExtension {}, which owns its objects{colon}{owned}\n{ALTERNATIVES}",
        quote(package(existing)),
        quote(&name)
    ))
}

/// Checks that `existing` asks for what the command line asks for.
///
/// # Errors
/// It does not. The message lists the fields.
pub fn require_same(existing: &ClusterExtension, desired: &ClusterExtension) -> Result<(), CliError> {
    let (name, differences) = (existing.name_any(), differences(existing, desired));
    if differences.is_empty() {
        return Ok(());
    }
    Err(CliError::findings(format!(
        "ClusterExtension {} exists with other settings and is not changed:\n  {}\nchange it with \
             `olm upgrade {name}` or kubectl",
        quote(&name),
        differences.join("\n  ")
    )))
}

/// Reports whether the namespace exists.
///
/// # Errors
/// Errors of [`find_namespace`].
pub async fn check_namespace(
    cluster: &ClusterConnection,
    namespace: &str,
    may_create: bool,
    session: &Session,
) -> Result<bool, CliError> {
    find_namespace(cluster, namespace, may_create, session).await.map(|found| found.is_some())
}

/// Finds the namespace. `None` if it does not exist, and may be created.
///
/// # Errors
/// The API server does not answer, the namespace is being deleted, or it does not exist and may not be created.
pub(super) async fn find_namespace(
    cluster: &ClusterConnection,
    namespace: &str,
    may_create: bool,
    session: &Session,
) -> Result<Option<PartialObjectMeta<Namespace>>, CliError> {
    let api: Api<Namespace> = Api::all(cluster.client().clone());
    let what = format!("namespace {}", quote(namespace));
    match cluster.call(&what, api.get_metadata_opt(namespace), session).await? {
        Some(found) if found.metadata.deletion_timestamp.is_some() => {
            Err(CliError::findings(format!("{what} is being deleted; run the command again afterwards")))
        }
        None if !may_create => {
            Err(CliError::findings(format!("{what} does not exist: create it, or use --create-namespace")))
        }
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn extension(name: &str, package: &str) -> ClusterExtension {
        let source = json!({"sourceType": "Catalog", "catalog": {"packageName": package}});
        let spec = json!({"namespace": "ns", "source": source});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    // Cases additions-e08, apply-24
    #[test]
    fn existing_name_or_package_is_neither_overwritten_nor_duplicated() {
        let mut gone = extension("gone", "gone");
        gone.metadata.deletion_timestamp = Some(
            "2026-01-02T03:04:05Z".parse().map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time).unwrap(),
        );
        let there = [extension("pipe", "pipe"), extension("lamp", "lamp"), gone];
        let of = |name: &str, package: &str| match find_existing(&there, &extension(name, package)) {
            Ok(None) => match find_twin(&there, &extension(name, package)) {
                Some(twin) => twin_error(twin, &["pipes.example.com".to_owned()]).to_string(),
                None => "new".to_owned(),
            },
            Ok(Some(one)) => format!("existing {}", one.name_any()),
            Err(failure) => {
                assert_eq!(failure.exit_code(), 3);
                failure.to_string()
            }
        };
        assert_eq!(of("etcd", "etcd"), "new");
        assert_eq!(of("pipe", "pipe"), "existing pipe");
        assert_eq!(
            of("pipe", "etcd"),
            "ClusterExtension \"pipe\" exists with package \"pipe\" and is not changed: use --name to install package \"etcd\" under another name"
        );
        assert_eq!(
            of("pipe2", "pipe"),
            format!(
                "package \"pipe\" is already installed by ClusterExtension \"pipe\", which owns its objects:\n  \
                 CustomResourceDefinition pipes.example.com\n{ALTERNATIVES}"
            )
        );
        assert_eq!(
            twin_error(&there[0], &[]).to_string(),
            "package \"pipe\" is already requested by ClusterExtension \"pipe\", which has installed nothing yet: `olm status \
             pipe` shows why; change it, or uninstall it first"
        );
        let mut installed = there[0].clone();
        let bundle = json!({"install": {"bundle": {"name": "pipe.v1.0.0", "version": "1.0.0"}}});
        installed.status = serde_json::from_value(bundle).unwrap();
        assert_eq!(
            twin_error(&installed, &[]).to_string(),
            format!(
                "package \"pipe\" is already installed by ClusterExtension \"pipe\", which owns its objects\n{ALTERNATIVES}"
            )
        );
        assert_eq!(
            of("gone", "gone"),
            "ClusterExtension \"gone\" is being deleted; run the command again afterwards"
        );
    }
}
