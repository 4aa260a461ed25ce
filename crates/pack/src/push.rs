//! Pushes of an image to a registry.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use oci_distribution::client::{Certificate, CertificateEncoding, ClientConfig};
use oci_distribution::errors::OciDistributionError;
use oci_distribution::manifest::OCI_IMAGE_MEDIA_TYPE;
use oci_distribution::secrets::RegistryAuth;
use oci_distribution::{Client, Reference, RegistryOperation};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::{Image, PackError, digest_of};

/// Time limit of a whole push.
const DEADLINE: Duration = Duration::from_secs(600);
/// Time limit of connecting to the registry.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent blob uploads.
const PARALLEL: usize = 3;

/// Login for a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// User name.
    pub username: String,
    /// Password or token.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Options of a push.
#[derive(Debug, Clone, Default)]
pub struct Push {
    /// PEM certificates trusted in addition to the system roots, one or more in each.
    pub ca_pems: Vec<Vec<u8>>,
    /// Login for the registry. Anonymous if `None`.
    pub login: Option<Login>,
}

/// Blob that the registry has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Digest of the blob.
    pub digest: String,
    /// Size of the blob.
    pub bytes: usize,
    /// `true` if the blob was sent, `false` if the registry already had it.
    pub sent: bool,
}

/// Pushes `image` to `reference` (`registry/repository:tag`) over TLS and returns its digest. Blobs that the
/// registry already has are not sent. Calls `on_blob` for each blob once the registry has it.
///
/// # Errors
/// `reference` is invalid, or the registry does not accept the image. The text names the reference.
pub async fn push(
    reference: &str,
    image: &Image,
    options: &Push,
    on_blob: &(dyn Fn(Pushed) + Sync),
) -> Result<String, PackError> {
    let to: Reference = reference.parse().map_err(|error: oci_distribution::ParseError| {
        PackError::Reference { text: reference.to_owned(), why: error.to_string() }
    })?;
    if to.tag().is_none() || to.digest().is_some() {
        let why = "expected registry/repository:tag; the digest follows from the content".to_owned();
        return Err(PackError::Reference { text: reference.to_owned(), why });
    }
    let content = Content {
        blobs: image.blobs().cloned().collect(),
        manifest: image.manifest.clone(),
        media_type: OCI_IMAGE_MEDIA_TYPE,
    };
    push_content(&to, content, options, on_blob)
        .await
        .map_err(|why| PackError::Push { reference: reference.to_owned(), why })?;
    Ok(image.digest())
}

/// Manifest with the blobs that a registry needs before it.
pub(crate) struct Content {
    pub(crate) blobs: Vec<Bytes>,
    pub(crate) manifest: Bytes,
    pub(crate) media_type: &'static str,
}

/// Pushes `content` to `to`.
///
/// # Errors
/// The reason why it failed.
pub(crate) async fn push_content(
    to: &Reference,
    content: Content,
    options: &Push,
    on_blob: &(dyn Fn(Pushed) + Sync),
) -> Result<(), String> {
    let config = ClientConfig {
        extra_root_certificates: certificates(&options.ca_pems)?,
        connect_timeout: Some(CONNECT_TIMEOUT),
        // The client takes the time of an upload for a pause of the registry.
        read_timeout: Some(DEADLINE),
        // One PUT per blob: chunks cost a round trip per 4 MiB without any benefit here.
        use_monolithic_push: true,
        ..ClientConfig::default()
    };
    let client = Client::try_from(config).map_err(|error| text_of(&error))?;
    tokio::time::timeout(DEADLINE, send(&client, to, content, options, on_blob))
        .await
        .map_err(|_| format!("not done within {} s", DEADLINE.as_secs()))?
        .map_err(|error| text_of(&error))
}

async fn send(
    client: &Client,
    to: &Reference,
    content: Content,
    options: &Push,
    on_blob: &(dyn Fn(Pushed) + Sync),
) -> Result<(), OciDistributionError> {
    let auth = options.login.clone().map_or(RegistryAuth::Anonymous, |Login { username, password }| {
        RegistryAuth::Basic(username, password)
    });
    client.auth(to, &auth, RegistryOperation::Push).await?;
    stream::iter(content.blobs)
        .map(|blob| push_blob(client, to, blob))
        .buffer_unordered(PARALLEL)
        .try_for_each(|pushed| async {
            on_blob(pushed);
            Ok(())
        })
        .await?;
    let media_type = http::HeaderValue::from_static(content.media_type);
    client.push_manifest_raw(to, content.manifest, media_type).await?;
    Ok(())
}

async fn push_blob(client: &Client, to: &Reference, blob: Bytes) -> Result<Pushed, OciDistributionError> {
    let (digest, bytes) = (digest_of(&blob), blob.len());
    let sent = !client.blob_exists(to, &digest).await?;
    if sent {
        client.push_blob(to, blob, &digest).await?;
    }
    Ok(Pushed { digest, bytes, sent })
}

/// All certificates in the PEM texts.
fn certificates(pems: &[Vec<u8>]) -> Result<Vec<Certificate>, String> {
    let ders = pems.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem));
    ders.map(|der| {
        let der = der.map_err(|error| format!("certificates to trust: {error}"))?;
        Ok(Certificate { encoding: CertificateEncoding::Der, data: der.to_vec() })
    })
    .collect()
}

/// Error with its causes on one line, since a network error does not include them.
fn text_of(error: &OciDistributionError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
