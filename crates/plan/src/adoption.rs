//! Digest of the objects that an extension adopts (docs/design/migration.md#adoption).

use std::collections::BTreeSet;
use std::fmt;

use olm_api::text::one_line;
use sha2::{Digest, Sha256};

use crate::objects::ObjectName;

/// Existing object that an extension adopts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdoptedObject {
    /// Identity of the object.
    pub object: ObjectName,
    /// `metadata.uid` of the object.
    pub uid: String,
}

/// Line of the digest: `<group>/<Kind> <namespace>/<name> <uid>`. Group and namespace can be empty.
impl fmt::Display for AdoptedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectName { group, kind, namespace, name } = &self.object;
        f.write_str(&one_line(&format!("{group}/{kind} {namespace}/{name} {}", self.uid)))
    }
}

/// Digest of these objects, `sha256:…`, in any order: over their lines, sorted by bytes, each with a line feed.
pub fn adoption_digest(objects: &[AdoptedObject]) -> String {
    let lines: BTreeSet<String> = objects.iter().map(ToString::to_string).collect();
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line);
        hash.update("\n");
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, namespace: &str, name: &str, uid: &str) -> AdoptedObject {
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"namespace": namespace, "name": name}});
        AdoptedObject { object: ObjectName::of(&object), uid: uid.to_owned() }
    }

    #[test]
    fn adoption_digest_covers_sorted_identities() {
        let deployment = object("apps/v1", "Deployment", "ns1", "op", "u1");
        let account = object("v1", "ServiceAccount", "ns1", "op", "u2");
        let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "op", "u3");
        assert_eq!(deployment.to_string(), "apps/Deployment ns1/op u1");
        assert_eq!(account.to_string(), "/ServiceAccount ns1/op u2");
        assert_eq!(role.to_string(), "rbac.authorization.k8s.io/ClusterRole /op u3");
        let all = [deployment, account, role];
        let digest = adoption_digest(&all);
        // A fixed value: server and command line may have different versions.
        let lines = "/ServiceAccount ns1/op u2\napps/Deployment ns1/op u1\nrbac.authorization.k8s.io/ClusterRole /op u3\n";
        assert_eq!(digest, format!("sha256:{}", hex::encode(Sha256::digest(lines))));
        assert_eq!(digest, "sha256:2dccf602e3ce9599f067124f60a19aa46b38ee678384cbc337aaea0f719e9832");
        let [a, b, c] = all;
        assert_eq!(adoption_digest(&[c.clone(), a.clone(), b.clone()]), digest);
        let beta = object("apps/v1beta1", "Deployment", "ns1", "op", "u1");
        assert_eq!(adoption_digest(&[beta, b.clone(), c.clone()]), digest);
        for changed in
            [&[a.clone(), b.clone()][..], &[object("apps/v1", "Deployment", "ns1", "op", "u4"), b, c]]
        {
            assert_ne!(adoption_digest(changed), digest);
        }
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(adoption_digest(&[]), empty);
    }
}
