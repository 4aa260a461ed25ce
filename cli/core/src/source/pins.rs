//! Digests of images that are named by tag.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use olm_oci::{ImageLimits, Puller, Reference, ReferenceError};

use super::ImageArgs;
use crate::bundle_source::of_image;
use crate::error::CliError;
use crate::session::Session;

/// Tags that are resolved in parallel.
const PARALLEL: usize = 8;

impl ImageArgs {
    /// References by digest, as the registries have them now, by the given references. One with a digest has none.
    ///
    /// # Errors
    /// A text is not a reference with a tag, or its registry does not have the image.
    pub async fn pins(
        &self,
        texts: BTreeSet<String>,
        session: &Session,
    ) -> Result<BTreeMap<String, String>, CliError> {
        let texts = texts.into_iter().filter(|text| !text.contains('@'));
        let _step = session.progress.step("resolving tags");
        stream::iter(texts)
            .map(|text| async {
                let reference: Reference = text.parse().map_err(|error: ReferenceError| {
                    CliError::operational(format!(
                        "image {} cannot be pinned: {error}; write REGISTRY/REPOSITORY:TAG (of Deployments: --set-image)",
                        olm_version::quote(&text)
                    ))
                })?;
                let puller = Puller::new(self.config(&reference, ImageLimits::BUNDLE)?);
                let resolved = session.unless_interrupted(puller.resolve(&reference)).await;
                let image = resolved.map_err(|failure| of_image(&reference, failure))?;
                Ok::<_, CliError>((text, image.to_string()))
            })
            .buffered(PARALLEL)
            .try_collect()
            .await
    }
}
