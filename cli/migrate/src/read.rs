//! Objects of a cluster, or of a dump: files or folders with YAML or JSON, such as a must-gather.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::object_access::ObjectAccess;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_runtime::cluster::{describe, list_all, within_deadline};
use serde_json::Value;

use super::backup;
use super::objects::{CLASSIC, Objects, Offered};

/// Page size of list calls. ClusterServiceVersions are large.
const PAGE: u32 = 100;
/// Largest file of a dump.
const MAX_FILE: u64 = 512 << 20;
/// Deepest folder of a dump.
const MAX_DEPTH: usize = 12;
/// Kinds to read: group, version, kind, plural.
const KINDS: [(&str, &str, &str, &str); 10] = [
    (CLASSIC, "v1alpha1", "Subscription", "subscriptions"),
    (CLASSIC, "v1alpha1", "ClusterServiceVersion", "clusterserviceversions"),
    (CLASSIC, "v1alpha1", "InstallPlan", "installplans"),
    (CLASSIC, "v1alpha1", "CatalogSource", "catalogsources"),
    (CLASSIC, "v1", "OperatorGroup", "operatorgroups"),
    (CLASSIC, "v2", "OperatorCondition", "operatorconditions"),
    ("olm.operatorframework.io", "v1", "ClusterExtension", "clusterextensions"),
    ("olm.operatorframework.io", "v1", "ClusterCatalog", "clustercatalogs"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings"),
];

/// Reads the objects of a cluster. A kind that the cluster does not have is empty, and one that the user may not list is
/// named in [`Objects::unreadable`].
///
/// # Errors
/// The API server does not answer, or denies access to the Subscriptions.
pub(super) async fn from_cluster(
    cluster: &ClusterConnection,
    session: &Session,
) -> Result<Objects, CliError> {
    let mut objects = Objects::default();
    for (group, version, kind, plural) in KINDS {
        let _step = session.progress.step(format!("listing {plural}"));
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let api: Api<DynamicObject> = Api::all_with(cluster.client().clone(), &resource);
        let list = async |page: ListParams| within_deadline(api.list(&page)).await;
        let listed = session.interruptible(list_all(ListParams::default().limit(PAGE), list)).await?;
        let found = match listed {
            Ok(found) => found,
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(kube::Error::Api(status)) if status.code == 403 && kind != "Subscription" => {
                objects.unreadable.push(format!("{plural}: {}", status.message));
                continue;
            }
            Err(error) => {
                return Err(CliError::operational(format!("cannot list {plural}: {}", describe(&error))));
            }
        };
        for object in found {
            let mut object = serde_json::to_value(object)?;
            // Items of a list have neither.
            object["apiVersion"] = Value::from(format!("{group}/{version}"));
            object["kind"] = Value::from(kind);
            objects.add(&object);
        }
    }
    Ok(objects)
}

/// Adds the migrations that have begun. Without the right to list the Secrets of the backups, that is named.
///
/// # Errors
/// A signal arrived.
pub(super) async fn migrations(
    cluster: &ClusterConnection,
    objects: &mut Objects,
    session: &Session,
) -> Result<(), CliError> {
    match backup::migrations(&ObjectAccess::new(cluster, session, false)).await {
        Err(error @ CliError::Message(Code::Interrupted, _)) => Err(error),
        Err(error) => {
            objects.unreadable.push(format!("backups of migrations: {error}"));
            Ok(())
        }
        Ok(found) => {
            let key = |migration: &backup::Migration| {
                let (namespace, package) = migration.package.split_once('/')?;
                Some((namespace.to_owned(), package.to_owned()))
            };
            objects.migrations = found.iter().filter_map(|one| Some((key(one)?, one.is_complete))).collect();
            Ok(())
        }
    }
}

/// Reports whether the cluster serves the kinds from which packages are found. `true` if discovery fails.
///
/// # Errors
/// The command is interrupted.
pub(super) async fn has_packages(cluster: &ClusterConnection, session: &Session) -> Result<bool, CliError> {
    let version = format!("{CLASSIC}/v1alpha1");
    let discovery = within_deadline(cluster.client().list_api_group_resources(&version));
    Ok(match session.interruptible(discovery).await? {
        Ok(served) => served
            .resources
            .iter()
            .any(|one| ["Subscription", "ClusterServiceVersion"].contains(&one.kind.as_str())),
        Err(kube::Error::Api(status)) => status.code != 404,
        Err(_) => true,
    })
}

/// Reads the objects of the file or folder `path`. A file of a folder that cannot be parsed is reported and skipped.
///
/// # Errors
/// The file or folder cannot be read, or a file named by the user cannot be parsed.
pub(super) fn from_dump(path: &Path, objects: &mut Objects, session: &Session) -> Result<(), CliError> {
    if path.is_file() {
        return read_file(path, objects).map_err(|why| CliError::at(path.display(), why));
    }
    let step = session.progress.step(format!("reading {}", path.display()));
    let files = files(path, MAX_DEPTH).map_err(|error| CliError::at(path.display(), error))?;
    for (number, file) in files.iter().enumerate() {
        session.check()?;
        step.update(format!("reading {}: file {} of {}", path.display(), number + 1, files.len()));
        if let Err(why) = read_file(file, objects) {
            say(&format!("warning: {} is skipped: {why}", file.display()));
        }
    }
    Ok(())
}

/// YAML and JSON files below `folder`, sorted. Links are not followed.
fn files(folder: &Path, depth: usize) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if depth == 0 {
        return Ok(found);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if kind.is_dir() {
            found.extend(files(&path, depth - 1)?);
        } else if kind.is_file() && ["yaml", "yml", "json"].contains(&extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read_file(path: &Path, objects: &mut Objects) -> Result<(), String> {
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("larger than {} MiB", MAX_FILE >> 20));
    }
    for object in olm_yaml::all_from_slice(&text).map_err(|error| error.to_string())? {
        objects.add(&object);
    }
    Ok(())
}

/// Bundles `wanted` of the ClusterCatalogs. A catalog that is not served is named in `unreadable`.
///
/// # Errors
/// The command is interrupted.
pub(super) async fn offered_by_cluster(
    catalogs: &[String],
    wanted: &BTreeSet<String>,
    access: &Access,
    unreadable: &mut Vec<String>,
    session: &Session,
) -> Result<Offered, CliError> {
    let mut all = Offered::new();
    for name in catalogs {
        let source = [format!("cluster/{name}")];
        let mut found = all.clone();
        match add_offered(&mut found, &source, wanted, access, session).await {
            Ok(()) => all = found,
            Err(CliError::Message(Code::Interrupted, why)) => {
                return Err(CliError::Message(Code::Interrupted, why));
            }
            Err(error) => unreadable.push(format!("ClusterCatalog {name}: {error}")),
        }
    }
    Ok(all)
}

/// Bundles `wanted` of the catalogs `sources`.
///
/// # Errors
/// A source cannot be read.
pub(super) async fn offered(
    sources: &[String],
    wanted: &BTreeSet<String>,
    access: &Access,
    session: &Session,
) -> Result<Offered, CliError> {
    let mut offered = Offered::new();
    add_offered(&mut offered, sources, wanted, access, session).await?;
    Ok(offered)
}

async fn add_offered(
    offered: &mut Offered,
    sources: &[String],
    wanted: &BTreeSet<String>,
    access: &Access,
    session: &Session,
) -> Result<(), CliError> {
    for source in sources {
        let mut keep = |catalog: &str, meta: olm_fbc::Meta| {
            if meta.schema == olm_fbc::SCHEMA_BUNDLE && wanted.contains(&meta.name) {
                offered.entry(meta.name).or_default().add(catalog, &meta.blob);
            }
            Ok(())
        };
        access.read(source, session, &mut keep).await?;
    }
    Ok(())
}
