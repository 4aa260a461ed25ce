//! Table of operators and APIs, and what the user can do about missing permissions. Pure.

use olm_cli_core::output::Table;

use super::join::{Access, NamespaceApis, Operator, Watched};

const COLUMNS: [&str; 8] =
    ["OPERATOR", "VERSION", "WATCHED", "KIND", "GROUP", "VERSIONS", "SCOPE", "YOU MAY"];

pub(super) fn text(found: &NamespaceApis) -> String {
    if found.operators.is_empty() && found.other_apis.is_empty() {
        let none = match found.missing.is_empty() {
            true => "The cluster has no operators of OLM v1.\n",
            false => "You may read no API, and no operator watches this namespace.\n",
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
    // An object without namespace is in no watched one.
    let watched = if api.is_namespaced() { watched } else { "" };
    table.row([name, version, watched, &api.kind, &api.group, &versions, &api.scope, &allowed]);
}

fn watched(operator: &Operator) -> &'static str {
    match operator.watch.watched {
        Watched::Yes => "yes",
        Watched::No => "no",
        Watched::Unknown => "unknown",
        Watched::NotInstalled => "",
        Watched::NoOperator => "no operator",
    }
}

fn missing(found: &NamespaceApis) -> String {
    let mut text = String::new();
    if let Some(why) = &found.incomplete {
        text += &format!(
            "\nYou may have more permissions than shown: {why}. Check with kubectl auth can-i --list -n {}.\n",
            found.namespace
        );
    }
    if !found.missing.is_empty() {
        text += "\nYou lack permissions that a cluster administrator can grant:\n";
    }
    for missing in &found.missing {
        text += &format!("  {}: {}\n", missing.permission, missing.effect);
    }
    text
}

/// Command for a cluster administrator, for the first API that the user may not change, preferably a namespaced one.
fn request(found: &NamespaceApis) -> String {
    let known =
        found.operators.iter().flat_map(|one| one.apis.iter().map(|access| (one.name.as_str(), access)));
    let all = known.chain(found.other_apis.iter().map(|access| ("OPERATOR", access)));
    let below = all.filter(|(_, access)| !access.allowed.is_edit());
    let Some((operator, Access { api, .. })) = below.min_by_key(|(_, access)| !access.api.is_namespaced())
    else {
        return String::new();
    };
    let scope = match api.is_namespaced() {
        true => format!("-n {}", found.namespace),
        false => "--all-namespaces".to_owned(),
    };
    let kind = &api.kind;
    format!(
        "\nFor more permissions, ask a cluster administrator, who can run, for example for {kind}:\n  \
         olm rbac grant {operator} --to user:NAME --role edit {scope} --api {}\n",
        api.name()
    )
}
