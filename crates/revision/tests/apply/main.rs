//! The engine against a real API server, which alone decides about server-side apply, dry runs and owner references.
//! All cases share one control plane, each has its own namespace.

#![allow(clippy::unwrap_used, reason = "a test fails at the first error")]

mod ownership;
mod removal;
mod rollout;
mod world;

use world::World;

#[tokio::test]
async fn engine_on_a_control_plane() {
    let mut world = World::start().await;
    rollout::objects_are_created_once_and_unchanged_afterwards(&mut world).await;
    rollout::drift_is_repaired_and_foreign_fields_are_kept(&world).await;
    rollout::atomic_lists_are_ours_and_keyed_lists_shared(&world).await;
    ownership::foreign_object_collides(&world).await;
    ownership::existing_objects_are_adopted_by_protection(&world).await;
    ownership::objects_are_handed_over_to_the_next_revision(&world).await;
    ownership::orphaned_objects_are_adopted(&world).await;
    rollout::rejected_object_blocks_its_phase(&world).await;
    rollout::custom_resource_follows_its_crd(&world).await;
    rollout::failing_probes_hold_the_next_phase(&world).await;
    removal::teardown_waits_for_each_phase(&world).await;
    removal::final_teardown_keeps_the_last_owner_reference(&world).await;
    ownership::teardown_hands_objects_over_to_the_older_revision(&world).await;
    removal::crd_in_use_blocks_or_is_kept_by_policy(&world).await;
    removal::crds_are_deleted_before_other_objects(&world).await;
    removal::conversion_webhook_is_kept_while_needed(&world).await;
    removal::operator_runs_with_a_ready_pod(&world).await;
    removal::crds_are_released_before_any_deletion(&world).await;
    removal::conversion_webhook_is_removed_from_a_kept_crd(&world).await;
    rollout::terminating_namespace_and_quota_block_the_phase(&world).await;
    ownership::helm_era_objects_are_adopted_without_restart(&world).await;
}
