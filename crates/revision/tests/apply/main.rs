//! The engine against a real API server: only that decides what server-side apply, dry runs and owner
//! references do. One control plane serves all cases; each has its own namespace.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod ownership;
mod removal;
mod rollout;
mod world;

use world::World;

#[tokio::test]
async fn engine_on_a_control_plane() {
    let mut world = World::start().await;
    rollout::created_once_and_then_left_alone(&mut world).await;
    rollout::drift_is_repaired_and_foreign_fields_are_kept(&world).await;
    rollout::atomic_lists_are_ours_and_keyed_lists_shared(&world).await;
    ownership::collisions(&world).await;
    ownership::adoption_by_protection(&world).await;
    ownership::handover_to_the_next_revision(&world).await;
    ownership::abandoned_objects_are_taken_back(&world).await;
    rollout::validation_by_dry_run(&world).await;
    rollout::custom_resource_after_its_definition(&world).await;
    rollout::failing_probes_hold_the_next_phase(&world).await;
    removal::teardown_waits_for_each_phase(&world).await;
    removal::the_last_owner_does_not_let_go(&world).await;
    ownership::heirs_get_objects_back(&world).await;
    removal::definitions_in_use(&world).await;
    removal::definitions_are_deleted_before_the_rest(&world).await;
    removal::conversion_webhooks_outlive_what_they_convert(&world).await;
    removal::operator_runs_with_a_ready_pod(&world).await;
    removal::definitions_are_saved_before_anything_goes(&world).await;
    removal::conversion_webhooks_go_with_their_extension(&world).await;
    rollout::refusals_of_the_server(&world).await;
    ownership::helm_era_objects(&world).await;
}
