//! Data of an upgrade graph.

use std::collections::BTreeMap;

use clap::ValueEnum;
use olm_resolve::Fate;
use serde::Serialize;

/// Upgrade rules of an OLM generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Semantics {
    /// Every edge of every selected channel
    V1,
    /// Only along the replaces chain of a channel
    Classic,
}

/// Upgrade graph of a package.
#[derive(Debug, Serialize)]
pub struct Graph {
    pub(super) catalog: String,
    pub(super) package: String,
    pub(super) semantics: Semantics,
    /// Selected channel, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) channel: Option<String>,
    /// Nodes by version, lowest first. Nodes without a valid version come before all others.
    pub nodes: Vec<Node>,
    /// Edges in the order of their start nodes, highest target first.
    pub(super) edges: Vec<Edge>,
    /// Errors in the catalog that remove edges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Upgrade path of the bundle given with `--from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// Choice of the v1 resolver, for the drawing.
    #[serde(skip)]
    pub decision: Option<GraphDecision>,
}

/// Bundle of the graph.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Name of the bundle.
    pub bundle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    pub(super) channels: Vec<String>,
    /// Channels in which no entry follows this bundle.
    pub(super) head_of: Vec<String>,
    pub(super) deprecated: bool,
    /// `true` if `skips` of another entry names the bundle, which does not prevent v1 from installing it
    /// (docs/design/additions.md#skipped-versions).
    pub(super) skipped: bool,
    pub(super) unreachable: bool,
    /// Property for which v1 refuses to install the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// Bundle that is chosen as upgrade. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
    /// Bundles that this one may follow but that are not in the catalog.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) follows_absent: Vec<String>,
}

/// Allowed upgrade.
#[derive(Debug, Serialize)]
pub(crate) struct Edge {
    pub(super) from: String,
    pub(super) to: String,
    /// Entries that allow the upgrade.
    pub(super) by: Vec<EdgeRuleUse>,
    /// `true` if it leads to a lower version. Chosen only if the installed bundle is deprecated or not in the
    /// catalog.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) downgrade: bool,
}

/// Channel entry that creates an edge.
#[derive(Debug, Clone, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EdgeRuleUse {
    pub(super) channel: String,
    /// `replaces`, `skips` or `skipRange`.
    pub(super) rule: &'static str,
}

/// Upgrades that start from an installed bundle.
#[derive(Debug, Serialize)]
pub struct Path {
    /// Name of the installed bundle.
    pub from: String,
    /// Direct successors, highest first.
    pub(super) successors: Vec<String>,
    /// Bundles that are installed in sequence if nothing else changes. Empty if there is no upgrade.
    pub steps: Vec<PathStep>,
    /// Reason for which the path ends although there is an edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// Upgrade of a [`Path`].
#[derive(Debug, Serialize)]
pub struct PathStep {
    /// Name of the bundle that is installed next.
    pub bundle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Entries that allow the step.
    pub(super) by: Vec<EdgeRuleUse>,
}

impl Path {
    /// Label of `bundle`: `installed`, or the number of the step that installs it.
    pub(super) fn mark(&self, bundle: &str) -> Option<String> {
        if self.from == bundle {
            return Some("installed".to_owned());
        }
        let step = self.steps.iter().position(|step| step.bundle == bundle)?;
        Some(format!("step {}", step + 1))
    }

    /// Reports whether the path has a direct step between the two bundles.
    pub(super) fn has(&self, from: &str, to: &str) -> bool {
        let all: Vec<_> = std::iter::once(self.from.as_str())
            .chain(self.steps.iter().map(|step| step.bundle.as_str()))
            .collect();
        all.windows(2).any(|pair| pair == [from, to])
    }
}

/// Choice of the resolver among the bundles of one catalog.
#[derive(Debug)]
pub struct GraphDecision {
    /// Chosen bundle.
    pub chosen: Option<String>,
    /// Text of the resolver's error.
    pub error: Option<String>,
    /// Reason for each bundle.
    pub(crate) reasons: BTreeMap<String, Reason>,
}

/// Reason why a bundle is chosen or not.
#[derive(Debug)]
pub(crate) struct Reason {
    pub(crate) fate: Fate,
    /// Sentence without its final period.
    pub(crate) text: String,
}

impl Reason {
    /// Reports whether the bundle is chosen, or only loses against a better one.
    pub(crate) fn is_candidate(&self) -> bool {
        is_candidate(self.fate)
    }
}

/// Reports whether a bundle with this fate is chosen, or only loses against a better one.
pub fn is_candidate(fate: Fate) -> bool {
    matches!(fate, Fate::Chosen | Fate::Preference | Fate::Deprecated | Fate::Priority | Fate::Tie)
}
