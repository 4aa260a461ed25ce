//! `olm system install` and `olm system upgrade`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use olm_cli_core::change::{self, Completion, Deadline, WriteResult};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::object_access::{Dependents, ObjectAccess, ObjectId};
use olm_cli_core::output::{FormatArgs, counted};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterArgs, ImageArgs};
use olm_cli_lifecycle::install_files::Variant;
use olm_version::quote;
use serde::Serialize;

use super::apply::{Applied, MANAGER, line, undo};
use super::check::{Check, Level, Request, checks};
use super::grants;
use super::manifest::{self, Manifest, dropped, is_same};
use super::observe::{self, Installed};
use super::ready::{are_available, judge};
use super::record::{Record, has_subject_in, is_labeled};
use crate::doctor::webhook_failure;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Install OLM on a cluster, after checks

Checks the version of Kubernetes, your permissions, the namespace, other installations, and the kinds and images that \
the install file needs. Then applies the objects server-side with the field manager of install.sh, and waits until the \
servers, their certificates and the admission webhook are ready.

The program contains the install files of its release. --file applies another install file, or the one in the folder \
of a release. If the cluster already has OLM, or an installation was interrupted, the command does the same as \
`upgrade`.";

pub(super) const ABOUT_UPGRADE: &str = "Upgrade OLM; extensions and their pods do not change

Does the same as `install` on a cluster that has OLM, with the variant of the installation. Refuses an older version. \
Deletes objects that the new version no longer has, if `olm system` applied them. CRDs are never deleted.

If both servers were available before, and the API server rejects an object or the servers are not ready in time, the \
command restores all changed objects and deletes the created ones. That may take up to --timeout again.";

pub(super) const EXAMPLES: &str = "Exit codes:
  0 success   1 operation failed or timed out   2 wrong usage
  3 a check failed; nothing has been changed

Examples:
  {olm} system install --dry-run                   # checks, and what would change
  {olm} system install --variant hardened -n my-olm
  {olm} system upgrade
  {olm} system upgrade --file ./v0.1.0 --allow-downgrade    # the folder of a release";

/// Kinds and names of RBAC objects of older installations of the reference that no server needs.
const OBSOLETE: [(&str, &str); 3] = [
    ("ClusterRoleBinding", "operator-controller-manager-rolebinding"),
    ("ClusterRoleBinding", "operator-controller-manager-admin-rolebinding"),
    ("ClusterRole", "operator-controller-manager-role"),
];
const CRD: &str = "CustomResourceDefinition";
/// Longest time in which objects return to their state before.
const RESTORE: Duration = Duration::from_secs(120);
/// Kinds of the objects that must be ready.
const AWAITED: [&str; 4] = [CRD, "Certificate", "Deployment", "MutatingWebhookConfiguration"];

/// Arguments of both commands.
#[derive(Debug, Args)]
#[command(mut_arg("catalogd_namespace", |namespace| namespace.short('n').visible_alias("namespace")))]
pub struct SystemInstallArgs {
    /// Variant to apply; default: that of the installation, or install on a cluster without OLM
    #[arg(long, value_enum, value_name = "VARIANT")]
    variant: Option<Variant>,
    /// Install file, or folder of a release, instead of the file in this program
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Permit an older version than the installed one
    #[arg(long)]
    allow_downgrade: bool,
    /// Only run the checks, and print the objects that would change
    #[arg(long, conflicts_with = "no_wait")]
    dry_run: bool,
    /// Do not wait until the servers are ready; a failed start is then not undone
    #[arg(long)]
    no_wait: bool,
    /// Longest wait, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = change::time, default_value = "5m")]
    timeout: Duration,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    namespace: String,
    /// Version before. Empty if it is unknown or nothing was installed.
    from: String,
    /// Version of the install file. Empty if unknown.
    version: String,
    upgrade: bool,
    dry_run: bool,
    /// Set if the servers were awaited.
    ready: bool,
    checks: Vec<Check>,
    /// Objects that changed.
    objects: Vec<Applied>,
}

