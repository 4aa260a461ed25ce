//! Upgrade groups (docs/design/additions.md#upgrade-groups): reads the members of a group, and creates the first
//! revision of its step when every member is ready.

use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use olm_api::ClusterExtension;
use olm_api::conditions::{reasons, types};
use olm_request::{ClusterState, ExtensionBundle, ExtensionRules, GroupMember, WindowState};
use olm_resolve::CatalogError;
use olm_revision::generate::BundleIdentity;

use super::choice::{self, Together};
use super::memory::Memories;
use super::resolver::Resolver;
use super::revisions;
use crate::catalogs::Catalogs;
use crate::features::Features;

impl Resolver<'_> {
    /// Adds the step of the upgrade group, if the extension has one, to `cluster_state`. Returns `true` if a catalog of
    /// a member has content that is not cached yet.
    pub(super) async fn add_group(
        &self,
        extension: &str,
        rules: &ExtensionRules,
        cluster_state: &mut ClusterState,
    ) -> bool {
        let Some(group) = rules.upgrade_group.as_deref().filter(|_| cluster_state.providers.is_some()) else {
            return false;
        };
        let extensions = self.extensions.state();
        let members = extensions.iter().map(|member| self.member(member, group));
        let members: Vec<GroupMember> = join_all(members).await.into_iter().flatten().collect();
        let mut answers = members.iter().flat_map(|member| &member.catalogs);
        let awaits_content = answers.any(|answer| matches!(answer.package, Err(CatalogError::NotCached(_))));
        cluster_state.group = olm_request::step(extension, &members, cluster_state);
        awaits_content
    }

    /// The extension as a member of this group. `None` if it is not a member, or has no installed bundle.
    async fn member(&self, extension: &Arc<ClusterExtension>, group: &str) -> Option<GroupMember> {
        let rules = self.features.rules(extension);
        rules.group_of(extension).filter(|own| *own == group)?;
        let filter = extension.spec.as_ref()?.source.catalog.clone()?;
        let name = extension.name_any();
        let revisions = self.cache.of_extension(&name);
        let states = revisions::states_of(extension, &revisions);
        let installed = states.installed?.bundle;
        let moved = states.rolling_out.last();
        let moved =
            moved.and_then(|newest| revisions.iter().find(|revision| revision.name_any() == newest.name));
        let moved = moved.map(|revision| ExtensionBundle::read(revision).0.provider(&Default::default()));
        let all = self.catalog_store.state();
        let selected = choice::selected(&filter, &all).unwrap_or_default();
        let catalogs = self.ask(&selected, &filter.package_name, rules.indexing()).await;
        Some(GroupMember { extension: name, filter, installed, rules, catalogs, moved })
    }
}

/// Members of upgrade groups that are ready.
pub(super) struct UpgradeGroups<'a> {
    pub catalogs: &'a Catalogs,
    pub extensions: &'a Store<ClusterExtension>,
    pub memories: &'a Memories,
    pub features: Features,
}

impl UpgradeGroups<'_> {
    /// Records that the extension is ready for the target. Returns why it must not take it yet: another member of the
    /// step is not ready.
    pub(super) fn awaited_member(
        &self,
        extension: &str,
        target: &BundleIdentity,
        together: &Together,
    ) -> Option<String> {
        if together.is_empty() {
            return None;
        }
        let ready = |name: &str, bundle: &str| {
            self.memories.with(name, |memory| memory.ready.as_deref() == Some(bundle))
        };
        if !ready(extension, &target.name) {
            self.memories.with(extension, |memory| memory.ready = Some(target.name.clone()));
            // The other members may wait for this one only.
            self.catalogs.requeue_extensions();
        }
        let found = |member: &str| self.extensions.get(&ObjectRef::new(member));
        // A window may have closed since the member was ready.
        let is_stopped = |member: &str| {
            found(member).is_some_and(|found| {
                let rules = self.features.rules(&found);
                let window = rules.approval.windows.state(Timestamp::now());
                rules.paused || matches!(window, WindowState::Closed { .. })
            })
        };
        let waits = |(member, bundle): &(&String, &String)| !ready(member, bundle) || is_stopped(member);
        let (member, bundle) = together.iter().find(waits)?;
        let found = found(member);
        let cause = found.and_then(|found| blocker(&found)).map(|cause| format!(": {cause}"));
        Some(format!("member {member} is not ready for bundle {bundle}{}", cause.unwrap_or_default()))
    }
}

/// Reason of the condition about a member that waits or fails, if any.
fn blocker(member: &ClusterExtension) -> Option<String> {
    let waits = member.condition(types::UPGRADE_AVAILABLE).filter(|condition| condition.status == "True");
    let waits = waits.filter(|condition| condition.reason != reasons::UPGRADE_GROUP);
    let fails =
        member.condition(types::PROGRESSING).filter(|condition| condition.reason != reasons::SUCCEEDED);
    Some(waits.or(fails)?.reason.clone())
}
