//! Checks of objects other than the ClusterServiceVersion and CRDs
//! (docs/design/additions.md#bundle-validation, docs/design/bundles.md#shipped-objects).

use std::collections::BTreeSet;

use olm_bundle::pointer::text;
use olm_version::quote;

use crate::content::Content;
use crate::findings::Findings;
use crate::rule;

/// Checks service accounts and namespaces. The renderer checks kinds, its install checks names.
pub(crate) fn check(content: &Content, findings: &mut Findings) {
    let deployments = content.service_version().map(|csv| csv.list("/spec/install/spec/deployments"));
    let accounts: BTreeSet<&str> = deployments
        .into_iter()
        .flatten()
        .map(|deployment| text(deployment, "/spec/template/spec/serviceAccountName"))
        .filter(|account| !account.is_empty())
        .collect();
    for account in content.of_kind("ServiceAccount").filter(|account| accounts.contains(account.name())) {
        let what = format!(
            "a deployment of the ClusterServiceVersion uses the account {}, which is made from its permissions: remove this \
             manifest or rename one of the two",
            quote(account.name())
        );
        findings.add(&rule::OBJ_2, account.at("metadata.name"), what);
    }
    for object in content
        .of_kind("VerticalPodAutoscaler")
        .filter(|object| object.text("/metadata/namespace").is_empty())
    {
        let what =
            "the namespace is not filled in for this kind: write the one that the operator is installed in";
        findings.add(&rule::OBJ_3, object.at("metadata"), what);
    }
}
