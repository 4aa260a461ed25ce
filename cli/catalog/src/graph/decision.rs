//! Choice of the resolver for the drawing of an upgrade graph: the reason for each bundle, and the upgrade path.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_cli_core::error::CliError;
use olm_resolve::{
    Catalog, FollowedEdge, Installed, OfferExplanation, Request, Rules, UpgradePolicy, explain,
};

use super::model::{EdgeRuleUse, Graph, GraphDecision, Path, PathStep, Reason, Semantics};
use crate::package::CatalogPackage;

/// Request as in `spec.source.catalog` of an extension without annotations.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecisionInputs<'a> {
    /// Only allowed channel. `None` for all.
    pub channel: Option<&'a str>,
    /// Version range as written.
    pub version: Option<&'a str>,
    /// Name and version of the installed bundle.
    pub installed: Option<(&'a str, &'a str)>,
}

impl GraphDecision {
    /// Asks the resolver.
    pub fn new(package: &CatalogPackage, inputs: DecisionInputs<'_>) -> Self {
        let channels: Vec<String> = inputs.channel.map(str::to_owned).into_iter().collect();
        let explanation = explain(&request(package, inputs, &channels), &[catalog(package)]);
        let bundles = explanation.catalogs.into_iter().flat_map(|catalog| catalog.bundles);
        Self {
            chosen: explanation.chosen.map(|choice| choice.bundle),
            error: explanation.error,
            reasons: bundles.map(|bundle| (bundle.bundle.clone(), Reason::new(&bundle))).collect(),
        }
    }
}

impl Reason {
    fn new(bundle: &OfferExplanation) -> Self {
        let details = bundle.details.iter().map(|detail| format!("; {detail}"));
        Self { fate: bundle.fate, text: bundle.to_string() + &details.collect::<String>() }
    }
}

impl Graph {
    /// Graph of v1 with the choice of the resolver and the upgrade path.
    ///
    /// # Errors
    /// There is no such channel.
    pub fn decided(package: &CatalogPackage, inputs: DecisionInputs<'_>) -> Result<Self, CliError> {
        let mut graph = Self::new(package, inputs.channel, Semantics::V1)?;
        graph.path = upgrade_path(package, inputs);
        graph.decision = Some(GraphDecision::new(package, inputs));
        Ok(graph)
    }

    /// Adds the resolver's choice for the start of the path, if the resolver applies the rules of the graph.
    pub(super) fn decide(&mut self, package: &CatalogPackage) {
        let Some(path) = self.path.as_ref().filter(|_| self.semantics == Semantics::V1) else { return };
        let version = package.version(&path.from).unwrap_or_default();
        let installed = Some((path.from.as_str(), version.as_str()));
        let inputs = DecisionInputs { channel: self.channel.as_deref(), version: None, installed };
        self.decision = Some(GraphDecision::new(package, inputs));
    }
}

/// Upgrades that the resolver chooses one after the other, from the installed bundle. `None` without one.
fn upgrade_path(package: &CatalogPackage, inputs: DecisionInputs<'_>) -> Option<Path> {
    let (name, version) = inputs.installed?;
    let channels: Vec<String> = inputs.channel.map(str::to_owned).into_iter().collect();
    let catalogs = [catalog(package)];
    let mut path = Path { from: name.to_owned(), successors: Vec::new(), steps: Vec::new(), stopped: None };
    let mut visited = BTreeSet::from([name.to_owned()]);
    let mut current = (name.to_owned(), version.to_owned());
    loop {
        let inputs = DecisionInputs { installed: Some((&current.0, &current.1)), ..inputs };
        let explanation = explain(&request(package, inputs, &channels), &catalogs);
        let Some(choice) = explanation.chosen else {
            // The first step without a choice is the error of the decision.
            path.stopped = explanation.error.filter(|_| !path.steps.is_empty());
            return Some(path);
        };
        if choice.stays {
            return Some(path);
        }
        if !visited.insert(choice.bundle.clone()) {
            path.stopped = Some(format!("{} is on the path already: the edges form a cycle", choice.bundle));
            return Some(path);
        }
        let by = choice.edges.iter().map(|FollowedEdge { channel, rule }| EdgeRuleUse {
            channel: channel.clone(),
            rule: rule.as_str(),
        });
        path.steps.push(PathStep {
            bundle: choice.bundle.clone(),
            version: package.version(&choice.bundle),
            by: by.collect(),
        });
        current = (choice.bundle, choice.version);
    }
}

