//! Summary of a package: what the list of packages shows, and what the search looks at.

use olm_api::text::visible;
use olm_cli_catalog::classic_chain::heads;
use olm_cli_catalog::package::CatalogPackage;
use olm_resolve::Offer;

use super::facts::Facts;

/// Longest text of a field, in characters.
const LONGEST: usize = 300;

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
    /// Default channel first, then by name.
    pub(crate) channels: Vec<ChannelHead>,
    pub(crate) bundles: usize,
    pub(crate) deprecated: bool,
    /// `true` if the catalog has an icon.
    pub(crate) icon: bool,
    /// Kinds of the APIs that the default channel's head owns.
    pub(crate) kinds: Vec<String>,
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
        let default = package.default_channel();
        let mut channels: Vec<_> = package.content.channels.iter().collect();
        channels.sort_by_key(|channel| (channel.name != default, channel.name.clone()));
        let head = channels.first().and_then(|channel| best_head(package, channel));
        let facts = head.and_then(|head| package.bundle(head)).map(Facts::of).unwrap_or_default();
        let description = [facts.summary.as_str(), package.description(), first_line(&facts.description)];
        let description = description.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        let title = if facts.display_name.is_empty() { &package.name } else { &facts.display_name };
        Self {
            catalog: package.catalog.clone(),
            name: package.name.clone(),
            title: short(title),
            provider: short(&facts.provider),
            description: short(description),
            keywords: facts.keywords.iter().map(|word| short(word)).collect(),
            categories: facts.categories.iter().map(|word| short(word)).collect(),
            capability: facts.capability,
            channels: channels.iter().map(|channel| channel_head(package, channel)).collect(),
            bundles,
            deprecated: !package.deprecation().is_empty(),
            icon: object.and_then(super::icon::declared).is_some(),
            kinds: facts.owned.iter().map(|api| short(&api.kind)).collect(),
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

/// First line of a Markdown text that is not a heading.
fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default()
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
}
