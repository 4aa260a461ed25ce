//! `olm bundle verify` and `olm catalog verify-signature`: checks the signatures of an image, and lists the files that are attached to it.

use std::time::Duration;

use futures::{StreamExt, stream};
use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, Table};
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_oci::{CanonicalRef, ImageLimits, Puller, Reference, Referrer};
use serde::Serialize;

use super::document::name_of;
use super::policy::PolicyArgs;

/// Most attachments that are verified.
const MAX_ATTACHMENTS: usize = 1024;
/// Attachments that are verified in parallel.
const PARALLEL: usize = 8;
/// Time limit of all attachments together.
const ATTACHMENTS_TIMEOUT: Duration = Duration::from_secs(900);

/// First lines of the command's help.
pub const ABOUT: &str = "Check the signatures of an image, and list the files that are attached to it

Checks the image as servers with a signature policy do. With --key, a signature must be made with this key and name \
the repository of the image. An attached file is a bill of materials (SBOM) or provenance, and is checked in the same \
way. The exit code is 0 if the image is accepted, else 3. The state `not demanded` shows that the policy accepts it \
without a signature. For an image of several architectures, the index must be signed. `olm catalog verify --key` \
checks all bundles of a catalog.";

/// Arguments of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0 accepted   1 operation failed   2 wrong usage   3 rejected

Examples:
  {olm} bundle verify registry.example.com/team/lamp-bundle:v1.2.0 --key team.pub
  {olm} bundle verify registry.example.com/team/lamp-bundle:v1.2.0 --policy policy.json -o json
  {olm} catalog verify-signature registry.example.com/team/catalog:latest --key team.pub")]
pub struct VerifyArgs {
    /// Image to check, by tag or digest
    #[arg(value_name = "REF")]
    reference: Reference,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImageVerification {
    /// Reference by digest.
    image: String,
    #[serde(flatten)]
    verdict: Verdict,
    attachments: Vec<Attachment>,
    /// Number of attachments above the limits of count or time.
    omitted_attachments: usize,
    /// Reason why the attachments are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    attachments_error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    /// The policy demands a signature, which the image has.
    Accepted,
    /// The policy accepts the image without a signature.
    NotDemanded,
    Rejected,
    /// The signatures cannot be read.
    Unknown,
}

#[derive(Debug, Serialize)]
struct Verdict {
    accepted: bool,
    signature: State,
    /// Reason of the rejection.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Attachment {
    /// `SBOM`, `provenance` or `other`.
    kind: &'static str,
    artifact_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    digest: String,
    #[serde(flatten)]
    verdict: Verdict,
}

impl State {
    fn shown(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::NotDemanded => "not demanded",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
        }
    }
}

impl Verdict {
    fn new(signature: State, reason: Option<String>) -> Self {
        let accepted = matches!(signature, State::Accepted | State::NotDemanded);
        Self { accepted, signature, reason }
    }
}

/// Runs the command.
///
/// # Errors
/// The image or the policy cannot be read, or the policy rejects the image.
pub async fn run(args: VerifyArgs, session: &mut Session) -> Result<(), CliError> {
    if !args.policy.is_set() {
        return Err(CliError::usage("specify --key or --policy"));
    }
    let verifier = args.policy.verifier()?;
    let puller = Puller::new(verifier.applied(args.images.config(&args.reference, ImageLimits::BUNDLE)?));
    let step = session.progress.step(format!("verifying {}", args.reference));
    let verification = session.unless_interrupted(verify(&puller, &args.reference)).await?;
    drop(step);
    session.output.result(args.format.output, "ImageVerification", &verification, text)?;
    match verification.verdict.reason {
        None => Ok(()),
        Some(reason) => Err(CliError::findings(format!("image {}: {reason}", verification.image))),
    }
}

async fn verify(puller: &Puller, reference: &Reference) -> Result<ImageVerification, CliError> {
    let image = puller.resolve(reference).await?;
    let verdict = verdict(puller, &image).await?;
    // Attachments do not concern the verdict about the image.
    let (entries, attachments_error) = match puller.referrers(&image).await {
        Ok(listed) => (listed.entries, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let total = entries.len();
    let checks: Vec<_> =
        entries.into_iter().take(MAX_ATTACHMENTS).map(|entry| attachment(puller, reference, entry)).collect();
    let late = Box::pin(tokio::time::sleep(ATTACHMENTS_TIMEOUT));
    let attachments: Vec<_> = stream::iter(checks).buffered(PARALLEL).take_until(late).collect().await;
    let omitted_attachments = total - attachments.len();
    let image = image.to_string();
    Ok(ImageVerification { image, verdict, attachments, omitted_attachments, attachments_error })
}

async fn attachment(puller: &Puller, reference: &Reference, entry: Referrer) -> Attachment {
    let text = format!("{}@{}", reference.name(), entry.digest);
    let verdict = async {
        let image: Reference = text.parse().map_err(|error| CliError::at(&text, error))?;
        verdict(puller, &puller.resolve(&image).await?).await
    };
    let unread = |error: CliError| Verdict::new(State::Unknown, error.message());
    Attachment {
        kind: name_of(&entry.artifact_type),
        artifact_type: entry.artifact_type,
        file: entry.title,
        digest: entry.digest.to_string(),
        verdict: verdict.await.unwrap_or_else(unread),
    }
}

/// Verdict of the policy.
///
/// # Errors
/// There is none, because the policy or the signatures cannot be read.
async fn verdict(puller: &Puller, image: &CanonicalRef) -> Result<Verdict, CliError> {
    match puller.verify(image).await {
        Ok(found) if found.is_signed() => Ok(Verdict::new(State::Accepted, None)),
        Ok(_) => Ok(Verdict::new(State::NotDemanded, None)),
        Err(error) if error.is_rejected() => Ok(Verdict::new(State::Rejected, Some(error.unmarked()))),
        Err(error) => Err(error.into()),
    }
}

fn text(verification: &ImageVerification) -> String {
    let mut table = Table::new(&["CONTENT", "SIGNATURE", "TYPE", "FILE", "NAME"]);
    table.row(["image", verification.verdict.signature.shown(), "-", "-", &verification.image]);
    for one in &verification.attachments {
        let file = one.file.as_deref().unwrap_or("-");
        table.row([one.kind, one.verdict.signature.shown(), &one.artifact_type, file, &one.digest]);
    }
    let mut text = table.text();
    if let Some(error) = &verification.attachments_error {
        text.push_str(&format!("attached files are unknown: {error}\n"));
    }
    if verification.omitted_attachments > 0 {
        let (omitted, minutes) = (verification.omitted_attachments, ATTACHMENTS_TIMEOUT.as_secs() / 60);
        text.push_str(&format!(
            "{omitted} attached files were left out: the limits are {MAX_ATTACHMENTS} files and {minutes} minutes\n"
        ));
    }
    text
}
