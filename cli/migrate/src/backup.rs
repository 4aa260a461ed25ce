//! Backup of a migration: Secrets with the plan, the objects as they were, and the pods
//! (docs/design/migration.md#backup).
//!
//! The content is JSON, compressed and split. The Secret `olm-migrate-NAMESPACE.PACKAGE` has the first part and the
//! digest of all. It is written last, so that a backup without it is incomplete. A backup is executed as a plan, so it
//! is only read from the namespace of the controllers, where only administrators write Secrets of its type:
//! `hardened.yaml` permits operator-controller others.

use std::io::{Read, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{Dependents, ObjectAccess, ObjectId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::detach::PAUSED;
use super::plan::model::PackagePlan;
use super::pods::PodState;

/// Label of the Secrets, with the package, and their type.
pub(super) const LABEL: &str = "ext.olm.operatorframework.io/migration";
/// Label of the Secrets, with the namespace of the package.
const NAMESPACE: &str = "ext.olm.operatorframework.io/migration-namespace";
/// Annotation of the first Secret once the migration is complete.
pub(super) const COMPLETE: &str = "ext.olm.operatorframework.io/migration-complete";
/// Annotation of the first Secret with the UID of the extension.
const EXTENSION: &str = "ext.olm.operatorframework.io/migration-extension";
/// Annotation of the first Secret with the channels that the extension had when a rollback began, as JSON.
const CHANNELS: &str = "ext.olm.operatorframework.io/migration-channels";
/// Annotation of the first Secret with the version or range that the extension had then. Absent without one.
const VERSION: &str = "ext.olm.operatorframework.io/migration-version";
/// Annotation of the first Secret once a rollback has ended, but for the deletion of the backup.
pub(super) const RETURNED: &str = "ext.olm.operatorframework.io/migration-returned";
/// Annotation of the first Secret with the digest of the compressed content.
pub(super) const DIGEST: &str = "ext.olm.operatorframework.io/migration-digest";
/// Annotation of the first Secret with the number of Secrets.
const PARTS: &str = "ext.olm.operatorframework.io/migration-parts";
/// Key of the data.
const KEY: &str = "backup";
/// Largest part in bytes. A Secret may have 1 MiB, with its metadata.
const MAX_PART: usize = 1000 << 10;
/// Largest content in bytes.
const MAX_CONTENT: u64 = 256 << 20;
/// Largest number of parts.
const MAX_PARTS: usize = 64;

/// State of the cluster before the migration of a package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Backup {
    pub(super) plan: PackagePlan,
    /// Objects that are changed or removed, with their status.
    pub(super) objects: Vec<Value>,
    pub(super) pods: Vec<PodState>,
}

impl Backup {
    /// Object of this kind, namespace and name.
    pub(super) fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.iter().find(|object| {
            object["kind"] == kind
                && object["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
                && object["metadata"]["name"] == name
        })
    }

    /// Subscription as it was.
    pub(super) fn subscription(&self) -> Option<&Value> {
        self.object("Subscription", &self.plan.namespace, &self.plan.subscription)
    }

    /// ClusterServiceVersion as it was.
    pub(super) fn csv(&self) -> Option<&Value> {
        self.object("ClusterServiceVersion", &self.plan.namespace, &self.plan.csv)
    }
}

/// Name of the Secret `part`, from 1. The name of a namespace has no dot.
pub(super) fn name(namespace: &str, package: &str, part: usize) -> String {
    match part {
        1 => format!("olm-migrate-{namespace}.{package}"),
        _ => format!("olm-migrate-{namespace}.{package}.{part}"),
    }
}

fn id(access: &ObjectAccess<'_>, name: &str) -> ObjectId {
    ObjectId::new(("v1", "Secret"), access.cluster().namespace(), name)
}

/// Secrets of the backup in the namespace `home`, the first part last.
fn pack(backup: &Backup, home: &str) -> Result<Vec<Value>, CliError> {
    let plan = &backup.plan;
    let failed =
        |error: std::io::Error| CliError::operational(format!("cannot compress the backup: {error}"));
    let plain = serde_json::to_vec(backup)?;
    if plain.len() as u64 > MAX_CONTENT {
        let limit = MAX_CONTENT >> 20;
        return Err(CliError::operational(format!(
            "the backup of {} is larger than {limit} MiB",
            plan.package
        )));
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&plain).map_err(failed)?;
    let bytes = encoder.finish().map_err(failed)?;
    let parts: Vec<&[u8]> = bytes.chunks(MAX_PART).collect();
    if parts.len() > MAX_PARTS {
        return Err(CliError::operational(format!(
            "the backup of {} needs {} Secrets",
            plan.package,
            parts.len()
        )));
    }
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
    let secret = |(index, part): (usize, &&[u8])| {
        let mut annotations = json!({});
        if index == 0 {
            annotations = json!({ DIGEST: digest, PARTS: parts.len().to_string() });
        }
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": LABEL, "immutable": true,
            "metadata": { "name": name(&plan.namespace, &plan.package, index + 1), "namespace": home,
                "labels": { LABEL: label(&plan.package), NAMESPACE: plan.namespace }, "annotations": annotations },
            "data": { KEY: BASE64_STANDARD.encode(part) },
        })
    };
    Ok(parts.iter().enumerate().map(secret).rev().collect())
}

