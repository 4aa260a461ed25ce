//! Catalog content as the resolver reads it: fetched from catalogd once for each digest, kept on disk, and never
//! asked of the network by a resolution (spec 03 §1).

mod controller;
mod generation;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt;
use olm_api::ClusterCatalog;
use olm_api::conditions::{self, types};
use olm_resolve::{CatalogError, PackageIndex};
use olm_service::ca_pool::CaPool;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::io::{StreamReader, SyncIoBridge};

pub(crate) use controller::run;
use generation::{Generation, WriteError};

/// Most bytes that one catalog may have.
const CATALOG_BYTES: u64 = 2 << 30;

/// The content of all catalogs.
pub(crate) struct Catalogs {
    directory: PathBuf,
    pool: Arc<CaPool>,
    release_support: bool,
    known: Mutex<HashMap<String, Known>>,
    changes: watch::Sender<u64>,
}

/// What is known of the content of one catalog at one reference.
#[derive(Clone)]
struct Known {
    reference: String,
    content: Result<Arc<Generation>, String>,
}

/// Why a catalog could not be fetched.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct FetchError {
    message: String,
    /// Whether extensions are told, until the next attempt.
    remembered: bool,
}

impl FetchError {
    fn remembered(message: String) -> Self {
        Self { message, remembered: true }
    }
}

impl Catalogs {
    /// Content kept below `directory`. Takes up what an earlier process left there.
    pub(crate) fn open(directory: PathBuf, pool: Arc<CaPool>, release_support: bool) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        let mut known = HashMap::new();
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let generation = entry.file_name().to_str().and_then(|name| {
                let generations = fs::read_dir(entry.path()).ok()?;
                let opened = generations.filter_map(|entry| Generation::open(&entry.ok()?.path())).next()?;
                Some((name.to_owned(), opened))
            });
            match generation {
                Some((name, generation)) => {
                    let reference = generation.reference().to_owned();
                    known.insert(name, Known { reference, content: Ok(Arc::new(generation)) });
                }
                None => remove(&entry.path())?,
            }
        }
        let changes = watch::Sender::new(0);
        Ok(Self { directory, pool, release_support, known: Mutex::new(known), changes })
    }

    /// Tells whenever a resolution may have another outcome than before.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Says that a resolution, or what follows it, may have another outcome than before.
    pub(crate) fn announce(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn known(&self, name: &str) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn learn(&self, name: &str, known: Option<Known>) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(known) => all.insert(name.to_owned(), known),
            None => all.remove(name),
        };
        drop(all);
        self.announce();
    }

    /// The package in this catalog, `None` where the catalog does not have it (spec 03 §1.5).
    pub(crate) fn package(
        &self,
        catalog: &ClusterCatalog,
        package: &str,
    ) -> Result<Option<Arc<PackageIndex>>, CatalogError> {
        let name = catalog.metadata.name.clone().unwrap_or_default();
        let reference = served_reference(catalog)?;
        let Some(known) = self.known(&name).filter(|known| known.reference == reference) else {
            return Err(CatalogError::NotCached(name));
        };
        let generation = known.content.map_err(|fault| CatalogError::Cache { catalog: name, fault })?;
        generation
            .package(package, self.release_support)
            .map_err(|fault| CatalogError::Package { package: package.to_owned(), fault: fault.to_string() })
    }

    /// Fetches the content of the resolved reference unless it is here (spec 03 §1.2).
    async fn populate(&self, catalog: &ClusterCatalog) -> Result<(), FetchError> {
        let name = catalog.metadata.name.clone().unwrap_or_default();
        let resolved = catalog.status.as_ref().and_then(|status| status.resolved_source.as_ref());
        let Some(reference) =
            resolved.map(|source| source.image.ref_.as_str()).filter(|text| !text.is_empty())
        else {
            return Ok(());
        };
        if self.known(&name).is_some_and(|known| known.reference == reference && known.content.is_ok()) {
            return Ok(());
        }
        let unremembered = |fault: CatalogError| FetchError { message: fault.to_string(), remembered: false };
        served_reference(catalog).map_err(unremembered)?;
        match self.fetch(catalog, &name, reference).await {
            Ok(generation) => {
                tracing::info!(catalog = name, reference, "catalog content is here");
                let known = Known { reference: reference.to_owned(), content: Ok(Arc::new(generation)) };
                self.learn(&name, Some(known));
                Ok(())
            }
            Err(error) => {
                if error.remembered {
                    let known =
                        Known { reference: reference.to_owned(), content: Err(error.message.clone()) };
                    self.learn(&name, Some(known));
                }
                Err(error)
            }
        }
    }

    async fn fetch(
        &self,
        catalog: &ClusterCatalog,
        name: &str,
        reference: &str,
    ) -> Result<Generation, FetchError> {
        let urls = catalog.status.as_ref().and_then(|status| status.urls.as_ref());
        let base = urls.map(|urls| urls.base.as_str()).ok_or_else(|| FetchError {
            message: format!("error: catalog {name:?} has a nil status.urls value"),
            remembered: false,
        })?;
        let url = format!("{}/api/v1/all", base.trim_end_matches('/'));
        let failed = |error: reqwest::Error| {
            let cause = olm_service::cluster::with_causes(&error.without_url());
            FetchError::remembered(format!("error performing request: Get \"{url}\": {cause}"))
        };
        let response = self.pool.client().get(&url).send().await.map_err(failed)?;
        if response.status() != reqwest::StatusCode::OK {
            let code = response.status().as_u16();
            let message = format!("error: received unexpected response status code {code}");
            return Err(FetchError { message, remembered: false });
        }
        let body = SyncIoBridge::new(StreamReader::new(response.bytes_stream().map_err(io::Error::other)));
        let parent = self.directory.join(name);
        let reference = reference.to_owned();
        let write = tokio::task::spawn_blocking(move || replace(&parent, &reference, body));
        let written = write.await.map_err(|error| FetchError::remembered(error.to_string()))?;
        written.map_err(|error| FetchError::remembered(error.to_string()))
    }

    /// Forgets a catalog and its files.
    fn remove(&self, name: &str) {
        if let Err(error) = tokio::task::block_in_place(|| remove(&self.directory.join(name))) {
            tracing::error!(%error, "error removing cache for catalog {name:?}");
        }
        self.learn(name, None);
    }

    /// Forgets every catalog that is not among `names`.
    fn retain(&self, names: &[String]) {
        let known: Vec<String> =
            self.known.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        known.iter().filter(|name| !names.contains(name)).for_each(|name| self.remove(name));
    }
}

