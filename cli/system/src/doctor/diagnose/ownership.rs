//! Findings about other installations, classic OLM, objects without owner, and pull Secrets.

use std::collections::{BTreeMap, BTreeSet};

use olm_cli_core::output::counted;
use serde_json::Value;

use super::servers::SERVERS;
use super::{Finding, finding};
use crate::doctor::observed::{Observed, label, name, owner, text, title};
use crate::doctor::rule;

/// Label of the Deployments and namespaces of every installation (docs/design/operations.md#multiple-installations).
const PART_OF: &str = "app.kubernetes.io/part-of";
/// Highest number of names in a message.
const NAMED: usize = 5;

pub(super) fn findings(observed: &Observed) -> Vec<Finding> {
    let mut findings = installations(observed);
    findings.extend(classic(observed));
    findings.extend(orphans(observed));
    for secret in &observed.pull_secrets {
        if let Err(why) = &secret.registries {
            findings.push(finding(&rule::PULL_SECRET, format!("Secret {}", secret.name), why));
        }
    }
    findings
}

fn installations(observed: &Observed) -> Vec<Finding> {
    let names = SERVERS.map(|server| server.deployment_name());
    let labeled: BTreeSet<&str> =
        observed.list("Namespace").iter().filter(|one| label(one, PART_OF) == "olm").map(name).collect();
    let others = observed.list("Deployment").iter().filter(|one| {
        let namespace = text(one, "/metadata/namespace");
        names.iter().any(|known| known == name(one))
            && namespace != observed.namespace
            && labeled.contains(namespace)
    });
    let namespaces: BTreeSet<&str> = others.map(|one| text(one, "/metadata/namespace")).collect();
    let finding = |namespace: &str| {
        let message =
            format!("its servers and those of namespace {} manage the same objects", observed.namespace);
        finding(&rule::SECOND, format!("Namespace {namespace}"), message)
    };
    namespaces.into_iter().map(finding).collect()
}

fn classic(observed: &Observed) -> Vec<Finding> {
    let twins = observed.classic.iter().filter_map(|package| {
        let why = package.twin.as_ref()?;
        Some(finding(&rule::CLASSIC_TWIN, format!("Subscription {}", package.name), why))
    });
    let mut findings: Vec<Finding> = twins.collect();
    if !observed.classic.is_empty() {
        let names = observed.classic.iter().map(|package| package.name.clone()).collect();
        let message = format!("{}: {}", counted(observed.classic.len(), "package"), some(names));
        findings.push(finding(&rule::CLASSIC, "Subscriptions", message));
    }
    findings
}

/// Objects with the owner labels of extensions that do not exist, unless a revision of the extension is still being
/// deleted, with its objects.
fn orphans(observed: &Observed) -> Vec<Finding> {
    if observed.is_unreadable("clusterextensions") {
        return Vec::new();
    }
    let mut extensions: BTreeSet<&str> = observed.list("ClusterExtension").iter().map(name).collect();
    let revisions = observed.list("ClusterObjectSet").iter();
    extensions
        .extend(revisions.filter(|set| !text(set, "/metadata/deletionTimestamp").is_empty()).map(owner));
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (kind, objects) in &observed.objects {
        let is_orphan = |object: &&Value| !owner(object).is_empty() && !extensions.contains(owner(object));
        for object in objects.iter().filter(is_orphan) {
            found.entry(owner(object)).or_default().push(title(kind, object));
        }
    }
    let finding = |(extension, objects): (&str, Vec<String>)| {
        let message = format!("{}: {}", counted(objects.len(), "object"), some(objects));
        finding(&rule::ORPHANS, format!("ClusterExtension {extension}"), message)
    };
    found.into_iter().map(finding).collect()
}

/// Names, cut to the first ones.
fn some(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