/// Runs either command.
///
/// # Errors
/// A check fails, the API server refuses an object, or the servers are not ready in time.
pub(super) async fn run(
    args: SystemInstallArgs,
    is_upgrade: bool,
    session: &mut Session,
) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let access = ObjectAccess::new(&cluster, session, args.dry_run);
    let namespace = cluster.namespace();
    if !olm_version::names::is_dns_label(namespace) {
        return Err(CliError::usage(format!(
            "{} is not a valid namespace: expected at most 63 lower-case letters, digits and `-`, with a letter or \
             digit at both ends",
            quote(namespace)
        )));
    }
    let request = Request { is_upgrade, allow_downgrade: args.allow_downgrade };
    let mut observed = observe::Observed::default();
    let mut install_file = Manifest::default();
    if observe::is_admin(&access).await? {
        let installed = observe::installed(&access).await?;
        install_file = args.install_file(&installed, &access).await?;
        observed = observe::observe(&access, &install_file, &args.images).await?;
        observed.installed = installed;
    }
    let mut report = Report {
        namespace: namespace.to_owned(),
        from: observed.installed.version.clone(),
        version: install_file.version.clone(),
        upgrade: !observed.installed.deployments.is_empty(),
        dry_run: args.dry_run,
        ready: !args.no_wait && !args.dry_run,
        checks: checks(&install_file, &observed, namespace, request),
        objects: Vec::new(),
    };
    let grants = grants::missing(&access, &install_file, &observed.installed).await?;
    report.checks.extend(grants.checks);
    report.checks.iter().for_each(|check| say(&check.line()));
    if report.checks.iter().any(|check| check.level == Level::Failed) {
        session.output.result(args.format.output, "SystemChange", &report, |_| String::new())?;
        return Err(CliError::findings("a check failed; nothing has been changed"));
    }
    let record = Record::new(&install_file, None);
    let during = Record::new(&install_file, observed.installed.record.as_ref());
    install_file.grant(grants.bindings);
    install_file.add(&during, namespace)?;
    let change = Change { access: &access, manifest: &install_file, installed: &observed.installed, record };
    report.objects = if args.dry_run { change.dry_run().await? } else { change.run(&args).await? };
    report.objects.retain(|one| one.result != WriteResult::Unchanged);
    session.output.result(args.format.output, "SystemChange", &report, Report::text)
}

impl Report {
    fn text(&self) -> String {
        if self.dry_run {
            let line = |one: &Applied| format!("{} {} (dry run)\n", line(&one.id), one.result.as_str());
            let lines: String = self.objects.iter().map(line).collect();
            return if lines.is_empty() { "nothing changes\n".to_owned() } else { lines };
        }
        let count = |result| self.objects.iter().filter(|object| object.result == result).count();
        let (created, changed) = (count(WriteResult::Created), count(WriteResult::Changed));
        let done = if self.upgrade { "upgraded OLM to" } else { "installed OLM" };
        let version = if self.version.is_empty() { "an unknown version" } else { &self.version };
        let ready = if self.ready { "; the servers are ready" } else { "" };
        let (namespace, created) = (&self.namespace, counted(created, "object"));
        format!("{done} {version} in namespace {namespace}: {created} created, {changed} changed{ready}\n")
    }
}

impl SystemInstallArgs {
    async fn install_file(
        &self,
        installed: &Installed,
        access: &ObjectAccess<'_>,
    ) -> Result<Manifest, CliError> {
        let namespace = access.cluster().namespace();
        let recorded = installed.record.as_ref().and_then(|record| Variant::by_name(&record.variant));
        let variant = self.variant.or(recorded);
        let is_named = self.file.as_ref().is_some_and(|path| !path.is_dir());
        if is_named && self.variant.is_some() {
            return Err(CliError::usage("--variant selects a file in a folder, but --file is not a folder"));
        }
        if variant.is_none() && !is_named && !installed.deployments.is_empty() {
            let cause = match installed.record {
                Some(_) => "olm system applied a file with another name",
                None => "olm system did not install it",
            };
            let why = format!(
                "the variant of the installed servers is unknown, because {cause}; add --variant install, hardened, \
                 install-cert-manager or experimental, or --file with an install file"
            );
            return Err(CliError::usage(why));
        }
        let variant = variant.unwrap_or(Variant::Install);
        if let Some(path) = &self.file {
            return manifest::read(path, variant, namespace, access.session()).await;
        }
        let embedded = manifest::embedded(variant, namespace)?;
        if embedded.is_unreleased() {
            let why = "this program is not a release: no registry has the images of its install files; use olm of a \
                       release, or --file with the folder of a release";
            return Err(CliError::usage(why));
        }
        Ok(embedded)
    }
}

