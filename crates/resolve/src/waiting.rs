//! Newer bundle that an extension does not move to, with the reason
//! (docs/design/additions.md#update-notifications).

use olm_version::VersionRelease;

use crate::bundle_filter::shown;
use crate::catalog::Catalog;
use crate::error::ResolveError;
use crate::held::{Held, HeldReason};
use crate::request::{Installed, Request};
use crate::resolver::{Resolved, by_preference, resolve};

/// Maximum number of further upgrades that are followed to their end.
const UPGRADES: usize = 8;

/// Range of all releases: without a range, pre-releases are admitted, too.
const RELEASES: &str = "*";

/// Newer bundle that an extension does not move to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Name of the bundle.
    pub bundle: String,
    /// Version of the bundle with its release. Empty if unreadable.
    pub version: String,
    /// Catalog of the bundle.
    pub catalog: String,
    /// `true` if the version is a pre-release.
    pub pre_release: bool,
    /// `true` if the catalog deprecates the bundle.
    pub deprecated: bool,
    /// Version range of the request, if the bundle is outside of it.
    pub range: Option<String>,
    /// Rule that holds the bundle back, if any.
    pub rule: Option<HeldReason>,
    /// Version that further upgrades lead to. `None` without further ones, and if there are many.
    pub last: Option<String>,
}

impl From<&Held> for Waiting {
    fn from(held: &Held) -> Self {
        Self {
            bundle: held.bundle.clone(),
            version: held.version.clone(),
            catalog: held.catalog.clone(),
            pre_release: VersionRelease::parse(&held.version, None)
                .is_ok_and(|version| version.is_pre_release()),
            deprecated: false,
            range: None,
            rule: Some(held.reason.clone()),
            last: None,
        }
    }
}

/// Finds the newer bundle that a request with an installed bundle does not lead to: the best one that a rule holds
/// back, or else the choice without the version range. `resolution` is the result of [`resolve`] for the same input.
///
/// # Errors
/// The resolution failed for another reason than the range or a rule, with the range or without it.
pub fn waiting(
    request: &Request<'_>,
    catalogs: &[Catalog],
    resolution: &Result<Resolved, ResolveError>,
) -> Result<Option<Waiting>, ResolveError> {
    if let Some(held) = best_held(request, catalogs, resolution) {
        return Ok(Some(Waiting::from(&held)));
    }
    let is_without_bundle = |error: &ResolveError| matches!(error.cause(), ResolveError::NoBundle(_));
    if let Some(error) = resolution.as_ref().err().filter(|error| !is_without_bundle(error)) {
        return Err(error.clone());
    }
    let range = request.range().map(str::to_owned);
    let found;
    let (open, beyond) = if range.is_some() {
        let open;
        (open, found) = beyond_range(request, catalogs, resolution);
        (open, &found)
    } else {
        (*request, resolution)
    };
    if let Ok(next) = beyond
        && is_newer(&next.version, request, resolution)
    {
        return Ok(Some(Waiting {
            bundle: next.bundle.clone(),
            version: shown(&next.version),
            catalog: next.catalog.clone(),
            pre_release: next.version.is_pre_release(),
            deprecated: next.deprecated,
            range,
            rule: None,
            last: last(&open, next, catalogs),
        }));
    }
    if let Some(held) = best_held(request, catalogs, beyond) {
        return Ok(Some(Waiting { range, ..Waiting::from(&held) }));
    }
    match beyond {
        Err(error) if !is_without_bundle(error) || !is_offered(catalogs) => Err(error.clone()),
        _ => Ok(None),
    }
}

/// The request without its range, with its choice. To an installed release it offers a pre-release only if no release is
/// newer.
fn beyond_range<'a>(
    request: &Request<'a>,
    catalogs: &[Catalog],
    resolution: &Result<Resolved, ResolveError>,
) -> (Request<'a>, Result<Resolved, ResolveError>) {
    let open = Request { version: None, ..*request };
    let found = resolve(&open, catalogs);
    let installed = request.installed.and_then(|installed| installed.origin().ok());
    let from_release = installed.is_none_or(|installed| !installed.version.is_pre_release());
    if from_release && found.as_ref().is_ok_and(|next| next.version.is_pre_release()) {
        let releases = Request { version: Some(RELEASES), ..*request };
        let release = resolve(&releases, catalogs);
        let is_offered = release.as_ref().is_ok_and(|next| is_newer(&next.version, request, resolution));
        if is_offered || best_held(request, catalogs, &release).is_some() {
            return (releases, release);
        }
    }
    (open, found)
}

/// Best held bundle: for an installed release, a release if there is one.
fn preferred(held: &[Held], request: &Request<'_>) -> Option<Held> {
    let installed = request.installed.and_then(|installed| installed.origin().ok());
    let from_release = installed.is_none_or(|installed| !installed.version.is_pre_release());
    let is_release = |held: &&Held| !Waiting::from(*held).pre_release;
    held.iter().find(is_release).filter(|_| from_release).or_else(|| held.first()).cloned()
}

/// Best bundle that a rule holds back, or newer one that mode Reject refuses.
fn best_held(
    request: &Request<'_>,
    catalogs: &[Catalog],
    resolution: &Result<Resolved, ResolveError>,
) -> Option<Held> {
    let error = match resolution {
        Ok(resolved) => return preferred(&resolved.held, request),
        Err(error) => error,
    };
    let ResolveError::Dependency { bundle, property } = error.cause() else {
        return preferred(error.held(), request);
    };
    let offered = by_preference(catalogs).into_iter().find_map(|catalog| {
        let package = catalog.package.as_ref().ok()?.as_ref()?;
        Some((catalog, package.offer(bundle)?.version().ok()?))
    });
    let (catalog, version) = offered.filter(|(_, version)| is_newer(version, request, resolution))?;
    Some(Held {
        bundle: bundle.clone(),
        version: shown(version),
        catalog: catalog.name.clone(),
        reason: HeldReason::Refused { property: property.clone() },
    })
}

/// `true` if the version is newer than the target of the request: the chosen bundle, or else the installed one.
fn is_newer(
    version: &VersionRelease,
    request: &Request<'_>,
    resolution: &Result<Resolved, ResolveError>,
) -> bool {
    let target = match resolution {
        Ok(resolved) => Some(resolved.version.clone()),
        Err(_) => request.installed.and_then(|installed| Some(installed.origin().ok()?.version)),
    };
    target.is_none_or(|target| *version > target)
}

/// `true` if an available catalog has the package.
fn is_offered(catalogs: &[Catalog]) -> bool {
    catalogs.iter().any(|catalog| matches!(&catalog.package, Ok(Some(_))))
}

/// Version at the end of the upgrades that follow `next`, if there are 1 to [`UPGRADES`].
fn last(open: &Request<'_>, next: &Resolved, catalogs: &[Catalog]) -> Option<String> {
    let (mut bundle, mut version) = (next.bundle.clone(), next.version.clone());
    for upgrade in 0..=UPGRADES {
        let text = shown(&version);
        let installed = Installed { name: &bundle, version: &text, release: None };
        match resolve(&Request { installed: Some(installed), ..*open }, catalogs) {
            Ok(found) if found.version > version => (bundle, version) = (found.bundle, found.version),
            _ => return (upgrade > 0).then_some(text),
        }
    }
    None
}
