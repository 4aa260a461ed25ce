//! Installation of a package with its dependencies: shows the solver's plan, asks, and carries it out step by step
//! (docs/design/additions.md#dependency-modes).
//!
//! The cluster is the only state: the same command, run again, plans the remaining steps.

use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_version::quote;

use super::standing::{self, Standing, standing};
use super::wanted::differences;
use super::{Setting, acceptable, namespace_or_refuse, tell_programs};
use crate::change::{self, Notation, Target, Written};
use crate::diff::{foreseen, unsafe_upgrade};
use crate::failure::{Code, Failure};
use crate::output::{Fields, printable};
use crate::progress::say;
use crate::resolve::{Planned, PlannedExtension, plan_as};
use crate::session::Session;

/// Planned extension, with the live one if it exists.
struct Work<'a> {
    planned: PlannedExtension,
    live: Option<&'a ClusterExtension>,
}

/// Progress of a plan, as names of extensions.
#[derive(Debug, Default)]
struct Account {
    installed: Vec<String>,
    /// Written, but not complete.
    begun: Vec<String>,
    left: Vec<String>,
}

/// Plans, asks and installs.
///
/// # Errors
/// There is no plan, the cluster would refuse a part of it, the answer is no, or a part does not complete.
pub(super) async fn run(
    setting: &Setting<'_>,
    mut wanted: ClusterExtension,
    session: &mut Session,
) -> Result<(), Failure> {
    let Setting { args, cluster, controller, extensions } = setting;
    let existing = extensions.iter().find(|one| one.name_any() == wanted.name_any());
    wanted.status = existing.and_then(|existing| existing.status.clone());
    let sources = ["cluster".to_owned()];
    let planned = plan_as(controller, &wanted, &sources, &args.access, session).await?;
    let Planned { told, steps } = planned;
    let steps: Vec<Vec<Work<'_>>> =
        steps.into_iter().map(|step| works(step, extensions, &wanted)).collect::<Result<_, _>>()?;
    if steps.is_empty() {
        let line = format!("{told}\n");
        return match args.change.output {
            Notation::Table => session.output.text(&line),
            _ => change::print(args.change.output, "", &[], &mut session.output),
        };
    }
    let has_namespace = namespace_or_refuse(setting, session).await?;
    let obstacles = check(setting, &steps, has_namespace, session).await?;
    let mut fields = Fields { text: format!("{told}\n") };
    let created = if has_namespace { "" } else { ", which is created" };
    fields.add(0, "Namespace", &format!("{} for what is new{created}", args.namespace));
    fields.add(0, "Versions", "as planned; `olm upgrade NAME --latest` lets one follow its catalog");
    fields.list(0, "In the way", &obstacles);
    tell_programs(args.change.output, obstacles.iter());
    if args.change.output == Notation::Table {
        session.output.text(&printable(&fields.text))?;
        session.output.finish()?;
    } else if args.change.dry_run.is_none() {
        say(&told);
    }
    let mut written = Vec::new();
    if args.change.dry_run.is_none() {
        change::confirm("Carry the plan out?", args.yes, session).await?;
    }
    if !has_namespace
        && let Some(created) =
            change::create_namespace(cluster, &args.namespace, args.change.dry_run, session).await?
    {
        setting.tell(&created, session)?;
        written.push(created);
    }
    let ended = carry_out(setting, &steps, &mut written, session).await;
    if args.change.output != Notation::Table || args.change.dry_run.is_some() {
        change::print(args.change.output, "", &written, &mut session.output)?;
    }
    ended
}

impl Setting<'_> {
    /// In table format, prints each written object at once. The other formats print all at the end.
    fn tell(&self, written: &Written, session: &mut Session) -> Result<(), Failure> {
        if self.args.change.output != Notation::Table || self.args.change.dry_run.is_some() {
            return Ok(());
        }
        session.output.text(&format!("{written}\n"))?;
        session.output.finish()
    }
}

/// Members of a step, each with its live extension.
fn works<'a>(
    step: Vec<PlannedExtension>,
    extensions: &'a [ClusterExtension],
    wanted: &ClusterExtension,
) -> Result<Vec<Work<'a>>, Failure> {
    let work = |planned: PlannedExtension| {
        let name = planned.extension.name_any();
        if planned.before.is_some() {
            if name == wanted.name_any() {
                return Err(Failure::Told(
                    Code::Findings,
                    format!(
                        "ClusterExtension {} is installed already, and the plan is to {}\nchange it with `olm upgrade {name}`",
                        quote(&name),
                        planned.told
                    ),
                ));
            }
            let live = extensions.iter().find(|one| one.name_any() == name);
            return Ok(Work { planned, live });
        }
        let live = match standing(extensions, &planned.extension)? {
            Standing::New => None,
            Standing::Existing(existing) => {
                let differences = differences(existing, &planned.extension);
                if !differences.is_empty() {
                    return Err(standing::differs(existing, &differences));
                }
                Some(existing)
            }
        };
        Ok(Work { planned, live })
    };
    step.into_iter().map(work).collect()
}

