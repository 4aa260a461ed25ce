//! Step of an upgrade group: the next bundles of all members, made together
//! (docs/design/additions.md#upgrade-groups).

use std::collections::BTreeMap;

use crate::catalog::Catalog;
use crate::constraint::{AvailableProviders, Provider, Requirement, RequirementVerdict};
use crate::dependency::{as_provider, broken};
use crate::error::ResolveError;
use crate::request::Request;
use crate::resolver::{Resolved, resolve};
use crate::rules::{DependencyMode, Dependent, Rules};

/// Member of an upgrade group, with an installed bundle.
#[derive(Debug, Clone)]
pub struct Member<'a> {
    /// Name of the extension.
    pub extension: &'a str,
    /// Request of the extension. Its providers and dependents are not used.
    pub request: Request<'a>,
    /// Catalogs of the request.
    pub catalogs: &'a [Catalog],
    /// Bundle that already rolls out, if any.
    pub moved: Option<Provider>,
    /// `true` if the member may break dependents.
    pub ignores_dependents: bool,
    /// Reason for which the member takes no bundle, if any.
    pub blocker: Option<String>,
}

/// Step of an upgrade group, for one of its members.
#[derive(Debug, Clone)]
pub enum GroupStep {
    /// All members can take their next bundle.
    Together {
        /// Next bundle of this member.
        bundle: String,
        /// Next bundles of the other members that have not moved yet, by extension.
        others: BTreeMap<String, String>,
        /// Providers after the step, without this member.
        providers: AvailableProviders,
        /// Dependents that the step must not break.
        dependents: Vec<Dependent>,
    },
    /// A member cannot take its next bundle.
    Held {
        /// Name of the extension.
        member: String,
        /// Cause.
        cause: String,
    },
}

/// Next bundle of a member, other than its installed one.
struct Next<'m, 'a> {
    member: &'m Member<'a>,
    provider: Provider,
    /// `None` if the bundle already rolls out.
    resolved: Option<Resolved>,
}

