//! Tabs of the page of an extension.

use maud::{Markup, html};
use olm_cli_lifecycle::status::activity::Wanted;

use super::path;

/// Tab of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Overview,
    /// Pages of [`crate::apis`].
    Apis,
    Objects,
    Events,
    Logs,
    History,
    Configuration,
}

impl Tab {
    pub(super) const ALL: [Self; 7] = [
        Self::Overview,
        Self::Apis,
        Self::Objects,
        Self::Events,
        Self::Logs,
        Self::History,
        Self::Configuration,
    ];

    /// Last segment of the path. Empty for the first tab.
    pub(super) fn segment(self) -> &'static str {
        match self {
            Self::Overview => "",
            Self::Apis => "apis",
            Self::Objects => "objects",
            Self::Events => "events",
            Self::Logs => "logs",
            Self::History => "history",
            Self::Configuration => "configuration",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Apis => "APIs",
            Self::Objects => "Objects",
            Self::Events => "Events",
            Self::Logs => "Logs",
            Self::History => "History",
            Self::Configuration => "Configuration",
        }
    }

    /// Address for the extension `name`.
    pub(super) fn address(self, name: &str) -> String {
        match self.segment() {
            "" => path(name),
            segment => format!("{}/{segment}", path(name)),
        }
    }

    /// Activity that the tab shows. The overview needs logs for the cause of a failure.
    pub(super) fn wanted(self) -> Wanted {
        match self {
            Self::Overview => Wanted { events: true, lines: 20 },
            Self::Events => Wanted { events: true, lines: 0 },
            Self::Logs => Wanted { events: false, lines: 300 },
            Self::Apis | Self::Objects | Self::History | Self::Configuration => {
                Wanted { events: false, lines: 0 }
            }
        }
    }
}

/// Links to all tabs.
pub(crate) fn tabs(current: Tab, name: &str) -> Markup {
    html! {
        nav.tabs aria-label="Extension" {
            ul {
                @for tab in Tab::ALL {
                    li { a href=(tab.address(name)) aria-current=[(tab == current).then_some("page")] { (tab.label()) } }
                }
            }
        }
    }
}
