//! `olm rbac grant`: gives a user, group or service account access to the APIs of an extension
//! (docs/design/additions.md#access-to-apis).

use clap::{Args, ValueEnum};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use olm_bundle::api_roles::{ADMIN, EDIT, VIEW};
use olm_cli_core::change::{ChangeFormat, DryRun, FIELD_MANAGER, WriteResult, WrittenObject, call, print};
use olm_cli_core::error::CliError;
use olm_cli_core::output::Fields;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ApiKind, ClusterArgs, ClusterConnection};
use olm_version::quote;
use serde_json::{Value, json};

use super::apis::provided;
use super::subject::Subject;

const GROUP: &str = "rbac.authorization.k8s.io";
/// Label with the name of the extension, on roles and bindings of this command.
const GRANTED: &str = "ext.olm.operatorframework.io/granted-for";

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Give a user, group or service account access to the APIs of an extension

The command writes a role with the APIs of the extension (its CustomResourceDefinitions and aggregated APIs), and \
binds it to the subject: a Role and a RoleBinding in one namespace, or a ClusterRole and a ClusterRoleBinding with \
--all-namespaces. Each subject has a role of its own. The role edit includes view. Cluster-scoped APIs can be granted \
with --all-namespaces only.

You can grant only what you may do yourself, as always in Kubernetes. If a later version of the extension has more \
APIs, run the command again. To give the users of the built-in roles admin, edit and view access to every version, \
set the annotation ext.olm.operatorframework.io/aggregate-api-roles=true on the ClusterExtension instead.

To take the access away, delete the role and the binding: the output has the command.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed, or not permitted   2 wrong usage
  3 the change would be refused   4 the extension does not exist, or has no APIs

Examples:
  {olm} rbac grant my-operator --to user:ann --role edit -n shop
  {olm} rbac grant my-operator --to group:devs --role view --all-namespaces
  {olm} rbac grant my-operator --to serviceaccount:ci:deployer --role admin -n shop --dry-run=server
  {olm} rbac grant my-operator --to group:qa --role view -n qa --dry-run=client -o yaml > qa.yaml
  {olm} rbac grant my-operator --to user:bob --role view -n shop --api lamps.example.com
  {olm} rbac who my-operator -n shop               # who has access now")]
pub struct GrantArgs {
    /// Name of a ClusterExtension
    #[arg(value_name = "NAME")]
    name: String,
    /// Subject: user:NAME, group:NAME or serviceaccount:NAMESPACE:NAME
    #[arg(long, value_name = "SUBJECT", value_parser = Subject::parse)]
    to: Subject,
    /// What the subject may do
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Access,
    /// Grant access in this namespace
    #[arg(short, long, value_name = "NAMESPACE", required_unless_present = "all_namespaces")]
    namespace: Option<String>,
    /// Grant access in all namespaces, and to cluster-scoped APIs
    #[arg(long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only this API, such as lamps.example.com; may be given several times; needed by users who may not list
    /// CustomResourceDefinitions
    #[arg(long = "api", value_name = "RESOURCE.GROUP")]
    apis: Vec<String>,
    /// Only print what would be written, as computed locally (client) or as the API server would store it (server)
    #[arg(long, value_enum, value_name = "WHERE")]
    dry_run: Option<DryRun>,
    /// Output format: human-readable, or the written objects
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: ChangeFormat,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Access to custom resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Access {
    /// Read: get, list, watch
    View,
    /// Read and change: create, update, patch, delete
    Edit,
    /// Everything
    Admin,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Edit => "edit",
            Self::Admin => "admin",
        }
    }

    fn verbs(self) -> Vec<&'static str> {
        match self {
            Self::View => VIEW.into(),
            Self::Edit => [&VIEW[..], &EDIT].concat(),
            Self::Admin => ADMIN.into(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The extension has no such APIs, or the API server refuses the role or its binding.
pub(crate) async fn run(args: GrantArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let apis = provided(&cluster, &args.name, &args.apis, session).await?;
    let apis = in_scope(&args, apis)?;
    let objects = objects(&args, &apis);
    let [role, binding] = &objects;
    let role = write(&cluster, role, args.dry_run, session).await?;
    let mut dry_run = args.dry_run;
    if dry_run == Some(DryRun::Server) && role.done == WriteResult::Created {
        say("note: the API server did not validate the binding, because the role does not exist yet");
        dry_run = Some(DryRun::Client);
    }
    let written = [role, write(&cluster, binding, dry_run, session).await?];
    print(args.output, &summary(&args, &apis, &objects[1]), &written, &mut session.output)
}

/// APIs that can be granted in the chosen scope. Prints a warning that names the others.
fn in_scope(args: &GrantArgs, apis: Vec<ApiKind>) -> Result<Vec<ApiKind>, CliError> {
    if args.all_namespaces {
        return Ok(apis);
    }
    let (apis, other): (Vec<_>, Vec<_>) = apis.into_iter().partition(ApiKind::is_namespaced);
    if other.is_empty() {
        return Ok(apis);
    }
    let other = format!(
        "access to cluster-scoped APIs cannot be granted in a namespace: {}; use --all-namespaces",
        names(&other)
    );
    if apis.is_empty() {
        return Err(CliError::findings(other));
    }
    say(&format!("warning: {other}"));
    Ok(apis)
}

/// Role and binding of the subject, with the same name. Names of RBAC objects have no length limit.
fn objects(args: &GrantArgs, apis: &[ApiKind]) -> [Value; 2] {
    let kind = if args.all_namespaces { "ClusterRole" } else { "Role" };
    let name = format!("{}-apis-{}:{}", args.name, args.role.name(), args.to.slug());
    let mut metadata = json!({"name": name, "labels": {GRANTED: args.name}});
    if let Some(namespace) = &args.namespace {
        metadata["namespace"] = json!(namespace);
    }
    let mut rules: Vec<Value> = Vec::new();
    for of_group in apis.chunk_by(|a, b| a.group == b.group) {
        let resources: Vec<&str> = of_group.iter().map(|api| api.resource.as_str()).collect();
        rules.push(
            json!({"apiGroups": [of_group[0].group], "resources": resources, "verbs": args.role.verbs()}),
        );
    }
    [
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
            "subjects": [args.to.value()],
        }),
    ]
}

