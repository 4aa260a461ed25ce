//! Deprecations in a catalog, and the deprecation conditions of an extension
//! (docs/design/resolution.md#choice-of-a-bundle, docs/design/api.md#clusterextension-conditions).

/// Content of the `olm.deprecations` of one package. The default is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deprecations {
    /// Messages about the package itself.
    pub(crate) package: Vec<String>,
    /// Channel names with their messages, in the order of the catalog.
    pub(crate) channels: Vec<(String, String)>,
    /// Bundle names with their messages, in the order of the catalog.
    pub(crate) bundles: Vec<(String, String)>,
}

/// Status, reason and message of one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionState {
    /// Condition status: `None` is `Unknown`.
    pub status: Option<bool>,
    /// Condition reason.
    pub reason: &'static str,
    /// Condition message.
    pub message: String,
}

/// Four deprecation conditions of an extension, always written together.
///
/// ```
/// use olm_resolve::{DeprecationConditions, Deprecations};
///
/// let conditions = DeprecationConditions::new(Some(&Deprecations::default()), &[], None);
/// assert_eq!((conditions.any.status, conditions.any.reason), (Some(false), "NotDeprecated"));
/// assert_eq!(conditions.bundle.reason, "Absent");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeprecationConditions {
    /// Condition `Deprecated`: any of the other three.
    pub any: ConditionState,
    /// Condition `PackageDeprecated`.
    pub package: ConditionState,
    /// Condition `ChannelDeprecated`.
    pub channel: ConditionState,
    /// Condition `BundleDeprecated`.
    pub bundle: ConditionState,
}

impl DeprecationConditions {
    /// Computes the conditions of an extension with these `channels` in its spec and this installed bundle.
    ///
    /// `data` is the content of the chosen catalog, `None` where no catalog was consulted or the resolution failed. A
    /// channel is considered if it is selected or none is. The considered bundle is the installed one, not the chosen
    /// one. Empty messages are omitted.
    pub fn new(data: Option<&Deprecations>, channels: &[String], installed: Option<&str>) -> Self {
        let absent = || ConditionState {
            status: None,
            reason: "Absent",
            message: "no bundle installed yet".to_owned(),
        };
        let Some(data) = data else {
            let unknown = ConditionState {
                status: None,
                reason: "DeprecationStatusUnknown",
                message: "deprecation status unknown: catalog data unavailable".to_owned(),
            };
            let bundle = installed.map_or_else(absent, |_| unknown.clone());
            return Self { any: unknown.clone(), package: unknown.clone(), channel: unknown, bundle };
        };
        let package = join(data.package.iter());
        let selected = |name: &String| channels.is_empty() || channels.contains(name);
        let channel =
            join(data.channels.iter().filter(|(name, _)| selected(name)).map(|(_, message)| message));
        let named = |name: &String| installed == Some(name);
        let bundle = join(data.bundles.iter().filter(|(name, _)| named(name)).map(|(_, message)| message));
        let any = join([&package, &channel, &bundle].into_iter());
        Self {
            any: known(any, "not deprecated"),
            package: known(package, "package not deprecated"),
            channel: known(channel, "channel not deprecated"),
            bundle: installed.map_or_else(absent, |_| known(bundle, "bundle not deprecated")),
        }
    }
}

fn join<'a>(messages: impl Iterator<Item = &'a String>) -> String {
    messages.filter(|message| !message.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn known(message: String, otherwise: &str) -> ConditionState {
    if message.is_empty() {
        return ConditionState {
            status: Some(false),
            reason: "NotDeprecated",
            message: otherwise.to_owned(),
        };
    }
    ConditionState { status: Some(true), reason: "Deprecated", message }
}

#[cfg(test)]
mod tests {
    use super::{DeprecationConditions, Deprecations};

    fn texts(data: Option<&Deprecations>, channels: &[&str], installed: Option<&str>) -> [String; 4] {
        let channels: Vec<_> = channels.iter().map(|name| (*name).to_owned()).collect();
        let all = DeprecationConditions::new(data, &channels, installed);
        [all.any, all.package, all.channel, all.bundle].map(|state| {
            let status = state.status.map_or_else(|| "Unknown".to_owned(), |status| status.to_string());
            format!("{status}/{} {}", state.reason, state.message)
        })
    }

    fn data(package: &[&str], channels: &[(&str, &str)], bundles: &[(&str, &str)]) -> Deprecations {
        let pairs = |list: &[(&str, &str)]| {
            list.iter().map(|(name, message)| ((*name).to_owned(), (*message).to_owned())).collect()
        };
        Deprecations {
            package: package.iter().map(|message| (*message).to_owned()).collect(),
            channels: pairs(channels),
            bundles: pairs(bundles),
        }
    }

    #[test]
    fn conditions_without_catalog_data_are_unknown() {
        let unknown = "Unknown/DeprecationStatusUnknown deprecation status unknown: catalog data unavailable";
        assert_eq!(texts(None, &[], Some("b")), [unknown; 4]);
        let absent = "Unknown/Absent no bundle installed yet";
        assert_eq!(texts(None, &[], None), [unknown, unknown, unknown, absent]);
    }

    #[test]
    fn conditions_without_deprecations_are_false() {
        let none = Deprecations::default();
        let expected = [
            "false/NotDeprecated not deprecated",
            "false/NotDeprecated package not deprecated",
            "false/NotDeprecated channel not deprecated",
            "false/NotDeprecated bundle not deprecated",
        ];
        assert_eq!(texts(Some(&none), &["stable"], Some("b")), expected);
        assert_eq!(texts(Some(&none), &[], None)[3], "Unknown/Absent no bundle installed yet");
    }

    // Cases resolution-44, additions-e13
    #[test]
    fn messages_are_joined_in_order_package_channel_bundle() {
        let data =
            data(&["pkg"], &[("a", "chan a"), ("b", "chan b"), ("c", "")], &[("b1", "bundle"), ("b2", "no")]);
        assert_eq!(
            texts(Some(&data), &["b", "c"], Some("b1")),
            [
                "true/Deprecated pkg\nchan b\nbundle",
                "true/Deprecated pkg",
                "true/Deprecated chan b",
                "true/Deprecated bundle"
            ]
        );
        assert_eq!(texts(Some(&data), &[], Some("other"))[2], "true/Deprecated chan a\nchan b");
        assert_eq!(texts(Some(&data), &["c"], Some("b3"))[2], "false/NotDeprecated channel not deprecated");
        assert_eq!(texts(Some(&data), &["c"], None)[0], "true/Deprecated pkg");
    }
}