/// Step of a group for the member `extension`. `None` if this member has no next bundle, or holds the group.
///
/// The next bundle of a member is its choice if dependencies did not matter. The step is possible if afterwards every
/// requirement of these bundles is met, and every requirement of the `dependents` outside of the step. `available` are the
/// providers without the installed bundle of `extension`. The order of the members does not matter, and every member
/// gets the same step.
pub fn group_step(
    extension: &str,
    members: &[Member<'_>],
    available: &AvailableProviders,
    dependents: &[Dependent],
) -> Option<GroupStep> {
    let mut members: Vec<&Member<'_>> = members.iter().collect();
    members.sort_by_key(|member| member.extension);
    let mut moving = Vec::new();
    let mut held = None;
    for member in members {
        match next(member) {
            Ok(next) => moving.extend(next),
            Err(cause) => {
                held.get_or_insert_with(|| GroupStep::Held { member: member.extension.to_owned(), cause });
            }
        }
    }
    let own = moving.iter().find(|next| next.member.extension == extension)?.resolved.as_ref()?;
    let moves = |name: Option<&str>| moving.iter().any(|next| Some(next.member.extension) == name);
    let staying = available.providers.iter().filter(|provider| !moves(provider.extension())).cloned();
    let mut after = AvailableProviders {
        providers: staying.chain(moving.iter().map(|next| next.provider.clone())).collect(),
        served: available.served.clone(),
    };
    let mut dependents: Vec<Dependent> =
        dependents.iter().filter(|one| !moves(Some(&one.extension))).cloned().collect();
    if moving.iter().all(|next| next.resolved.is_none() || next.member.ignores_dependents) {
        dependents.clear();
    }
    if let Some(held) =
        held.or_else(|| unmet(&moving, &after)).or_else(|| breaks(&moving, &after, &dependents))
    {
        // The rules of its own bundles report the cause that holds this member itself.
        return Some(held)
            .filter(|held| !matches!(held, GroupStep::Held { member, .. } if member == extension));
    }
    let bundle = own.bundle.clone();
    let others = moving.iter().filter(|next| next.member.extension != extension);
    let others = others
        .filter_map(|next| Some((next.member.extension.to_owned(), next.resolved.as_ref()?.bundle.clone())))
        .collect();
    after.providers.retain(|provider| provider.extension() != Some(extension));
    Some(GroupStep::Together { bundle, others, providers: after, dependents })
}

/// Next bundles of the other members without which the resolver would not choose `resolved`, by extension. `request` is
/// the one that it answers.
pub fn required_members(
    request: &Request<'_>,
    catalogs: &[Catalog],
    resolved: &Resolved,
) -> BTreeMap<String, String> {
    let Some(GroupStep::Together { bundle, others, .. }) = request.rules.group else {
        return BTreeMap::new();
    };
    let rules = Rules { group: None, ..request.rules };
    let fits_alone = || {
        let alone = resolve(&Request { rules, ..*request }, catalogs);
        alone.is_ok_and(|alone| alone.bundle == resolved.bundle)
    };
    if *bundle == resolved.bundle && !fits_alone() { others.clone() } else { BTreeMap::new() }
}

/// Next bundle of a member, or the reason for which it cannot take one. `Ok(None)` if it has none.
fn next<'m, 'a>(member: &'m Member<'a>) -> Result<Option<Next<'m, 'a>>, String> {
    if let Some(provider) = member.moved.clone() {
        return Ok(Some(Next { member, provider, resolved: None }));
    }
    let rules = Rules {
        dependencies: DependencyMode::Report,
        providers: None,
        dependents: &[],
        group: None,
        ..member.request.rules
    };
    let resolved = match resolve(&Request { rules, ..member.request }, member.catalogs) {
        Ok(resolved) => resolved,
        Err(error) => {
            let stays = matches!(error.cause(), ResolveError::NoBundle(_) | ResolveError::HeldBack { .. });
            return if stays { Ok(None) } else { Err(error.to_string()) };
        }
    };
    let installed = member.request.installed.and_then(|installed| installed.origin().ok());
    if installed.is_some_and(|installed| installed.version == resolved.version) {
        return Ok(None);
    }
    if let Some(blocker) = &member.blocker {
        return Err(format!("bundle {} waits: {blocker}", resolved.bundle));
    }
    let offered = as_provider(resolved.offer());
    let provider = Provider::new(
        Some(member.extension.to_owned()),
        offered.bundle().to_owned(),
        offered.properties().to_vec(),
    );
    Ok(Some(Next { member, provider, resolved: Some(resolved) }))
}

/// First requirement of a next bundle that is not met after the step.
fn unmet(moving: &[Next<'_, '_>], after: &AvailableProviders) -> Option<GroupStep> {
    moving.iter().find_map(|next| {
        let Resolved { bundle, .. } = next.resolved.as_ref()?;
        let requirements = next.resolved.as_ref()?.offer().requirements();
        let counts = |one: &&Requirement| next.member.request.rules.counts(one.property_type());
        let is_unmet = |one: &&Requirement| !matches!(one.verdict(after), RequirementVerdict::Met { .. });
        let unmet = requirements.iter().filter(counts).find(is_unmet)?;
        let cause = format!("bundle {bundle} requires an operator {unmet}");
        Some(GroupStep::Held { member: next.member.extension.to_owned(), cause })
    })
}

/// First dependent that the step would break. It is reported for the first member that moves.
fn breaks(
    moving: &[Next<'_, '_>],
    after: &AvailableProviders,
    dependents: &[Dependent],
) -> Option<GroupStep> {
    let next = moving.iter().find(|next| next.resolved.is_some())?;
    let cause = broken(dependents, |one| matches!(one.verdict(after), RequirementVerdict::Met { .. }))?;
    Some(GroupStep::Held { member: next.member.extension.to_owned(), cause })
}
