//! Edits of catalog objects. Fields and items that are not edited keep their values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use crate::json;
use crate::{ChannelEntry, DeprecationEntry, Meta, SCHEMA_BUNDLE, SCHEMA_CHANNEL};

/// Parts of a package to keep.
pub(super) struct Edits<'a> {
    /// Entries by channel.
    pub(super) entries: BTreeMap<&'a str, BTreeSet<&'a str>>,
    pub(super) bundles: BTreeSet<&'a str>,
    /// New default channel, if it changes.
    pub(super) default_channel: Option<&'a str>,
}

impl Edits<'_> {
    /// Package with the new default channel.
    pub(super) fn package(&self, package: Meta) -> Result<Meta, String> {
        let Some(channel) = self.default_channel else { return Ok(package) };
        let mut text = Vec::new();
        olm_yaml::json::write_string(channel, &mut text);
        package.with_field("defaultChannel", &olm_yaml::json::lossy(&text))
    }

    /// Channel with the kept entries. `None` for a dropped channel.
    pub(super) fn channel(&self, channel: Meta) -> Result<Option<Meta>, String> {
        let Some(names) = self.entries.get(channel.name.as_str()) else { return Ok(None) };
        let is_kept = |entry: ChannelEntry| names.contains(entry.name.as_str());
        Ok(filtered(channel, is_kept)?.map(|(channel, _)| channel))
    }

    /// Deprecations of kept objects. `None` if all are dropped.
    pub(super) fn deprecations(&self, deprecations: Meta) -> Result<Option<Meta>, String> {
        let is_kept = |entry: DeprecationEntry| match entry.reference.schema.as_str() {
            SCHEMA_CHANNEL => self.entries.contains_key(entry.reference.name.as_str()),
            SCHEMA_BUNDLE => self.bundles.contains(entry.reference.name.as_str()),
            _ => true,
        };
        let rest = filtered(deprecations, is_kept)?;
        Ok(rest.and_then(|(deprecations, count)| (count > 0).then_some(deprecations)))
    }
}

/// Object with those items of the list `entries` for which `is_kept`, and their number.
fn filtered<T: serde::de::DeserializeOwned>(
    meta: Meta,
    is_kept: impl Fn(T) -> bool,
) -> Result<Option<(Meta, usize)>, String> {
    let value: &RawValue = serde_json::from_slice(&meta.blob).map_err(|error| error.to_string())?;
    let members = json::members(value).unwrap_or_default();
    let all: Vec<&RawValue> = json::item_fields(&members, "entries").collect();
    let mut kept = Vec::new();
    for item in &all {
        if is_kept(serde_json::from_str(item.get()).map_err(|error| error.to_string())?) {
            kept.push(item.get());
        }
    }
    let count = kept.len();
    if count == all.len() {
        return Ok(Some((meta, count)));
    }
    let list = format!("[{}]", kept.join(","));
    meta.with_field("entries", &list).map(|meta| Some((meta, count)))
}
