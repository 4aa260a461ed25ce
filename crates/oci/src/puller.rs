//! Resolves references and pulls folders of images.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use olm_version::excerpt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::archive::UnpackError;
use crate::budget::RequestBudget;
use crate::fetch::Hasher;
use crate::image::{FoundManifest, Image, ImageLabels, initializing, verified_manifest};
use crate::inspect::{InspectError, Inspected, inspect, manifest};
use crate::policy::Verification;
use crate::referrers::{Referrers, referrers};
use crate::registries::Source;
use crate::request_error::RequestError;
use crate::session::Session;
use crate::sources::Sources;
use crate::store::{DiskStore, MemoryStore, Store};
use crate::tree::{FolderFilter, clean};
use crate::unpack::Unpacker;
use crate::{CanonicalRef, Config, Digest, LimitCounts, PullError, Reference, Selector};

/// Concurrent manifest lookups per registry.
const SEARCHES: usize = 8;

/// Folder of an image on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledFolder {
    /// Path of the folder: the destination joined with its path in the image.
    pub path: PathBuf,
    /// Number of files.
    pub files: usize,
    /// Total size of the files.
    pub bytes: u64,
}

/// Client that pulls images. Needs a tokio runtime and a rustls provider of the process.
pub struct Puller {
    config: Arc<Config>,
    sources: Sources,
    transfers: Semaphore,
    /// Permits for manifest lookups and for transfers, by registry.
    by_registry: Mutex<HashMap<String, Arc<[Semaphore; 2]>>>,
    exceeded: LimitCounts,
}

impl Puller {
    /// Creates a puller without any I/O.
    pub fn new(config: Config) -> Self {
        let config = Arc::new(config);
        let sources = Sources::new(Arc::clone(&config));
        let transfers = Semaphore::new(config.concurrency);
        Self { config, sources, transfers, by_registry: Mutex::default(), exceeded: LimitCounts::default() }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Live counters of images rejected by each limit.
    pub fn limits_exceeded(&self) -> LimitCounts {
        self.exceeded.clone()
    }

    /// Resolves `reference` to its current digest. A reference by digest needs no request.
    ///
    /// # Errors
    /// The registry does not respond, does not know the tag, or denies access. Always worth a retry.
    pub async fn resolve(&self, reference: &Reference) -> Result<CanonicalRef, PullError> {
        let canonical = |digest| CanonicalRef { reference: reference.clone(), digest };
        let tag = match reference.selector() {
            Selector::Digest(digest) => return Ok(canonical(digest.clone())),
            Selector::Tag(tag) => tag,
        };
        let timeout = self.config.resolve_timeout;
        let budget = self.budget(timeout);
        let fetching = format!("fetching manifest {tag} in {}", reference.name());
        let ask = |session: Session, source: Source| async move {
            let reading = format!("reading manifest {tag} in {}", source.reference.name());
            digest_of_tag(&session, tag).await.map_err(|error| error.within(&reading))
        };
        let permits = self.permits(reference.host());
        let search = Box::pin(self.sources.first(reference, tag, &budget, ask));
        let resolved = timeout_at(budget.deadline, budget.with_permit(&permits[0], search)).await;
        let digest = resolved.unwrap_or_else(|_| Err(late(timeout).within(&fetching)));
        Ok(canonical(digest.map_err(PullError::resolving)?))
    }

    /// Checks that `reference` exists and reads its architectures. No layer is pulled, and no signature checked.
    ///
    /// # Errors
    /// The image does not exist, the registry does not respond or denies access, or its manifest is invalid or does
    /// not match its digest.
    pub async fn inspect(&self, reference: &Reference) -> Result<Inspected, InspectError> {
        self.inspected(reference, false).await
    }

    /// [`Self::inspect`] that also looks for the layers of a single image.
    ///
    /// # Errors
    /// Those of [`Self::inspect`].
    pub async fn inspect_layers(&self, reference: &Reference) -> Result<Inspected, InspectError> {
        self.inspected(reference, true).await
    }

    async fn inspected(&self, reference: &Reference, layers: bool) -> Result<Inspected, InspectError> {
        let selector = reference.selector();
        self.ask(
            reference,
            |session, source| async move { inspect(&session, &source, selector, layers).await },
        )
        .await
    }

    /// Manifest or index of `reference`, which matches a digest of the reference.
    ///
    /// # Errors
    /// The image does not exist, or those of [`inspect`](Self::inspect).
    pub async fn manifest(&self, reference: &Reference) -> Result<Bytes, InspectError> {
        let selector = reference.selector();
        self.ask(reference, |session, source| async move { manifest(&session, &source, selector).await })
            .await
    }

    /// Attachments of `image`, by the referrers API or, if the registry does not have it, by the tag for them.
    ///
    /// # Errors
    /// The registry does not respond, denies access, or has invalid content.
    pub async fn referrers(&self, image: &CanonicalRef) -> Result<Referrers, InspectError> {
        let digest = image.digest();
        self.ask(image.reference(), |session, _| async move { referrers(&session, digest).await }).await
    }

    /// Result of `ask` for the first source that succeeds, within the time limit of resolving.
    async fn ask<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        reference: &Reference,
        ask: impl Fn(Session, Source) -> F,
    ) -> Result<T, InspectError> {
        let timeout = self.config.resolve_timeout;
        let budget = self.budget(timeout);
        let name = reference.selector().as_str();
        let permits = self.permits(reference.host());
        let search = Box::pin(self.sources.first(reference, name, &budget, ask));
        let found = timeout_at(budget.deadline, budget.with_permit(&permits[0], search)).await;
        Ok(found.unwrap_or_else(|_| Err(late(timeout)))?)
    }