impl Work<'_> {
    fn name(&self) -> String {
        self.planned.extension.name_any()
    }

    /// Wanted extension. Fields of a live one that the plan does not set are kept.
    fn extension(&self) -> ClusterExtension {
        let planned = &self.planned.extension;
        let Some(live) = self.live else { return planned.clone() };
        let mut extension = live.clone();
        if let (Some(spec), Some(planned)) = (&mut extension.spec, &planned.spec) {
            spec.source.clone_from(&planned.source);
        }
        let annotations = planned.metadata.annotations.iter().flatten();
        extension.annotations_mut().extend(annotations.map(|(key, value)| (key.clone(), value.clone())));
        extension
    }

    /// Name and bundle, for messages.
    fn told(&self) -> String {
        format!("{} ({})", self.name(), self.planned.bundle)
    }
}

/// Fails if any part of the plan would be refused. Returns the problems of the other parts.
async fn check(
    setting: &Setting<'_>,
    steps: &[Vec<Work<'_>>],
    has_namespace: bool,
    session: &Session,
) -> Result<Vec<String>, Failure> {
    let Setting { args, cluster, controller, .. } = setting;
    let mut obstacles = Vec::new();
    for work in steps.iter().flatten() {
        let (extension, image) = (work.extension(), &work.planned.image);
        let of_it = |text: String| format!("{}: {text}", work.name());
        let named = |failure: Failure| match failure {
            Failure::Told(code, text) if code != Code::Interrupted => Failure::Told(code, of_it(text)),
            other => other,
        };
        acceptable(&extension).map_err(named)?;
        let new = work.live.is_none();
        // Dependencies that are not installed yet provide no kinds, so a dry run would fail.
        let compare = has_namespace && !new;
        let foresight =
            foreseen(cluster, &extension, image, controller, compare, &args.access, session).await;
        let foresight = foresight.map_err(named)?;
        if let Some(failure) = unsafe_upgrade(&extension, &foresight) {
            return Err(named(failure));
        }
        obstacles.extend(foresight.obstacles.into_iter().map(of_it));
        if new && args.change.dry_run.is_none() {
            change::dry_create(cluster, &extension, session).await.map_err(named)?;
        }
    }
    Ok(obstacles)
}

/// Writes each step and waits for it before the next one.
async fn carry_out(
    setting: &Setting<'_>,
    steps: &[Vec<Work<'_>>],
    written: &mut Vec<Written>,
    session: &mut Session,
) -> Result<(), Failure> {
    let Setting { args, cluster, .. } = setting;
    let mut account =
        Account { left: steps.iter().flatten().map(Work::told).collect(), ..Account::default() };
    for (number, step) in steps.iter().enumerate() {
        let mut targets = Vec::new();
        for work in step {
            let extension = work.extension();
            let one = change::apply(cluster, work.live, &extension, args.change.dry_run, session).await;
            let one = one.map_err(|failure| account.with(failure))?;
            account.begin(work.told());
            setting.tell(&one, session)?;
            targets.push((work.told(), target(work, &one)));
            written.push(one);
        }
        let is_last = number + 1 == steps.len();
        if args.change.dry_run.is_some() || (is_last && !args.change.wait) {
            continue;
        }
        for (told, target) in targets {
            let waited = change::wait_for(cluster, &target, args.change.timeout, session).await;
            let words = waited.map_err(|failure| account.with(failure))?;
            account.arrive(&told);
            match args.change.output {
                Notation::Table => session.output.text(&format!("{}\n", printable(&words)))?,
                _ => say(&words),
            }
        }
    }
    Ok(())
}

fn target(work: &Work<'_>, written: &Written) -> Target {
    Target {
        name: work.name(),
        uid: written.uid.clone(),
        generation: written.generation.unwrap_or_default(),
        bundle: Some(work.planned.bundle.clone()),
        before: work.planned.before.clone(),
    }
}

impl Account {
    fn begin(&mut self, name: String) {
        self.left.retain(|left| *left != name);
        self.begun.push(name);
    }

    fn arrive(&mut self, name: &str) {
        self.begun.retain(|begun| begun != name);
        self.installed.push(name.to_owned());
    }

    /// Adds the progress to the message of `failure`.
    fn with(&self, failure: Failure) -> Failure {
        let Failure::Told(code, mut text) = failure else { return failure };
        for (what, names) in
            [("installed", &self.installed), ("begun", &self.begun), ("not begun", &self.left)]
        {
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            text += &format!("\n{what}: {names}");
        }
        Failure::Told(code, text + "\nthe same command goes on from here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_lists_installed_begun_and_remaining_extensions() {
        let mut account =
            Account { left: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], ..Account::default() };
        account.begin("a".to_owned());
        account.arrive("a");
        account.begin("b".to_owned());
        let failure = account.with(Failure::operational("b: Blocked"));
        let expected = "b: Blocked\ninstalled: a\nbegun: b\nnot begun: c\nthe same command goes on from here";
        assert_eq!((failure.exit_code(), failure.to_string().as_str()), (1, expected));
    }
}
