//! Members of an upgrade group and their common step (docs/design/additions.md#upgrade-groups).

use olm_api::cluster_extension::{BundleMetadata, CatalogFilter};
use olm_api::{ClusterExtension, annotations};
use olm_resolve::{Catalog, GroupStep, Member, Provider, group_step};

use crate::request::{ClusterState, request};
use crate::rules::ExtensionRules;

/// Member of an upgrade group.
#[derive(Debug)]
pub struct GroupMember {
    /// Name of the extension.
    pub extension: String,
    /// `spec.source.catalog` of the extension.
    pub filter: CatalogFilter,
    /// Its installed bundle.
    pub installed: BundleMetadata,
    /// Its rules.
    pub rules: ExtensionRules,
    /// Answers of its catalogs.
    pub catalogs: Vec<Catalog>,
    /// Bundle of the revision that rolls out, if any.
    pub moved: Option<Provider>,
}

impl ExtensionRules {
    /// Upgrade group of `extension`, which has these rules. `None` outside of mode `Check`, and while the extension is
    /// being deleted.
    pub fn group_of(&self, extension: &ClusterExtension) -> Option<&str> {
        self.upgrade_group.as_deref().filter(|_| self.protect(extension))
    }
}

impl GroupMember {
    fn blocker(&self) -> Option<String> {
        self.rules.paused.then(|| format!("annotation {} is set", annotations::EXT_PAUSED))
    }
}

/// Step of the group for its member `extension`. `cluster_state` is the cluster state that this member observes.
pub fn step(extension: &str, members: &[GroupMember], cluster_state: &ClusterState) -> Option<GroupStep> {
    let none = ClusterState::default();
    let providers = cluster_state.providers.as_ref()?;
    let members: Vec<Member<'_>> = members
        .iter()
        .map(|member| {
            let mut request = request(&member.filter, Some(&member.installed), &member.rules, &none);
            request.rules.cluster = cluster_state.cluster.as_ref();
            Member {
                extension: &member.extension,
                request,
                catalogs: &member.catalogs,
                moved: member.moved.clone(),
                ignores_dependents: member.rules.ignore_dependents,
                blocker: member.blocker(),
            }
        })
        .collect();
    group_step(extension, &members, providers, &cluster_state.dependents)
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
