//! Expected version of the newest revision, and the expected condition if it has a different one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::intent::{Catalog, Config, Intent, Wish};
use crate::resolving::{admits, resolve};
use crate::settled::{Judge, Window};
use crate::snapshot::{Condition, Revision, Snapshot, condition, difference};
use crate::universe::{CONTAINER, DEFINED, Key, VERSIONS, fields, group, objects};

/// Expected outcome of a reconcile.
enum Verdict {
    InForce,
    /// Reason, and a part of the message.
    Refused(&'static str, String),
    /// The extension must not be settled.
    Pending(String),
}

/// CRDs of a version, as numbers of fields.
struct Version {
    widgets: Option<usize>,
    gadgets: Option<usize>,
}

impl Version {
    fn of(version: usize) -> Self {
        Self { widgets: VERSIONS[version].widgets, gadgets: VERSIONS[version].gadgets }
    }
}

/// Reports whether the newest revision has what the spec requests, so that the last edit has taken effect.
pub(crate) fn is_honoured(intent: &Intent, window: &Window, snapshot: &Snapshot) -> bool {
    let judge = Judge { intent, window, snapshot, faults: Vec::new() };
    let (Some(wish), Some(extension)) = (&intent.wish, &snapshot.extension) else { return false };
    let installed = snapshot.installed();
    let in_force = |has_passed| matches!(judge.verdict(wish, installed, false, has_passed), Verdict::InForce);
    let is_in_force =
        in_force(false) || in_force(true) && judge.in_force(wish, extension, installed).is_empty();
    !wish.paused && is_in_force
}

impl Judge<'_> {
    /// Faults of the extension's progress. Without an edit, an unfinished rollout remains. It may also remain if it was
    /// chosen for an edit before the installed revision rolled out.
    pub(crate) fn progress_faults(
        &self,
        wish: &Wish,
        extension: &Value,
        installed: Option<&Revision>,
    ) -> Vec<String> {
        let faults = |is_free, has_passed| {
            let verdict = self.verdict(wish, installed, is_free, has_passed);
            self.against(verdict, wish, extension, installed)
        };
        let is_free = !self.window.edited;
        let is_replaced = installed.and_then(Revision::version) != self.window.installed;
        let passed = faults(is_free, true);
        // The product may see an edit and a catalog change in any order.
        let is_refused = || !is_free && faults(false, false).is_empty();
        let mut rolling = self.snapshot.active().filter(|revision| !revision.has_succeeded());
        let is_for_edit = rolling.next_back().is_some_and(|revision| self.has_content(revision, wish));
        let remains = || is_replaced && is_for_edit && faults(true, true).is_empty();
        let is_restored = || self.window.restored && faults(!is_free, true).is_empty();
        if passed.is_empty() || is_refused() || remains() || is_restored() { Vec::new() } else { passed }
    }

    /// Differences from the verdict.
    fn against(
        &self,
        verdict: Verdict,
        wish: &Wish,
        extension: &Value,
        installed: Option<&Revision>,
    ) -> Vec<String> {
        match verdict {
            Verdict::Pending(text) => vec![text],
            Verdict::Refused(reason, message) => {
                let status = if reason == "Retrying" { "True" } else { "False" };
                let has = condition(extension, "Progressing");
                let fits = |has: &Condition| {
                    has.status == status && has.reason == reason && has.message.contains(&message)
                };
                if has.as_ref().is_some_and(fits) {
                    return Vec::new();
                }
                vec![format!("Progressing is {has:?}, not {status}/{reason} {message}")]
            }
            Verdict::InForce => self.in_force(wish, extension, installed),
        }
    }

    fn in_force(&self, wish: &Wish, extension: &Value, installed: Option<&Revision>) -> Vec<String> {
        let (snapshot, mut faults) = (self.snapshot, Vec::new());
        let rolling = snapshot.active().rfind(|revision| !revision.has_succeeded());
        let source = rolling.or(installed);
        let shown = |object: &Value| {
            condition(object, "Progressing")
                .map(|Condition { status, reason, message, .. }| (status, reason, message))
        };
        let (has, wants) = (shown(extension), source.and_then(|revision| shown(&revision.object)));
        if has != wants {
            faults.push(format!("Progressing is {has:?}, not {wants:?}"));
        }
        let Some(newest) = snapshot.newest() else { return faults };
        let deadline = newest.object.pointer("/spec/progressDeadlineMinutes").and_then(Value::as_i64);
        if deadline != wish.deadline.map(i64::from) {
            faults.push(format!("{}: the deadline is {deadline:?}", newest.name()));
        }
        if newest.content.is_none() {
            faults.push(format!("a Secret of {} is missing", newest.name()));
        }
        faults
    }