/// The reference that the catalog serves; what an extension is told where it serves none (spec 03 §1.3).
fn served_reference(catalog: &ClusterCatalog) -> Result<&str, CatalogError> {
    let name = || catalog.metadata.name.clone().unwrap_or_default();
    let status = catalog.status.as_ref().ok_or_else(|| CatalogError::NotServing(name()))?;
    if !conditions::is_true(&status.conditions, types::SERVING) {
        return Err(CatalogError::NotServing(name()));
    }
    let source = status.resolved_source.as_ref().ok_or_else(|| CatalogError::NoResolvedSource(name()))?;
    Ok(&source.image.ref_)
}

/// Writes a generation beside the ones that are there, then removes those. The folder's name comes from the
/// reference's hash, so that nothing of a reference or of content ever is a path.
fn replace(
    parent: &std::path::Path,
    reference: &str,
    stream: impl io::Read,
) -> Result<Generation, WriteError> {
    fs::create_dir_all(parent)?;
    let hash = hex::encode(Sha256::digest(reference));
    let (staging, place) = (parent.join(format!(".{hash}")), parent.join(&hash));
    remove(&staging)?;
    remove(&place)?;
    fs::create_dir(&staging)?;
    // One byte more than allowed, so that too much is told from just enough.
    let mut stream = io::Read::take(stream, CATALOG_BYTES + 1);
    let generation = Generation::write(&staging, reference, &mut stream)?;
    if stream.limit() == 0 {
        return Err(io::Error::other(format!("the catalog has more than {CATALOG_BYTES} bytes")).into());
    }
    fs::rename(&staging, &place)?;
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        if path != place {
            remove(&path)?;
        }
    }
    Ok(generation)
}

/// Removes a file or folder; a missing one is fine.
fn remove(path: &std::path::Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