/// Value of the label. The name of a package can be longer than a label.
fn label(package: &str) -> String {
    package.chars().take(63).collect::<String>().trim_end_matches(['-', '.', '_']).to_owned()
}

/// Number of parts according to the first Secret.
fn parts(first: &Value) -> Result<usize, String> {
    let count = first["metadata"]["annotations"][PARTS].as_str().and_then(|count| count.parse().ok());
    count
        .filter(|count| (1..=MAX_PARTS).contains(count))
        .ok_or_else(|| format!("annotation {PARTS} is invalid"))
}

/// Content of the Secrets, in the order of their parts.
fn unpack(secrets: &[Value]) -> Result<Backup, String> {
    let mut bytes = Vec::new();
    for secret in secrets {
        if secret["type"] != LABEL {
            return Err(format!("a Secret does not have type {LABEL}"));
        }
        let data = secret["data"][KEY].as_str().ok_or("a Secret has no data")?;
        bytes.extend(BASE64_STANDARD.decode(data).map_err(|error| error.to_string())?);
    }
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
    let expected = secrets.first().map(|first| &first["metadata"]["annotations"][DIGEST]);
    if expected.and_then(Value::as_str) != Some(&digest) {
        return Err(format!("the content does not have the digest of annotation {DIGEST}"));
    }
    let mut plain = Vec::new();
    let read = GzDecoder::new(bytes.as_slice()).take(MAX_CONTENT + 1).read_to_end(&mut plain);
    read.map_err(|error| error.to_string())?;
    if plain.len() as u64 > MAX_CONTENT {
        return Err(format!("the content is larger than {} MiB", MAX_CONTENT >> 20));
    }
    let backup: Backup = serde_json::from_slice(&plain).map_err(|error| error.to_string())?;
    let PackagePlan { namespace, package, .. } = &backup.plan;
    let metadata = secrets.first().map_or(&Value::Null, |first| &first["metadata"]);
    let is_same = metadata["name"] == name(namespace, package, 1)
        && metadata["labels"][LABEL] == label(package)
        && metadata["labels"][NAMESPACE] == namespace.as_str();
    if !is_same {
        return Err(format!("it has the plan of {namespace}/{package}, unlike its name and labels"));
    }
    Ok(backup)
}

/// Writes the backup. Parts of an incomplete one are replaced.
///
/// # Errors
/// The API server refuses a Secret or does not answer.
pub(super) async fn write(access: &ObjectAccess<'_>, backup: &Backup) -> Result<(), CliError> {
    for secret in pack(backup, access.cluster().namespace())? {
        let id = ObjectId::of(&secret);
        if let Some(left) = access.get(&id).await? {
            if left["metadata"]["labels"] != secret["metadata"]["labels"] {
                return Err(CliError::findings(format!(
                    "{id} exists, and is not a backup of this migration: rename it"
                )));
            }
            access.delete(&ObjectId::of(&left), None, Dependents::Delete).await?;
            if access.dry_run {
                continue;
            }
        }
        access.create(&secret).await?;
    }
    Ok(())
}

/// Reads the backup of a package. `None` without a complete one.
///
/// # Errors
/// The Secrets cannot be read, or their content is damaged.
pub(super) async fn read(
    access: &ObjectAccess<'_>,
    namespace: &str,
    package: &str,
) -> Result<Option<Backup>, CliError> {
    Ok(read_secrets(access, namespace, package).await?.map(|(_, backup)| backup))
}

