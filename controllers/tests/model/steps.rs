//! Steps of an extension, and their random choice. Pure.
//!
//! A step is printed as one line of JSON, so that the test can replay the steps of a failure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::intent::{Config, Denied, Intent, Policy, UninstallPolicy};
use crate::random::Random;
use crate::resolving::RANGES;

/// Number of steps with one restore of etcd.
const STEPS_OF_ROUND: usize = 2_500;

/// Propagation policy of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cascade {
    Background,
    Foreground,
    Orphan,
}

/// Selector of a revision of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Which {
    /// Revision with the highest number.
    Newest,
    /// Active revision with the lowest number.
    Oldest,
}

/// Metadata removed from an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stripped {
    Labels,
    Owners,
    Annotations,
    /// All of these.
    Everything,
    ManagedFields,
}

/// Request with which the adversary writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    Patch,
    /// Forced server-side apply.
    Apply,
    Update,
}

/// Writer of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scaler {
    /// Subresource `scale`.
    Autoscaler,
    /// Subresource `scale`, as `kubectl scale` does.
    Kubectl,
    /// The Deployment itself.
    Editor,
}

/// Kind of foreign object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Foreign {
    /// Without owner and labels.
    Bare,
    /// With a controller.
    Controlled,
    /// With the labels of a different extension.
    Marked,
}

/// Temporary fault of a dependency of operator-controller: the API server, the registry, or a conversion webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Trouble {
    Conflicts,
    ServerErrors,
    Throttling,
    Slowness,
    Lost,
    /// The registry of bundles accepts connections and does not respond.
    Registry,
    /// Conversion of custom resources fails.
    Conversion,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Wait until the state equals the model's prediction.
    Settle,
    /// Create the extension with the current desired spec, or the default one.
    Create,
    /// Delete the extension.
    Delete(Cascade),
    Version(Option<String>),
    Channels(Vec<String>),
    Policy(Policy),
    Config(Config),
    Deadline(Option<i32>),
    /// Disable or enable the CRD upgrade check.
    Unchecked(bool),
    Paused(bool),
    Uninstall(Option<UninstallPolicy>),
    /// Set the versions that a catalog offers.
    Offer(char, BTreeSet<usize>),
    Priority(char, i32),
    CatalogGone(char),
    CatalogBack(char),
    /// Delete the object at this index, modulo the number of the extension's objects.
    Remove(usize),
    /// Change a field that the revision sets.
    Spoil(usize, Request),
    /// Change it again after each correction, this many times.
    Revert(usize, usize),
    /// Set fields that the revision does not set.
    Add(usize, Request),
    Scale(Scaler, i64),
    /// Add a label and an annotation of the user.
    Mark(usize),
    Strip(usize, Stripped),
    /// Add a finalizer that blocks the deletion.
    Hold(usize),
    /// Remove all these finalizers.
    Release,
    /// Create a foreign object with the name of an object of a version.
    Foreign(usize, Foreign),
    /// Replace an object of the extension by a foreign one.
    Replace(usize, Foreign),
    /// Delete every foreign or stripped object.
    Clear,
    /// Delete a Secret with content of a revision.
    LoseSecret(Which),
    Archive(Which),
    RemoveRevision(Which, Cascade),
    /// Create a custom resource of the first kind that exists.
    Instance,
    NoInstances,
    NamespaceGone,
    NamespaceBack,
    Healthy(bool),
    /// Kill the process with SIGKILL and start a new one.
    Restart,
    /// Set the offset of the process's wall clock in seconds.
    Clock(i64),
    Trouble(Trouble),
    Calm,
    /// Deny operator-controller requests by an admission policy.
    Deny(Denied),
    Allow,
    /// Back etcd up, together with all other extensions.
    BackUp,
    /// Restore etcd from the backup, together with all other extensions.
    Restore,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap())
    }
}

/// Steps until the next Settle.
pub(crate) fn burst(random: &mut Random, intent: &Intent) -> Vec<Step> {
    // States that the product cannot repair are fixed with some probability, else the sequence would stop at the
    // first.
    let mut steps = if is_astray(intent) && random.chance(45) { repairs(intent) } else { Vec::new() };
    let count = 1 + random.below(5);
    let choices = choices(random, intent);
    steps.extend((0..count).map(|_| random.weighted(&choices).clone()));
    let has = |steps: &[Step], what: fn(&Step) -> bool| steps.iter().any(what);
    if has(&steps, |step| matches!(step, Step::Trouble(_))) {
        steps.push(Step::Calm);
    }
    steps.push(Step::Settle);
    steps
}

