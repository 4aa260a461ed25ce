//! The engine against a real API server, which alone decides about server-side apply, dry runs and owner references.
//! All cases share one control plane, each has its own namespace.

#![allow(clippy::unwrap_used, reason = "a test fails at the first error")]

extern crate olm_tokio as tokio;

mod conversion;
mod fields;
mod fixture;
mod namespaces;
mod ownership;
mod removal;
mod replacement;
mod rollout;

use fixture::Fixture;

#[tokio::test]
async fn engine_applies_adopts_and_removes_on_a_control_plane() {
    let mut fixture = Fixture::start().await;
    rollout::objects_are_created_once_and_unchanged_afterwards(&mut fixture).await;
    rollout::drift_is_repaired_and_foreign_fields_are_kept(&fixture).await;
    rollout::atomic_lists_are_ours_and_keyed_lists_shared(&fixture).await;
    ownership::foreign_object_collides(&fixture).await;
    ownership::existing_objects_are_adopted_by_protection(&fixture).await;
    ownership::objects_are_handed_over_to_the_next_revision(&fixture).await;
    ownership::orphaned_objects_are_adopted(&fixture).await;
    rollout::rejected_object_blocks_its_phase(&fixture).await;
    rollout::custom_resource_follows_its_crd(&fixture).await;
    rollout::creation_never_changes_an_existing_object(&fixture).await;
    rollout::failing_probes_hold_the_next_phase(&fixture).await;
    removal::teardown_waits_for_each_phase(&fixture).await;
    removal::final_teardown_keeps_the_last_owner_reference(&fixture).await;
    removal::crd_without_controller_is_deleted_with_its_last_revision(&fixture).await;
    ownership::teardown_hands_objects_over_to_the_older_revision(&fixture).await;
    removal::crd_in_use_blocks_or_is_kept_by_policy(&fixture).await;
    removal::crds_are_deleted_before_other_objects(&fixture).await;
    removal::conversion_webhook_is_kept_while_needed(&fixture).await;
    removal::operator_runs_with_a_ready_pod(&fixture).await;
    removal::crds_are_released_before_any_deletion(&fixture).await;
    removal::conversion_webhook_is_removed_from_a_kept_crd(&fixture).await;
    conversion::conversion_of_the_operator_survives_repair_and_upgrade(&fixture).await;
    conversion::dropped_conversion_is_removed_with_fields_of_other_managers(&fixture).await;
    conversion::rejected_crd_keeps_its_conversion(&fixture).await;
    conversion::storage_version_changes_when_the_webhook_is_ready(&fixture).await;
    replacement::immutable_fields_are_replaced_only_if_allowed(&fixture).await;
    replacement::object_stays_if_its_successor_is_invalid_or_may_lose_data(&fixture).await;
    replacement::deleted_object_is_left_to_the_newer_revision(&fixture).await;
    replacement::second_default_priority_class_names_the_first_one(&fixture).await;
    rollout::terminating_namespace_and_quota_block_the_phase(&fixture).await;
    namespaces::permissions_in_gone_namespaces_are_skipped(&fixture).await;
    ownership::classic_fields_stay_until_the_pod_template_changes(&fixture).await;
    ownership::reordered_environment_changes_the_pod_template(&fixture).await;
    ownership::helm_era_objects_are_adopted_without_restart(&fixture).await;
    fields::rules_of_an_aggregated_role_are_left_to_its_controller(&mut fixture).await;
    fields::replicas_of_an_autoscaler_stay_and_manual_ones_are_restored(&mut fixture).await;
    fields::defaults_that_the_new_content_forbids_are_removed(&fixture).await;
    fields::field_of_a_person_in_the_way_is_named(&fixture).await;
    fields::string_data_of_secrets_is_repaired_and_dropped(&mut fixture).await;
    fields::last_of_duplicate_variables_is_applied(&fixture).await;
    fields::injected_bundle_without_other_owner_stays(&fixture).await;
    fields::corrections_of_a_contended_field_back_off(&fixture).await;
}