/// Reads the backup of a package with its Secrets, the first part first. `None` without a complete one.
///
/// # Errors
/// The Secrets cannot be read, or their content is damaged.
pub(super) async fn read_secrets(
    access: &ObjectAccess<'_>,
    namespace: &str,
    package: &str,
) -> Result<Option<(Vec<Value>, Backup)>, CliError> {
    let first = id(access, &name(namespace, package, 1));
    let damaged = |why: String| {
        CliError::operational(format!(
            "{first}: the backup is damaged: {why}; replace its Secrets with `kubectl replace --force -f FILE`, from the \
             file of `--backup` or a backup of the cluster, and run the command again. Delete them only if classic OLM \
             still has the package: its ClusterServiceVersion is not being deleted, the spec.source of its Subscription \
             is not {PAUSED}, and there is no ClusterExtension of the package"
        ))
    };
    let Some(first) = access.get(&first).await? else { return Ok(None) };
    let count = parts(&first).map_err(damaged)?;
    let mut secrets = vec![first];
    for part in 2..=count {
        let secret = access.get(&id(access, &name(namespace, package, part))).await?;
        let missing = || damaged(format!("Secret {} does not exist", name(namespace, package, part)));
        secrets.push(secret.ok_or_else(missing)?);
    }
    let mut backup = unpack(&secrets).map_err(damaged)?;
    keep_settings(&mut backup.plan, &secrets[0]);
    Ok(Some((secrets, backup)))
}

/// Gives the extension after the migration the channels and the version that a rollback has recorded in the first Secret.
fn keep_settings(plan: &mut PackagePlan, first: &Value) {
    let annotations = &first["metadata"]["annotations"];
    let recorded = annotations[CHANNELS].as_str();
    let recorded = recorded.and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
    let catalog = plan.opened.pointer_mut("/spec/source/catalog").and_then(Value::as_object_mut);
    let (Some(channels), Some(catalog)) = (recorded, catalog) else { return };
    match annotations[VERSION].as_str() {
        Some(version) => drop(catalog.insert("version".to_owned(), json!(version))),
        None => drop(catalog.remove("version")),
    }
    match channels.is_empty() {
        true => drop(catalog.remove("channels")),
        false => drop(catalog.insert("channels".to_owned(), json!(channels))),
    }
}

/// Migration with a backup, from the first Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Migration {
    /// `NAMESPACE/PACKAGE`
    pub package: String,
    /// `true` once the migration of the package has ended.
    #[serde(rename = "complete")]
    pub is_complete: bool,
}

impl Migration {
    /// Migration of the first Secret of a backup. `None` for other Secrets.
    fn of(secret: &Value) -> Option<Self> {
        let (namespace, package) = package_of(secret)?;
        let is_complete = secret["metadata"]["annotations"][COMPLETE] == "true";
        Some(Self { package: format!("{namespace}/{package}"), is_complete })
    }
}

/// Finds the migrations with a backup in the namespace of the servers. Before the first Secret is written, a migration
/// has changed nothing.
///
/// # Errors
/// The Secrets cannot be listed.
pub async fn migrations(access: &ObjectAccess<'_>) -> Result<Vec<Migration>, CliError> {
    let secrets = access.metadata(("v1", "Secret"), access.cluster().namespace(), Some(LABEL)).await?;
    Ok(secrets.iter().filter_map(Migration::of).collect())
}

/// Finds the namespaces and packages of all backups, from their first Secrets.
///
/// # Errors
/// The Secrets cannot be listed.
pub(super) async fn find(access: &ObjectAccess<'_>) -> Result<Vec<(String, String)>, CliError> {
    let secrets = access.list(("v1", "Secret"), access.cluster().namespace(), Some(LABEL)).await?;
    Ok(secrets.iter().filter_map(package_of).collect())
}

/// Namespace and package of the first Secret of a backup.
fn package_of(secret: &Value) -> Option<(String, String)> {
    let metadata = &secret["metadata"];
    metadata["annotations"].get(DIGEST)?;
    let namespace = metadata["labels"][NAMESPACE].as_str()?;
    let package = metadata["name"].as_str()?.strip_prefix(&format!("olm-migrate-{namespace}."))?;
    Some((namespace.to_owned(), package.to_owned()))
}

/// Records whether the migration of a package is complete.
///
/// # Errors
/// The API server refuses it or does not answer, or the backup does not exist.
pub(super) async fn set_complete(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    is_complete: bool,
) -> Result<(), CliError> {
    annotate(access, plan, json!({ COMPLETE: is_complete.then_some("true") })).await
}

/// Reports whether the migration of a package is complete, as recorded.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn is_complete(access: &ObjectAccess<'_>, plan: &PackagePlan) -> Result<bool, CliError> {
    Ok(annotation(access, plan, COMPLETE).await?.flatten().is_some_and(|value| value == "true"))
}

