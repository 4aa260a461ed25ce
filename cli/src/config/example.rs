//! `olm config example`: a configuration to start from. Pure.

use serde_json::Value;

use super::gate_note;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Print a configuration to start from

Required fields have a value to replace. Optional fields are comments. The output is accepted by `--config` of \
`install`, `upgrade`, `render` and `diff`.";

/// Lines of optional fields, and of required ones.
const FIELDS: [(&str, &str); 4] = [
    ("watchNamespace", "watchNamespace: my-namespace"),
    ("watchNamespaces", "watchNamespaces:\n- my-namespace"),
    ("watchNamespaceSelector", "watchNamespaceSelector:\n  matchLabels:\n    my-label: my-value"),
    (
        "deploymentConfig",
        "deploymentConfig:\n  env:\n  - name: LOG_LEVEL\n    value: debug\n  resources:\n    requests:\n      \
         cpu: 20m\n      memory: 32Mi\n  nodeSelector:\n    kubernetes.io/os: linux\n  tolerations:\n  - key: \
         dedicated\n    operator: Exists",
    ),
];

/// Configuration in YAML for this schema. `off` are the fields that a disabled gate refuses.
pub(super) fn example(bundle: &str, schema: &Value, off: &[(&'static str, &'static str)]) -> String {
    let mut text = format!("# Configuration of {bundle}: spec.config.inline of its ClusterExtension\n");
    // One of two alternatives is enough.
    let choices = schema.get("required").cloned().or_else(|| schema.pointer("/anyOf/0/required").cloned());
    let is_required = |field: &str| {
        choices.as_ref().and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == field))
    };
    for (field, lines) in FIELDS {
        if schema["properties"].get(field).is_none() {
            continue;
        }
        if let Some(note) = gate_note(off, field) {
            text.push_str(&format!("# {field} is {note}\n"));
        }
        for line in lines.lines() {
            text.push_str(if is_required(field) { "" } else { "# " });
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