/// Creates or updates an object that this command made before. Other objects of the same name are refused.
///
/// # Errors
/// The API server refuses it or does not answer, or the object has another origin.
async fn write(
    cluster: &ClusterConnection,
    object: &Value,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<WrittenObject, CliError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
    let client = cluster.client().clone();
    let api: Api<DynamicObject> = match namespace {
        "" => Api::all_with(client, &resource),
        namespace => Api::namespaced_with(client, namespace, &resource),
    };
    let what = format!("{kind} {}", quote(name));
    let found = cluster.call(&what, api.get_opt(name), session).await?;
    let done = match found.map(serde_json::to_value).transpose()? {
        None => WriteResult::Created,
        Some(found) if found["metadata"]["labels"][GRANTED] != object["metadata"]["labels"][GRANTED] => {
            return Err(CliError::findings(format!(
                "{what} exists, and has no label {GRANTED}: it was not made by this command; delete or rename it"
            )));
        }
        Some(found) if is_same(object, &found) => WriteResult::Unchanged,
        Some(_) => WriteResult::Changed,
    };
    if done == WriteResult::Unchanged || dry_run == Some(DryRun::Client) {
        return Ok(WrittenObject::new(object.clone(), done, dry_run));
    }
    let parameters = PatchParams { dry_run: dry_run.is_some(), ..PatchParams::apply(FIELD_MANAGER).force() };
    let patch = Patch::Apply(object);
    let verb = if done == WriteResult::Created { "create" } else { "change" };
    let stored = call(&format!("{verb} {what}"), api.patch(name, &parameters, &patch), session).await;
    Ok(WrittenObject::new(serde_json::to_value(stored.map_err(advised)?)?, done, dry_run))
}

fn is_same(desired: &Value, found: &Value) -> bool {
    let is_same = |field: &str| desired.get(field) == found.get(field);
    ["rules", "roleRef"].iter().all(|field| is_same(field)) && subjects(desired).eq(subjects(found))
}

/// Subjects without the API group, which the API server adds.
fn subjects(binding: &Value) -> impl Iterator<Item = [&Value; 3]> {
    let subjects = binding["subjects"].as_array().into_iter().flatten();
    subjects.map(|subject| [&subject["kind"], &subject["name"], &subject["namespace"]])
}