fn is_astray(intent: &Intent) -> bool {
    intent.desired_spec.as_ref().is_none_or(|desired_spec| desired_spec.paused)
        || !intent.namespace
        || !intent.healthy
        || !intent.foreign.is_empty()
        || !intent.held.is_empty()
        || !intent.stripped.is_empty()
        || intent.denied.is_some()
        || intent.served_catalogs().is_empty()
}

/// Steps that remove every obstacle.
pub(crate) fn repairs(intent: &Intent) -> Vec<Step> {
    let mut steps = vec![Step::Allow, Step::Release, Step::Clear, Step::Healthy(true)];
    if !intent.namespace {
        steps.push(Step::NamespaceBack);
    }
    if intent.served_catalogs().is_empty() {
        steps.push(Step::CatalogBack('a'));
    }
    match &intent.desired_spec {
        None => steps.push(Step::Create),
        Some(desired_spec) if desired_spec.paused => steps.push(Step::Paused(false)),
        Some(_) => {}
    }
    steps
}

fn choices(random: &mut Random, intent: &Intent) -> Vec<(usize, Step)> {
    let mut choices = everywhere(random);
    choices.extend(of_catalogs(random, intent));
    if intent.desired_spec.is_some() {
        choices.extend(of_spec(random));
    } else {
        choices.push((40, Step::Create));
    }
    choices.push(match intent.namespace {
        true => (1, Step::NamespaceGone),
        false => (20, Step::NamespaceBack),
    });
    choices.push((if intent.healthy { 4 } else { 15 }, Step::Healthy(!intent.healthy)));
    if intent.has_adversary {
        choices.push(match intent.denied {
            None => (4, Step::Deny(*random.one(&[Denied::Writes, Denied::Deletions]))),
            Some(_) => (20, Step::Allow),
        });
        choices.extend(of_adversary(random));
    }
    choices
}

fn of_spec(random: &mut Random) -> Vec<(usize, Step)> {
    let range = RANGES[random.below(RANGES.len())].0.to_owned();
    let channels = [vec![], vec!["stable"], vec!["next"], vec!["stable", "next"]];
    let channels = random.one(&channels).iter().map(|channel| (*channel).to_owned()).collect();
    let config = match random.below(8) {
        0..3 => Config::None,
        3..7 => Config::Env(random.below(3).to_string()),
        _ => Config::Invalid,
    };
    let uninstall = [
        None,
        Some(UninstallPolicy::Delete),
        Some(UninstallPolicy::KeepCrds),
        Some(UninstallPolicy::BlockIfInUse),
    ];
    let cascade = [Cascade::Background, Cascade::Background, Cascade::Foreground, Cascade::Orphan];
    vec![
        (8, Step::Version(random.chance(60).then_some(range))),
        (4, Step::Channels(channels)),
        (
            5,
            Step::Policy(*random.one(&[
                Policy::SelfCertified,
                Policy::SelfCertified,
                Policy::CatalogProvided,
            ])),
        ),
        (6, Step::Config(config)),
        (2, Step::Deadline(random.chance(70).then(|| 10 + random.below(3) as i32))),
        (3, Step::Unchecked(random.chance(60))),
        (2, Step::Paused(random.chance(60))),
        (3, Step::Uninstall(*random.one(&uninstall))),
        (3, Step::Delete(*random.one(&cascade))),
    ]
}

fn of_catalogs(random: &mut Random, intent: &Intent) -> Vec<(usize, Step)> {
    let letter = *random.one(&['a', 'a', 'a', 'b']);
    let exists = intent.catalogs[&letter].exists;
    let low = random.below(3);
    let mut offered: BTreeSet<usize> = (low..=low + random.below(4 - low)).collect();
    if random.chance(50) {
        offered.insert(4);
    }
    match exists {
        true => vec![
            (6, Step::Offer(letter, offered)),
            (2, Step::Priority(letter, *random.one(&[-1, 0, 1]))),
            (1, Step::CatalogGone(letter)),
        ],
        false => vec![(3, Step::CatalogBack(letter))],
    }
}

fn of_adversary(random: &mut Random) -> Vec<(usize, Step)> {
    let (spoiled, reverted, added) = (random.below(1000), random.below(1000), random.below(1000));
    let requests = [Request::Patch, Request::Apply, Request::Update];
    let scalers = [Scaler::Autoscaler, Scaler::Kubectl, Scaler::Editor];
    vec![
        (8, Step::Spoil(spoiled, *random.one(&requests))),
        (1, Step::Revert(reverted, *random.one(&[2, 3, 8]))),
        (5, Step::Add(added, *random.one(&requests))),
        (4, Step::Scale(*random.one(&scalers), *random.one(&[0, 2, 3]))),
    ]
}

