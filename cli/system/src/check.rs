//! Checks before an installation or an upgrade. Pure.

use olm_version::Version;
use serde::Serialize;
use serde_json::Value;

use super::manifest::Manifest;
use super::observe::Observed;
use super::record::is_labeled;

/// Oldest supported minor version of Kubernetes 1.
const OLDEST: u64 = 30;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Level {
    Passed,
    Warning,
    /// Nothing may be changed.
    Failed,
}

/// Check with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) subject: &'static str,
    pub(super) level: Level,
    pub(super) message: String,
}

impl Check {
    pub(super) fn new(subject: &'static str, level: Level, message: impl Into<String>) -> Self {
        Self { subject, level, message: message.into() }
    }

    pub(super) fn line(&self) -> String {
        let level = match self.level {
            Level::Passed => "ok",
            Level::Warning => "warning",
            Level::Failed => "error",
        };
        format!("{level:8} {}: {}", self.subject, self.message)
    }
}

/// Requested kind of change.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Request {
    /// Refuse a cluster without installation.
    pub(super) is_upgrade: bool,
    pub(super) allow_downgrade: bool,
}

/// All checks.
pub(super) fn checks(
    manifest: &Manifest,
    observed: &Observed,
    namespace: &str,
    request: Request,
) -> Vec<Check> {
    if !observed.is_admin {
        return vec![Check::new("permissions", Level::Failed, "cluster-admin permissions are required")];
    }
    let mut checks = vec![
        kubernetes(&observed.kubernetes),
        Check::new("permissions", Level::Passed, "cluster-admin"),
        of_namespace(namespace, observed.namespace.as_ref()),
        installation(manifest, observed, request),
    ];
    if !observed.others.is_empty() {
        let others = observed.others.join(", ");
        let message =
            format!("OLM is installed in another namespace: {others}; use -n, or uninstall it first");
        checks.push(Check::new("other installations", Level::Failed, message));
    }
    let failures = observed.crds.iter().flat_map(|crd| crd_failures(manifest, crd));
    checks.extend(failures.map(|message| Check::new("CRDs", Level::Failed, message)));
    if !observed.unserved.is_empty() {
        let message = format!(
            "the cluster does not serve {}; install its provider first, such as cert-manager, or use another variant",
            observed.unserved.join(", ")
        );
        checks.push(Check::new("kinds", Level::Failed, message));
    }
    for (image, unreachable) in &observed.images {
        checks.push(match unreachable {
            None => Check::new("image", Level::Passed, image),
            Some(why) => {
                let message =
                    format!("{image} cannot be read from this machine; the nodes may reach it: {why}");
                Check::new("image", Level::Warning, message)
            }
        });
    }
    checks
}

fn kubernetes(version: &str) -> Check {
    let level = match Version::parse_tolerant(version) {
        Ok(parsed) if (parsed.major(), parsed.minor()) < (1, OLDEST) => Level::Failed,
        Ok(_) => return Check::new("Kubernetes", Level::Passed, version),
        Err(_) => Level::Warning,
    };
    Check::new("Kubernetes", level, format!("{version}; version 1.{OLDEST} or newer is required"))
}

fn of_namespace(name: &str, found: Option<&Value>) -> Check {
    let failed = |message: String| Check::new("namespace", Level::Failed, message);
    if name == "default" || name.starts_with("kube-") {
        return failed(format!(
            "{name} is not allowed: the network policies of OLM would deny traffic of its pods"
        ));
    }
    match found {
        None => Check::new("namespace", Level::Passed, format!("{name} will be created")),
        Some(found) if !found["metadata"]["deletionTimestamp"].is_null() => {
            failed(format!("{name} is being deleted; try again once it is deleted"))
        }
        Some(found) if !is_labeled(found) => failed(format!(
            "{name} exists without the label app.kubernetes.io/part-of=olm. The network policies of OLM would deny the \
             traffic of its pods. Choose another namespace with -n, or label this one: kubectl label namespace {name} \
             app.kubernetes.io/part-of=olm"
        )),
        Some(_) => Check::new("namespace", Level::Passed, name),
    }
}

fn installation(manifest: &Manifest, observed: &Observed, request: Request) -> Check {
    let check = |level, message: String| Check::new("installation", level, message);
    let shown =
        |version: &str| if version.is_empty() { "an unknown version".to_owned() } else { version.to_owned() };
    let new = shown(&manifest.version);
    if observed.installed.deployments.is_empty() {
        return match request.is_upgrade {
            true => check(Level::Failed, "OLM is not installed here; run olm system install".to_owned()),
            false => check(Level::Passed, format!("{new} will be installed")),
        };
    }
    let message = format!("{} will be replaced by {new}", shown(&observed.installed.version));
    let number = |text: &str| Version::parse_tolerant(text).ok();
    match (number(&observed.installed.version), number(&manifest.version)) {
        (Some(old), Some(new)) if new < old && !request.allow_downgrade => {
            check(Level::Failed, format!("{message}, which is older; --allow-downgrade permits it"))
        }
        (Some(_), Some(_)) => check(Level::Passed, message),
        _ => check(Level::Warning, message),
    }
}

/// Reasons for which an existing CRD cannot be replaced: its owner, and stored versions that the new one does not have.
fn crd_failures(manifest: &Manifest, crd: &Value) -> Vec<String> {
    let metadata = &crd["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let release = metadata["annotations"]["meta.helm.sh/release-name"].as_str();
    let owner = metadata["ownerReferences"][0]["name"].as_str().or(release);
    let owned = owner.map(|owner| {
        format!("{name} is managed by {owner}, which would revert changes; upgrade OLM with {owner}")
    });
    let new = manifest.of_kind("CustomResourceDefinition").find(|new| new["metadata"]["name"] == name);
    let versions = new.and_then(|new| new["spec"]["versions"].as_array());
    let is_known = |stored: &str| versions.is_some_and(|all| all.iter().any(|one| one["name"] == stored));
    let stored = crd["status"]["storedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing: Vec<&str> = stored.filter(|stored| !is_known(stored)).collect();
    let missing = (!missing.is_empty()).then(|| {
        let missing = missing.join(", ");
        format!("objects of {name} may be stored as {missing}, which the new CRD does not have")
    });
    owned.into_iter().chain(missing).collect()
}
