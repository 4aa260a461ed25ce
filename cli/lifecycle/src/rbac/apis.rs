//! APIs of an extension.

use olm_cli_core::error::CliError;
use olm_cli_core::names::is_label;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ApiKind, ClusterConnection};
use olm_version::quote;

use crate::status::observe;

/// APIs of the extension `name`, sorted: all, or those among them that the caller names. If the caller may not list
/// the APIs of the extension, the named ones are looked up in discovery.
///
/// # Errors
/// The extension does not exist, or has no such APIs. The caller may not list them and names none.
pub(super) async fn provided(
    cluster: &ClusterConnection,
    name: &str,
    named: &[String],
    session: &Session,
) -> Result<Vec<ApiKind>, CliError> {
    check_names(name, named)?;
    let mut unreadable = None;
    let mut owned = Vec::new();
    for found in [
        cluster.owned_crds(Some(name), session).await?,
        cluster.owned_api_services(Some(name), session).await?,
    ] {
        match found {
            Ok(found) => owned.extend(found.into_iter().map(|one| one.api)),
            Err(why) => unreadable = unreadable.or(Some(why)),
        }
    }
    owned.sort();
    let is_missing = |named: &&String| !owned.iter().any(|api| api.name() == **named);
    let missing: Vec<&String> = named.iter().filter(is_missing).collect();
    match unreadable {
        Some(why) if owned.is_empty() && named.is_empty() => {
            return Err(CliError::operational(format!(
                "cannot find the APIs of {name}: {why}\nname them instead, such as --api lamps.example.com (kubectl \
                 api-resources lists them), or ask an administrator"
            )));
        }
        Some(why) if named.is_empty() => say(&format!("warning: APIs of {name} may be missing: {why}")),
        Some(_) if !missing.is_empty() => {
            let discovered = cluster.discovered(session).await?;
            for name in missing {
                owned.push(of_name(&discovered, name)?.clone());
            }
        }
        Some(_) => (),
        None if owned.is_empty() || !missing.is_empty() => {
            observe::extension(cluster, name, session).await?;
            return Err(none_such(name, &owned, &missing));
        }
        None => (),
    }
    owned.retain(|api| named.is_empty() || named.contains(&api.name()));
    owned.sort_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
    owned.dedup_by(|a, b| (&a.group, &a.resource) == (&b.group, &b.resource));
    Ok(owned)
}

/// Checks the form of the arguments. The name of the extension becomes part of a label selector.
fn check_names(name: &str, named: &[String]) -> Result<(), CliError> {
    if name.len() > 63 || !name.split('.').all(is_label) {
        return Err(CliError::usage(format!("{} is not a valid name of a ClusterExtension", quote(name))));
    }
    let is_name = |name: &str| {
        name.split_once('.').is_some_and(|(resource, group)| !resource.is_empty() && group.contains('.'))
    };
    match named.iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(name) => Err(CliError::usage(format!(
            "--api {}: expected RESOURCE.GROUP, such as lamps.example.com",
            quote(name)
        ))),
    }
}

fn of_name<'a>(discovered: &'a [ApiKind], name: &str) -> Result<&'a ApiKind, CliError> {
    let found = discovered.iter().find(|api| api.name() == name);
    found.ok_or_else(|| CliError::no_candidate(format!("the API server does not serve {name}")))
}

fn none_such(name: &str, owned: &[ApiKind], missing: &[&String]) -> CliError {
    CliError::no_candidate(match owned {
        [] => format!(
            "extension {name} has no CustomResourceDefinitions and no aggregated APIs on the cluster; `olm status {name}` \
             shows whether it is installed"
        ),
        owned => {
            let missing: Vec<&str> = missing.iter().map(|name| name.as_str()).collect();
            let owned: Vec<String> = owned.iter().map(ApiKind::name).collect();
            format!("extension {name} has no API {}; its APIs: {}", missing.join(", "), owned.join(", "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_break_a_selector_or_have_no_group_are_refused() {
        for (name, api, expected) in [
            ("lamp", "lamps.example.com", ""),
            ("lamp.v1", "lamps.example.com", ""),
            ("a/b", "lamps.example.com", "\"a/b\" is not a valid name of a ClusterExtension"),
            ("x,y", "lamps.example.com", "\"x,y\" is not a valid name of a ClusterExtension"),
            ("", "lamps.example.com", "\"\" is not a valid name of a ClusterExtension"),
            ("lamp", "lamps", "--api \"lamps\": expected RESOURCE.GROUP, such as lamps.example.com"),
            ("lamp", ".a.b", "--api \".a.b\": expected RESOURCE.GROUP, such as lamps.example.com"),
        ] {
            let result = check_names(name, &[api.to_owned()]);
            assert_eq!(result.err().map(|error| error.to_string()).unwrap_or_default(), expected);
        }
    }
}
