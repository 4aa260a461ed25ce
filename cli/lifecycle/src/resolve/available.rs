//! Upgrades that the extensions of a cluster can take now, in the order of their dependencies
//! (docs/design/cli.md#changing-commands).

use std::collections::{BTreeMap, BTreeSet};

use olm_api::ClusterExtension;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_request::request;
use olm_resolve::{Catalog, Request, RequirementVerdict, Resolved, required_members, resolve};

use super::query::Query;
use super::routes::{Environment, UpgradeStep};

/// Available upgrades of the extensions.
#[derive(Debug, Default)]
pub(crate) struct AvailableUpgrades {
    /// Upgrades by step. The members of a step fit only together.
    pub(crate) steps: Vec<Vec<AvailableUpgrade>>,
    /// Best bundle that a rule holds back, with the reason, by extension.
    pub(crate) held: BTreeMap<String, String>,
    /// Errors of the resolution by extension.
    pub(crate) failed: BTreeMap<String, String>,
}

/// Upgrade of one extension.
#[derive(Debug, Clone)]
pub(crate) struct AvailableUpgrade {
    pub(crate) extension: String,
    /// Name of the installed bundle.
    pub(crate) from: String,
    pub(crate) to: UpgradeStep,
    /// Extensions that meet its requirements.
    after: BTreeSet<String>,
    /// Members of the upgrade group without which it does not fit.
    together: BTreeSet<String>,
}

/// Finds the upgrades of the extensions, which have an installed bundle, from the catalogs of the cluster.
///
/// # Errors
/// A catalog cannot be read, or a request is invalid.
pub(crate) async fn available_upgrades(
    controller: &ControllerArgs,
    extensions: &[ClusterExtension],
    access: &Access,
    session: &Session,
) -> Result<AvailableUpgrades, CliError> {
    let Some(environment) = Environment::read(controller, extensions, access, session).await? else {
        return Ok(AvailableUpgrades::default());
    };
    let mut found = AvailableUpgrades::default();
    let mut upgrades = Vec::new();
    for query in &environment.queries {
        let cluster_state = environment.dependencies.cluster_state(query, &environment.catalogs);
        let request = request(&query.filter, query.installed.as_ref(), &query.rules, &cluster_state);
        let catalogs = environment.catalogs.responses(query.package(), &query.selector);
        let resolved = match resolve(&request, &catalogs) {
            Ok(resolved) => resolved,
            Err(error) => {
                match error.held().first() {
                    Some(held) => found.held.insert(query.name().to_owned(), held.to_string()),
                    None => found.failed.insert(query.name().to_owned(), error.to_string()),
                };
                continue;
            }
        };
        if let Some(held) = resolved.held.first() {
            found.held.insert(query.name().to_owned(), held.to_string());
        }
        upgrades.extend(upgrade(query, &request, &catalogs, &resolved));
    }
    found.steps = ordered(upgrades);
    Ok(found)
}

/// Upgrade to the chosen bundle. `None` if it is the installed one.
fn upgrade(
    query: &Query,
    request: &Request<'_>,
    catalogs: &[Catalog],
    resolved: &Resolved,
) -> Option<AvailableUpgrade> {
    let installed = query.installed.as_ref()?;
    let origin = request.installed.and_then(|installed| installed.origin().ok());
    if origin.is_some_and(|origin| origin.version == resolved.version) {
        return None;
    }
    let met = resolved.requirements.iter().filter_map(|one| match &one.verdict {
        RequirementVerdict::Met { by, external: false } => Some(by.clone()),
        _ => None,
    });
    Some(AvailableUpgrade {
        extension: query.name().to_owned(),
        from: installed.name.clone(),
        to: UpgradeStep {
            bundle: resolved.bundle.clone(),
            version: resolved.version.shown(query.rules.settings.releases).0,
            catalog: resolved.catalog.clone(),
            image: resolved.image.clone(),
        },
        after: met.collect(),
        together: required_members(request, catalogs, resolved).into_keys().collect(),
    })
}

/// Steps in which each upgrade follows those that it requires, by name where the order is free. Upgrades that fit only
/// together are one step. Requirements in a cycle, which the installed bundles meet too, order nothing.
fn ordered(mut upgrades: Vec<AvailableUpgrade>) -> Vec<Vec<AvailableUpgrade>> {
    upgrades.sort_by(|a, b| a.extension.cmp(&b.extension));
    let mut steps = Vec::new();
    while let Some(first) = upgrades.first() {
        let is_step =
            |one: &AvailableUpgrade, other: &str| one.extension == other || one.together.contains(other);
        let is_ready = |one: &AvailableUpgrade| {
            let members = upgrades.iter().filter(|member| is_step(one, &member.extension));
            let mut waits = members.flat_map(|member| &member.after);
            !waits.any(|name| !is_step(one, name) && upgrades.iter().any(|other| other.extension == *name))
        };
        let next = upgrades.iter().find(|one| is_ready(one)).unwrap_or(first).clone();
        let (step, rest) = upgrades.into_iter().partition(|one| is_step(&next, &one.extension));
        upgrades = rest;
        steps.push(step);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgrade(extension: &str, after: &[&str], together: &[&str]) -> AvailableUpgrade {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        AvailableUpgrade {
            extension: extension.to_owned(),
            from: format!("{extension}.v1.0.0"),
            to: UpgradeStep {
                bundle: format!("{extension}.v2.0.0"),
                version: "2.0.0".to_owned(),
                catalog: "hub".to_owned(),
                image: String::new(),
            },
            after: names(after),
            together: names(together),
        }
    }

    // Cases additions-a73, additions-a71
    #[test]
    fn providers_are_upgraded_first_and_groups_at_once() {
        for (upgrades, expected) in [
            (vec![], ""),
            (vec![upgrade("b", &[], &[]), upgrade("a", &[], &[])], "a; b"),
            (vec![upgrade("a", &["b"], &[]), upgrade("b", &["c"], &[]), upgrade("c", &[], &[])], "c; b; a"),
            (vec![upgrade("a", &["installed", "a"], &[])], "a"),
            (vec![upgrade("a", &["b"], &["b"]), upgrade("b", &["a"], &["a"])], "a b"),
            (
                vec![upgrade("a", &["c"], &["b"]), upgrade("b", &["a"], &["a"]), upgrade("c", &[], &[])],
                "c; a b",
            ),
            (
                vec![upgrade("a", &["b"], &[]), upgrade("b", &["a"], &[]), upgrade("c", &["b"], &[])],
                "a; b; c",
            ),
        ] {
            let steps = ordered(upgrades);
            let names = |step: &Vec<AvailableUpgrade>| {
                step.iter().map(|one| one.extension.as_str()).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(steps.iter().map(names).collect::<Vec<_>>().join("; "), expected);
        }
    }
}
