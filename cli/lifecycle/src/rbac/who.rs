//! `olm rbac who`: shows who has access to the APIs of an extension (docs/design/additions.md#access-to-apis).

use clap::Args;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, ListParams};
use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, Table};
use olm_cli_core::session::Session;
use olm_cli_core::source::{ApiKind, ClusterArgs, ClusterConnection, listed};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::access::{Holder, Rbac, holders};
use super::apis::provided;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Show who has access to the APIs of an extension

The command reads the roles and bindings of the cluster and prints each subject with the binding that gives it access \
to custom resources of the extension. The access is view (get, list, watch), edit (view, and create, update, patch, \
delete), admin (everything), or else the verbs. Groups are not resolved: only the identity provider knows their \
members.

Roles and bindings that you may not list are named in the output. With --namespace, the RoleBindings of one namespace \
suffice.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed, or no bindings may be listed   2 wrong usage
  4 the extension does not exist, or has no APIs

Examples:
  {olm} rbac who my-operator
  {olm} rbac who my-operator -n shop               # access in one namespace
  {olm} rbac who my-operator -n shop --api lamps.example.com
  {olm} rbac who my-operator -o json | jq -r '.holders[] | select(.access == \"admin\") | .subject.name'")]
pub struct WhoArgs {
    /// Name of a ClusterExtension
    #[arg(value_name = "NAME")]
    name: String,
    /// Only access in this namespace; default: all namespaces
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Only this API, such as lamps.example.com; may be given several times; needed by users who may not list
    /// CustomResourceDefinitions
    #[arg(long = "api", value_name = "RESOURCE.GROUP")]
    apis: Vec<String>,
    /// Also show the components of Kubernetes (roles system:…)
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WhoReport {
    extension: String,
    apis: Vec<String>,
    /// `None` for all namespaces.
    namespace: Option<String>,
    holders: Vec<Holder>,
    /// Number of bindings of Kubernetes components that are not shown.
    omitted: usize,
    /// Lists that the caller may not read, with the reason.
    unreadable: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The extension has no APIs, or the caller may list no bindings.
pub(crate) async fn run(args: WhoArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let apis = provided(&cluster, &args.name, &args.apis, session).await?;
    let mut reader =
        Reader { cluster: &cluster, namespace: args.namespace.as_deref(), unreadable: Vec::new() };
    let rbac = reader.read(session).await?;
    let unreadable = reader.unreadable;
    if rbac.bindings.is_none() && rbac.cluster_bindings.is_none() {
        return Err(CliError::operational(format!("{}\n{}", unreadable.join("\n"), advice(&args))));
    }
    let (holders, omitted) = holders(&apis, &rbac, args.all);
    let apis = apis.iter().map(ApiKind::name).collect();
    let report = WhoReport {
        extension: args.name.clone(),
        apis,
        namespace: args.namespace.clone(),
        holders,
        omitted,
        unreadable,
    };
    session.output.result(args.format.output, "APIAccess", &report, |report| text(report, &args))
}

/// Reader of roles and bindings.
struct Reader<'a> {
    cluster: &'a ClusterConnection,
    namespace: Option<&'a str>,
    unreadable: Vec<String>,
}

impl Reader<'_> {
    async fn read(&mut self, session: &Session) -> Result<Rbac, CliError> {
        let _step = session.progress.step("listing roles and bindings");
        let client = || self.cluster.client().clone();
        let cluster_roles: Api<ClusterRole> = Api::all(client());
        let cluster_bindings: Api<ClusterRoleBinding> = Api::all(client());
        let (roles, bindings): (Api<Role>, Api<RoleBinding>) = match self.namespace {
            Some(namespace) => (Api::namespaced(client(), namespace), Api::namespaced(client(), namespace)),
            None => (Api::all(client()), Api::all(client())),
        };
        Ok(Rbac {
            cluster_bindings: self.list(&cluster_bindings, "ClusterRoleBindings", session).await?,
            bindings: self.list(&bindings, "RoleBindings", session).await?,
            cluster_roles: self.list(&cluster_roles, "ClusterRoles", session).await?,
            roles: self.list(&roles, "Roles", session).await?,
        })
    }

    async fn list<K>(
        &mut self,
        api: &Api<K>,
        what: &str,
        session: &Session,
    ) -> Result<Option<Vec<K>>, CliError>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        match listed(api, what, ListParams::default(), session).await? {
            Ok(found) => Ok(Some(found)),
            Err(why) => {
                self.unreadable.push(format!("cannot list {what}: {why}"));
                Ok(None)
            }
        }
    }
}

fn text(report: &WhoReport, args: &WhoArgs) -> String {
    let mut table = Table::new(&["SUBJECT", "NAMESPACE", "ACCESS", "APIS", "BINDING", "ROLE"]);
    for holder in &report.holders {
        let apis = match holder.apis.len() {
            count if count > 1 && count == report.apis.len() => "all".to_owned(),
            _ => holder.apis.join(","),
        };
        let namespace = holder.namespace.as_deref().unwrap_or("*");
        let subject = holder.subject.to_string();
        let (binding, role) = (holder.binding.to_string(), holder.role.to_string());
        table.row([subject.as_str(), namespace, &holder.access, &apis, &binding, &role]);
    }
    let mut text = table.text();
    if report.omitted > 0 {
        let omitted = olm_cli_core::output::counted(report.omitted, "binding");
        text += &format!("\n{omitted} of Kubernetes components not shown; show them with --all\n");
    }
    if !report.unreadable.is_empty() {
        text +=
            &format!("\nThe list may be incomplete:\n{}\n{}\n", report.unreadable.join("\n"), advice(args));
    }
    text
}

/// Next step if lists cannot be read.
fn advice(args: &WhoArgs) -> String {
    let scope = match &args.namespace {
        None => ", or choose a namespace of yours with -n",
        Some(_) => "",
    };
    format!(
        "ask an administrator for the permission to list clusterroles, clusterrolebindings, roles and rolebindings of \
         rbac.authorization.k8s.io{scope}"
    )
}