    /// Compares the newest revision with the spec. With `has_passed`, a version that a catalog offered in the
    /// meantime is acceptable too.
    fn verdict(&self, wish: &Wish, installed: Option<&Revision>, is_free: bool, has_passed: bool) -> Verdict {
        let installed_version = installed.and_then(Revision::version);
        let rolling = self.snapshot.active().rfind(|revision| !revision.has_succeeded());
        let is_admitted =
            |revision: &&Revision| revision.version().is_some_and(|version| admits(wish, version));
        let underway = rolling.filter(is_admitted).filter(|_| is_free);
        let kept = rolling.or(installed).filter(is_admitted).filter(|_| self.intent.market().is_empty());
        let resolved = resolve(self.intent, wish, installed_version);
        let newest = self.snapshot.newest().filter(|newest| newest.is_active());
        let is_newest = |version: usize| {
            newest.is_some_and(|newest| newest.version() == Some(version) && self.has_content(newest, wish))
        };
        // An unfinished rollout remains although the catalogs have changed.
        let is_passed = |market: &BTreeMap<char, Catalog>| {
            let before = Intent { catalogs: market.clone(), ..self.intent.clone() };
            let was_expected = resolve(&before, wish, installed_version);
            was_expected.is_ok_and(|version| is_newest(version) && rolling.is_some())
        };
        let is_underway = underway.is_some() || has_passed && self.window.markets.iter().any(is_passed);
        let target = match (resolved, kept.and_then(Revision::version)) {
            (Ok(version), _) | (Err(_), Some(version)) => version,
            (Err(_), None) if is_underway && wish.config != Config::Invalid => return Verdict::InForce,
            (Err(text), None) => return Verdict::Refused("Retrying", text),
        };
        if wish.config == Config::Invalid {
            return Verdict::Refused(
                "InvalidConfiguration",
                "invalid ClusterExtension configuration: ".to_owned(),
            );
        }
        if is_newest(target) || is_underway {
            return Verdict::InForce;
        }
        if !wish.unchecked && self.is_unsafe(target) {
            return Verdict::Refused("Retrying", "validating upgrade for CRD ".to_owned());
        }
        let is = newest.map_or_else(
            || "no active revision".to_owned(),
            |newest| {
                format!("{} of {:?}", newest.name(), newest.version().map(|version| VERSIONS[version].text))
            },
        );
        let text = VERSIONS[target].text;
        Verdict::Pending(format!("the newest is {is}, and {text} with {:?} is expected", wish.config))
    }

    /// Reports whether a revision's content matches the version and configuration. `true` if the content cannot be
    /// read.
    fn has_content(&self, revision: &Revision, wish: &Wish) -> bool {
        let Some(version) = revision.version() else { return false };
        if revision.content.is_none() {
            return true;
        }
        let expected = objects(&self.intent.name, &VERSIONS[version], wish.env());
        let kinds: BTreeSet<&str> =
            ["ConfigMap", "Service", "PriorityClass", "CustomResourceDefinition", "Deployment"].into();
        let listed: BTreeSet<Key> =
            revision.objects().map(Key::of).filter(|key| kinds.contains(key.kind.as_str())).collect();
        listed == expected.keys().cloned().collect()
            && revision.objects().all(|object| {
                let key = Key::of(object);
                let object_agrees = |desired| difference(desired, object, "").is_none();
                let agrees = expected.get(&key).is_none_or(object_agrees);
                agrees && (key.kind != "Deployment" || env(object) == wish.env())
            })
    }

    /// Reports whether an existing CRD has a field that the version's CRD lacks.
    fn is_unsafe(&self, version: usize) -> bool {
        let Version { widgets, gadgets } = Version::of(version);
        DEFINED.iter().zip([widgets, gadgets]).any(|(plural, new)| {
            let key =
                Key::new("CustomResourceDefinition", "", &format!("{plural}.{}", group(&self.intent.name)));
            let live = self.snapshot.objects.get(&key).map(|live| fields(live));
            new.zip(live).is_some_and(|(new, live)| live > new)
        })
    }
}

/// Value of the environment variable of the model.
pub(crate) fn env(deployment: &Value) -> Option<&str> {
    let containers = deployment.pointer("/spec/template/spec/containers")?.as_array()?;
    let all = containers.iter().find(|one| one["name"] == CONTAINER)?["env"].as_array()?;
    all.iter().find(|one| one["name"] == "MODEL")?["value"].as_str()
}
