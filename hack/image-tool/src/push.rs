//! Pushing an image to a registry.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use oci_distribution::client::{Certificate, CertificateEncoding, ClientConfig};
use oci_distribution::manifest::OCI_IMAGE_MEDIA_TYPE;
use oci_distribution::secrets::RegistryAuth;
use oci_distribution::{Client, Reference, RegistryOperation};
use olm_oci::Credentials;

use crate::{Image, digest_of};

/// A whole push ends after this time.
const DEADLINE: Duration = Duration::from_secs(600);
/// Blobs sent at once.
const PARALLEL: usize = 3;

/// With what a push reaches its registry.
#[derive(Debug, Clone, Default)]
pub struct Push {
    /// PEM certificates trusted in addition to the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// Credentials by registry and repository.
    pub credentials: Credentials,
}

/// Pushes `image` to `reference` (`registry/repository:tag`) over TLS and returns its digest. Blobs that the registry
/// already has are not sent.
///
/// # Errors
/// `reference` cannot be parsed, or the registry does not take the image; the message names the reference.
pub async fn push(reference: &str, image: &Image, options: &Push) -> Result<String> {
    let to: Reference = reference.parse().with_context(|| format!("image reference {reference:?}"))?;
    let config = ClientConfig {
        extra_root_certificates: options.ca_pem.iter().map(|pem| certificate(pem)).collect(),
        connect_timeout: Some(Duration::from_secs(10)),
        // One PUT per blob: chunks cost a round trip per 4 MiB and gain nothing here.
        use_monolithic_push: true,
        ..ClientConfig::default()
    };
    let client = Client::try_from(config)?;
    let auth =
        options.credentials.lookup(to.registry(), to.repository()).map_or(RegistryAuth::Anonymous, |login| {
            RegistryAuth::Basic(login.username.clone(), login.password.clone())
        });
    let send = async {
        client.auth(&to, &auth, RegistryOperation::Push).await?;
        stream::iter(image.blobs())
            .map(|blob| push_blob(&client, &to, blob.clone()))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        let media_type = http::HeaderValue::from_static(OCI_IMAGE_MEDIA_TYPE);
        client.push_manifest_raw(&to, image.manifest.clone(), media_type).await?;
        anyhow::Ok(())
    };
    tokio::time::timeout(DEADLINE, send)
        .await
        .map_err(anyhow::Error::from)
        .flatten()
        .with_context(|| format!("push {reference}"))?;
    Ok(image.digest())
}

async fn push_blob(client: &Client, to: &Reference, blob: bytes::Bytes) -> Result<()> {
    let digest = digest_of(&blob);
    if !client.blob_exists(to, &digest).await? {
        client.push_blob(to, blob, &digest).await?;
    }
    Ok(())
}

fn certificate(pem: &[u8]) -> Certificate {
    Certificate { encoding: CertificateEncoding::Pem, data: pem.to_vec() }
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
    async fn a_pushed_image_can_be_pulled() {
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
        let mut config = olm_oci::Config::new(olm_oci::Limits::BUNDLE);
        config.cas_dir = Some(folder.path().to_owned());
        config.auth_file = Some(auth_file);
        let puller = olm_oci::Puller::new(config);
        let resolved = puller.resolve(&reference.parse().unwrap()).await.unwrap();
        assert_eq!(resolved.digest().as_str(), digest);
        let files = puller.pull_files(&resolved, &["configs"]).await.unwrap();
        assert_eq!(files, BTreeMap::from([("configs/index.yaml".to_owned(), b"schema: x".to_vec())]));
    }

    #[tokio::test]
    async fn blobs_are_sent_once() {
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
    async fn errors_name_the_reference() {
        let registry = Registry::start().await.unwrap();
        let reference = format!("{}/a/cat:v1", registry.host());
        let error = push(&reference, &image(), &Push::default()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("push {reference}"));
        let error = push("not a reference", &image(), &Push::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "image reference \"not a reference\"");
    }
}
