//! Output of `olm diff` as data and as text.
//!
//! Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use olm_api::text::one_line;
use olm_cli_core::output::counted;
use olm_plan::fields::FieldChange;
use olm_plan::objects::{ChangeKind, ObjectChange};
use olm_plan::permissions::SubjectChange;
use olm_upgrade_check::{UpgradeFinding, is_listed, rule_counts};
use serde::Serialize;
use serde_json::Value;

use super::ownership::Collision;
use crate::crd_check::{CrdResult, Verdict};

/// Largest number of fields per object in the text output. JSON and YAML contain all.
const SHOWN_FIELDS: usize = 25;
/// Longest value in the text output, in characters.
const SHOWN_VALUE: usize = 120;

/// Result as JSON or YAML.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    pub(crate) old: ComparedBundle,
    pub(crate) new: ComparedBundle,
    /// `true` if nothing would change.
    pub(crate) empty: bool,
    /// Created, changed and deleted objects.
    pub objects: Vec<ObjectChange>,
    /// Gained and lost permissions, by subject.
    pub permissions: Vec<SubjectChange>,
    /// Created, deleted, changed, or unsafe to replace.
    pub(crate) crds: Vec<CrdResult>,
    /// Objects of the new bundle that belong to another extension.
    pub collisions: Vec<Collision>,
    /// What the change breaks. Empty for a first installation.
    pub(crate) findings: Vec<UpgradeFinding>,
    /// Changes of the configuration and of its schema.
    pub(crate) config: Vec<FieldChange>,
    /// What the comparison cannot tell, and what the upgrade risks.
    pub warnings: Vec<String>,
}

/// One side of the comparison.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComparedBundle {
    /// Directory, image or revision. Empty if there is none yet.
    pub(crate) origin: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) bundle: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
}

impl ComparedBundle {
    fn text(&self) -> String {
        match (self.bundle.as_str(), self.version.as_str()) {
            ("", _) => self.origin.clone(),
            (bundle, "") => format!("{bundle} ({})", self.origin),
            (bundle, version) => format!("{bundle}, version {version} ({})", self.origin),
        }
    }
}

impl Diff {
    /// Numbers of created, changed and deleted objects.
    pub(super) fn counts(&self) -> [usize; 3] {
        [ChangeKind::Created, ChangeKind::Changed, ChangeKind::Deleted]
            .map(|desired| self.objects.iter().filter(|object| object.change == desired).count())
    }

    /// Findings that no other section shows.
    pub fn own_findings(&self) -> impl Iterator<Item = &UpgradeFinding> {
        self.findings.iter().filter(|finding| !is_listed(finding))
    }

    /// Text output.
    pub fn text(&self) -> String {
        let [old, new] = [&self.old, &self.new].map(|side| one_line(&side.text()).into_owned());
        let mut text = format!("Old:  {old}\nNew:  {new}\n");
        let [created, changed, deleted] = self.counts();
        let counts = match self.objects.as_slice() {
            [] => String::new(),
            _ => format!("{created} created, {changed} changed, {deleted} deleted"),
        };
        let (roles, others): (Vec<_>, Vec<_>) =
            self.objects.iter().partition(|change| is_in_permissions(change));
        section(&mut text, "Objects", &counts, &others, |change| object_text(change));
        text += &role_counts(&roles);
        let subjects = match self.permissions.len() {
            0 => String::new(),
            count => format!("{} changed", counted(count, "subject")),
        };
        section(&mut text, "Permissions", &subjects, &self.permissions, subject);
        let breaking = self.crds.iter().filter(|crd| crd.result == Verdict::Unsafe).count();
        let breaking = if breaking == 0 { String::new() } else { format!("{breaking} not safe") };
        section(&mut text, "CRDs", &breaking, &self.crds, crd);
        let rules = rule_counts(&self.findings);
        section(&mut text, "Findings", &rules, &self.own_findings().collect::<Vec<_>>(), |finding| {
            format!("  {}: {}\n", finding.level.name(), one_line(&finding.to_string()))
        });
        section(&mut text, "Config", "", &self.config, |field| field_line(field, 2));
        section(&mut text, "Warnings", "", &self.warnings, |warning| format!("  {}\n", one_line(warning)));
        text
    }
}

/// Adds a heading with its lines. An empty section is reported, except for findings and warnings.
fn section<T>(text: &mut String, title: &str, summary: &str, items: &[T], line: impl Fn(&T) -> String) {
    if items.is_empty() && summary.is_empty() {
        if !["Findings", "Warnings"].contains(&title) {
            let _ = write!(text, "\n{title}: no difference\n");
        }
        return;
    }
    let separator = if summary.is_empty() { "" } else { ": " };
    let _ = write!(text, "\n{title}{separator}{summary}\n");
    for item in items {
        text.push_str(&line(item));
    }
}

/// Lines about a changed object, with its fields.
pub fn object_text(change: &ObjectChange) -> String {
    let sign = match change.change {
        ChangeKind::Created => '+',
        ChangeKind::Changed => '~',
        ChangeKind::Deleted => '-',
    };
    let mut text = format!("  {sign} {}\n", change.object);
    for note in &change.notes {
        let _ = writeln!(text, "      ! {}", one_line(note));
    }
    for field in change.fields.iter().take(SHOWN_FIELDS) {
        text += &field_line(field, 6);
    }
    if change.fields.len() > SHOWN_FIELDS {
        let _ = writeln!(text, "      and {} more fields, see -o yaml", change.fields.len() - SHOWN_FIELDS);
    }
    text
}

