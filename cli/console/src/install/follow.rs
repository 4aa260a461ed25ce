//! Choice of the versions that an extension follows after its installation. Pure.

use maud::{Markup, html};
use olm_cli_catalog::graph::GraphDecision;
use olm_cli_catalog::graph::decision::DecisionInputs;
use olm_cli_catalog::package::{CatalogPackage, shown_version};

use super::form::{Errors, Values, value};
use crate::catalog::{channel_select, is_pre_release};

/// Versions that an extension follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    /// All versions of the channel.
    Channel,
    /// Versions of the channel within a range.
    Range,
    /// One version.
    Version,
}

/// Choice of the form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) follow: Follow,
    /// Empty for all channels.
    pub(super) channel: String,
    range: String,
    version: String,
}

/// Bundle of a new installation.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) bundle: String,
    pub(super) image: String,
    version: String,
    is_in_default_channel: bool,
}

impl Follow {
    const ALL: [Self; 3] = [Self::Channel, Self::Range, Self::Version];

    /// Value of the form, and name of the field that it needs.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Range => "range",
            Self::Version => "version",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Channel => "Follow the channel",
            Self::Range => "Stay within a range",
            Self::Version => "This version only",
        }
    }

    fn effect(self) -> &'static str {
        match self {
            Self::Channel => {
                "OLM upgrades the extension to each new version, including the next major version."
            }
            Self::Range => "OLM upgrades the extension to new versions in the range, and to no other.",
            Self::Version => "OLM does not upgrade the extension until you change the version.",
        }
    }
}

impl Choice {
    /// Choice of the form. By default, the extension follows the default channel.
    pub(super) fn new(package: &CatalogPackage, values: &Values) -> Self {
        let text = |name| value(values, name).to_owned();
        let (mut range, mut version) = (text("range"), text("version"));
        let given = Follow::ALL.into_iter().find(|follow| follow.as_str() == value(values, "follow"));
        let is_version =
            |text: &str| package.index.offers().any(|offer| shown_version(offer).as_deref() == Some(text));
        // A link may have a version or a range only.
        let follow = given.unwrap_or_else(|| match version.as_str() {
            "" if range.is_empty() => Follow::Channel,
            "" => Follow::Range,
            one if is_version(one) => Follow::Version,
            _ => {
                range = std::mem::take(&mut version);
                Follow::Range
            }
        });
        let channel = match values.get("channel") {
            Some(channel) => channel.trim().to_owned(),
            None => package.default_channel().to_owned(),
        };
        Self { follow, channel, range, version }
    }

    /// Only allowed channel.
    pub(super) fn channel(&self) -> Option<&str> {
        Some(self.channel.as_str()).filter(|channel| !channel.is_empty())
    }

    /// Version range of the extension.
    pub(super) fn version(&self) -> Option<&str> {
        let text = match self.follow {
            Follow::Channel => "",
            Follow::Range => &self.range,
            Follow::Version => &self.version,
        };
        Some(text).filter(|text| !text.is_empty())
    }

    /// Error if the field of the choice is empty, or if a typed range has no effect.
    pub(super) fn check(&self, errors: &mut Errors) {
        let missing = match self.follow {
            Follow::Channel | Follow::Version if !self.range.is_empty() => {
                let why = "Choose “Stay within a range”, or remove the range: it has no effect otherwise.";
                errors.entry(Follow::Range.as_str().to_owned()).or_default().push(why.to_owned());
                return;
            }
            Follow::Range if self.range.is_empty() => "Enter a range, such as 1.2.x or >=1.2, <2.",
            Follow::Version if self.version.is_empty() => "Choose a version.",
            _ => return,
        };
        errors.entry(self.follow.as_str().to_owned()).or_default().push(missing.to_owned());
    }

    /// Bundle that the resolver chooses for a new installation, with default rules and this catalog only.
    ///
    /// # Errors
    /// The reason for which it chooses none.
    pub(super) fn chosen(&self, package: &CatalogPackage) -> Result<Chosen, String> {
        let inputs = DecisionInputs { channel: self.channel(), version: self.version(), installed: None };
        let decision = GraphDecision::new(package, inputs);
        let none = || "No bundle of the package is in this channel and version range.".to_owned();
        let Some(bundle) = decision.chosen else { return Err(decision.error.unwrap_or_else(none)) };
        let offer = package.offer(&bundle).ok_or_else(none)?;
        let default = package.default_channel();
        Ok(Chosen {
            image: offer.image().to_owned(),
            version: shown_version(offer).unwrap_or_default(),
            is_in_default_channel: default.is_empty() || offer.channels().any(|channel| channel == default),
            bundle,
        })
    }

    /// Sentence about the upgrades of the extension.
    pub(super) fn sentence(&self) -> String {
        let channel = match self.channel() {
            Some(channel) => format!("channel {channel}"),
            None => "all channels".to_owned(),
        };
        match self.follow {
            Follow::Channel => {
                format!("The extension follows {channel}: OLM upgrades it to each new version.")
            }
            Follow::Range => format!(
                "The extension stays within {} of {channel}: OLM upgrades it to new versions in this range, and to no other.",
                self.range
            ),
            Follow::Version => {
                format!(
                    "The extension stays at version {}: OLM does not upgrade it until you change the version.",
                    self.version
                )
            }
        }
    }

    /// Fields of the form.
    pub(super) fn fields(&self, package: &CatalogPackage, errors: impl Fn(&str) -> Markup) -> Markup {
        let option = |follow: Follow, field: &Markup| {
            let id = format!("follow-{}", follow.as_str());
            html! {
                div.option {
                    input id=(id) type="radio" name="follow" value=(follow.as_str()) checked[follow == self.follow]
                        aria-describedby=(format!("{id}-effect"));
                    div {
                        label for=(id) { (follow.label()) }
                        p.soft id=(format!("{id}-effect")) { (follow.effect()) }
                        (field)
                        (errors(follow.as_str()))
                    }
                }
            }
        };
        let versions = package.index.offers().filter_map(shown_version);
        html! {
            div.field { (channel_select(package, &self.channel)) }
            fieldset.field {
                legend { "Upgrades" }
                (option(Follow::Channel, &html! {}))
                (option(Follow::Range, &html! {
                    input #range type="text" name="range" value=(self.range) placeholder="such as 1.2.x or >=1.2, <2"
                        aria-label="Version range" aria-describedby="range-errors" spellcheck="false" autocomplete="off";
                }))
                (option(Follow::Version, &html! {
                    select #version name="version" aria-label="Version" aria-describedby="version-errors" {
                        option value="" { "Choose a version" }
                        @for version in versions {
                            option value=(version) selected[version == self.version] {
                                (version) @if is_pre_release(&version) { " (pre-release)" }
                            }
                        }
                    }
                }))
            }
        }
    }
}

impl Chosen {
    /// Sentence about the bundle, with marks and their reasons.
    pub(super) fn markup(&self, package: &CatalogPackage) -> Markup {
        html! {
            p.result {
                "Installs version " strong { (self.version) } " " span.soft { (self.bundle) }
                @if is_pre_release(&self.version) { " " span.badge.warn { "pre-release" } }
                @if !self.is_in_default_channel { " " span.badge.warn { "not in the default channel" } }
            }
            @if !self.is_in_default_channel {
                p.notice { "The author recommends channel " (package.default_channel()) ", which does not contain this version." }
            }
        }
    }
}
