//! Text output of resolution results.

use olm_cli_core::names::listed;
use olm_cli_core::output::{Fields, List, Table};
use olm_resolve::{Explanation, Fate};
use serde_json::Value;

use super::answer::{Answer, ChosenBundle, ResolutionOutcome};

/// Text of all results. Failures are reported separately.
pub(super) fn text(list: &List<Answer>) -> String {
    list.items.iter().map(answer_text).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Text of one result. Empty for a failure without explanation.
pub(super) fn answer_text(answer: &Answer) -> String {
    let mut fields = Fields::default();
    if let Some(extension) = &answer.extension {
        fields.add(0, "Extension", extension);
    }
    match (&answer.chosen, answer.outcome) {
        (Some(chosen), _) => chosen_text(&mut fields, answer, chosen),
        (None, ResolutionOutcome::Kept) => {
            fields.add(0, "Package", &answer.package);
            fields.add(0, "Installed", &installed(answer));
            fields.add(0, "Decision", "no change");
        }
        (None, _) if answer.explanation.is_some() => fields.add(0, "Package", &answer.package),
        (None, _) => return String::new(),
    }
    fields.list(0, "Warning", &answer.warnings);
    for held in &answer.held {
        fields.add(0, "Held back", &format!("{}: {}", held.bundle, held.reason));
        fields.add(2, "To release", &held.release);
    }
    if let Some(explanation) = &answer.explanation {
        fields.text += "\n";
        fields.text += &explanation_table(explanation);
    }
    fields.text
}

fn installed(answer: &Answer) -> String {
    let installed = answer.installed.as_ref();
    installed.map(|installed| format!("{} {}", installed.bundle, installed.version)).unwrap_or_default()
}

fn chosen_text(fields: &mut Fields, answer: &Answer, chosen: &ChosenBundle) {
    fields.add(0, "Package", &answer.package);
    if answer.installed.is_some() {
        fields.add(0, "Installed", &installed(answer));
    }
    let decision = match answer.outcome {
        ResolutionOutcome::Install => "install",
        ResolutionOutcome::Upgrade => "upgrade to",
        ResolutionOutcome::Downgrade => "downgrade to",
        ResolutionOutcome::Stay | ResolutionOutcome::Kept | ResolutionOutcome::Nothing => "keep",
    };
    fields.add(0, "Decision", &format!("{decision} {}", chosen.bundle));
    let release = chosen.release.as_ref().map(|release| format!(", release {release:?}")).unwrap_or_default();
    fields.add(2, "Version", &format!("{}{release}", chosen.version));
    fields.add(2, "Catalog", &chosen.catalog);
    fields.add(2, "Image", &chosen.image);
    let mark = |channel: &String| match *channel == chosen.default_channel {
        true => format!("{channel} (default)"),
        false => channel.clone(),
    };
    let channels: Vec<_> = chosen.channels.iter().map(mark).collect();
    fields.add(2, "Channels", &listed(&channels));
    if answer.installed.is_some() && answer.outcome != ResolutionOutcome::Stay {
        let by = if chosen.edges.is_empty() {
            "no edge; the policy allows any version"
        } else {
            &chosen.edges.join(", ")
        };
        fields.add(2, "Allowed by", by);
    }
    fields.list(2, "Requires", &chosen.requirements);
}

/// One row per bundle of each catalog.
fn explanation_table(explanation: &Explanation) -> String {
    let mut table = Table::new(&["CATALOG", "PRIORITY", "BUNDLE", "VERSION", "VERDICT", "RULE", "REASON"]);
    for catalog in &explanation.catalogs {
        let priority = catalog.priority.to_string();
        let mut row = |bundle: &str, version: &str, kept: bool, rule: &str, why: &str| {
            let verdict = if kept { "KEPT" } else { "DROPPED" };
            table.row([catalog.name.as_str(), &priority, bundle, version, verdict, rule, why]);
        };
        if let Some(fault) = &catalog.fault {
            row("", "", false, "catalog", fault);
        } else if catalog.bundles.is_empty() {
            row("", "", false, "package", "the catalog does not have the package");
        }
        for bundle in &catalog.bundles {
            let kept = bundle.fate == Fate::Chosen;
            row(
                &bundle.bundle,
                bundle.version.as_deref().unwrap_or_default(),
                kept,
                &rule(bundle.fate),
                &bundle.why,
            );
        }
    }
    table.text()
}

/// Rule name as in JSON and YAML.
fn rule(fate: Fate) -> String {
    match serde_json::to_value(fate) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}
