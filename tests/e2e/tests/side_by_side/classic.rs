//! Recordings of classic OLM on the cluster.

use anyhow::Result;
use olm_e2e::Cluster;
use olm_e2e::classic::{Installation, replay};

// The tests of migrations replay the other recordings.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_classic_olm_objects_keep_uid_and_owners_on_replay() -> Result<()> {
    let cluster = Cluster::connect().await?;
    let ending: String = uuid::Uuid::new_v4().simple().to_string().chars().take(5).collect();
    let replayed = replay(&cluster, Installation::recorded("api", &format!("classic-api-{ending}"))?).await?;
    replayed.check_metadata().await?;
    replayed.remove().await
}