    fn budget(&self, timeout: Duration) -> RequestBudget {
        RequestBudget::new(self.config.retry.clone(), Instant::now() + timeout)
    }

    /// Pulls one folder of an image to `destination`, which must not exist while its parent must. It appears
    /// complete or not at all: folders 0500, files 0400, no links. Remove it with [`crate::remove_folder`]. A
    /// killed process leaves a folder `.unpack-*` beside it.
    ///
    /// `select` returns the folder named by the labels of the image, or the reason why there is none. The
    /// verification names the policy that accepted the image.
    ///
    /// # Errors
    /// See the class of the error: network or local failure, or invalid content.
    pub async fn pull_folder(
        &self,
        image: &CanonicalRef,
        select: impl FnOnce(&ImageLabels) -> Result<String, String>,
        destination: &Path,
    ) -> Result<(PulledFolder, Verification), PullError> {
        self.within_deadline(image, |found| async move {
            let pinned = image.is_pinned();
            let image = self.open(found, image).await?;
            let folder = select(&image.labels).and_then(|named| {
                let why = "which is outside the image";
                clean(&named).ok_or_else(|| unusable_folder(&named, why))
            });
            let folder = folder.map_err(|cause| PullError::content(pinned, cause))?;
            let store = DiskStore::new(destination).map_err(PullError::applying)?;
            let folders = FolderFilter::new([folder.clone()]);
            let unpacker = Unpacker::new(folders, self.config.limits.clone(), store);
            let destination = destination.to_owned();
            let publish = move |unpacker| publish(unpacker, &folder, &destination);
            Ok((image.unpack(unpacker, publish).await?, image.verification))
        })
        .await
    }

    /// Pulls the files below `folders` (paths from the image root) into memory, by their paths from the image root.
    /// The verification names the policy that accepted the image.
    ///
    /// # Errors
    /// See the class of the error: network or local failure, or invalid content.
    pub async fn pull_files(
        &self,
        image: &CanonicalRef,
        folders: &[&str],
    ) -> Result<(BTreeMap<String, Vec<u8>>, Verification), PullError> {
        self.within_deadline(image, |found| async move {
            let image = self.open(found, image).await?;
            let folders = FolderFilter::new(folders.iter().filter_map(|folder| clean(folder)));
            let unpacker = Unpacker::new(folders, self.config.limits.clone(), MemoryStore);
            Ok((image.unpack(unpacker, collect).await?, image.verification))
        })
        .await
    }

    /// Verification that the content of `image` needs under the current policy. Sends no request.
    ///
    /// # Errors
    /// Those of [`verify`](Self::verify).
    pub fn verification(&self, image: &CanonicalRef) -> Result<Verification, PullError> {
        self.config.policy.verification(image)
    }

    /// Checks `image` against the current policy without pulling its content. The verification is of that policy.
    ///
    /// # Errors
    /// The policy rejects the image ([`PullError::is_rejected`]), or could not be checked.
    pub async fn verify(&self, image: &CanonicalRef) -> Result<Verification, PullError> {
        let needed = self.verification(image)?;
        if !needed.is_signed() {
            return Ok(needed);
        }
        let opened = |found| async move { Ok(self.open(found, image).await?.verification) };
        self.within_deadline(image, opened).await
    }

