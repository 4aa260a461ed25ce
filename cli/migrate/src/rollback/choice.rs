//! Packages that a rollback returns, their order, and those that fail.

use std::collections::BTreeSet;

use olm_cli_core::error::{CliError, Code};
use olm_cli_core::object_access::ObjectAccess;

use super::super::backup::{self, Backup};
use super::super::objects::{Csv, csv};
use super::super::plan::{Refusal, ordered};
use super::MigrateRollbackArgs;

/// Backups of the packages that the arguments name, each with the packages that provide the APIs it requires. These are
/// first: classic OLM fails an operator without them. A backup that cannot be read is a failure.
///
/// # Errors
/// There is no backup of a package.
pub(super) async fn chosen(
    access: &ObjectAccess<'_>,
    args: &MigrateRollbackArgs,
    failures: &mut Failures,
) -> Result<Vec<(Backup, Vec<String>)>, CliError> {
    let all = backup::find(access).await?;
    if all.is_empty() {
        return Err(CliError::no_candidate("no package has been migrated: there is no backup"));
    }
    let mut ids = BTreeSet::new();
    for name in &args.names {
        ids.insert(find(&all, name)?);
    }
    let mut backups = Vec::new();
    for (namespace, package) in if args.all { all.iter().collect() } else { ids } {
        match present(access, namespace, package).await {
            Ok(backup) => backups.push(backup),
            Err(error @ CliError::Message(Code::Interrupted, _)) => return Err(error),
            Err(error) => failures.add(namespace, package, &error),
        }
    }
    Ok(providers_first(backups))
}

/// Backups with those first that provide an API which another one requires, each with its providers. Their plans do not
/// tell: once the others are migrated, nothing of classic OLM requires it any more.
fn providers_first(backups: Vec<Backup>) -> Vec<(Backup, Vec<String>)> {
    let csvs: Vec<(String, Csv)> =
        backups.iter().map(|one| (one.plan.id(), one.csv().map(csv).unwrap_or_default())).collect();
    let providers = |backup: Backup| {
        let required = backup.csv().map(csv).unwrap_or_default().required;
        let provided =
            csvs.iter().filter(|(id, csv)| *id != backup.plan.id() && !csv.owned.is_disjoint(&required));
        let ids: Vec<String> = provided.map(|(id, _)| id.clone()).collect();
        (backup, ids)
    };
    ordered(backups.into_iter().map(providers).collect(), |(backup, ids)| (backup.plan.id(), ids.as_slice()))
}

/// The backup of the package `name` among `all`, each with namespace and package.
fn find<'a>(all: &'a [(String, String)], name: &str) -> Result<&'a (String, String), CliError> {
    let id = |(namespace, package): &(String, String)| format!("{namespace}/{package}");
    let is_named = |one: &&(String, String)| one.1 == name || id(one) == name;
    let found: Vec<&(String, String)> = all.iter().filter(is_named).collect();
    let names = |found: &[&(String, String)]| found.iter().map(|one| id(one)).collect::<Vec<_>>().join(", ");
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let known = names(&all.iter().collect::<Vec<_>>());
            Err(CliError::no_candidate(format!("there is no backup of package {name}, only of {known}")))
        }
        several => Err(CliError::usage(format!("package {name}: name one of {}", names(several)))),
    }
}

/// The present backup of a package.
///
/// # Errors
/// It cannot be read, or does not exist any more.
pub(super) async fn present(
    access: &ObjectAccess<'_>,
    namespace: &str,
    package: &str,
) -> Result<Backup, CliError> {
    let backup = backup::read(access, namespace, package).await?;
    backup.ok_or_else(|| CliError::no_candidate(format!("the backup of {namespace}/{package} was deleted")))
}

/// Packages that have not returned, each with the reason.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) all: Vec<Refusal>,
    /// Exit code of the first one, or of an interruption.
    code: Option<Code>,
}

impl Failures {
    pub(super) fn add(&mut self, namespace: &str, package: &str, error: &CliError) {
        self.code = match (self.code, error) {
            (_, CliError::Message(Code::Interrupted, _)) => Some(Code::Interrupted),
            (None, CliError::Message(code, _)) => Some(*code),
            (code, _) => code.or(Some(Code::Operational)),
        };
        let (namespace, package, reasons) =
            (namespace.to_owned(), package.to_owned(), vec![error.to_string()]);
        self.all.push(Refusal { package, namespace, reasons });
    }

    /// The first one of `ids`, each as `namespace/package`.
    pub(super) fn among<'i>(&self, ids: &'i [String]) -> Option<&'i String> {
        ids.iter().find(|id| self.all.iter().any(|one| **id == format!("{}/{}", one.namespace, one.package)))
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.code == Some(Code::Interrupted)
    }

    /// All reasons.
    pub(super) fn error(&self) -> Option<CliError> {
        let reasons: Vec<&str> = self.all.iter().flat_map(|one| &one.reasons).map(String::as_str).collect();
        self.code.map(|code| CliError::Message(code, reasons.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::apply::fixture::plan;
    use super::*;

    #[test]
    fn packages_that_others_require_return_first() {
        let backup = |package: &str, owned: &str, required: &str| {
            let mut plan = plan();
            plan.package = package.to_owned();
            let crd = |kind: &str| json!([{"name": format!("{kind}.example.com"), "kind": kind}]);
            let spec = json!({"customresourcedefinitions": {"owned": crd(owned), "required": crd(required)}});
            let metadata = json!({"namespace": plan.namespace, "name": plan.csv});
            let csv = json!({"kind": "ClusterServiceVersion", "metadata": metadata, "spec": spec});
            Backup { plan, objects: vec![csv], pods: Vec::new() }
        };
        let all = vec![backup("a", "A", "B"), backup("b", "B", "C"), backup("c", "C", "C")];
        let all =
            providers_first(all).into_iter().map(|(one, providers)| (one.plan.package, providers.join(",")));
        let expected = [("c", ""), ("b", "ns/c"), ("a", "ns/b")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(all.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn failures_name_all_packages_and_those_not_tried() {
        let mut failures = Failures::default();
        assert!(failures.error().is_none());
        failures.add("ns", "c", &CliError::findings("refused"));
        let providers = ["ns/c".to_owned(), "ns/d".to_owned()];
        assert_eq!(failures.among(&providers), Some(&providers[0]));
        assert_eq!(failures.among(&providers[1..]), None);
        failures.add("ns", "b", &CliError::operational("not tried"));
        assert_eq!(failures.all.len(), 2);
        let error = failures.error().unwrap();
        assert_eq!(
            (error.exit_code(), error.to_string().as_str()),
            (Code::Findings as u8, "refused\nnot tried")
        );
        assert!(!failures.is_interrupted());
        failures.add("ns", "a", &CliError::Message(Code::Interrupted, "interrupted".to_owned()));
        assert!(failures.is_interrupted());
    }
}
