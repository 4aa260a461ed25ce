//! `olm config example`: a configuration to start from. Pure.

use serde_json::Value;

use super::fields::limits;
use super::gate_note;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Print a configuration to start from

Required fields have a value to replace. Optional fields are comments. The output is accepted by `--config` of \
`install`, `upgrade`, `render` and `diff`.";

/// Lines of each field.
const FIELDS: [(&str, &str); 4] = [
    ("watchNamespace", "watchNamespace: my-namespace"),
    ("watchNamespaces", "watchNamespaces:\n- my-namespace"),
    ("watchNamespaceSelector", "watchNamespaceSelector:\n  matchLabels:\n    my-label: my-value"),
    ("deploymentConfig", DEPLOYMENT_CONFIG),
];

/// Every field below `deploymentConfig`.
const DEPLOYMENT_CONFIG: &str = "deploymentConfig:
  env:
  - name: LOG_LEVEL
    value: debug
  envFrom:
  - configMapRef:
      name: my-settings
      optional: true
  resources:
    requests:
      cpu: 20m
      memory: 32Mi
  nodeSelector:
    kubernetes.io/os: linux
  tolerations:
  - key: dedicated
    operator: Exists
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 1
        preference:
          matchExpressions:
          - key: kubernetes.io/arch
            operator: In
            values: [amd64]
  volumes:
  - name: my-scratch
    emptyDir: {}
  volumeMounts:
  - name: my-scratch
    mountPath: /scratch
  annotations:
    example.com/team: my-team";

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
        let limits = limits(&schema["properties"][field]).trim_matches([' ', '(', ')']).to_owned();
        for (number, line) in lines.lines().enumerate() {
            text.push_str(if is_required(field) { "" } else { "# " });
            text.push_str(line);
            if number == 0 && !limits.is_empty() {
                text.push_str(&format!("  # {limits}"));
            }
            text.push('\n');
        }
    }
    text
}
