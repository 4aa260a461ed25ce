//! Text output of the state of extensions.
//!
//! Pure: `now` is a parameter.

use k8s_openapi::jiff::Timestamp;
use olm_api::Condition;
use olm_api::conditions::{Status, types};
use olm_cli_core::output::{Fields, Table};
use olm_version::Version;

use super::age::age;
use super::objects::{ObjectState, PhaseProgress, PhaseState};
use super::tree::{ExtensionState, RevisionState, RolloutStage};

/// Highest number of ready objects per phase that are listed.
const SHOWN: usize = 10;
/// Deprecation conditions, which are printed only if True.
const DEPRECATIONS: [&str; 4] =
    [types::DEPRECATED, types::PACKAGE_DEPRECATED, types::CHANNEL_DEPRECATED, types::BUNDLE_DEPRECATED];

/// Conditions that repeat others, which are printed only with `wide`.
const SUMMARY: [&str; 3] = [types::READY, types::RECONCILING, types::STALLED];

/// Table with one row per extension.
pub(crate) fn list(extensions: &[ExtensionState], now: Timestamp, wide: bool) -> String {
    if extensions.is_empty() {
        return "The cluster has no ClusterExtensions.\n".to_owned();
    }
    let mut columns =
        vec!["NAME", "PACKAGE", "INSTALLED", "VERSION", "AVAILABLE", "HELD-BY", "HEALTH", "AGE"];
    if wide {
        columns.extend(["NAMESPACE", "REQUESTED", "MESSAGE"]);
    }
    let mut table = Table::new(&columns);
    for extension in extensions {
        let installed = extension.installed.as_ref();
        let held: Vec<&str> = extension.holds.iter().map(|hold| hold.by.as_str()).collect();
        let mut cells = vec![
            extension.name.clone(),
            extension.package.clone(),
            installed.map(|bundle| bundle.name.clone()).unwrap_or_default(),
            installed.map(|bundle| bundle.version.clone()).unwrap_or_default(),
            extension.available_version.clone().unwrap_or_default(),
            held.join(","),
            format!("{:?}", extension.health),
            age(now, extension.created.as_deref()),
        ];
        if wide {
            let progressing = extension.conditions.iter().find(|one| one.type_ == types::PROGRESSING);
            let message = progressing.map(|condition| condition.message.clone()).unwrap_or_default();
            cells.extend([extension.namespace.clone(), requested(extension), message]);
        }
        table.row(cells);
    }
    table.text()
}

/// One extension as a tree with revisions, phases and objects.
pub(crate) fn tree(state: &ExtensionState, now: Timestamp, wide: bool) -> String {
    let mut fields = Fields::default();
    let health = match state.up_to_date {
        true => format!("{:?}", state.health),
        false => format!("{:?} (not reconciled since the last change of the extension)", state.health),
    };
    fields.add(0, "Name", &state.name);
    fields.add(0, "Health", &health);
    if let Some((cause, _)) = state.blocked_pods() {
        fields.add(0, "Cause", &cause);
    }
    fields.add(0, "Package", &state.package);
    fields.add(0, "Namespace", &state.namespace);
    let installed = state.installed.as_ref();
    let installed = installed.map(|bundle| format!("{}, version {}", bundle.name, bundle.version));
    fields.add(0, "Installed", installed.as_deref().unwrap_or("nothing"));
    fields.add(0, "Requested", &requested(state));
    if let Some(version) = &state.available_version {
        let mark = if Version::parse(version).is_ok_and(|version| !version.pre().is_empty()) {
            " (pre-release)"
        } else {
            ""
        };
        fields.add(0, "Available", &format!("version {version}{mark}"));
    }
    if let Some(revision) = &state.adopted_from_helm {
        let text =
            format!("from the upstream Helm applier, by {revision}; the Helm applier cannot manage it again");
        fields.add(0, "Adopted", &text);
    }
    for hold in &state.holds {
        fields.add(0, "Held by", &format!("{}: {}", hold.by, hold.message));
    }
    if let Some(drift) = &state.drift {
        fields.add(0, "Drift", drift);
    }
    for remedy in &state.remedies {
        fields.add(0, "Remedy", remedy);
    }
    let mut text = fields.text;
    text += &conditions(&state.conditions, now, wide);
    for revision in &state.revisions {
        text.push('\n');
        text += &self::revision(revision, &state.revisions, now, wide);
    }
    if state.revisions.is_empty() {
        text += "\nThere is no revision yet.\n";
    }
    text
}

/// Version and channels that `spec` requests.
pub fn requested(state: &ExtensionState) -> String {
    let version = match state.requested_version.as_str() {
        "" => "any version".to_owned(),
        version => format!("version {version}"),
    };
    let channels = match state.channels.len() {
        0 => String::new(),
        1 => format!(" of channel {}", state.channels.join(", ")),
        _ => format!(" of channels {}", state.channels.join(", ")),
    };
    let policy = match state.upgrade_constraint_policy.as_str() {
        "CatalogProvided" => String::new(),
        policy => format!(", {policy}"),
    };
    format!("{version}{channels}{policy}")
}

