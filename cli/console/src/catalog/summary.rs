//! Summary of a package: what the list of packages shows, and what the search looks at.

use std::collections::BTreeSet;

use olm_api::text::visible;
use olm_cli_catalog::bundle_details::values;
use olm_cli_catalog::classic_chain::heads;
use olm_cli_catalog::facts::BundleFacts;
use olm_cli_catalog::package::CatalogPackage;
use olm_resolve::Offer;

/// Longest text of a field, in characters.
const LONGEST: usize = 300;
/// Longest description, in characters.
const SENTENCES: usize = 180;
/// Limit of texts by which the search finds APIs.
const APIS: usize = 150;

/// Summary of a package.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) catalog: String,
    pub(crate) name: String,
    /// Display name, else the name.
    pub(crate) title: String,
    pub(crate) provider: String,
    pub(crate) description: String,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// Capability level from 1 to 5.
    pub(crate) capability: Option<u8>,
    /// Default channel first, then by name, highest numbers first.
    pub(crate) channels: Vec<ChannelHead>,
    pub(crate) bundles: usize,
    pub(crate) deprecated: bool,
    /// `true` if the catalog has an icon.
    pub(crate) icon: bool,
    /// Kinds, groups, names and titles of the APIs that the default channel's head provides, without repetitions.
    pub(crate) apis: Vec<String>,
    /// Reason for which the package cannot be read.
    pub(crate) problem: Option<String>,
}

/// Channel with its latest version.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChannelHead {
    pub(crate) name: String,
    /// Version of the head, else its name.
    pub(crate) version: String,
    pub(crate) deprecated: bool,
}

impl Summary {
    /// Summarizes a package of which only the heads of channels need to be present. `object` is its `olm.package`
    /// object, `bundles` the number of its bundles.
    pub(super) fn new(package: &CatalogPackage, object: Option<&[u8]>, bundles: usize) -> Self {
        let channels = super::channels(package);
        let head = channels.first().and_then(|channel| best_head(package, channel));
        let bundle = head.and_then(|head| package.bundle(head));
        let facts = bundle.map(BundleFacts::of).unwrap_or_default();
        let first = first_paragraph(&facts.description);
        let description = [facts.summary.as_str(), package.description(), first.as_str()];
        let description = description.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        let title = if facts.display_name.is_empty() { &package.name } else { &facts.display_name };
        Self {
            catalog: package.catalog.clone(),
            name: package.name.clone(),
            title: short(title),
            provider: short(&facts.provider),
            description: sentences(description),
            keywords: facts.keywords.iter().map(|word| short(word)).collect(),
            categories: facts.categories.iter().map(|word| short(word)).collect(),
            capability: facts.capability,
            channels: channels.iter().map(|channel| channel_head(package, channel)).collect(),
            bundles,
            deprecated: !package.deprecation().is_empty(),
            icon: object.and_then(super::icon::declared).is_some(),
            apis: bundle.map(|bundle| apis(bundle, &facts)).unwrap_or_default(),
            problem: None,
        }
    }

    /// Package that cannot be read.
    pub(super) fn broken(catalog: &str, name: &str, problem: String) -> Self {
        Self {
            catalog: catalog.to_owned(),
            name: name.to_owned(),
            title: short(name),
            problem: Some(problem),
            ..Self::default()
        }
    }
}

/// Head of a channel that the resolver prefers. A valid channel has one.
fn best_head<'a>(package: &'a CatalogPackage, channel: &'a olm_fbc::Channel) -> Option<&'a str> {
    let heads = heads(channel);
    let best = package.index.offers().map(Offer::name).find(|name| heads.contains(name));
    best.or_else(|| heads.first().copied())
}

fn channel_head(package: &CatalogPackage, channel: &olm_fbc::Channel) -> ChannelHead {
    let head = best_head(package, channel).unwrap_or_default();
    ChannelHead {
        name: channel.name.clone(),
        version: package.version(head).unwrap_or_else(|| head.to_owned()),
        deprecated: !package.channel_deprecation(&channel.name).is_empty(),
    }
}

/// Texts by which the search finds the APIs of a bundle.
fn apis(bundle: &olm_fbc::Bundle, facts: &BundleFacts) -> Vec<String> {
    let provided = values(bundle, "olm.gvk").flat_map(|value| {
        ["kind", "group"].map(|field| value[field].as_str().unwrap_or_default().to_owned())
    });
    let owned =
        facts.owned.iter().flat_map(|api| [&api.kind, &api.name, &api.display_name].map(String::clone));
    let all: BTreeSet<String> = provided.chain(owned).map(|text| short(&text)).collect();
    all.into_iter().filter(|text| !text.is_empty()).take(APIS).collect()
}

/// First paragraph of a Markdown text that is not a heading, an image, a list or a table, as plain text.
fn first_paragraph(text: &str) -> String {
    let is_text = |line: &&str| !line.starts_with(['#', '!', '[', '<', '|', '>', '-', '*', '=', '`']);
    let lines = text.lines().map(str::trim);
    let lines = lines.skip_while(|line| line.is_empty() || !is_text(line));
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty() && is_text(line)).collect();
    paragraph.join(" ").replace(['*', '`'], "")
}

/// Text without hidden characters that ends with a sentence, if the first one is short enough.
fn sentences(text: &str) -> String {
    let text = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= SENTENCES {
        return text;
    }
    let end = text.char_indices().nth(SENTENCES).map_or(text.len(), |(end, _)| end);
    let cut = &text[..end];
    let full = [". ", "! ", "? "].iter().filter_map(|stop| cut.rfind(stop)).max();
    match full.filter(|full| *full >= end / 5) {
        Some(full) => cut[..=full].to_owned(),
        None => format!(
            "{}…",
            cut.rsplit_once(' ').map_or(cut, |(words, _)| words).trim_end_matches([',', ';', ':', '.'])
        ),
    }
}

/// Text without hidden characters, cut after [`LONGEST`] characters.
fn short(text: &str) -> String {
    let text = visible(text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use olm_resolve::Indexing;
    use serde_json::json;

    use super::*;

    #[test]
    fn latest_version_is_the_highest_head_of_the_channel() {
        let bundle = |version: &str| {
            json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "image": "i", "properties": [
                {"type": "olm.package", "value": {"packageName": "p", "version": version}}]})
        };
        let channel = json!({"schema": "olm.channel", "package": "p", "name": "stable",
            "entries": [{"name": "p.v10.0.0"}, {"name": "p.v9.0.0"}, {"name": "p.v1.0.0"}]});
        let metas = [bundle("1.0.0"), bundle("10.0.0"), bundle("9.0.0"), channel];
        let lines: Vec<Vec<u8>> = metas.iter().map(|meta| meta.to_string().into_bytes()).collect();
        let package = CatalogPackage::new("c", "p", &lines, Indexing::default()).unwrap();
        let summary = Summary::new(&package, None, 3);
        assert_eq!(summary.channels[0].version, "10.0.0");
    }
    #[test]
    fn description_is_whole_sentences_of_the_first_paragraph() {
        let markdown = "# Lamp\n![logo](x)\n\nA **lamp** operator\nfor rooms.\n\n## More\nText";
        assert_eq!(first_paragraph(markdown), "A lamp operator for rooms.");
        let long = format!("It lights. It has {}.", "many words ".repeat(40));
        assert!(sentences(&long).ends_with("many…"), "{}", sentences(&long));
        let long =
            format!("It lights all rooms of the house as you wish. It has {}.", "many words ".repeat(40));
        assert_eq!(sentences(&long), "It lights all rooms of the house as you wish.");
    }
}
