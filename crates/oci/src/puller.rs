//! Resolving references and pulling folders of images.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::client::Clients;
use crate::fetch::Hasher;
use crate::image::{Image, ImageLabels, initializing};
use crate::refusal::RequestError;
use crate::session::Session;
use crate::store::{DiskStore, MemoryStore, Store};
use crate::tree::{Wanted, clean};
use crate::unpack::{UnpackError, Unpacker};
use crate::{CanonicalRef, Config, Credentials, Digest, Login, PullError, Reference, Selector};

/// Largest credentials file.
const MAX_AUTH_FILE: u64 = 4 << 20;

/// A folder of an image on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledFolder {
    /// The wanted folder, below the destination at its path in the image.
    pub path: PathBuf,
    /// Files in it.
    pub files: usize,
    /// Their sizes together.
    pub bytes: u64,
}

/// Pulls images. Needs a tokio runtime and the process's rustls provider.
#[derive(Debug)]
pub struct Puller {
    config: Config,
    clients: Clients,
    pulls: Arc<Semaphore>,
    pulls_by_registry: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Puller {
    /// A puller; nothing is read or connected yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let clients = Clients::new(config.cas_dir.clone(), config.read_timeout);
        let pulls = Arc::new(Semaphore::new(config.concurrency));
        Self { config, clients, pulls, pulls_by_registry: Mutex::default() }
    }

    /// The content that `reference` means now. A digest means itself, without any request.
    ///
    /// # Errors
    /// The registry does not answer, does not know the tag, or does not let us in; always worth a retry.
    pub async fn resolve(&self, reference: &Reference) -> Result<CanonicalRef, PullError> {
        let tag = match reference.selector() {
            Selector::Digest(digest) => {
                return Ok(CanonicalRef { reference: reference.clone(), digest: digest.clone() });
            }
            Selector::Tag(tag) => tag,
        };
        let timeout = self.config.resolve_timeout;
        let deadline = Instant::now() + timeout;
        let digest = timeout_at(deadline, self.digest_of_tag(reference, tag, deadline))
            .await
            .unwrap_or_else(|_| Err(late(timeout).within(&fetching(reference, tag))))
            .map_err(PullError::resolving)?;
        Ok(CanonicalRef { reference: reference.clone(), digest })
    }

    async fn digest_of_tag(
        &self,
        reference: &Reference,
        tag: &str,
        deadline: Instant,
    ) -> Result<Digest, RequestError> {
        let session = self.session(reference, tag, deadline).await?;
        let reading =
            |error: RequestError| error.within(&format!("reading manifest {tag} in {}", reference.name()));
        match session.head(tag).await {
            Ok(Some(digest)) => return Ok(digest),
            Err(error) if error.transient => return Err(reading(error)),
            // The answer to GET has the registry's reason, which HEAD cannot have.
            Ok(None) | Err(_) => {}
        }
        Ok(Hasher::sha256(&session.manifest(tag).await.map_err(reading)?))
    }

    /// Pulls one folder of an image to `destination`, which must not exist while its parent does. It appears complete or not
    /// at all: folders 0500, files 0400, no links. Remove it with [`crate::remove_folder`]. A killed process leaves a folder
    /// `.unpack-*` beside it.
    ///
    /// `select` names the folder from the image's labels, or says why none is named.
    ///
    /// # Errors
    /// As the class of the error says: the network or this machine, or the content.
    pub async fn pull_folder(
        &self,
        image: &CanonicalRef,
        select: impl FnOnce(&ImageLabels) -> Result<String, String>,
        destination: &Path,
    ) -> Result<PulledFolder, PullError> {
        self.within_deadline(image, |session| async move {
            let pinned = image.is_pinned();
            let image = Image::open(session, image, &self.config.platform, &self.config.limits).await?;
            let named = select(&image.labels).map_err(|cause| PullError::content(pinned, cause))?;
            let folder = clean(&named).ok_or_else(|| {
                let cause =
                    format!("the image's labels name the folder {named:?}, which is outside the image");
                PullError::content(pinned, cause)
            })?;
            let store = DiskStore::new(destination).map_err(PullError::applying)?;
            let wanted = Wanted::new([folder.clone()]);
            let unpacker = image.unpack(Unpacker::new(wanted, self.config.limits.clone(), store)).await?;
            let destination = destination.to_owned();
            tokio::task::spawn_blocking(move || publish(unpacker, &folder, &destination))
                .await
                .map_err(PullError::applying)?
                .map_err(|error| image.unpack_error(error, None))
        })
        .await
    }

