//! `olm bundle sign` and `olm catalog sign`: sign an image in a registry, and attach files to it
//! (docs/design/cli.md#signatures).
//!
//! Signatures and attachments are built by [`olm_pack`], and verified by the functions of the servers ([`verify`]).

mod document;
mod encrypted;
mod key;
mod policy;
pub mod verify;

use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_oci::{ImageLimits, Puller, RawManifest, Reference, Repository, TransferError, referrers_tag};
use olm_pack::{Artifact, ReferrerSubject, SigningKey, add_referrer, add_signature, referrer, signature_tag};
use serde::Serialize;

pub use self::key::{ABOUT as KEYGEN_ABOUT, KeygenArgs, generate};
pub(crate) use self::policy::{PolicyArgs, Verifier};

use self::document::Use;

/// Largest attached file.
const MAX_ATTACHMENT: u64 = 64 << 20;

/// First lines of the command's help.
pub const ABOUT: &str = "Sign an image in a registry, and attach files to it

Signs the digest of the image, as `cosign sign` does, and pushes the signature to the tag sha256-<digest>.sig of its \
repository. The signature policy of servers and `cosign verify --insecure-ignore-tlog` accept it. Signatures by other \
keys are kept, and nothing is pushed if the image has this signature already. For an image of several architectures, \
the index is signed.