/// Conditions in the order of the output. Without `wide`, those that repeat others or report no deprecation are omitted.
pub fn shown(conditions: &[Condition], wide: bool) -> Vec<&Condition> {
    let mut shown: Vec<&Condition> = conditions.iter().collect();
    let is_true = |condition: &Condition| condition.status == Status::True.as_str();
    shown.retain(|one| wide || !DEPRECATIONS.contains(&one.type_.as_str()) || is_true(one));
    shown.retain(|one| wide || !SUMMARY.contains(&one.type_.as_str()));
    shown.sort_by_key(|condition| (rank(&condition.type_), condition.type_.clone()));
    shown
}

fn conditions(conditions: &[Condition], now: Timestamp, wide: bool) -> String {
    let shown = shown(conditions, wide);
    if shown.is_empty() {
        return "\nConditions: none yet\n".to_owned();
    }
    let mut text = "\nConditions\n".to_owned();
    for condition in shown {
        let since = age(now, Some(&condition.last_transition_time.0.to_string()));
        text += &format!("  {} {} ({}) for {since}\n", condition.type_, condition.status, condition.reason);
        text += &indented(&condition.message, "    ");
    }
    text
}

/// Sort key of a condition type.
fn rank(type_: &str) -> usize {
    let order = [types::INSTALLED, types::PROGRESSING, types::AVAILABLE];
    order.iter().position(|known| *known == type_).unwrap_or(order.len())
}

/// Stage of the revision in words. `all` are the revisions of its extension.
pub fn stage(revision: &RevisionState, all: &[RevisionState]) -> &'static str {
    let is_gone = |stage| matches!(stage, RolloutStage::Archived | RolloutStage::Deleting);
    let is_newer = |other: &RevisionState| other.revision > revision.revision && !is_gone(other.stage);
    match revision.stage {
        RolloutStage::New => "new",
        RolloutStage::RollingOut if revision.succeeded && all.iter().any(is_newer) => "being replaced",
        RolloutStage::RollingOut if revision.succeeded => "being repaired",
        RolloutStage::RollingOut => "rolling out",
        RolloutStage::Retrying => "retrying",
        RolloutStage::Blocked => "blocked",
        RolloutStage::DeadlineExceeded => "deadline exceeded",
        RolloutStage::Succeeded => "rolled out",
        RolloutStage::Archiving => "being archived",
        RolloutStage::Archived => "archived",
        RolloutStage::Deleting => "being deleted",
    }
}

fn revision(revision: &RevisionState, all: &[RevisionState], now: Timestamp, wide: bool) -> String {
    let stage = stage(revision, all);
    let bundle = if revision.bundle.is_empty() { "no bundle recorded" } else { &revision.bundle };
    let adopted = if revision.adopted_from_helm { ", adopted from Helm" } else { "" };
    let created = match age(now, revision.created.as_deref()) {
        age if age.is_empty() => age,
        age => format!(", created {age} ago"),
    };
    let mut text = format!("{}  {bundle}  {stage}{created}{adopted}\n", revision.name);
    if wide && !revision.image.is_empty() {
        text += &format!("│ image: {}\n", revision.image);
    }
    if let Some(error) = &revision.error {
        text += &indented(error, "│ ! ");
    }
    if let Some(why) = &revision.unreadable {
        text += &indented(&format!("cannot read its objects: {why}"), "│ ! ");
    }
    let last = revision.phases.len().saturating_sub(1);
    for (number, one) in revision.phases.iter().enumerate() {
        text += &phase(one, number == last, wide);
    }
    text
}

/// Progress of the phase in words.
pub fn progress(phase: &PhaseState) -> String {
    let total = phase.objects.len();
    match phase.progress {
        PhaseProgress::Complete => format!("{total} ready"),
        PhaseProgress::Current => format!("{} of {total} ready", phase.ready),
        PhaseProgress::Waiting => format!("waiting for the previous phase, {} of {total} ready", phase.ready),
    }
}

fn phase(phase: &PhaseState, is_last: bool, wide: bool) -> String {
    let (branch, below) = if is_last { ("└─", "  ") } else { ("├─", "│ ") };
    let total = phase.objects.len();
    let progress = progress(phase);
    let mut text = format!("{branch} {}  {progress}\n", phase.name);
    let room = if wide { usize::MAX } else { SHOWN };
    let mut settled = 0;
    // Objects that are not ready are always listed.
    let is_shown = |object: &&ObjectState| {
        settled += usize::from(object.state.is_settled());
        !object.state.is_settled() || settled <= room
    };
    let shown: Vec<&ObjectState> = phase.objects.iter().filter(is_shown).collect();
    let left_out = total - shown.len();
    let last = shown.len().saturating_sub(1);
    for (number, one) in shown.iter().enumerate() {
        let branch = if number == last && left_out == 0 { "└─" } else { "├─" };
        let details = if wide { details(one) } else { String::new() };
        // Condensed to one line, because messages may have several.
        let line = one.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        text += &format!("{below} {branch} {line}{details}\n");
    }
    if left_out > 0 {
        text += &format!("{below} └─ and {left_out} more that are ready, see -o wide\n");
    }
    text
}

/// Details of the wide output.
fn details(object: &ObjectState) -> String {
    match &object.controller {
        Some(controller) => format!("  [{}, controlled by {controller}]", object.api_version),
        None => format!("  [{}]", object.api_version),
    }
}

/// Lines of `message`, each with the prefix `margin`.
fn indented(message: &str, margin: &str) -> String {
    let lines = message.trim_end().lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("{margin}{}\n", line.trim_end())).collect()
}
