//! `olm apis`: operators, their APIs, and the permissions of the user in one namespace
//! (docs/design/cli.md#apis-of-a-namespace).
//!
//! [`observe`] reads what the user may read, [`join`] derives the result, [`text`] prints it. Nothing is changed.

mod join;
mod observe;
mod rights;
mod text;

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterArgs;

/// First lines of the command's help.
pub const ABOUT: &str = "Show the APIs of operators in a namespace, and what you may do with them

Lists the installed operators with the kinds that they define, whether they watch the namespace, and your permissions there: \
none, view (get, list, watch), edit (view and create, update, patch, delete), admin (all verbs), or the list of verbs. \
An object of a kind whose operator does not watch the namespace has no effect.

The command needs no permissions of a cluster administrator. Without the permission to list ClusterExtensions and \
CustomResourceDefinitions it shows the kinds that the API server announces, and names the missing permissions.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(
    after_help = "WATCHED says whether the operator watches the namespace; \"no operator\" is an extension without
a Deployment. Sources, in order of precedence:
status.targetNamespaces of the ClusterExtension, annotation olm.targetNamespaces of the operator's
Deployment, spec.config.inline of the ClusterExtension. -o json has the namespaces and the source.

Exit codes:
  0 success   1 operation failed   2 wrong usage   4 there is no such namespace

Examples:
  {olm} apis                                       # in the namespace of your kubeconfig context
  {olm} apis -n my-team
  {olm} apis -n my-team -o json | jq '.operators[] | {name, watch}'
  kubectl explain KIND --api-version GROUP/VERSION # fields of one of these kinds"
)]
pub struct ApisArgs {
    /// Namespace; default: that of the kubeconfig context
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the command.
///
/// # Errors
/// The namespace does not exist, or the API server does not answer. A missing permission is not an error.
pub async fn run(args: ApisArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let namespace = args.namespace.unwrap_or_else(|| cluster.client().default_namespace().to_owned());
    let facts = observe::facts(&cluster, &namespace, session).await?;
    session.output.result(args.format.output, "NamespaceApis", &join::join(&facts), text::text)
}
