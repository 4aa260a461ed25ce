//! Checks of the images that a catalog refers to, 8 at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_fbc::Bundle;
use olm_oci::{ImageLimits, Puller, Reference, Retry};

use super::finding::{Finding, UNREADABLE};
use super::job::{Extent, Job, Use};
use super::state::State;
use crate::bundle_details::csv_facts;
use crate::sign::Verifier;
use crate::whole::Packages;

/// Images that are checked in parallel.
const PARALLEL: usize = 8;
/// A second attempt overcomes a lost connection. More would delay the findings of a registry that does not respond.
const RETRY: Retry = Retry { attempts: 2, first_delay: Duration::from_millis(100) };
/// Label of a ClusterServiceVersion for a supported architecture, without its name.
const ARCHITECTURE_LABEL: &str = "operatorframework.io/arch.";
/// Architecture of a ClusterServiceVersion without such a label.
const DEFAULT_ARCHITECTURE: &str = "amd64";

/// Result of the checks.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Number of images.
    pub(super) images: usize,
    /// Those of them that passed in an earlier run.
    pub(super) resumed: usize,
    pub(super) findings: Vec<Finding>,
}

/// Checks the images of all packages, except for those that passed according to `state`.
///
/// # Errors
/// A flag names a file that does not exist, the state cannot be written, or the command is interrupted.
pub(super) async fn check(
    packages: &Packages,
    extent: &Extent,
    images: &ImageArgs,
    mut state: Option<State>,
    session: &Session,
) -> Result<Checked, CliError> {
    let (mut findings, mut resumed) = (Vec::new(), 0);
    let mut jobs = Vec::new();
    let (mut pullers, mut verifiers) = (BTreeMap::new(), BTreeMap::new());
    let used = uses(packages, extent);
    let total = used.len();
    for (image, uses) in used {
        match image.parse::<Reference>() {
            Ok(reference) => {
                let one = puller(&reference, images, None, &mut pullers)?;
                let policy = extent.verifier.as_ref();
                let verifier = policy.map(|policy| puller(&reference, images, Some(policy), &mut verifiers));
                let job = Job { reference, puller: one, verifier: verifier.transpose()?, uses };
                let key = state.as_ref().and_then(|_| job.key(extent));
                match (&state, &key) {
                    (Some(state), Some(key)) if state.has_passed(key) => resumed += 1,
                    _ => jobs.push((job, key)),
                }
            }
            Err(error) => findings.extend(uses.iter().map(|one| one.finding(&UNREADABLE, image, &error))),
        }
    }
    let step = session.progress.step(format!("checking {total} images"));
    let checks = jobs.into_iter().map(|(job, key)| async { (job.check(extent).await, key) });
    let mut checks = stream::iter(checks).buffer_unordered(PARALLEL);
    let mut done = resumed;
    while let Some((found, key)) = session.interruptible(checks.next()).await? {
        done += 1;
        if let (true, Some(state), Some(key)) = (found.is_empty(), &mut state, key) {
            state.record(&key)?;
        }
        findings.extend(found);
        step.update(format!("checked {done} of {total} images, findings: {}", findings.len()));
    }
    if let Some(state) = state.filter(|_| findings.is_empty()) {
        state.delete()?;
    }
    Ok(Checked { images: total, resumed, findings })
}

/// Images in the order of their names, with their uses.
fn uses<'a>(packages: &'a Packages, extent: &Extent) -> BTreeMap<&'a str, Vec<Use<'a>>> {
    let mut used: BTreeMap<&str, Vec<Use<'_>>> = BTreeMap::new();
    for package in packages.values() {
        for bundle in &package.content.bundles {
            let architectures = required(bundle, &extent.architectures);
            let related = bundle.related_images.iter().filter(|_| extent.related);
            let related: BTreeSet<_> = related.map(|related| related.image.as_str()).collect();
            let related = related.into_iter().map(|image| (image, false));
            let own = [(bundle.image.as_str(), true)].into_iter();
            for (image, is_bundle) in
                own.chain(related.filter(|(image, _)| *image != bundle.image)).filter(|(i, _)| !i.is_empty())
            {
                let architectures = architectures.clone();
                used.entry(image).or_default().push(Use { package, bundle, is_bundle, architectures });
            }
        }
    }
    used
}

/// Architectures that the images of a bundle must have: the requested ones, else those of the labels of its
/// ClusterServiceVersion, as far as the catalog contains it.
fn required(bundle: &Bundle, requested: &[String]) -> BTreeSet<String> {
    if !requested.is_empty() {
        return requested.iter().cloned().collect();
    }
    let labels = csv_facts(bundle).labels;
    let supported = labels.iter().filter(|(_, value)| *value == "supported");
    let mut names: BTreeSet<_> =
        supported.filter_map(|(key, _)| key.strip_prefix(ARCHITECTURE_LABEL)).map(str::to_owned).collect();
    if names.is_empty() {
        names.insert(DEFAULT_ARCHITECTURE.to_owned());
    }
    names
}

/// Client for the registry of `reference`, one for each credentials file.
fn puller(
    reference: &Reference,
    images: &ImageArgs,
    policy: Option<&Verifier>,
    pullers: &mut BTreeMap<Option<PathBuf>, Arc<Puller>>,
) -> Result<Arc<Puller>, CliError> {
    let authfile = images.authfile(reference)?;
    if let Some(known) = pullers.get(&authfile) {
        return Ok(Arc::clone(known));
    }
    let mut config = images.config(reference, ImageLimits::BUNDLE)?;
    if let Some(policy) = policy {
        config = policy.applied(config);
    }
    config.retry = RETRY;
    (config.concurrency, config.concurrency_per_registry) = (PARALLEL, PARALLEL);
    let puller = Arc::new(Puller::new(config));
    pullers.insert(authfile, Arc::clone(&puller));
    Ok(puller)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use olm_fbc::Property;
    use serde_json::json;

    use super::*;

    #[test]
    fn required_architectures_follow_from_flags_then_metadata_then_manifests() {
        let labels = json!({ "operatorframework.io/arch.arm64": "supported", "operatorframework.io/arch.s390x": "no" });
        let csv = json!({ "kind": "ClusterServiceVersion", "metadata": { "labels": labels } });
        let object = |manifest: serde_json::Value| {
            ("olm.bundle.object", json!({ "data": BASE64_STANDARD.encode(manifest.to_string()) }))
        };
        let metadata = |labels: serde_json::Value| ("olm.csv.metadata", json!({ "labels": labels }));
        for (properties, requested, expected) in [
            (vec![metadata(labels.clone())], "ppc64le", "ppc64le"),
            (vec![metadata(labels)], "", "arm64"),
            (vec![metadata(json!({}))], "", "amd64"),
            (vec![object(json!({ "kind": "Service" })), object(csv)], "", "arm64"),
            (vec![object(json!({ "kind": "ClusterServiceVersion" }))], "", "amd64"),
            (vec![], "", "amd64"),
        ] {
            let property = |(kind, value): &(&str, serde_json::Value)| Property {
                kind: (*kind).to_owned(),
                value: serde_json::value::to_raw_value(value).unwrap(),
            };
            let bundle =
                Bundle { properties: properties.iter().map(property).collect(), ..Bundle::default() };
            let requested: Vec<_> = requested.split_whitespace().map(str::to_owned).collect();
            let expected = BTreeSet::from([expected.to_owned()]);
            assert_eq!(required(&bundle, &requested), expected, "{properties:?}");
        }
    }
}
