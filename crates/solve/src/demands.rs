//! Packages that a plan must have: the requested and the installed ones.

use std::collections::BTreeMap;

use crate::conflict::SolveError;
use crate::input::{InstalledExtension, PackageConstraints, SolverInput};

/// Package that must be installed after the plan.
pub(crate) struct Demanded<'q> {
    pub(crate) constraints: &'q PackageConstraints,
    pub(crate) installed: Option<&'q InstalledExtension>,
    /// Further installations of the package. A package that has some is not changed.
    pub(crate) twins: Vec<&'q InstalledExtension>,
    pub(crate) requested: bool,
}

/// Requested packages first, then installed ones, each by package.
pub(crate) fn demands<'q>(input: &'q SolverInput<'q>) -> Result<Vec<Demanded<'q>>, SolveError> {
    let mut installed: BTreeMap<&str, Vec<&InstalledExtension>> = BTreeMap::new();
    for extension in &input.installed {
        installed.entry(&extension.constraints.package).or_default().push(extension);
    }
    let mut requested = BTreeMap::new();
    for constraints in &input.requested {
        let package = &constraints.package;
        let mut extensions = installed.remove(&**package).unwrap_or_default();
        let twice = |state, extensions| SolveError::Twice { package: package.clone(), state, extensions };
        if extensions.len() > 1 {
            extensions.sort_by_key(|extension| &extension.extension);
            let names = extensions.iter().map(|extension| extension.extension.clone()).collect();
            return Err(twice("installed", names));
        }
        let installed = extensions.pop();
        let demanded = Demanded { constraints, installed, twins: Vec::new(), requested: true };
        if requested.insert(package, demanded).is_some() {
            return Err(twice("requested", Vec::new()));
        }
    }
    let others = installed.into_values().filter_map(|mut extensions| {
        extensions.sort_by_key(|extension| &extension.extension);
        let (first, twins) = extensions.split_first()?;
        let constraints = &first.constraints;
        Some(Demanded { constraints, installed: Some(*first), twins: twins.to_vec(), requested: false })
    });
    Ok(requested.into_values().chain(others).collect())
}