fn field_line(field: &FieldChange, indent: usize) -> String {
    let path = one_line(&field.path);
    let values = match (&field.old, &field.new) {
        _ if field.secret => "differs (not shown)".to_owned(),
        (None, Some(new)) => format!("added {}", value(new)),
        (Some(old), None) => format!("removed {}", value(old)),
        (old, new) => {
            let shown = |side: &Option<Value>| side.as_ref().map(value).unwrap_or_default();
            format!("{} -> {}", shown(old), shown(new))
        }
    };
    format!("{:indent$}{path}: {values}\n", "")
}

/// Value on one line, truncated to [`SHOWN_VALUE`] characters.
fn value(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn subject(change: &SubjectChange) -> String {
    let mut text = format!("  {}\n", change.subject);
    for (sign, permissions) in [('+', &change.gained), ('-', &change.lost)] {
        for one in permissions {
            let _ = writeln!(text, "    {sign} {one}");
        }
    }
    text
}

/// Created and deleted roles and bindings are summarized: their names differ in every version, and the permissions
/// section shows their content.
fn is_in_permissions(change: &ObjectChange) -> bool {
    let kinds = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    change.change != ChangeKind::Changed
        && change.notes.is_empty()
        && change.object.group == "rbac.authorization.k8s.io"
        && kinds.contains(&change.object.kind.as_str())
}

/// `  + 2 ClusterRoles and 1 RoleBinding, see Permissions`
fn role_counts(roles: &[&ObjectChange]) -> String {
    let mut text = String::new();
    for (sign, kind_of_change) in [('+', ChangeKind::Created), ('-', ChangeKind::Deleted)] {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for change in roles.iter().filter(|change| change.change == kind_of_change) {
            *kinds.entry(&change.object.kind).or_default() += 1;
        }
        let kinds: Vec<_> = kinds.iter().map(|(kind, count)| counted(*count, kind)).collect();
        if !kinds.is_empty() {
            let _ = writeln!(text, "  {sign} {}: see Permissions", kinds.join(", "));
        }
    }
    text
}

fn crd(result: &CrdResult) -> String {
    let name = one_line(&result.name);
    let mut text = match result.result {
        Verdict::Safe => format!("  ~ {name}: safe\n"),
        Verdict::OnlyInNew => format!("  + {name}\n"),
        Verdict::OnlyInOld => format!("  - {name}: its custom resources are deleted, too\n"),
        Verdict::Unsafe => {
            format!("  ~ {name}: not safe, an upgrade is refused unless enforcement is None\n")
        }
    };
    for finding in &result.findings {
        let _ = writeln!(text, "      {}", one_line(&finding.line));
    }
    for version in &result.no_longer_served {
        let _ = writeln!(text, "      {}", one_line(&version.to_string()));
    }
    text
}

#[cfg(test)]
mod tests {
    use olm_plan::objects::ObjectName;
    use olm_plan::permissions::{Permission, Subject};

    use super::*;

    #[test]
    fn text_of_a_bundle_forges_no_line() {
        let forged = "a\nPermissions: no difference\n";
        let subject = Subject { kind: "User".to_owned(), namespace: String::new(), name: forged.to_owned() };
        let rule = |verb: &str, resource: &str| Permission {
            verbs: vec![verb.to_owned()],
            resources: vec![resource.to_owned()],
            ..Permission::default()
        };
        let gained = vec![
            rule(forged, "pods"),
            rule("get", forged),
            Permission { role: Some(format!("ClusterRole {forged}")), ..Permission::default() },
            Permission { privilege: Some(forged.to_owned()), ..Permission::default() },
        ];
        let field =
            FieldChange { path: forged.to_owned(), old: None, new: Some(forged.into()), secret: false };
        let object = |group: &str| ObjectChange {
            change: ChangeKind::Changed,
            object: ObjectName {
                group: group.to_owned(),
                kind: "ClusterRole".to_owned(),
                namespace: forged.to_owned(),
                name: forged.to_owned(),
            },
            fields: vec![field.clone()],
            notes: vec![forged.to_owned()],
        };
        let diff = Diff {
            old: ComparedBundle { bundle: forged.to_owned(), ..ComparedBundle::default() },
            objects: vec![object("rbac.authorization.k8s.io")],
            permissions: vec![SubjectChange { subject, gained, lost: Vec::new() }],
            config: vec![field.clone()],
            warnings: vec![forged.to_owned()],
            ..Diff::default()
        };
        let text = diff.text();
        assert!(!text.lines().any(|line| line.starts_with("Permissions: no")), "{text}");
        // Two sides, five headings with blank lines, and a line for each item, field and note.
        assert_eq!(text.lines().count(), 2 + 5 * 2 + 3 + 5 + 1 + 1, "{text}");
    }

    #[test]
    fn long_value_is_truncated_and_secret_value_hidden() {
        let field = |old: Option<&str>, new: Option<&str>, secret| FieldChange {
            path: "a".to_owned(),
            old: old.map(Value::from),
            new: new.map(Value::from),
            secret,
        };
        assert_eq!(field_line(&field(None, None, true), 2), "  a: differs (not shown)\n");
        assert_eq!(field_line(&field(Some("x"), Some("y"), false), 0), "a: \"x\" -> \"y\"\n");
        let long = "é".repeat(SHOWN_VALUE + 10);
        assert_eq!(
            field_line(&field(None, Some(&long), false), 0),
            format!("a: added \"{}…\n", "é".repeat(SHOWN_VALUE - 1))
        );
    }
}
