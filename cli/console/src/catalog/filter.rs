//! Filters of the list of packages. Each state has an address.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

use super::content::Content;
use super::encoded;
use super::search::{rank, words};
use super::summary::Summary;

/// Packages of one page.
pub(super) const PAGE_SIZE: usize = 48;

/// Query of the list of packages.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct Filter {
    /// Search text.
    pub(super) q: String,
    pub(super) catalog: String,
    pub(super) provider: String,
    pub(super) category: String,
    /// Not empty: only packages that an extension of the cluster installs.
    pub(super) installed: String,
    /// `hide`, `only`, or empty for all.
    pub(super) deprecated: String,
    /// Page, from 1.
    pub(super) page: String,
    /// Not empty: only the results, without the frame of the page.
    pub(super) fragment: String,
}

/// Names of ClusterExtensions by package.
pub(super) type Installed = BTreeMap<String, Vec<String>>;

impl Filter {
    /// Packages that the filter selects, best first.
    pub(super) fn select<'a>(&self, contents: &'a [Arc<Content>], installed: &Installed) -> Vec<&'a Summary> {
        let words = words(&self.q);
        let all = contents.iter().flat_map(|content| &content.packages);
        let selected = all.filter(|package| self.matches(package, installed));
        let mut found: Vec<_> =
            selected.filter_map(|package| Some((rank(package, &words)?, package))).collect();
        found.sort_by_cached_key(|(rank, package)| (*rank, package.title.to_lowercase(), &package.catalog));
        found.into_iter().map(|(_, package)| package).collect()
    }

    fn matches(&self, package: &Summary, installed: &Installed) -> bool {
        let is = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
        is(&self.catalog, &package.catalog)
            && is(&self.provider, &package.provider)
            && (self.category.is_empty() || package.categories.contains(&self.category))
            && (self.installed.is_empty() || installed.contains_key(&package.name))
            && match self.deprecated.as_str() {
                "hide" => !package.deprecated,
                "only" => package.deprecated,
                _ => true,
            }
    }

    /// Reports whether a filter other than the search is set.
    pub(super) fn is_narrowed(&self) -> bool {
        let filters = [&self.catalog, &self.provider, &self.category, &self.installed, &self.deprecated];
        filters.into_iter().any(|value| !value.is_empty())
    }

    /// Index of the page, from 0.
    pub(super) fn page_index(&self, packages: usize) -> usize {
        let asked = self.page.parse::<usize>().unwrap_or(1).saturating_sub(1);
        asked.min(packages.saturating_sub(1) / PAGE_SIZE)
    }

    /// Address of another page of the same list.
    pub(super) fn path(&self, page: usize) -> String {
        let page = if page == 0 { String::new() } else { (page + 1).to_string() };
        let pairs = [
            ("q", &self.q),
            ("catalog", &self.catalog),
            ("provider", &self.provider),
            ("category", &self.category),
            ("installed", &self.installed),
            ("deprecated", &self.deprecated),
            ("page", &page),
        ];
        let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<_> = set.map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        if query.is_empty() { "/".to_owned() } else { format!("/?{}", query.join("&")) }
    }
}

/// Values that the filters offer.
#[derive(Debug, Default)]
pub(super) struct Choices<'a> {
    pub(super) providers: BTreeSet<&'a str>,
    pub(super) categories: BTreeSet<&'a str>,
}

impl<'a> Choices<'a> {
    pub(super) fn new(contents: &'a [Arc<Content>]) -> Self {
        let mut choices = Self::default();
        for package in contents.iter().flat_map(|content| &content.packages) {
            choices.providers.extend(Some(package.provider.as_str()).filter(|name| !name.is_empty()));
            choices.categories.extend(package.categories.iter().map(String::as_str));
        }
        choices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_contains_only_set_fields_encoded() {
        assert_eq!(Filter::default().path(0), "/");
        let filter = Filter { q: "a b&c".into(), deprecated: "hide".into(), ..Filter::default() };
        assert_eq!(filter.path(1), "/?q=a%20b%26c&deprecated=hide&page=2");
    }

    #[test]
    fn page_is_limited_to_existing_ones() {
        for (page, packages, expected) in
            [("", 100, 0), ("2", 100, 1), ("9", 100, 2), ("0", 100, 0), ("x", 0, 0), ("3", 96, 1)]
        {
            let filter = Filter { page: page.into(), ..Filter::default() };
            assert_eq!(filter.page_index(packages), expected, "{page} of {packages}");
        }
    }

    #[test]
    fn filter_selects_by_every_field() {
        let package = Summary {
            catalog: "c".into(),
            name: "lamp".into(),
            provider: "p".into(),
            categories: vec!["Light".into()],
            deprecated: true,
            ..Summary::default()
        };
        let installed = Installed::from([("lamp".to_owned(), vec!["my-lamp".to_owned()])]);
        let set = |change: fn(&mut Filter)| {
            let mut filter = Filter::default();
            change(&mut filter);
            filter
        };
        for (filter, expected) in [
            (set(|_| {}), true),
            (set(|filter| filter.catalog = "c".into()), true),
            (set(|filter| filter.catalog = "d".into()), false),
            (set(|filter| filter.provider = "x".into()), false),
            (set(|filter| filter.category = "Light".into()), true),
            (set(|filter| filter.category = "light".into()), false),
            (set(|filter| filter.installed = "yes".into()), true),
            (set(|filter| filter.deprecated = "hide".into()), false),
            (set(|filter| filter.deprecated = "only".into()), true),
        ] {
            assert_eq!(filter.matches(&package, &installed), expected, "{filter:?}");
        }
        let only = set(|filter| filter.installed = "yes".into());
        assert!(!only.matches(&package, &Installed::new()));
    }
}
