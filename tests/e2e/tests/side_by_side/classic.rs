//! Recordings of classic OLM on the cluster.

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use olm_e2e::Cluster;
use olm_e2e::classic::{Installation, replay};

/// Number of recordings replayed concurrently.
const AT_ONCE: usize = 3;

/// Replays a recording and deletes it.
async fn try_case(case: &str) -> Result<()> {
    let cluster = Cluster::connect().await?;
    let ending: String = uuid::Uuid::new_v4().simple().to_string().chars().take(5).collect();
    let name = format!("classic-{case}-{ending}");
    let replayed = replay(&cluster, Installation::recorded(case, &name)?).await?;
    for object in &replayed.installation.objects {
        let (api, name) = replayed.api(object).await?;
        let live = serde_json::to_value(api.get(&name).await?)?;
        for field in ["uid", "ownerReferences", "finalizers"] {
            let (live, expected) = (&live["metadata"][field], &object["metadata"][field]);
            ensure!(field != "uid" || live == expected, "{case}: {name}: {live} instead of {expected}");
            ensure!(live.is_null() == expected.is_null(), "{case}: {name}: {field} is {live}");
        }
    }
    replayed.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_classic_olm_objects_keep_uid_and_owners_on_replay() -> Result<()> {
    let cases = ["own", "multi", "hooks", "harbor", "lift", "fail", "api"].map(try_case);
    stream::iter(cases).buffer_unordered(AT_ONCE).try_collect().await
}