fn request<'a>(
    package: &'a CatalogPackage,
    inputs: DecisionInputs<'a>,
    channels: &'a [String],
) -> Request<'a> {
    Request {
        package: &package.name,
        channels,
        version: inputs.version,
        policy: UpgradePolicy::CatalogProvided,
        installed: inputs.installed.map(|(name, version)| Installed { name, version, release: None }),
        rules: Rules::default(),
    }
}

fn catalog(package: &CatalogPackage) -> Catalog {
    Catalog { name: package.catalog.clone(), priority: 0, package: Ok(Some(Arc::clone(&package.index))) }
}

#[cfg(test)]
mod tests {
    use olm_resolve::Indexing;
    use serde_json::json;

    use super::*;

    /// Versions 1.0.0 to 1.4.0. Each replaces the one before, and 1.3.0 also skips 1.1.0.
    fn package() -> CatalogPackage {
        let entry = |minor: u32| {
            let skips = if minor == 3 { json!(["p.v1.1.0"]) } else { json!([]) };
            let replaces = minor.checked_sub(1).map(|before| format!("p.v1.{before}.0"));
            json!({"name": format!("p.v1.{minor}.0"), "replaces": replaces.unwrap_or_default(), "skips": skips})
        };
        let entries: Vec<_> = (0..5).map(entry).collect();
        let bundles = (0..5).map(|minor| {
            json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v1.{minor}.0"), "image": "i", "properties": [
                {"type": "olm.package", "value": {"packageName": "p", "version": format!("1.{minor}.0")}}]})
        });
        let channel = json!({"schema": "olm.channel", "package": "p", "name": "stable", "entries": entries});
        let lines: Vec<Vec<u8>> =
            bundles.chain([channel]).map(|meta| meta.to_string().into_bytes()).collect();
        CatalogPackage::new("c", "p", &lines, Indexing::default()).unwrap()
    }

    fn steps(graph: &Graph) -> Vec<&str> {
        graph.path.iter().flat_map(|path| &path.steps).map(|step| step.bundle.as_str()).collect()
    }

    #[test]
    fn path_repeats_the_choice_of_the_resolver_within_the_range() {
        let installed = Some(("p.v1.1.0", "1.1.0"));
        let graph = |version| {
            let inputs = DecisionInputs { channel: Some("stable"), version, installed };
            Graph::decided(&package(), inputs).unwrap()
        };
        assert_eq!(steps(&graph(None)), ["p.v1.3.0", "p.v1.4.0"]);
        assert_eq!(steps(&graph(Some("<1.4.0"))), ["p.v1.3.0"]);
        let held = graph(Some("<1.3.0"));
        assert_eq!(steps(&held), ["p.v1.2.0"]);
        let reason = |name: &str| &held.decision.as_ref().unwrap().reasons[name];
        assert_eq!(reason("p.v1.3.0").text, "passed over p.v1.3.0: not within version range \"<1.3.0\"");
        assert_eq!(reason("p.v1.2.0").text, "chose p.v1.2.0: a successor by replaces in channel stable");
        assert!(reason("p.v1.1.0").is_candidate() && !reason("p.v1.0.0").is_candidate());
    }

    #[test]
    fn bundle_that_is_not_in_the_catalog_has_reasons_but_no_path() {
        let inputs = DecisionInputs { installed: Some(("p.v0.9.0", "0.9.0")), ..DecisionInputs::default() };
        let graph = Graph::decided(&package(), inputs).unwrap();
        assert_eq!(steps(&graph), [""; 0]);
        assert!(graph.decision.as_ref().unwrap().error.is_some());
        assert!(Graph::decided(&package(), DecisionInputs { channel: Some("no"), ..inputs }).is_err());
    }
}