/// Adds the next step to the API server's protection against privilege escalation.
fn advised(error: CliError) -> CliError {
    match error {
        CliError::Message(code, text) if text.contains("attempting to grant RBAC permissions") => {
            CliError::Message(
                code,
                format!(
                    "{text}\nyou can grant only access that you have: ask an administrator to run this command, or to set \
                     the annotation aggregate-api-roles on the extension"
                ),
            )
        }
        error => error,
    }
}

fn summary(args: &GrantArgs, apis: &[ApiKind], binding: &Value) -> String {
    let mut fields = Fields::default();
    fields.add(0, "Subject", &args.to.to_string());
    fields.add(0, "May", &format!("{} ({})", args.role.name(), args.role.verbs().join(", ")));
    fields.list(0, "APIs", &apis.iter().map(ApiKind::name).collect::<Vec<_>>());
    fields.add(
        0,
        "In",
        &match &args.namespace {
            Some(namespace) => format!("namespace {namespace}"),
            None => "all namespaces".to_owned(),
        },
    );
    let namespace = args.namespace.as_ref().map(|name| format!(" -n {name}")).unwrap_or_default();
    let kinds = if args.all_namespaces { "clusterrole,clusterrolebinding" } else { "role,rolebinding" };
    let name = binding["metadata"]["name"].as_str().unwrap_or_default();
    fields.add(0, "To revoke", &format!("kubectl delete {kinds} {}{namespace}", shell_word(name)));
    fields.text
}

/// The text as one word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@~".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn names(apis: &[ApiKind]) -> String {
    apis.iter().map(ApiKind::name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: GrantArgs,
    }

    fn args(flags: &[&str]) -> GrantArgs {
        Line::try_parse_from([&["grant", "demo"], flags].concat()).unwrap().args
    }

    fn api(name: &str, is_namespaced: bool) -> ApiKind {
        let (resource, group) = name.split_once('.').unwrap();
        let scope = if is_namespaced { "Namespaced" } else { "Cluster" }.to_owned();
        ApiKind { group: group.to_owned(), resource: resource.to_owned(), scope, ..ApiKind::default() }
    }

    #[test]
    fn one_role_has_all_apis_by_group() {
        let args = args(&["--to", "user:ann", "--role", "edit", "-n", "shop"]);
        let apis =
            [api("lamps.a.example", true), api("shades.a.example", true), api("pipes.b.example", true)];
        let [role, binding] = objects(&args, &apis);
        let verbs = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
        assert_eq!(
            role,
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "demo-apis-edit:user:ann", "namespace": "shop", "labels": {GRANTED: "demo"}},
                "rules": [
                    {"apiGroups": ["a.example"], "resources": ["lamps", "shades"], "verbs": verbs},
                    {"apiGroups": ["b.example"], "resources": ["pipes"], "verbs": verbs}]})
        );
        assert_eq!(binding["metadata"]["name"], "demo-apis-edit:user:ann");
        assert_eq!(
            binding["roleRef"],
            json!({"apiGroup": GROUP, "kind": "Role", "name": "demo-apis-edit:user:ann"})
        );
        assert!(is_same(&binding, &binding) && !is_same(&role, &binding));
    }

    #[test]
    fn cluster_scoped_apis_need_all_namespaces() {
        let apis = || vec![api("lamps.a.example", true), api("suns.a.example", false)];
        let one = args(&["--to", "group:devs", "--role", "view", "-n", "shop"]);
        assert_eq!(in_scope(&one, apis()).unwrap(), [api("lamps.a.example", true)]);
        let text = in_scope(&one, vec![api("suns.a.example", false)]).unwrap_err().to_string();
        assert_eq!(
            text,
            "access to cluster-scoped APIs cannot be granted in a namespace: suns.a.example; use --all-namespaces"
        );
        let all = args(&["--to", "group:devs", "--role", "view", "--all-namespaces"]);
        assert_eq!(in_scope(&all, apis()).unwrap(), apis());
        let [role, binding] = objects(&all, &apis());
        assert_eq!((&role["kind"], &binding["kind"]), (&json!("ClusterRole"), &json!("ClusterRoleBinding")));
        assert_eq!(role["metadata"]["namespace"], Value::Null);
    }

    #[test]
    fn shell_word_is_quoted_where_needed() {
        assert_eq!(shell_word("demo-apis-view:user:ann@example.com"), "demo-apis-view:user:ann@example.com");
        assert_eq!(shell_word("a b'c"), r"'a b'\''c'");
    }
}
