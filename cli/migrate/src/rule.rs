//! Rules of `olm migrate scan`: what a finding means, and what to do.

use serde::{Serialize, Serializer};

/// Effort that a migration needs. The highest of its findings is that of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Class {
    /// Nothing but the migration itself.
    Ready,
    /// Settings of the ClusterExtension or of the servers.
    ReadyWithSetting,
    /// A choice of the administrator.
    NeedsDecision,
    /// A state that the migration cannot start from.
    NotPossible,
}

impl Class {
    pub(super) const ALL: [Self; 4] =
        [Self::Ready, Self::ReadyWithSetting, Self::NeedsDecision, Self::NotPossible];

    /// Name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::ReadyWithSetting => "ready, with a setting",
            Self::NeedsDecision => "needs a decision",
            Self::NotPossible => "not possible yet",
        }
    }
}

/// Rule with a stable ID.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rule {
    pub(super) id: &'static str,
    pub(super) class: Class,
    /// Condition under which the rule applies.
    pub(super) meaning: &'static str,
    /// Next step of the administrator.
    pub(super) advice: &'static str,
}

macro_rules! rules {
    ($($name:ident $id:literal $class:ident $meaning:literal $advice:literal)+) => {
        $(pub(super) const $name: &Rule =
            &Rule { id: $id, class: Class::$class, meaning: $meaning, advice: $advice };)+
        /// All rules.
        pub(super) const RULES: &[&Rule] = &[$($name),+];
    };
}

rules! {
    COPIES "NOTE-1" Ready
        "Users of other namespaces see the operator as a copied ClusterServiceVersion"
        "v1 has no copies: `olm apis` shows the operators that watch a namespace"
    RESTART "NOTE-2" Ready
        "A pod template changes: one rolling restart"
        "Migrate when a restart of the operator is acceptable; `olm migrate plan` shows the changed fields"
    WATCH "SETTING-1" ReadyWithSetting
        "The OperatorGroup selects namespaces"
        "The ClusterExtension gets watchNamespace, watchNamespaces or watchNamespaceSelector in its configuration"
    CONFIG "SETTING-2" ReadyWithSetting
        "The Subscription has spec.config"
        "The ClusterExtension gets deploymentConfig in its configuration; gate DeploymentConfig must be on"
    APPROVAL "SETTING-3" ReadyWithSetting
        "The Subscription has manual approval"
        "The ClusterExtension gets the annotation approval: ManualUpgrades"
    CATALOG "SETTING-4" ReadyWithSetting
        "The CatalogSource is not a ClusterCatalog yet"
        "Nothing: `olm migrate apply` creates it. `olm migrate scan --render` checks whether its image has the installed bundle"
    CONDITION "SETTING-5" ReadyWithSetting
        "The operator uses its OperatorCondition"
        "Turn on gate OperatorConditionCompat"
    API_SERVICE "SETTING-6" ReadyWithSetting
        "The operator serves an aggregated API"
        "Turn on gate OwnedAPIServices"
    PENDING "SETTING-7" ReadyWithSetting
        "An upgrade waits for approval"
        "The ClusterExtension gets the annotation approval: ManualUpgrades, and proposes the same upgrade"
    PROVIDER "SETTING-8" ReadyWithSetting
        "Nothing issues the certificates of the operator's webhooks or aggregated APIs"
        "Turn on gate WebhookProviderBuiltin with the command of the scan, or install cert-manager"
    SEVERAL "DECISION-1" NeedsDecision
        "Several Subscriptions install the package"
        "v1 installs a package once: choose the Subscription that becomes the ClusterExtension, and delete the others"
    REQUIRES "DECISION-2" NeedsDecision
        "The operator requires APIs of another one"
        "Migrate this package before the one that it requires; set dependency-mode on its ClusterExtension"
    REQUIRED "DECISION-3" NeedsDecision
        "Another operator requires APIs of this one"
        "Migrate the others first: classic OLM does not accept the APIs of a ClusterExtension"
    NO_BUNDLE "DECISION-4" NeedsDecision
        "No ClusterCatalog has the installed bundle"
        "Add the bundle to a catalog, or upgrade to a version that a catalog has before the migration"
    NO_IMAGE "DECISION-5" NeedsDecision
        "The CatalogSource has no image"
        "Publish its content as a catalog image, and create a ClusterCatalog"
    USERS "DECISION-6" NeedsDecision
        "Bindings use roles that classic OLM generates for the OperatorGroup"
        "Grant access with `olm rbac grant` or the annotation aggregate-api-roles before the roles are deleted"
    ACCOUNT "DECISION-7" NeedsDecision
        "The OperatorGroup limits installations to a service account"
        "v1 installs with the permissions of operator-controller: review them with `olm rbac required`"
    SHARED "DECISION-8" NeedsDecision
        "Another package provides the same API"
        "v1 lets one extension own a CRD: uninstall one of the operators first"
    USES_CLASSIC "DECISION-9" NeedsDecision
        "The operator itself uses the API of classic OLM"
        "Ask its author what it does without Subscriptions and ClusterServiceVersions: after `olm migrate finish` the API does not exist"
    NOT_INSTALLED "STATE-1" NotPossible
        "The ClusterServiceVersion does not exist or has not succeeded"
        "Repair or remove the operator first"
    UPGRADING "STATE-2" NotPossible
        "An upgrade is in progress"
        "Wait for its end; if it does not end, `kubectl describe installplan -n NAMESPACE` says why"
    GROUP "STATE-3" NotPossible
        "The namespace has no OperatorGroup, or several"
        "Leave exactly one OperatorGroup in the namespace"
    MODE "STATE-4" NotPossible
        "The bundle does not support the namespaces that the OperatorGroup selects"
        "Change the OperatorGroup to an install mode of the bundle"
    EXTENSION "STATE-5" NotPossible
        "A ClusterExtension of the package exists"
        "Keep one of the two, since they would own the same objects: delete the ClusterExtension with `olm uninstall NAME --keep-crds`, or keep it and delete the Subscription and the ClusterServiceVersion"
    ORPHAN "STATE-6" NotPossible
        "The ClusterServiceVersion has no Subscription"
        "Wait for the end of an installation in progress; else create a Subscription for it"
    BEGUN "STATE-7" NotPossible
        "The migration of the package has begun"
        "`olm migrate apply NAMESPACE/PACKAGE` continues it, `olm migrate rollback NAMESPACE/PACKAGE` returns to classic OLM"
    UNREADABLE "STATE-8" NotPossible
        "The image of the CatalogSource cannot be read"
        "Repair the access to its registry, or create a ClusterCatalog that serves the installed bundle"
    FOREIGN "STATE-9" NotPossible
        "Another tool, operator-framework/library-olm, has begun or ended a migration of the package"
        "End or revert it with that tool: its marks and backups are unknown to `olm migrate`"
}

/// Fact about a package that the administrator should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    #[serde(serialize_with = "by_id")]
    pub(super) rule: &'static Rule,
    pub(super) message: String,
}

fn by_id<S: Serializer>(rule: &&'static Rule, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.id)
}
