//! The list of the rules, and the tests that are made of it. A rule that is in no list is a function
//! that nothing calls, which is a warning.

use crate::rules;
use crate::subject::Subject;

/// Makes a module of tests of each group of rules: `rules!(MySubject: messages, windows);`
#[macro_export]
macro_rules! rules {
    ($subject:ty: $($group:ident),+ $(,)?) => {
        $($crate::group! { $group $subject })+
    };
}

/// Makes tests of some rules of a group, for a provider that does not keep all of them:
/// `some_rules!(MySubject: messages { one, other });`
#[macro_export]
macro_rules! some_rules {
    ($subject:ty: $($group:ident { $($name:ident),+ $(,)? })+) => {
        $(mod $group {
            use super::*;
            $(#[test]
            fn $name() {
                $crate::listed::$group::$name::<$subject>();
            })+
        })+
    };
}

/// Makes the functions and the macro of the list that follows.
macro_rules! list {
    ($d:tt $($group:ident: $($name:ident),+;)+) => {
        #[doc(hidden)]
        pub mod listed {
            use super::*;
            $(pub mod $group {
                use super::*;
                $(pub fn $name<S: Subject>() {
                    rules::$group::$name::<S>();
                })+
            })+
        }

        /// The tests of one group.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! group {
            $(($group $d subject:ty) => {
                mod $group {
                    use super::*;
                    $(#[test]
                    fn $name() {
                        $crate::listed::$group::$name::<$d subject>();
                    })+
                }
            };)+
        }
    };
}

