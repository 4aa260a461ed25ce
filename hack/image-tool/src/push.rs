//! Pushes images with the credentials of a file.

use anyhow::{Context, Result, bail};
use olm_oci::{
    Config, CredentialSource, Credentials, ImageLimits, Puller, RawManifest, Reference, RegistryPaths,
    Repository, Selector,
};
use olm_pack::{Image, ImageIndex};
use tokio::sync::watch;

/// Options of a push.
#[derive(Debug, Clone, Default)]
pub struct Push {
    /// PEM certificates trusted in addition to the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// Credentials by registry and repository.
    pub credentials: Credentials,
}

/// Pushes `image` to `reference` (`registry/repository:tag`) with the matching credentials of `options`, and returns
/// its digest. Files of this machine that configure registries are not read.
///
/// # Errors
/// `reference` cannot be parsed, or the registry rejects the image. The error contains the reference.
pub async fn push(reference: &str, image: &Image, options: &Push) -> Result<String> {
    let (repository, tag) = open(reference, options).await?;
    let manifest = RawManifest::new(image.manifest.clone());
    let pushed = repository.push(&tag, &manifest, image.blobs().cloned().collect(), &|_| {}).await;
    pushed.with_context(|| format!("push {reference}"))?;
    Ok(image.digest())
}

/// Pushes the images of `index` by digest, then the index to `reference`, like [`push`].
///
/// # Errors
/// See [`push`].
pub async fn push_index(reference: &str, index: &ImageIndex, options: &Push) -> Result<String> {
    let (repository, tag) = open(reference, options).await?;
    let pushing = async {
        for image in index.images.values() {
            let manifest = RawManifest::new(image.manifest.clone());
            let blobs = image.blobs().cloned().collect();
            repository.push(manifest.digest.as_str(), &manifest, blobs, &|_| {}).await?;
        }
        repository.push_manifest(&tag, &RawManifest::new(index.manifest.clone())).await
    };
    pushing.await.with_context(|| format!("push {reference}"))?;
    Ok(index.digest())
}

/// Repository and tag of `reference`.
async fn open(reference: &str, options: &Push) -> Result<(Repository, String)> {
    let to: Reference = reference.parse().with_context(|| format!("image reference {reference:?}"))?;
    let Selector::Tag(tag) = to.selector() else {
        bail!("image reference {reference:?}: expected a tag; the digest follows from the content");
    };
    let authorities = tempfile::tempdir()?;
    if let Some(pem) = &options.ca_pem {
        std::fs::write(authorities.path().join("ca.crt"), pem)?;
    }
    let mut config = Config::new(ImageLimits::CATALOG);
    config.paths = RegistryPaths::default();
    config.cas_dir = Some(authorities.path().to_owned());
    config.credentials = CredentialSource::Memory(watch::channel(options.credentials.clone()).1);
    let puller = Puller::new(config);
    let repository = puller.target(&to).await.with_context(|| format!("push {reference}"))?;
    Ok((repository, tag.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::registry::{Access, Registry};

    fn image() -> Image {
        Image::catalog(&BTreeMap::from([("index.yaml".to_owned(), b"schema: x".to_vec())])).unwrap()
    }

    #[tokio::test]
    async fn pushed_image_can_be_pulled() {
        let registry = Registry::start().await.unwrap();
        registry.set_access(Access::Bearer(Some(("user".to_owned(), "secret".to_owned()))));
        let credentials = format!(r#"{{"auths":{{"{}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#, registry.host());
        let options = Push {
            ca_pem: Some(registry.ca_pem().into()),
            credentials: Credentials::parse(credentials.as_bytes()).unwrap(),
        };
        let reference = format!("{}/a/cat:v1", registry.host());
        let digest = push(&reference, &image(), &options).await.unwrap();
        assert_eq!(digest, image().digest());

        let folder = tempfile::TempDir::new().unwrap();
        registry.write_ca(folder.path()).unwrap();
        let auth_file = folder.path().join("auth.json");
        std::fs::write(&auth_file, credentials).unwrap();
        let mut config = olm_oci::Config::new(olm_oci::ImageLimits::BUNDLE);
        config.cas_dir = Some(folder.path().to_owned());
        config.credentials = olm_oci::CredentialSource::File(auth_file);
        let puller = olm_oci::Puller::new(config);
        let resolved = puller.resolve(&reference.parse().unwrap()).await.unwrap();
        assert_eq!(resolved.digest().as_str(), digest);
        let (files, _) = puller.pull_files(&resolved, &["configs"]).await.unwrap();
        assert_eq!(files, BTreeMap::from([("configs/index.yaml".to_owned(), b"schema: x".to_vec())]));
    }

    #[tokio::test]
    async fn image_of_each_architecture_can_be_pulled_from_pushed_index() {
        let registry = Registry::start().await.unwrap();
        let options = Push { ca_pem: Some(registry.ca_pem().into()), ..Push::default() };
        let content = |text: &str| {
            let files = BTreeMap::from([("index.yaml".to_owned(), text.as_bytes().to_vec())]);
            Image::catalog(&files).unwrap()
        };
        let images = ["amd64", "arm64"].map(|name| (name.to_owned(), content(name)));
        let index = ImageIndex::new(BTreeMap::from(images)).unwrap();
        let reference = format!("{}/a/server:v1", registry.host());
        let digest = push_index(&reference, &index, &options).await.unwrap();
        assert_eq!(digest, index.digest());

        let folder = tempfile::TempDir::new().unwrap();
        registry.write_ca(folder.path()).unwrap();
        let mut config = olm_oci::Config::new(olm_oci::ImageLimits::BUNDLE);
        config.cas_dir = Some(folder.path().to_owned());
        let puller = olm_oci::Puller::new(config);
        let resolved = puller.resolve(&reference.parse().unwrap()).await.unwrap();
        assert_eq!(resolved.digest().as_str(), digest);
        let (files, _) = puller.pull_files(&resolved, &["configs"]).await.unwrap();
        let architecture = olm_oci::ImagePlatform::current().architecture;
        assert_eq!(files, BTreeMap::from([("configs/index.yaml".to_owned(), architecture.into_bytes())]));
    }

    #[tokio::test]
    async fn existing_blobs_are_not_pushed_again() {
        let registry = Registry::start().await.unwrap();
        let options = Push { ca_pem: Some(registry.ca_pem().into()), ..Push::default() };
        let reference = format!("{}/a/cat:v1", registry.host());
        push(&reference, &image(), &options).await.unwrap();
        let _ = registry.take_requests();
        push(&reference, &image(), &options).await.unwrap();
        let requests = registry.take_requests();
        assert!(!requests.iter().any(|request| request.starts_with("POST ")), "{requests:?}");
    }

    #[tokio::test]
    async fn push_errors_contain_the_reference() {
        let registry = Registry::start().await.unwrap();
        let reference = format!("{}/a/cat:v1", registry.host());
        let error = push(&reference, &image(), &Push::default()).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with(&format!("push {reference}: ")), "{error}");
        assert!(error.contains("certificate"), "{error}");
        let error = push("not a reference", &image(), &Push::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "image reference \"not a reference\"");
    }

    #[tokio::test]
    async fn push_to_a_digest_fails() {
        let reference = format!("r.example/a/cat@{}", image().digest());
        let error = push(&reference, &image(), &Push::default()).await.unwrap_err().to_string();
        let expected = "expected a tag; the digest follows from the content";
        assert_eq!(error, format!("image reference {reference:?}: {expected}"));
    }
}
