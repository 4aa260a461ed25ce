//! Table of operators and APIs, and what the user can do about missing rights. Pure.

use super::join::{Access, NamespaceApis, Operator, Watched};
use crate::output::Table;

const COLUMNS: [&str; 8] =
    ["OPERATOR", "VERSION", "WATCHED", "KIND", "GROUP", "VERSIONS", "SCOPE", "YOU MAY"];

pub(super) fn text(found: &NamespaceApis) -> String {
    if found.operators.is_empty() && found.other_apis.is_empty() {
        let none = match found.missing.is_empty() {
            true => "The cluster has no operators of OLM v1.\n",
            false => "No operator and no API that you may read.\n",
        };
        return none.to_owned() + &missing(found);
    }
    let mut table = Table::new(&COLUMNS);
    for operator in &found.operators {
        let version = operator.version.as_deref().unwrap_or_default();
        let watched = watched(operator);
        if operator.apis.is_empty() {
            table.row([&operator.name, version, watched, "", "", "", "", ""]);
        }
        for access in &operator.apis {
            row(&mut table, [&operator.name, version, watched], access);
        }
    }
    for access in &found.other_apis {
        row(&mut table, ["unknown", "", "unknown"], access);
    }
    table.text() + &missing(found) + &request(found)
}

fn row(table: &mut Table, operator: [&str; 3], access: &Access) {
    let (api, versions, allowed) = (&access.api, access.api.versions.join(","), access.allowed.text());
    let [name, version, watched] = operator;
    table.row([name, version, watched, &api.kind, &api.group, &versions, &api.scope, &allowed]);
}

fn watched(operator: &Operator) -> &'static str {
    match operator.watch.watched {
        Watched::Yes => "yes",
        Watched::No => "no",
        Watched::Unknown => "unknown",
        Watched::NotInstalled => "",
    }
}

fn missing(found: &NamespaceApis) -> String {
    let mut text = String::new();
    if let Some(why) = &found.incomplete {
        text += &format!(
            "\nYou may have more rights than shown: {why}. Check with kubectl auth can-i --list -n {}.\n",
            found.namespace
        );
    }
    if !found.missing.is_empty() {
        text += "\nYou lack rights that a cluster administrator can grant:\n";
    }
    for missing in &found.missing {
        text += &format!("  {}: {}\n", missing.right, missing.effect);
    }
    text
}

/// Whom to ask, if the user has no rights on an API.
fn request(found: &NamespaceApis) -> String {
    let mut all = found.operators.iter().flat_map(|operator| &operator.apis).chain(&found.other_apis);
    if !all.any(|access| access.allowed.is_none()) {
        return String::new();
    }
    let namespace = &found.namespace;
    format!(
        "\nFor more rights, ask an administrator of namespace {namespace} or of the cluster, who can run\n  \
         olm rbac grant OPERATOR --to user:NAME --role edit -n {namespace}\n"
    )
}
