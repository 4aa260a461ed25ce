//! The bundle that the form configures.

use std::sync::Arc;
use std::time::Duration;

use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Longest pull of a bundle. The form works without it.
const DEADLINE: Duration = Duration::from_secs(20);

/// Last bundle that was read, so that steps of one form pull it once.
#[derive(Default)]
pub(crate) struct BundleCache(Mutex<Option<(String, Arc<BundleFiles>)>>);

impl BundleCache {
    /// Files of the bundle image. Only an image with a digest is kept.
    ///
    /// # Errors
    /// The image cannot be pulled in time, or is not a bundle.
    pub(crate) async fn read(
        &self,
        image: &str,
        access: &Access,
        session: &Session,
    ) -> Result<Arc<BundleFiles>, CliError> {
        let kept = self.0.lock().await.as_ref().filter(|(known, _)| known == image).cloned();
        if let Some((_, files)) = kept {
            return Ok(files);
        }
        let pulled = timeout(DEADLINE, bundle_source::read_image(image, &access.images, session)).await;
        let late = |_| CliError::operational(format!("{image}: no answer within {} s", DEADLINE.as_secs()));
        let files = Arc::new(pulled.map_err(late)??);
        if image.contains("@sha256:") {
            *self.0.lock().await = Some((image.to_owned(), Arc::clone(&files)));
        }
        Ok(files)
    }
}