list! { $
        acks:
            the_first_message_after_an_idle_poll_is_polled_alone,
            a_signaled_send_completes_once_and_only_after_the_peer_has_taken_it,
            disconnect_flushes_what_was_not_taken_after_the_successes_before,
            a_poll_that_flushes_reports_no_more_than_it_has_room_for,
            a_flush_needs_no_help_from_the_peer,
            requests_that_wait_for_room_are_flushed_last_and_in_order,
            destroying_with_requests_outstanding_silences_them;
        connections:
            private_data_go_both_ways,
            a_rejected_attempt_has_its_reason_and_gives_its_queue_pair_back,
            an_attempt_without_a_listener_is_refused_and_gives_its_queue_pair_back,
            queue_pairs_private_data_and_retries_have_limits,
            an_endpoint_that_is_dropped_disconnects_the_other,
            an_endpoint_belongs_to_the_queues_it_was_made_for,
            a_waiting_manager_is_woken_by_an_event_and_by_its_waker;
        exposed:
            exposed_bytes_are_open_to_every_queue_pair_until_they_are_concealed,
            keys_of_registrations_rest_while_others_are_used,
            exposed_bytes_have_bounds_and_rights,
            unregistered_memory_cannot_be_exposed,
            a_region_registered_with_remote_rights_is_open_under_its_own_key;
        messages:
            messages_meet_receives_in_the_order_of_posting,
            an_unsignaled_send_completes_silently,
            the_acks_of_a_reply_complete_the_call,
            inline_bytes_are_copied_at_posting_even_when_the_ring_is_full,
            a_long_message_is_gathered_from_and_scattered_to_its_lists_in_order,
            a_message_of_exactly_the_room_fits_and_one_byte_more_fails_both_sides,
            other_queue_pairs_continue_when_one_fails,
            a_wrong_gather_key_fails_its_request_after_those_before_it,
            gathering_beyond_a_region_is_a_protection_error_up_to_the_last_byte,
            an_inline_send_needs_no_key,
            a_receive_with_a_wrong_key_or_without_the_right_to_write_fails_both_sides,
            a_deregistered_key_is_invalid_after_its_place_is_reused,
            the_shared_receive_queue_takes_its_depth_and_says_how_many,
            a_send_queue_takes_its_depth_whether_the_ring_is_full_or_not,
            unsignaled_sends_keep_their_places_until_a_signaled_one_completes,
            requests_beyond_the_limits_of_the_device_are_invalid,
            a_poll_appends_no_more_than_there_is_room_for,
            more_waiting_completions_than_entries_are_an_overrun,
            several_queue_pairs_are_polled_in_turn,
            queues_connected_to_themselves_carry_messages_both_ways,
            a_short_message_is_not_written_to_memory_that_is_no_longer_registered,
            the_receives_of_a_post_that_are_taken_receive;
        model:
            behaves_as_the_naive_model;
        remote:
            a_write_arrives_takes_no_receive_and_gives_the_peer_no_completion,
            an_inline_write_is_copied_while_it_is_posted,
            requests_for_no_bytes_succeed_whatever_their_key,
            written_bytes_are_visible_when_a_later_send_arrives,
            a_read_copies_the_bytes_and_then_completes,
            a_read_needs_local_memory_that_may_be_written,
            memory_deregistered_under_a_read_fails_it_at_its_owner,
            reads_cannot_be_inline_and_local_requests_have_no_bytes,
            a_mixed_chain_is_taken_up_to_the_request_that_breaks_a_rule,
            a_send_queue_counts_requests_of_all_kinds,
            without_a_fence_a_later_send_overtakes_the_data_of_a_read,
            without_a_fence_a_later_write_changes_what_a_read_finds,
            without_a_fence_an_invalidation_overtakes_the_read_before_it,
            a_fence_delays_later_requests_of_its_queue_pair_only,
            a_fence_without_reads_waits_for_nothing,
            a_device_without_outstanding_reads_is_refused,
            reads_before_a_refused_request_succeed_and_those_behind_it_are_flushed,
            everything_flushes_in_order_when_the_queue_pair_fails,
            reads_end_when_either_set_of_queues_vanishes,
            a_sleeper_wakes_for_reads_of_its_peer_and_for_its_own,
            queues_connected_to_themselves_read_and_write;
        remote_model:
            every_byte_agrees_with_the_model;
        remote_threads:
            writes_under_a_dead_key_change_nothing,
            reads_bring_whole_messages_across_threads,
            a_flushed_read_no_longer_uses_its_memory,
            memory_that_is_registered_while_the_peer_copies_can_be_sent_from,
            deregistered_memory_is_not_written;
        teardown:
            a_request_to_a_failed_queue_pair_is_flushed_whatever_was_silent_before,
            the_peer_flushes_what_it_has_posted,
            both_sides_may_disconnect_at_once,
            a_late_message_for_a_destroyed_queue_pair_is_dropped_and_frees_its_place,
            peers_of_dropped_queues_flush_and_learn_of_it,
            messages_that_arrived_before_the_queues_were_dropped_are_delivered,
            queue_pairs_are_created_and_destroyed_without_limit;
        threads:
            polling_threads_lose_and_change_nothing,
            sleeping_threads_are_always_woken;
        windows:
            a_bound_window_opens_its_bytes_and_not_one_more,
            a_range_that_wraps_around_is_outside,
            a_key_gives_the_bound_rights_only,
            a_wrong_key_ends_both_queue_pairs_and_no_others,
            a_key_of_another_queue_pair_gives_no_access,
            a_send_behind_a_bind_carries_a_valid_key,
            a_bind_completes_without_the_peer_and_behind_what_was_sent_before,
            local_requests_free_their_places_and_complete_in_order_among_all_others,
            every_rule_of_binding_fails_its_request_and_the_queue_pair,
            a_window_that_is_bound_is_not_bound_again_before_it_was_invalidated,
            a_region_is_bound_only_as_it_was_registered,
            a_window_on_a_deregistered_region_gives_no_access,
            an_invalidated_key_stays_invalid_for_all_later_bindings,
            a_request_in_flight_when_its_key_is_invalidated_accesses_nothing,
            only_a_key_of_its_own_queue_pair_can_be_invalidated,
            a_send_that_invalidates_kills_the_key_before_its_receive_completes,
            a_send_with_a_foreign_or_dead_key_takes_no_receive_and_ends_the_connection,
            a_send_that_waits_for_a_receive_has_not_invalidated_yet,
            the_windows_of_a_lost_queue_pair_are_closed_and_after_its_destruction_free,
            a_window_of_a_failed_queue_pair_is_renewed_with_another_key,
            a_window_that_was_never_opened_is_not_renewed,
            a_window_of_a_failed_queue_pair_is_taken_until_it_is_destroyed,
            the_number_of_windows_is_limited_and_dropped_queues_return_theirs,
            a_device_without_windows_reports_none,
            keys_depend_on_the_seed_and_differ_between_queues;
}