    /// Pulls the files below `folders` (paths from the image root) into memory, by their paths from the image root.
    ///
    /// # Errors
    /// As the class of the error says: the network or this machine, or the content.
    pub async fn pull_files(
        &self,
        image: &CanonicalRef,
        folders: &[&str],
    ) -> Result<BTreeMap<String, Vec<u8>>, PullError> {
        self.within_deadline(image, |session| async move {
            let image = Image::open(session, image, &self.config.platform, &self.config.limits).await?;
            let wanted = Wanted::new(folders.iter().filter_map(|folder| clean(folder)));
            let unpacker =
                image.unpack(Unpacker::new(wanted, self.config.limits.clone(), MemoryStore)).await?;
            collect(unpacker).map_err(|error| image.unpack_error(error, None))
        })
        .await
    }

    /// Runs `pull` when its turn has come, with a session for `image`, and ends it at the deadline.
    async fn within_deadline<T, F: Future<Output = Result<T, PullError>>>(
        &self,
        image: &CanonicalRef,
        pull: impl FnOnce(Session) -> F,
    ) -> Result<T, PullError> {
        let timeout = self.config.pull_timeout;
        let deadline = Instant::now() + timeout;
        let copying = |error: RequestError| PullError::copying(error.within(&initializing(image)));
        let pull = async {
            let _permits = self.permits(image.reference().host()).await?;
            let session = self.session(image.reference(), image.digest().as_str(), deadline).await;
            pull(session.map_err(copying)?).await
        };
        timeout_at(deadline, pull).await.unwrap_or_else(|_| Err(copying(late(timeout))))
    }

    async fn permits(&self, host: &str) -> Result<[OwnedSemaphorePermit; 2], PullError> {
        let registry = {
            let mut by_registry = self.pulls_by_registry.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(self.config.concurrency_per_registry));
            Arc::clone(by_registry.entry(host.to_owned()).or_insert_with(new))
        };
        // In this order a slow registry holds up nobody but itself.
        let of_registry = registry.acquire_owned().await.map_err(PullError::copying)?;
        Ok([of_registry, Arc::clone(&self.pulls).acquire_owned().await.map_err(PullError::copying)?])
    }

    async fn session(
        &self,
        reference: &Reference,
        selector: &str,
        deadline: Instant,
    ) -> Result<Session, RequestError> {
        let client = self.clients.client().map_err(RequestError::fatal)?;
        let login = self.login(reference).map_err(RequestError::fatal)?;
        Session::open(client, reference, login, self.config.retry.clone(), deadline)
            .await
            .map_err(|error| error.within(&fetching(reference, selector)))
    }

    fn login(&self, reference: &Reference) -> Result<Option<Login>, String> {
        let Some(path) = &self.config.auth_file else {
            return Ok(None);
        };
        let file = path.display();
        let reading =
            |cause: String| format!("getting username and password: reading JSON file \"{file}\": {cause}");
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if metadata.len() > MAX_AUTH_FILE => {
                return Err(reading(format!("the file is larger than {MAX_AUTH_FILE} bytes")));
            }
            Ok(_) | Err(_) => std::fs::read(path).map_err(|error| reading(error.to_string()))?,
        };
        let credentials = Credentials::parse(&text)
            .map_err(|error| reading(format!("unmarshaling JSON at \"{file}\": {error}")))?;
        Ok(credentials.lookup(reference.host(), reference.path()).cloned())
    }
}

fn publish(
    unpacker: Unpacker<DiskStore>,
    folder: &str,
    destination: &Path,
) -> Result<PulledFolder, UnpackError> {
    let (tree, store) = unpacker.finish()?;
    if !tree.is_dir(folder) {
        let cause = format!("the image's labels name the folder {folder:?}, which is not in the image");
        return Err(UnpackError::Archive(cause));
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
    let mut files = BTreeMap::new();
    for file in tree.files() {
        let (path, bytes) = file?;
        files.insert(path.to_owned(), bytes.to_vec());
    }
    Ok(files)
}

fn late(timeout: Duration) -> RequestError {
    RequestError::transient(format!("not done within {} s", timeout.as_secs_f32()))
}

fn fetching(reference: &Reference, selector: &str) -> String {
    format!("fetching manifest {selector} in {}", reference.name())
}
