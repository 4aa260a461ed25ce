//! Expected version of the newest revision, and the expected condition if it has a different one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::intent::{Catalog, Config, DesiredSpec, Intent};
use crate::resolving::{admits, resolve};
use crate::settled::{Judge, Window};
use crate::snapshot::{Condition, Revision, Snapshot, condition, difference};
use crate::universe::{CONTAINER, DEFINED, Key, VERSIONS, fields, group, objects};

/// Expected outcome of a reconcile.
enum Verdict {
    Active,
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
pub(crate) fn is_spec_applied(intent: &Intent, window: &Window, snapshot: &Snapshot) -> bool {
    let judge = Judge { intent, window, snapshot, faults: Vec::new() };
    let (Some(desired_spec), Some(extension)) = (&intent.desired_spec, &snapshot.extension) else {
        return false;
    };
    let installed = snapshot.installed();
    let check_active =
        |has_passed| matches!(judge.verdict(desired_spec, installed, false, has_passed), Verdict::Active);
    let is_active = check_active(false)
        || check_active(true) && judge.check_active(desired_spec, extension, installed).is_empty();
    !desired_spec.paused && is_active
}

impl Judge<'_> {
    /// Faults of the extension's progress. Without an edit, an unfinished rollout remains. It may also remain if it was
    /// chosen for an edit before the installed revision rolled out.
    pub(crate) fn progress_faults(
        &self,
        desired_spec: &DesiredSpec,
        extension: &Value,
        installed: Option<&Revision>,
    ) -> Vec<String> {
        let faults = |is_free, has_passed| {
            let verdict = self.verdict(desired_spec, installed, is_free, has_passed);
            self.against(verdict, desired_spec, extension, installed)
        };
        let is_free = !self.window.edited;
        let is_replaced = installed.and_then(Revision::version) != self.window.installed;
        let passed = faults(is_free, true);
        // The product may see an edit and a catalog change in any order.
        let is_refused = || !is_free && faults(false, false).is_empty();
        let mut rolling = self.snapshot.active().filter(|revision| !revision.has_succeeded());
        let is_for_edit =
            rolling.next_back().is_some_and(|revision| self.has_content(revision, desired_spec));
        let remains = || is_replaced && is_for_edit && faults(true, true).is_empty();
        let is_restored = || self.window.restored && faults(!is_free, true).is_empty();
        if passed.is_empty() || is_refused() || remains() || is_restored() { Vec::new() } else { passed }
    }

    /// Differences from the verdict.
    fn against(
        &self,
        verdict: Verdict,
        desired_spec: &DesiredSpec,
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
            Verdict::Active => self.check_active(desired_spec, extension, installed),
        }
    }

    fn check_active(
        &self,
        desired_spec: &DesiredSpec,
        extension: &Value,
        installed: Option<&Revision>,
    ) -> Vec<String> {
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
        if deadline != desired_spec.deadline.map(i64::from) {
            faults.push(format!("{}: the deadline is {deadline:?}", newest.name()));
        }
        if newest.content.is_none() {
            faults.push(format!("a Secret of {} is missing", newest.name()));
        }
        faults
    }

    /// Compares the newest revision with the spec. With `has_passed`, a version that a catalog offered in the
    /// meantime is acceptable too.
    fn verdict(
        &self,
        desired_spec: &DesiredSpec,
        installed: Option<&Revision>,
        is_free: bool,
        has_passed: bool,
    ) -> Verdict {
        let installed_version = installed.and_then(Revision::version);
        let rolling = self.snapshot.active().rfind(|revision| !revision.has_succeeded());
        let is_admitted =
            |revision: &&Revision| revision.version().is_some_and(|version| admits(desired_spec, version));
        let in_progress = rolling.filter(is_admitted).filter(|_| is_free);
        let kept =
            rolling.or(installed).filter(is_admitted).filter(|_| self.intent.served_catalogs().is_empty());
        let resolved = resolve(self.intent, desired_spec, installed_version);
        let newest = self.snapshot.newest().filter(|newest| newest.is_active());
        let is_newest = |version: usize| {
            newest.is_some_and(|newest| {
                newest.version() == Some(version) && self.has_content(newest, desired_spec)
            })
        };
        // An unfinished rollout remains although the catalogs have changed.
        let is_passed = |served_catalogs: &BTreeMap<char, Catalog>| {
            let before = Intent { catalogs: served_catalogs.clone(), ..self.intent.clone() };
            let was_expected = resolve(&before, desired_spec, installed_version);
            was_expected.is_ok_and(|version| is_newest(version) && rolling.is_some())
        };
        let is_in_progress =
            in_progress.is_some() || has_passed && self.window.catalog_states.iter().any(is_passed);
        let target = match (resolved, kept.and_then(Revision::version)) {
            (Ok(version), _) | (Err(_), Some(version)) => version,
            (Err(_), None) if is_in_progress && desired_spec.config != Config::Invalid => {
                return Verdict::Active;
            }
            (Err(text), None) => return Verdict::Refused("Retrying", text),
        };
        if desired_spec.config == Config::Invalid {
            return Verdict::Refused(
                "InvalidConfiguration",
                "invalid ClusterExtension configuration: ".to_owned(),
            );
        }
        if is_newest(target) || is_in_progress {
            return Verdict::Active;
        }
        if !desired_spec.unchecked && self.is_unsafe(target) {
            return Verdict::Refused("Retrying", "validating upgrade for CRD ".to_owned());
        }
        let is = newest.map_or_else(
            || "no active revision".to_owned(),
            |newest| {
                format!("{} of {:?}", newest.name(), newest.version().map(|version| VERSIONS[version].text))
            },
        );
        let text = VERSIONS[target].text;
        Verdict::Pending(format!("the newest is {is}, and {text} with {:?} is expected", desired_spec.config))
    }

    /// Reports whether a revision's content matches the version and configuration. `true` if the content cannot be
    /// read.
    fn has_content(&self, revision: &Revision, desired_spec: &DesiredSpec) -> bool {
        let Some(version) = revision.version() else { return false };
        if revision.content.is_none() {
            return true;
        }
        let expected = objects(&self.intent.name, &VERSIONS[version], desired_spec.env());
        let kinds: BTreeSet<&str> =
            ["ConfigMap", "Service", "PriorityClass", "CustomResourceDefinition", "Deployment"].into();
        let listed: BTreeSet<Key> =
            revision.objects().map(Key::of).filter(|key| kinds.contains(key.kind.as_str())).collect();
        listed == expected.keys().cloned().collect()
            && revision.objects().all(|object| {
                let key = Key::of(object);
                let object_agrees = |desired| difference(desired, object, "").is_none();
                let agrees = expected.get(&key).is_none_or(object_agrees);
                agrees && (key.kind != "Deployment" || env(object) == desired_spec.env())
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
