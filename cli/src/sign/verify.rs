//! `olm bundle verify`: checks the signatures of an image, and lists the files that are attached to it.

use olm_oci::{CanonicalRef, Limits, Puller, Reference};
use serde::Serialize;

use super::document::name_of;
use super::policy::PolicyArgs;
use crate::error::CliError;
use crate::output::{FormatArgs, Table};
use crate::session::Session;
use crate::source::ImageArgs;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Check the signatures of an image, and list the files that are attached to it

Makes the check of servers with a signature policy. With --key, a signature must be of this key and name the \
repository of the image. An attached file is a bill of materials (SBOM) or provenance, and is checked in the same way. \
The exit code is 0 if the signature of the image is accepted, else 3. `olm catalog verify --key` checks all bundles of \
a catalog.";

/// Arguments of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0 accepted   1 operation failed   2 wrong usage   3 rejected

Examples:
  {olm} bundle verify registry.example.com/team/lamp-bundle:v1.2.0 --key team.pub
  {olm} bundle verify registry.example.com/team/lamp-bundle:v1.2.0 --policy policy.json -o json")]
pub(crate) struct VerifyArgs {
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
struct ImageVerification {
    /// Reference by digest.
    image: String,
    #[serde(flatten)]
    verdict: Verdict,
    attachments: Vec<Attachment>,
}

#[derive(Debug, Serialize)]
struct Verdict {
    accepted: bool,
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

/// Runs the command.
///
/// # Errors
/// The image or the policy cannot be read, or the policy rejects the image.
pub(crate) async fn run(args: VerifyArgs, session: &mut Session) -> Result<(), CliError> {
    if !args.policy.is_set() {
        return Err(CliError::usage("specify --key or --policy"));
    }
    let verifier = args.policy.verifier()?;
    let puller = Puller::new(verifier.applied(args.images.config(&args.reference, Limits::BUNDLE)?));
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
    let listed = puller.referrers(&image).await.map_err(|error| CliError::at(&image, error))?;
    let mut attachments = Vec::new();
    for entry in listed.entries {
        let text = format!("{}@{}", reference.name(), entry.digest);
        let named: Reference = text.parse().map_err(|error| CliError::at(&text, error))?;
        let Some(attached) = CanonicalRef::from_digest(&named) else { continue };
        // A lost attachment does not concern the image.
        let verdict = self::verdict(puller, &attached).await;
        let unread = |error: CliError| Verdict { accepted: false, reason: error.message() };
        attachments.push(Attachment {
            kind: name_of(&entry.artifact_type),
            artifact_type: entry.artifact_type,
            file: entry.title,
            digest: entry.digest.to_string(),
            verdict: verdict.unwrap_or_else(unread),
        });
    }
    Ok(ImageVerification { image: image.to_string(), verdict, attachments })
}

/// Verdict of the policy.
///
/// # Errors
/// There is none, because the policy or the signatures cannot be read.
async fn verdict(puller: &Puller, image: &CanonicalRef) -> Result<Verdict, CliError> {
    match puller.verify(image).await {
        Ok(_) => Ok(Verdict { accepted: true, reason: None }),
        Err(error) if error.is_rejected() => Ok(Verdict { accepted: false, reason: Some(error.unmarked()) }),
        Err(error) => Err(error.into()),
    }
}

fn text(verification: &ImageVerification) -> String {
    let shown = |verdict: &Verdict| if verdict.accepted { "accepted" } else { "rejected" };
    let mut table = Table::new(&["CONTENT", "SIGNATURE", "TYPE", "FILE", "NAME"]);
    table.row(["image", shown(&verification.verdict), "-", "-", &verification.image]);
    for one in &verification.attachments {
        let file = one.file.as_deref().unwrap_or("-");
        table.row([one.kind, shown(&one.verdict), &one.artifact_type, file, &one.digest]);
    }
    table.text()
}
