//! Comparison of two bundles in each install mode that the old one supports. Pure.

use olm_bundle::{BundleContent, Certificates, InstallMode, RenderOptions, render};
use olm_upgrade_check::{RenderedBundle, UpgradeFinding, check, check_bundles, refused};
use serde_json::{Value, json};

/// Namespace of the operator, and another one that it watches.
const NAMESPACE: &str = "operator";
const WATCHED: [&str; 2] = ["apps", "tools"];

/// Findings about the upgrade. One that occurs only in some install modes names them.
///
/// # Errors
/// The old bundle cannot be rendered in any install mode.
pub fn compare(old: &BundleContent, new: &BundleContent) -> Result<Vec<UpgradeFinding>, String> {
    let mut found: Vec<(UpgradeFinding, Vec<InstallMode>)> = Vec::new();
    let (mut modes, mut failure) = (Vec::new(), None);
    for mode in old.install_modes() {
        let config = config(mode);
        let before = match objects(old, &config) {
            Ok(before) => before,
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        modes.push(mode);
        let findings = match objects(new, &config) {
            Ok(after) => check(
                RenderedBundle { bundle: old, objects: &before },
                RenderedBundle { bundle: new, objects: &after },
            ),
            // `check` reports a lost install mode.
            Err(_) if !new.install_modes().contains(&mode) => check_bundles(old, new),
            Err(error) => vec![refused(error)],
        };
        for finding in findings {
            match found.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, modes)) => modes.push(mode),
                None => found.push((finding, vec![mode])),
            }
        }
    }
    if modes.is_empty() {
        return Err(failure.unwrap_or_else(|| "the old bundle supports no install mode".to_owned()));
    }
    let named = |(mut finding, of): (UpgradeFinding, Vec<InstallMode>)| {
        if of.len() < modes.len() {
            let names: Vec<_> = of.iter().map(|mode| mode.name()).collect();
            finding.message += &format!(" (install mode {})", names.join(", "));
        }
        finding
    };
    Ok(found.into_iter().map(named).collect())
}

/// Configuration for an install mode.
fn config(mode: InstallMode) -> Value {
    match mode {
        InstallMode::AllNamespaces => json!({}),
        InstallMode::OwnNamespace => json!({"watchNamespace": NAMESPACE}),
        InstallMode::SingleNamespace => json!({"watchNamespace": WATCHED[0]}),
        InstallMode::MultiNamespace => json!({"watchNamespaces": WATCHED}),
    }
}

/// Objects with all gates on, so that each bundle that any cluster can install is compared.
fn objects(bundle: &BundleContent, config: &Value) -> Result<Vec<Value>, String> {
    let options = RenderOptions {
        install_namespace: NAMESPACE,
        config: Some(config),
        certificates: Certificates::Builtin,
        single_own_namespace: true,
        multi_watch_namespaces: true,
        owned_api_services: true,
        ..RenderOptions::default()
    };
    render(bundle, &options).map_err(|error| error.to_string())
}
