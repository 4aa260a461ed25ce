//! The revision controller against a real API server, with revisions created by hand.
//!
//! The cases of one control plane run concurrently where possible, each with its own revisions. Cases that count
//! requests run alone.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod drift;
mod faults;
mod fixture;
mod operator_condition;
mod pods;
mod removal;
mod requests;
mod rollout;
mod uninstall;

use fixture::Fixture;
use futures::join;
use olm_control_plane::{HOUSEKEEPING, Options};

#[tokio::test(flavor = "multi_thread")]
async fn revision_reconcile_sends_requests_only_for_changed_objects() {
    let fixture = Fixture::start().await;
    let controller = fixture.controller();
    requests::pass_sends_requests_only_for_changed_objects(&fixture, &controller).await;
    requests::blocked_removal_reads_only_remaining_objects(&fixture, &controller).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revision_controller_rolls_out_archives_and_deletes_revisions() {
    let fixture = Fixture::start().await;
    let controller = fixture.controller();
    join!(
        rollout::progress_deadline_is_reported_while_passes_fail(&fixture),
        rollout::success_after_deadline_clears_it(&fixture),
        rollout::progress_of_rollout_is_written_at_intervals(&fixture),
        rollout::collision_is_retried_until_object_is_deleted(&fixture),
        rollout::stuck_revision_does_not_succeed_through_its_successor(&fixture),
        rollout::collision_protection_of_object_overrides_revision(&fixture),
        rollout::failing_probe_delays_next_phase(&fixture),
        rollout::pod_must_be_ready_before_next_phase(&fixture),
        rollout::long_condition_message_is_truncated(&fixture),
        rollout::revision_without_probes_and_labels_rolls_out(&fixture),
        rollout::invalid_objects_are_reported_without_repeated_writes(&fixture),
        rollout::unserved_kind_is_retried_until_its_crd_exists(&fixture),
        rollout::paused_revision_reports_and_corrects_nothing(&fixture),
        rollout::corrected_drift_publishes_event(&fixture),
        drift::object_without_owner_and_annotations_is_repaired(&fixture),
        operator_condition::reports_of_the_operator_are_neither_owned_nor_reverted(&fixture),
        operator_condition::reports_of_version_v1_decide_like_those_of_v2(&fixture),
        rollout::content_is_resolved_from_secrets(&fixture),
        rollout::mutable_or_changed_secret_blocks_revision(&fixture),
        removal::archived_revision_deletes_objects_that_successor_does_not_list(&fixture),
        removal::archived_revision_without_content_releases_objects(&fixture),
        removal::archived_revision_without_content_or_record_hands_over_and_blocks(&fixture),
        removal::archived_revision_that_never_applied_needs_no_content(&fixture),
        removal::removal_hands_over_to_newest_revision_while_content_of_another_is_lost(&fixture),
        removal::archived_revision_hands_over_to_sibling_without_secret(&fixture),
        removal::archived_revision_retains_crd_in_use(&fixture),
        removal::uninstall_policy_keep_crds_retains_crds(&fixture),
        removal::revision_of_former_extension_hands_over_to_recreated_one(&fixture),
        removal::revision_of_living_extension_retains_crd_in_use(&fixture),
        removal::removal_follows_policy_of_extension_before_it_is_copied(&fixture),
        removal::unknown_uninstall_policy_blocks_removal_of_crd_in_use(&fixture),
        uninstall::custom_resources_are_deleted_before_operator(&fixture),
        uninstall::custom_resources_without_operator_are_reported(&fixture),
        uninstall::retained_crd_has_second_owner_while_policy_demands_it(&fixture),
        uninstall::paused_and_archived_revisions_give_crds_the_second_owner(&fixture),
        uninstall::deletion_that_a_lost_webhook_denies_is_reported(&fixture),
    );
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retained_crds_survive_foreground_deletion_and_olm_uninstall() {
    let fixture = Fixture::start_with(Options { controllers: HOUSEKEEPING }).await;
    let controller = fixture.controller();
    uninstall::retained_crd_survives_foreground_deletion(&fixture).await;
    uninstall::foreground_deletion_reports_remaining_custom_resources(&fixture).await;
    uninstall::retained_crd_survives_uninstall_of_olm(&fixture, controller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revision_faults_are_reported_and_recover() {
    let fixture = Fixture::start().await;
    faults::denied_watch_is_reported(&fixture).await;
    let controller = fixture.controller();
    join!(
        faults::deleted_and_recreated_kind_is_watched_again(&fixture),
        faults::version_no_longer_served_is_reported(&fixture),
        faults::rejecting_admission_policy_is_reported_per_object(&fixture),
        faults::unreachable_webhook_is_reported(&fixture),
    );
    faults::api_server_restart_resumes_watches(&fixture).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revision_removal_under_faults_transfers_objects_to_successor() {
    let fixture = Fixture::start().await;
    faults::controller_stops_before_first_list(&fixture).await;
    faults::hanging_requests_delay_no_other_revision(&fixture).await;
    removal::late_removal_hands_over_objects_of_successor(&fixture).await;
    removal::superseded_revisions_are_archived_oldest_first_and_adopt_nothing(&fixture).await;
    removal::finalizer_added_during_removal_is_retained(&fixture).await;
    uninstall::denied_deletions_are_reported_until_the_end(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unready_deployment_is_explained() {
    let fixture = Fixture::start().await;
    pods::cause_of_unready_pods_is_reported_until_they_are_ready(&fixture).await;
}