    async fn open<'a>(&self, found: FoundManifest, image: &'a CanonicalRef) -> Result<Image<'a>, PullError> {
        let Config { policy, platform, limits, .. } = &*self.config;
        Image::open(found, image, policy, platform, limits).await
    }

    /// Finds the manifest of `image` and runs `pull` with it, both with a permit and within the deadline.
    async fn within_deadline<T, F: Future<Output = Result<T, PullError>>>(
        &self,
        image: &CanonicalRef,
        pull: impl FnOnce(FoundManifest) -> F,
    ) -> Result<T, PullError> {
        let timeout = self.config.pull_timeout;
        let budget = self.budget(timeout);
        let copying = |error: RequestError| PullError::copying(error.within(&initializing(image)));
        let permits = self.permits(image.reference().host());
        let [searches, transfers] = &*permits;
        let pull = async {
            let found = budget.with_permit(searches, Box::pin(self.find(image, &budget))).await;
            let transfer = Box::pin(pull(found.map_err(copying)?));
            // In this order a slow registry delays only its own pulls.
            let transfer = Box::pin(budget.with_permit(&self.transfers, transfer));
            budget.with_permit(transfers, transfer).await
        };
        let result = timeout_at(budget.deadline, pull).await;
        let result = result.unwrap_or_else(|_| Err(copying(late(timeout))));
        if let Some(key) = result.as_ref().err().and_then(|error| error.limit) {
            self.exceeded.count(key);
        }
        result
    }

    /// Finds the first source with the manifest of `image`. The rest of the image is pulled from it.
    async fn find(
        &self,
        image: &CanonicalRef,
        budget: &RequestBudget,
    ) -> Result<FoundManifest, RequestError> {
        let digest = image.digest();
        let ask = |session: Session, source: Source| async move {
            let source = source.reference;
            let manifest = verified_manifest(&session, digest, &source).await?;
            Ok(FoundManifest { session, source, manifest })
        };
        let found = self.sources.first(image.reference(), digest.as_str(), budget, ask).await?;
        Ok(FoundManifest { session: found.session.with_budget(budget.clone()), ..found })
    }

    fn permits(&self, host: &str) -> Arc<[Semaphore; 2]> {
        let mut by_registry = self.by_registry.lock();
        let new = || Arc::new([SEARCHES, self.config.concurrency_per_registry].map(Semaphore::new));
        Arc::clone(by_registry.entry(host.to_owned()).or_insert_with(new))
    }
}

/// Digest from a `HEAD` request, otherwise from the manifest itself, since some registries omit it.
async fn digest_of_tag(session: &Session, tag: &str) -> Result<Digest, RequestError> {
    match session.head(tag).await {
        Ok(Some(digest)) => return Ok(digest),
        Err(error) if error.transient => return Err(error),
        // GET returns the error of the registry, which HEAD cannot.
        Ok(None) | Err(_) => {}
    }
    Ok(Hasher::sha256(&session.manifest(tag).await?))
}

fn publish(
    unpacker: Unpacker<DiskStore>,
    folder: &str,
    destination: &Path,
) -> Result<PulledFolder, UnpackError> {
    let (tree, store) = unpacker.finish()?;
    if !tree.is_dir(folder) {
        return Err(UnpackError::Archive(unusable_folder(folder, "which is not in the image")));
    }
    let (mut files, mut bytes) = (0, 0);
    for file in tree.files() {
        files += 1;
        bytes += DiskStore::size(file?.1);
    }
    store.publish(&tree, destination)?;
    Ok(PulledFolder { path: destination.join(folder), files, bytes })
}

fn collect(unpacker: Unpacker<MemoryStore>) -> Result<BTreeMap<String, Vec<u8>>, UnpackError> {
    let (tree, MemoryStore) = unpacker.finish()?;
    let files = tree.files().map(|file| file.map(|(path, bytes)| (path.to_owned(), bytes.to_vec())));
    Ok(files.collect::<Result<_, _>>()?)
}

fn unusable_folder(named: &str, why: &str) -> String {
    format!("the image's labels name the folder {:?}, {why}", excerpt(named))
}

fn late(timeout: Duration) -> RequestError {
    RequestError::transient(format!("not done within {} s", timeout.as_secs_f32()))
}