/// Change from the installed servers, if any, to those of an install file.
struct Change<'a> {
    access: &'a ObjectAccess<'a>,
    /// Install file, with the record that names the objects of the installed version, too.
    manifest: &'a Manifest,
    installed: &'a Installed,
    /// Record after the change.
    record: Record,
}

impl Change<'_> {
    /// Applies the install file as a dry run.
    async fn dry_run(&self) -> Result<Vec<Applied>, CliError> {
        let mut applied = Vec::new();
        for object in &self.manifest.objects {
            let mut one = Applied::read(self.access, object).await?;
            one.write(self.access, object).await?;
            applied.push(one);
        }
        applied.extend(self.unneeded().await?);
        Ok(applied)
    }

    /// Applies the install file. If that fails and the servers were available, restores the state before.
    async fn run(&self, args: &SystemInstallArgs) -> Result<Vec<Applied>, CliError> {
        let mut applied = Vec::new();
        if let Err(why) = self.apply_and_wait(args, &mut applied).await {
            return Err(match (&why, are_available(&self.installed.deployments)) {
                (CliError::Message(Code::Interrupted, why), _) => {
                    let why = format!("{why}; the change is incomplete: run the command again");
                    CliError::Message(Code::Interrupted, why)
                }
                (_, true) => self.roll_back(&why, &applied, args).await,
                (_, false) => {
                    let kept = match self.installed.deployments.is_empty() {
                        true => "",
                        false => "nothing is restored, because the servers were not available before\n",
                    };
                    let next = "run olm system status and olm doctor for the cause, then the command again";
                    CliError::operational(format!("{why}\n{kept}{next}"))
                }
            });
        }
        for one in self.unneeded().await? {
            if self.access.delete(&one.id, None, Dependents::Delete).await? {
                say(&format!("{} deleted", line(&one.id)));
                applied.push(one);
            }
        }
        let record = self.record.to_object(self.access.cluster().namespace())?;
        self.access.apply(&record, MANAGER).await?;
        Ok(applied)
    }

    async fn apply_and_wait(
        &self,
        args: &SystemInstallArgs,
        applied: &mut Vec<Applied>,
    ) -> Result<(), CliError> {
        let deadline = Deadline::from(args.timeout);
        let last_crd = self.manifest.objects.iter().rposition(|one| one["kind"] == CRD);
        for (position, object) in self.manifest.objects.iter().enumerate() {
            let mut one = Applied::read(self.access, object).await?;
            let written = one.write(self.access, object).await;
            if written.is_ok() && one.result != WriteResult::Unchanged {
                say(&format!("{} {}", line(&one.id), one.result.as_str()));
            }
            applied.push(one);
            written?;
            if Some(position) == last_crd {
                self.wait("the CRDs", &[CRD], deadline).await?;
            }
        }
        if args.no_wait { Ok(()) } else { self.wait("the servers", &AWAITED, deadline).await }
    }

    /// Waits for the stored objects of these kinds, and for the admission webhook with the last ones.
    async fn wait(&self, what: &str, kinds: &[&str], deadline: Deadline) -> Result<(), CliError> {
        let (cluster, session) = (self.access.cluster(), self.access.session());
        let is_awaited = |id: &&ObjectId| kinds.contains(&id.kind.as_str());
        let ids = self.manifest.ids();
        let ids: Vec<&ObjectId> = ids.iter().filter(is_awaited).collect();
        let has_webhook = ids.iter().any(|id| id.kind == "MutatingWebhookConfiguration");
        let poll = async || {
            let mut objects = Vec::new();
            for id in &ids {
                let missing = || CliError::operational(format!("{id} was deleted"));
                objects.push(self.access.get(id).await?.ok_or_else(missing)?);
            }
            let pods = self.access.list(("v1", "Pod"), cluster.namespace(), None).await?;
            let completion = judge(&objects, &pods)?;
            if has_webhook && matches!(completion, Completion::Complete(_)) {
                let failure = session.interruptible(webhook_failure(cluster)).await?;
                return Ok(failure.map_or(completion, Completion::InProgress));
            }
            Ok(completion)
        };
        let next = "run olm doctor for the cause";
        change::until(what, next, deadline, poll, session).await.map(drop)
    }

    /// Objects that only the earlier version needs, as far as they exist with the label of installations. Obsolete bindings
    /// may have a subject in the namespace of the servers instead.
    async fn unneeded(&self) -> Result<Vec<Applied>, CliError> {
        let recorded = self.installed.record.as_ref().map_or(&[][..], |record| &record.objects);
        let dropped = dropped(recorded, &self.manifest.ids()).into_iter().map(|id| (id, false));
        let rbac = "rbac.authorization.k8s.io/v1";
        let obsolete = OBSOLETE.map(|(kind, name)| (ObjectId::new((rbac, kind), "", name), true));
        let namespace = self.access.cluster().namespace();
        let mut unneeded = Vec::new();
        for (id, is_obsolete) in dropped.chain(obsolete) {
            let Some(found) = self.access.get(&id).await? else { continue };
            let found_id = ObjectId::of(&found);
            let is_ours = is_labeled(&found) || is_obsolete && has_subject_in(&found, namespace);
            if is_ours && is_same(&found_id, &id) {
                unneeded.push(Applied { id: found_id, before: None, result: WriteResult::Deleted });
            }
        }
        Ok(unneeded)
    }

    /// Undoes what was applied, and returns the error of the command.
    async fn roll_back(&self, why: &CliError, applied: &[Applied], args: &SystemInstallArgs) -> CliError {
        say(&format!("error: {why}\nrestoring the previous state"));
        // A signal does not stop it.
        let session = Session::for_removal();
        let access = ObjectAccess::new(self.access.cluster(), &session, false);
        let deadline = Deadline::from(args.timeout);
        let (restored, mut failures) = restore(&access, applied).await;
        let old = Manifest { objects: self.installed.deployments.clone(), ..Manifest::default() };
        let record = Record::default();
        let before = Change { access: &access, manifest: &old, installed: self.installed, record };
        if !args.no_wait
            && let Err(error) = before.wait("the earlier servers", &AWAITED, deadline).await
        {
            failures.push(error.to_string());
        }
        let restored = counted(restored, "object");
        let result = match failures.is_empty() {
            true => format!("the previous state is restored ({restored})"),
            false => format!("{restored} restored, but:\n{}", failures.join("\n")),
        };
        CliError::operational(format!("the upgrade to {} failed: {why}\n{result}", self.manifest.version))
    }
}

/// Undoes what was applied, as long as the API server answers. Returns the number of objects, and failures.
async fn restore(access: &ObjectAccess<'_>, applied: &[Applied]) -> (usize, Vec<String>) {
    let deadline = Deadline::from(RESTORE);
    let (cluster, session) = (access.cluster(), access.session());
    let (mut restored, mut failures) = (0, Vec::new());
    for (id, before) in undo(applied) {
        if deadline.has_passed() {
            failures.push(format!("the other objects are not restored after {} s", RESTORE.as_secs()));
            break;
        }
        let undone = match &before {
            Some(object) => access.apply(object, MANAGER).await.map(|_| "restored"),
            None => access.delete(&id, None, Dependents::Delete).await.map(|_| "deleted"),
        };
        match undone {
            Ok(done) => {
                restored += 1;
                say(&format!("{} {done}", line(&id)));
            }
            Err(error) => {
                failures.push(format!("{}: {error}", line(&id)));
                let version = cluster.client().apiserver_version();
                if let Err(error) = cluster.call("the server's version", version, session).await {
                    failures.push(format!("the other objects are not restored: {error}"));
                    break;
                }
            }
        }
    }
    (restored, failures)
}
