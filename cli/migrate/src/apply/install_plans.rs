//! InstallPlans that matter to a migration. Pure.

use olm_cli_core::object_access::ObjectId;
use serde_json::Value;

use super::super::objects::InstallPlan;
use super::super::plan::model::PackagePlan;
use super::observe::is_owned_by;

/// Approved InstallPlans of the Subscription that are neither complete nor failed, as `namespace/name`.
pub(super) fn running(subscription: Option<&Value>, plans: &[Value]) -> Vec<String> {
    let Some(uid) = subscription.and_then(|found| found["metadata"]["uid"].as_str()) else {
        return Vec::new();
    };
    let id = |plan: &Value| {
        let id = ObjectId::of(plan);
        format!("{}/{}", id.namespace, id.name)
    };
    let is_running = |plan: &&Value| is_owned_by(plan, &[uid]) && InstallPlan::of(plan).is_running();
    plans.iter().filter(is_running).map(id).collect()
}

/// Unapproved InstallPlans with the next version of the package: the live Subscription or that of the
/// backup names it.
pub(super) fn waiting<'p>(
    plan: &PackagePlan,
    subscriptions: [Option<&Value>; 2],
    plans: &'p [Value],
) -> Vec<&'p Value> {
    let current = |found: &Value| found.pointer("/status/currentCSV")?.as_str().map(str::to_owned);
    let next: Vec<String> = subscriptions.into_iter().flatten().filter_map(current).collect();
    let is_upgrade = |found: &&Value| {
        let found = InstallPlan::of(found);
        next.iter().any(|next| found.is_upgrade(next, &plan.csv))
    };
    plans.iter().filter(is_upgrade).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixture::plan;
    use super::*;

    fn install_plan(name: &str, csvs: &[&str], approved: bool, phase: &str) -> Value {
        json!({"kind": "InstallPlan", "metadata": {"namespace": "ns", "name": name, "ownerReferences": [{"uid": "s"}]},
            "spec": {"approved": approved, "clusterServiceVersionNames": csvs}, "status": {"phase": phase}})
    }

    #[test]
    fn approved_plan_runs_and_unapproved_one_with_next_version_waits() {
        let plans = [
            install_plan("first", &["lamp.v1.0.0"], true, "Complete"),
            install_plan("next", &["lamp.v2.0.0", "pipe.v2.0.0"], false, "RequiresApproval"),
            install_plan("failed", &["lamp.v2.0.0"], false, "Failed"),
            install_plan("other", &["pipe.v2.0.0"], false, "RequiresApproval"),
            install_plan("started", &["pipe.v3.0.0"], true, "Installing"),
        ];
        let subscription = json!({"metadata": {"uid": "s"}, "status": {"currentCSV": "lamp.v2.0.0"}});
        let found = |subscriptions: [Option<&Value>; 2]| -> Vec<String> {
            waiting(&plan(), subscriptions, &plans)
                .into_iter()
                .map(|found| ObjectId::of(found).name)
                .collect()
        };
        // After the deletion of the Subscription, the backup has the next version.
        assert_eq!(found([Some(&subscription), None]), ["next"]);
        assert_eq!(found([None, Some(&subscription)]), ["next"]);
        assert_eq!(found([None, None]), [""; 0]);
        assert_eq!(running(Some(&subscription), &plans), ["ns/started"]);
        assert_eq!(running(Some(&json!({"metadata": {"uid": "another"}})), &plans), [""; 0]);
        assert_eq!(running(None, &plans), [""; 0]);
    }
}
