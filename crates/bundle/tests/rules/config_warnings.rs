//! Warnings about a configuration (docs/design/bundles.md#author-checks).

use olm_bundle::config_warnings;
use serde_json::json;

use crate::fixture::Fixture;

#[test]
fn ineffective_configuration_yields_warnings() {
    // The reference accepts all of it.
    let spec = "
install:
  spec:
    deployments:
    - name: d
      spec: {template: {spec: {containers: [{name: c, volumeMounts: [{name: v, mountPath: /old}]}]}}}
";
    let config = json!({
        "deploymentConfig": {
            "env": [{"name": "A", "vaule": "x"}, {"name": "A"}],
            "tolerations": [{"operator": "Bogus", "effect": ""}, {"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Within"}]}],
            }}},
            "volumeMounts": [{"name": "v", "mountPath": "/new"}, {"name": "w", "mountPath": "/w"}],
            "volumes": [{"name": "v", "emptyDir": {"a/b": 1}}],
            "nodeSelector": {"any/key": "x"},
        },
    });
    let bundle = Fixture::new(spec).config(config.clone());
    assert!(bundle.render().is_ok());
    assert_eq!(
        config_warnings(&bundle.load().unwrap(), &config),
        [
            "field \"deploymentConfig.env\" has more than one entry named \"A\": all of them are added",
            "field \"deploymentConfig.volumeMounts.0\" replaces the mount of volume \"v\" at \"/old\" in container \
             \"c\" of deployment \"d\"",
            "unknown field \"deploymentConfig.env.0.vaule\" is ignored; known fields: name, value, valueFrom",
            "unknown field \"deploymentConfig.volumes.0.emptyDir.a~1b\" is ignored; known fields: medium, sizeLimit",
            "unknown value \"Bogus\" of field \"deploymentConfig.tolerations.0.operator\"; known values: Equal, \
             Exists, Gt, Lt",
            "unknown value \"Within\" of field \"deploymentConfig.affinity.nodeAffinity.\
             requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchExpressions.0.operator\"; known \
             values: DoesNotExist, Exists, Gt, In, Lt, NotIn",
        ]
    );
    for quiet in [json!(null), json!({}), json!({"watchNamespace": "x"}), json!({"deploymentConfig": null})] {
        assert!(config_warnings(&bundle.load().unwrap(), &quiet).is_empty());
    }
}
