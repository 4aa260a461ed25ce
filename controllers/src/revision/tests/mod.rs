//! The controller against a real API server: what becomes of revisions that people make by hand.
//!
//! The cases of one control plane run at the same time where they can, each on revisions of its own; what is counted is
//! alone.

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
async fn passes_cost_little() {
    let world = World::start().await;
    let controller = world.controller();
    quiet::what_a_pass_costs(&world, &controller).await;
    quiet::a_removal_reads_only_what_is_left(&world, &controller).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_on_a_control_plane() {
    let world = World::start().await;
    let controller = world.controller();
    join!(
        rolling::a_deadline_is_noticed_in_time(&world),
        rolling::a_late_success_counts(&world),
        rolling::collisions_are_looked_at_again(&world),
        rolling::protection_by_object(&world),
        rolling::probes_hold_the_next_phase(&world),
        rolling::a_pod_has_to_be_ready(&world),
        rolling::long_messages_are_cut(&world),
        rolling::without_probes_and_labels(&world),
        rolling::mistakes_are_told_once(&world),
        rolling::kinds_that_are_not_served_yet(&world),
        rolling::a_paused_revision_waits(&world),
        rolling::corrected_drift_is_told(&world),
        rolling::content_of_secrets(&world),
        rolling::mutable_and_replaced_secrets(&world),
        leaving::archived_revisions_leave_nothing(&world),
        leaving::archived_revisions_without_content_let_go(&world),
        leaving::archived_revision_without_content_and_record_hands_over_and_waits(&world),
        leaving::archived_revision_hands_over_to_a_sibling_with_a_lost_secret(&world),
        leaving::definitions_in_use_are_spared(&world),
        leaving::definitions_can_be_kept(&world),
        leaving::revisions_of_a_former_extension_hand_over(&world),
        leaving::an_unknown_policy_removes_nothing(&world),
        removing::custom_resources_are_deleted_before_the_operator(&world),
        removing::custom_resources_without_an_operator_are_reported(&world),
        removing::kept_definitions_have_a_second_owner(&world),
    );
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_with_a_garbage_collector() {
    let world = World::start_with(Options { controllers: HOUSEKEEPING }).await;
    let controller = world.controller();
    removing::kept_definitions_survive_a_foreground_deletion(&world).await;
    removing::foreground_deletion_names_what_is_left(&world).await;
    removing::kept_definitions_survive_the_uninstall_of_olm(&world, controller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_in_trouble() {
    let world = World::start().await;
    faults::a_watch_that_is_refused_is_named(&world).await;
    let controller = world.controller();
    join!(
        faults::a_kind_that_goes_and_comes_back(&world),
        faults::a_version_that_is_no_longer_served(&world),
        faults::a_policy_that_refuses(&world),
        faults::a_webhook_that_does_not_answer(&world),
    );
    faults::the_api_server_restarts(&world).await;
    controller.stop().await;
    faults::watches_end_with_their_users(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_under_other_controllers() {
    let world = World::start().await;
    faults::a_controller_that_has_seen_nothing_ends(&world).await;
    faults::some_that_hang_hold_up_no_other(&world).await;
    leaving::late_removals_hand_over(&world).await;
    leaving::superseded_revisions_are_archived_oldest_first_and_inherit_nothing(&world).await;
    leaving::finalizer_that_is_added_during_a_removal_stays(&world).await;
}