/// Records whether classic OLM has the package again. A rollback that ends does not need its backup any more.
///
/// # Errors
/// The API server refuses it or does not answer.
pub(super) async fn set_returned(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    is_returned: bool,
) -> Result<(), CliError> {
    merge(access, plan, json!({ RETURNED: is_returned.then_some("true") })).await.map(drop)
}

/// Reports whether classic OLM has the package again, as recorded.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn is_returned(access: &ObjectAccess<'_>, plan: &PackagePlan) -> Result<bool, CliError> {
    Ok(annotation(access, plan, RETURNED).await?.flatten().is_some_and(|value| value == "true"))
}

/// Records the UID of the extension that the migration created. `None` if it is to be created.
///
/// # Errors
/// The API server refuses it or does not answer, or the backup does not exist.
pub(super) async fn record_extension(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    uid: Option<&str>,
) -> Result<(), CliError> {
    annotate(access, plan, json!({ EXTENSION: uid })).await
}

/// Records the channels and the version of the extension before a rollback pauses it: administrators may have changed
/// them, and another migration pins the version meanwhile.
///
/// # Errors
/// The API server refuses it or does not answer, or the backup does not exist.
pub(super) async fn record_settings(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    extension: &Value,
) -> Result<(), CliError> {
    let catalog = &extension["spec"]["source"]["catalog"];
    let channels = catalog["channels"].as_array().cloned().unwrap_or_default();
    let settings = json!({ CHANNELS: Value::from(channels).to_string(), VERSION: catalog["version"] });
    annotate(access, plan, settings).await
}

/// UID of the extension that the migration created, as recorded.
///
/// # Errors
/// The API server does not answer, or denies access, or the backup does not exist.
pub(super) async fn recorded_extension(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
) -> Result<Option<String>, CliError> {
    annotation(access, plan, EXTENSION).await?.ok_or_else(|| lost(access, plan))
}

/// Error for a backup that was deleted while the migration needs it.
pub(super) fn lost(access: &ObjectAccess<'_>, plan: &PackagePlan) -> CliError {
    CliError::operational(format!(
        "{}, the backup of the package, does not exist any more: restore it with `kubectl create -f FILE`, from the file \
         of `--backup` or a backup of the cluster, and run the command again",
        id(access, &name(&plan.namespace, &plan.package, 1))
    ))
}

/// Changes annotations of the first Secret.
async fn annotate(access: &ObjectAccess<'_>, plan: &PackagePlan, values: Value) -> Result<(), CliError> {
    match merge(access, plan, values).await? {
        // A dry run has not written it.
        None if !access.dry_run => Err(lost(access, plan)),
        _ => Ok(()),
    }
}

/// Changes annotations of the first Secret, if it exists. The metadata of an immutable Secret can change.
async fn merge(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    values: Value,
) -> Result<Option<Value>, CliError> {
    let first = id(access, &name(&plan.namespace, &plan.package, 1));
    access.merge(&first, &json!({ "metadata": { "annotations": values } })).await
}

/// Annotation of the first Secret. `None` if the Secret does not exist.
async fn annotation(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    key: &str,
) -> Result<Option<Option<String>>, CliError> {
    let first = access.get(&id(access, &name(&plan.namespace, &plan.package, 1))).await?;
    Ok(first.map(|first| first["metadata"]["annotations"][key].as_str().map(str::to_owned)))
}

/// Secrets of the backup of a package, the first part first.
///
/// # Errors
/// The API server does not answer, or denies access.
async fn secrets(access: &ObjectAccess<'_>, namespace: &str, package: &str) -> Result<Vec<Value>, CliError> {
    let selector = format!("{LABEL}={},{NAMESPACE}={namespace}", label(package));
    let home = access.cluster().namespace();
    let mut secrets = access.list(("v1", "Secret"), home, Some(&selector)).await?;
    // The label of a long name is cut.
    let first = name(namespace, package, 1);
    let is_part = |name: &str| {
        let rest = name.strip_prefix(first.as_str());
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('.').is_some_and(|part| part.parse::<usize>().is_ok())
        })
    };
    secrets.retain(|secret| secret["metadata"]["name"].as_str().is_some_and(is_part));
    secrets.sort_by_key(|secret| secret["metadata"]["annotations"].get(DIGEST).is_none());
    Ok(secrets)
}

/// Deletes the backup of a package, the first part first.
///
/// # Errors
/// The API server refuses it or does not answer.
pub(super) async fn delete(
    access: &ObjectAccess<'_>,
    namespace: &str,
    package: &str,
) -> Result<(), CliError> {
    for secret in secrets(access, namespace, package).await? {
        access.delete(&ObjectId::of(&secret), None, Dependents::Delete).await?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
