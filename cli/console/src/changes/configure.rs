//! Form with the configuration of an extension, and the extension that it describes. Pure.

use maud::{Markup, html};
use olm_api::ClusterExtension;
use olm_api::cluster_extension::{ConfigType, ExtensionConfig};
use olm_cli_core::error::CliError;
use olm_cli_core::output::{self, printable};
use olm_cli_core::version_expression;
use olm_cli_lifecycle::rendering::inline;
use olm_plan::fields;
use serde_json::Value;

use super::{Action, Request};
use crate::extensions::{path, trail};
use crate::markup::{problem, text_field, yaml_field};

/// Form with the present configuration.
pub(crate) fn form(extension: &ClusterExtension) -> Markup {
    let name = extension.metadata.name.as_deref().unwrap_or_default();
    let request = present(extension);
    html! {
        h2 { "Configuration" }
        p.soft { "The plan comes first. Nothing is written before you confirm it." }
        form.install method="get" action=(format!("{}/{}", path(name), Action::Configure.as_str())) { (controls(&request)) }
    }
}

/// Controls of the form.
pub(super) fn controls(request: &Request) -> Markup {
    html! {
        input type="hidden" name="generation" value=(request.generation);
        (text_field("channels", "Channels", "Channels that upgrades come from, separated by commas. Empty: all channels", &request.channels, "all", None))
        (text_field("range", "Version range", "Upgrades stay within it: 1.2.3 for one version, 1.2.x, >=1.2, <2. Empty: any version", &request.range, "any", None))
        (yaml_field("settings", "Settings", &html! { "Settings of the bundle (spec.config.inline), as YAML" }, &request.settings, 8, None))
        button type="submit" { "Show plan" }
    }
}

/// Request for the present configuration.
fn present(extension: &ClusterExtension) -> Request {
    let spec = extension.spec.as_ref();
    let catalog = spec.and_then(|spec| spec.source.catalog.as_ref());
    let settings = spec.and_then(|spec| spec.config.as_ref()?.inline.as_ref());
    Request {
        channels: catalog.map(|catalog| catalog.channels.join(", ")).unwrap_or_default(),
        range: catalog.and_then(|catalog| catalog.version.clone()).unwrap_or_default(),
        settings: settings.and_then(|settings| output::yaml(settings).ok()).unwrap_or_default(),
        generation: generation(extension),
        ..Request::default()
    }
}

/// Number that each change of the specification increases, as text.
pub(super) fn generation(extension: &ClusterExtension) -> String {
    extension.metadata.generation.unwrap_or_default().to_string()
}

/// Changes of the configuration, one a line.
pub(super) fn changed(live: &ClusterExtension, desired: &ClusterExtension) -> String {
    let (old, new) = (present(live), present(desired));
    let settings = |extension: &ClusterExtension| {
        let config = extension.spec.as_ref().and_then(|spec| spec.config.as_ref());
        Value::Object(config.and_then(|config| config.inline.clone()).unwrap_or_default())
    };
    let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
    let line = |what: &str, old: String, new: String| format!("{what}: {old} → {new}\n");
    let value = |value: Option<Value>| value.map_or_else(|| "not set".to_owned(), |value| value.to_string());
    let mut text = String::new();
    if old.channels != new.channels {
        text += &line("Channels", or(&old.channels, "all"), or(&new.channels, "all"));
    }
    if old.range != new.range {
        text += &line("Version range", or(&old.range, "any"), or(&new.range, "any"));
    }
    for change in fields::changes(&settings(live), &settings(desired)) {
        text += &line(&format!("Setting {}", change.path), value(change.old), value(change.new));
    }
    text
}

/// Page for a form that describes no possible configuration.
pub(super) fn refused(name: &str, request: &Request, why: &str) -> Markup {
    html! {
        (trail(name))
        h1 { (Action::Configure.label()) " " (name) }
        (problem(&printable(why)))
        form.install method="get" action=(format!("{}/{}", path(name), Action::Configure.as_str())) { (controls(request)) }
    }
}

/// The extension with the configuration of the form.
///
/// # Errors
/// A value is invalid.
pub(super) fn desired(live: &ClusterExtension, request: &Request) -> Result<ClusterExtension, CliError> {
    let mut desired = live.clone();
    let range = request.range.trim();
    if !range.is_empty() {
        version_expression::check(range)?;
    }
    let settings = match request.settings.trim() {
        "" => None,
        text => Some(inline(text)?),
    };
    let Some(spec) = desired.spec.as_mut() else { return Ok(desired) };
    if let Some(catalog) = &mut spec.source.catalog {
        let channels =
            request.channels.split([',', ' ']).map(str::trim).filter(|channel| !channel.is_empty());
        catalog.channels = channels.map(str::to_owned).collect();
        catalog.version = Some(range.to_owned()).filter(|range| !range.is_empty());
    }
    let inline = match settings {
        None => None,
        Some(Value::Object(settings)) => Some(settings).filter(|settings| !settings.is_empty()),
        Some(_) => {
            return Err(CliError::usage(
                "the settings must be a YAML mapping, such as `watchNamespace: apps`",
            ));
        }
    };
    spec.config =
        inline.map(|inline| ExtensionConfig { config_type: ConfigType::Inline, inline: Some(inline) });
    Ok(desired)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> ClusterExtension {
        let source = json!({"sourceType": "Catalog", "catalog": {"packageName": "pipe", "version": "1.x", "channels": ["a", "b"]}});
        let config = json!({"configType": "Inline", "inline": {"watchNamespace": "apps"}});
        serde_json::from_value(json!({"metadata": {"name": "pipe"}, "spec": {"namespace": "ns", "source": source, "config": config}})).unwrap()
    }

    #[test]
    fn present_configuration_is_no_change() {
        let request = present(&live());
        assert_eq!(
            (request.channels.as_str(), request.settings.as_str()),
            ("a, b", "watchNamespace: apps\n")
        );
        assert_eq!(desired(&live(), &request).unwrap(), live());
    }

    #[test]
    fn configuration_is_replaced_and_checked() {
        let request = |range: &str, settings: &str| Request {
            range: range.to_owned(),
            settings: settings.to_owned(),
            ..Request::default()
        };
        let changed: Value = serde_json::to_value(desired(&live(), &request("", "")).unwrap()).unwrap();
        let expected = json!({"namespace": "ns", "source": {"sourceType": "Catalog", "catalog": {"packageName": "pipe"}}});
        assert_eq!(changed["spec"], expected);
        let text = super::changed(&live(), &desired(&live(), &request("", "replicas: 2")).unwrap());
        let lines = [
            "Channels: a, b → all",
            "Version range: 1.x → any",
            "Setting replicas: not set → 2",
            "Setting watchNamespace: \"apps\" → not set",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        assert_eq!(super::changed(&live(), &live()), "");
        for wrong in [request("1.*.x y", ""), request("", "[a]"), request("", "{a")] {
            assert!(desired(&live(), &wrong).is_err(), "{wrong:?}");
        }
    }
}