The key is a PEM file with a private ECDSA key of curve P-256, or env://NAME for one in an environment variable: an \
encrypted one of `olm bundle keygen` or `cosign generate-key-pair`, whose password is read from the environment \
variable COSIGN_PASSWORD or the terminal, or an unencrypted one (PKCS#8 or SEC 1).

--sbom and --provenance attach files to the image, which tools find by the referrers API of the registry or by the tag \
sha256-<digest>. Their digests are not part of the signature of the image: each is signed in the same way.";

/// Arguments of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  {olm} bundle keygen team
  {olm} bundle sign registry.example.com/team/lamp-bundle:v1.2.0 --key team.key
  {olm} catalog sign registry.example.com/team/catalog:latest --key team.key
  {olm} bundle sign registry.example.com/team/lamp-bundle:v1.2.0 --key env://SIGNING_KEY \\
    --sbom lamp.spdx.json --provenance lamp.intoto.json
  cosign verify --key team.pub --insecure-ignore-tlog registry.example.com/team/lamp-bundle:v1.2.0")]
pub struct SignArgs {
    /// Image to sign, by tag or digest
    #[arg(value_name = "REF")]
    reference: Reference,
    /// Private key: a PEM file, or env://NAME
    #[arg(long, value_name = "FILE")]
    key: String,
    /// Image name that the signature is for, if it is not REF, such as that of a registry to which the image is copied
    #[arg(long, value_name = "REF")]
    identity: Option<Reference>,
    /// Attach a bill of materials, SPDX or CycloneDX in JSON; may be given several times
    #[arg(long, value_name = "FILE")]
    sbom: Vec<PathBuf>,
    /// Attach provenance, an in-toto statement, DSSE envelope or sigstore bundle in JSON; may be given several times
    #[arg(long, value_name = "FILE")]
    provenance: Vec<PathBuf>,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct SignedImage {
    /// Reference by digest.
    image: String,
    /// Image name in the signature.
    identity: String,
    /// `false` if the image had this signature.
    added: bool,
    attachments: Vec<Attachment>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Attachment {
    file: PathBuf,
    artifact_type: String,
    digest: String,
    /// `false` if the file was attached already.
    added: bool,
}

/// File to attach.
struct File {
    path: PathBuf,
    media_type: String,
    content: Bytes,
}

/// Runs the command.
///
/// # Errors
/// The key or a file cannot be used, the image does not exist, or the registry rejects the signature.
pub async fn run(args: SignArgs, session: &mut Session) -> Result<(), CliError> {
    let mut files = Vec::new();
    for (paths, purpose) in [(&args.sbom, Use::Sbom), (&args.provenance, Use::Provenance)] {
        for path in paths {
            files.push(File::read(path, purpose)?);
        }
    }
    let key = key::load(&args.key, session).await?;
    let identity = args.identity.as_ref().unwrap_or(&args.reference);
    let step = session.progress.step(format!("signing {}", args.reference));
    let target = session.unless_interrupted(Target::open(&args.reference, &args.images)).await?;
    let manifest = session.unless_interrupted(target.manifest()).await?;
    let subject = ReferrerSubject::of(&manifest);
    let added = session.unless_interrupted(target.sign(&identity.to_string(), &subject.digest, &key)).await?;
    let mut attachments = Vec::new();
    for file in files {
        step.update(format!("attaching {}", file.path.display()));
        attachments.push(session.unless_interrupted(target.attach(&subject, file, identity, &key)).await?);
    }
    drop(step);
    let image = format!("{}@{}", args.reference.name(), subject.digest);
    let signed = SignedImage { image, identity: identity.to_string(), added, attachments };
    session.output.result(args.format.output, "SignedImage", &signed, text)
}

fn text(signed: &SignedImage) -> String {
    let verb = if signed.added { "signed" } else { "was signed before:" };
    let mut text = format!("{verb} {}\n", signed.image);
    for Attachment { file, artifact_type, digest, added } in &signed.attachments {
        let verb = if *added { "attached" } else { "was attached before:" };
        text.push_str(&format!("{verb} {} ({artifact_type}) {digest}\n", file.display()));
    }
    text
}

impl File {
    fn read(path: &Path, purpose: Use) -> Result<Self, CliError> {
        let wrong = |why: &dyn std::fmt::Display| CliError::at(path.display(), why);
        let mut content = Vec::new();
        let opened = std::fs::File::open(path).map_err(|error| wrong(&error))?;
        opened.take(MAX_ATTACHMENT + 1).read_to_end(&mut content).map_err(|error| wrong(&error))?;
        if content.len() as u64 > MAX_ATTACHMENT {
            return Err(wrong(&format!("larger than {MAX_ATTACHMENT} bytes")));
        }
        let media_type = purpose.media_type(&content).map_err(|why| wrong(&why))?;
        Ok(Self { path: path.to_owned(), media_type, content: content.into() })
    }
}

/// Repository of the image.
struct Target<'a> {
    reference: &'a Reference,
    puller: Puller,
    repository: Repository,
}

impl<'a> Target<'a> {
    async fn open(reference: &'a Reference, images: &ImageArgs) -> Result<Self, CliError> {
        let mut config = images.config(reference, ImageLimits::BUNDLE)?;
        // Signatures are added to those of the registry that gets them. A mirror may have fewer.
        config.paths.registries_conf = Some(PathBuf::from("/dev/null"));
        config.paths.registries_conf_override = None;
        let puller = Puller::new(config);
        let repository = puller.target(reference).await.map_err(|error| CliError::at(reference, error))?;
        Ok(Self { reference, puller, repository })
    }

    /// Manifest or index of the image.
    async fn manifest(&self) -> Result<Bytes, CliError> {
        self.puller.manifest(self.reference).await.map_err(|error| CliError::at(self.reference, error))
    }

    fn failed(&self, error: TransferError) -> CliError {
        CliError::at(self.reference.name(), error)
    }

    /// Content of a tag of the repository, if it exists.
    async fn tagged(&self, tag: &str) -> Result<Option<Bytes>, CliError> {
        let manifest = self.repository.tagged(tag).await.map_err(|error| self.failed(error))?;
        Ok(manifest.map(|manifest| manifest.bytes))
    }

    /// Pushes an artifact under a tag, or without one under its digest.
    async fn push(&self, tag: Option<&str>, artifact: Artifact) -> Result<(), CliError> {
        let manifest = RawManifest::new(artifact.manifest);
        let selector = tag.unwrap_or_else(|| manifest.digest.as_str());
        let pushed = self.repository.push(selector, &manifest, artifact.blobs, &|_| ()).await;
        pushed.map_err(|error| self.failed(error))
    }

    /// Adds a signature of the manifest `digest` for the image `identity`. `false` if there is one.
    async fn sign(&self, identity: &str, digest: &str, key: &SigningKey) -> Result<bool, CliError> {
        let tag = signature_tag(digest);
        let existing = self.tagged(&tag).await?;
        let Some(artifact) = add_signature(existing.as_deref(), identity, digest, key)? else {
            return Ok(false);
        };
        self.push(Some(&tag), artifact).await?;
        Ok(true)
    }

    /// Attaches a file to the image, and signs it for the repository of `identity`.
    async fn attach(
        &self,
        subject: &ReferrerSubject,
        file: File,
        identity: &Reference,
        key: &SigningKey,
    ) -> Result<Attachment, CliError> {
        let File { path, media_type, content } = file;
        let title = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let artifact = referrer(subject, &media_type, &title, content)?;
        let RawManifest { digest, .. } = RawManifest::new(artifact.manifest.clone());
        let existing = self.repository.has_manifest(digest.as_str(), &digest).await;
        let mut added = !existing.map_err(|error| self.failed(error))?;
        if added {
            self.push(None, artifact.clone()).await?;
        }
        let named = format!("{}@{digest}", self.reference.name());
        let image = format!("{}@{}", self.reference.name(), subject.digest);
        let image: Reference = image.parse().map_err(|error| CliError::at(&image, error))?;
        let image = self.puller.resolve(&image).await?;
        let listed = self.puller.referrers(&image).await.map_err(|error| CliError::at(&named, error))?;
        if !listed.has_api {
            let tag = referrers_tag(image.digest());
            let existing = self.tagged(&tag).await?;
            if let Some(index) = add_referrer(existing.as_deref(), &tag, &artifact)? {
                self.push(Some(&tag), index).await?;
                added = true;
            }
        }
        self.sign(&format!("{}@{digest}", identity.name()), digest.as_str(), key).await?;
        Ok(Attachment { file: path, artifact_type: media_type, digest: digest.to_string(), added })
    }
}
