//! The controller against a real API server, with revisions created by hand.
//!
//! The cases of one control plane run concurrently where possible, each with its own revisions. Cases that count
//! requests run alone.

mod faults;
mod leaving;
mod quiet;
mod removing;
mod rolling;
mod world;

use futures::join;
use olm_control_plane::{HOUSEKEEPING, Options};
use world::World;

#[tokio::test(flavor = "multi_thread")]
async fn pass_sends_few_requests() {
    let world = World::start().await;
    let controller = world.controller();
    quiet::pass_sends_requests_only_for_changed_objects(&world, &controller).await;
    quiet::blocked_removal_reads_only_remaining_objects(&world, &controller).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_on_control_plane() {
    let world = World::start().await;
    let controller = world.controller();
    join!(
        rolling::progress_deadline_is_reported_in_time_despite_backoff(&world),
        rolling::success_after_deadline_clears_it(&world),
        rolling::collision_is_retried_until_object_is_deleted(&world),
        rolling::collision_protection_of_object_overrides_revision(&world),
        rolling::failing_probe_delays_next_phase(&world),
        rolling::pod_must_be_ready_before_next_phase(&world),
        rolling::long_condition_message_is_truncated(&world),
        rolling::revision_without_probes_and_labels_rolls_out(&world),
        rolling::invalid_objects_are_reported_without_repeated_writes(&world),
        rolling::unserved_kind_is_retried_until_its_crd_exists(&world),
        rolling::paused_revision_reports_and_corrects_nothing(&world),
        rolling::corrected_drift_publishes_event(&world),
        rolling::content_is_resolved_from_secrets(&world),
        rolling::mutable_or_changed_secret_blocks_revision(&world),
        leaving::archived_revision_deletes_objects_that_successor_does_not_list(&world),
        leaving::archived_revision_without_content_releases_objects(&world),
        leaving::archived_revision_without_content_or_record_hands_over_and_blocks(&world),
        leaving::archived_revision_hands_over_to_sibling_without_secret(&world),
        leaving::archived_revision_retains_crd_in_use(&world),
        leaving::uninstall_policy_keep_crds_retains_crds(&world),
        leaving::revision_of_former_extension_hands_over_to_recreated_one(&world),
        leaving::unknown_uninstall_policy_removes_nothing(&world),
        removing::custom_resources_are_deleted_before_operator(&world),
        removing::custom_resources_without_operator_are_reported(&world),
        removing::retained_crd_has_second_owner_while_policy_demands_it(&world),
    );
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_with_garbage_collector() {
    let world = World::start_with(Options { controllers: HOUSEKEEPING }).await;
    let controller = world.controller();
    removing::retained_crd_survives_foreground_deletion(&world).await;
    removing::foreground_deletion_reports_remaining_custom_resources(&world).await;
    removing::retained_crd_survives_uninstall_of_olm(&world, controller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_with_faults() {
    let world = World::start().await;
    faults::denied_watch_is_reported(&world).await;
    let controller = world.controller();
    join!(
        faults::deleted_and_recreated_kind_is_watched_again(&world),
        faults::version_no_longer_served_is_reported(&world),
        faults::rejecting_admission_policy_is_reported_per_object(&world),
        faults::unreachable_webhook_is_reported(&world),
    );
    faults::api_server_restart_resumes_watches(&world).await;
    controller.stop().await;
    faults::watches_end_when_last_revision_releases_them(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_with_separate_controllers() {
    let world = World::start().await;
    faults::controller_stops_before_first_list(&world).await;
    faults::hanging_requests_delay_no_other_revision(&world).await;
    leaving::late_removal_hands_over_objects_of_successor(&world).await;
    leaving::superseded_revisions_are_archived_oldest_first_and_adopt_nothing(&world).await;
    leaving::finalizer_added_during_removal_is_retained(&world).await;
}