fn everywhere(random: &mut Random) -> Vec<(usize, Step)> {
    let mut place = || random.below(1000);
    let (removed, marked, stripped, held) = (place(), place(), place(), place());
    let (foreign, replaced) = (place(), place());
    let which = *random.one(&[Which::Newest, Which::Oldest]);
    let cascade = *random.one(&[Cascade::Background, Cascade::Background, Cascade::Orphan]);
    let taken = [
        Stripped::Labels,
        Stripped::Owners,
        Stripped::Annotations,
        Stripped::Everything,
        Stripped::ManagedFields,
        Stripped::ManagedFields,
    ];
    let others = [Foreign::Bare, Foreign::Controlled, Foreign::Marked];
    let troubles = [
        Trouble::Conflicts,
        Trouble::ServerErrors,
        Trouble::Throttling,
        Trouble::Slowness,
        Trouble::Lost,
        Trouble::Registry,
        Trouble::Conversion,
    ];
    vec![
        (10, Step::Remove(removed)),
        (6, Step::Mark(marked)),
        (8, Step::Strip(stripped, *random.one(&taken))),
        (2, Step::Hold(held)),
        (2, Step::Release),
        (4, Step::Foreign(foreign, *random.one(&others))),
        (2, Step::Replace(replaced, *random.one(&others))),
        (2, Step::Clear),
        (3, Step::LoseSecret(which)),
        (2, Step::Archive(which)),
        (2, Step::RemoveRevision(which, cascade)),
        (4, Step::Instance),
        (2, Step::NoInstances),
        (1, Step::Restart),
        (2, Step::Clock(*random.one(&[-600, 0, 3600]))),
        (2, Step::Trouble(*random.one(&troubles))),
    ]
}

/// Numbers of steps left at which all extensions back etcd up, and then restore it, descending.
pub(crate) fn turns(count: usize) -> Vec<(usize, Step)> {
    let rounds = (count / STEPS_OF_ROUND).max(1);
    let round = |index: usize| {
        let (start, size) = (count - index * count / rounds, count / rounds);
        [(start - size * 2 / 5, Step::BackUp), (start - size * 3 / 5, Step::Restore)]
    };
    (0..rounds).flat_map(round).collect()
}

/// Subsequences with some steps left out, shortest first, to search for a shorter failing sequence.
pub(crate) fn shorter(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    let mut size = steps.len() / 2;
    while size > 0 {
        for from in (0..steps.len()).step_by(size) {
            let to = (from + size).min(steps.len());
            all.push([&steps[..from], &steps[to..]].concat());
        }
        size /= 2;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_round_trip_through_json_and_depend_only_on_the_seed() {
        let steps = |seed| {
            let mut random = Random::new(seed, 0);
            (0..200).flat_map(|_| burst(&mut random, &Intent::new("m1"))).collect::<Vec<_>>()
        };
        assert_eq!(steps(3), steps(3));
        for step in steps(3) {
            assert_eq!(serde_json::from_str::<Step>(&step.to_string()).unwrap(), step);
        }
    }

    #[test]
    fn random_steps_include_every_kind() {
        let mut kinds = BTreeSet::new();
        let mut random = Random::new(1, 0);
        let mut odd = Intent::new("m1");
        odd.desired_spec = Some(crate::intent::DesiredSpec { paused: true, ..Default::default() });
        odd.namespace = false;
        odd.denied = Some(Denied::Writes);
        odd.has_adversary = true;
        let even = Intent { has_adversary: true, ..Intent::new("m1") };
        for intent in [even, odd] {
            for step in (0..3000).flat_map(|_| burst(&mut random, &intent)) {
                kinds.insert(
                    step.to_string().trim_start_matches(['"', '{']).split('"').next().unwrap().to_owned(),
                );
            }
        }
        assert_eq!(kinds.len(), 41, "{kinds:?}");
    }

    #[test]
    fn etcd_is_restored_once_in_each_round() {
        assert_eq!(turns(1000), [(600, Step::BackUp), (400, Step::Restore)]);
        let all = turns(10_000);
        assert_eq!((all.len(), all[0].0, all[7].0), (8, 9_000, 1_000));
        assert!(all.is_sorted_by_key(|(left, _)| std::cmp::Reverse(*left)));
    }

    #[test]
    fn shorter_runs_are_subsequences() {
        let steps = [Step::Create, Step::Settle, Step::Clear, Step::Release];
        let all = shorter(&steps);
        assert_eq!(all[0], [Step::Clear, Step::Release]);
        assert_eq!(all.len(), 2 + 4);
        assert!(all.iter().all(|part| part.len() < steps.len()));
        assert!(shorter(&steps[..1]).iter().all(Vec::is_empty));
    }
}
