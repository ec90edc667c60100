//! The list of the scenarios, as tests and as values.

use rpcrdma::Provider;

use crate::opener::Open;
use crate::setup::speaking;

/// A scenario, to be run on a device.
#[derive(Debug, Clone, Copy)]
pub struct Scenario<P: Provider> {
    /// The version that both ends are configured for: `auto` or `one`.
    pub version: &'static str,
    /// The module that it is in: `inline`, `placed`, ...
    pub subject: &'static str,
    /// What must hold, as the name of its function.
    pub name: &'static str,
    /// The function.
    pub run: for<'a> fn(Open<'a, P>),
}

impl<P: Provider> Scenario<P> {
    /// All scenarios: those for any version, then those that are run again in version one.
    pub fn all() -> Vec<Scenario<P>> {
        let mut all = crate::scenarios! { listed, P, "auto" };
        all.extend(crate::scenarios_one! { listed, P, "one" });
        all
    }

    /// Runs it on a device.
    ///
    /// # Panics
    /// If something is not as it must be.
    pub fn check(&self, open: Open<'_, P>) {
        speaking(self.version, || (self.run)(open));
    }
}

/// Makes a test of every scenario. `$open` makes, for each test, an
/// [`Opener`](crate::opener::Opener); attributes of the tests may follow.
#[macro_export]
macro_rules! api_suite {
    ($open:expr $(; $(#[$attr:meta])+)?) => {
        $crate::scenarios! { tests, $open, "auto", [$($(#[$attr])+)?] }
    };
}

/// As [`api_suite`](crate::api_suite), in version one: the scenarios that ask for no placement by
/// Send and no groups, and for no server that knows its peers before they have called.
#[macro_export]
macro_rules! api_suite_one {
    ($open:expr $(; $(#[$attr:meta])+)?) => {
        $crate::scenarios_one! { tests, $open, "one", [$($(#[$attr])+)?] }
    };
}

/// Passes the list of the scenarios to another macro of this file, behind these arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! scenarios {
    ($with:ident, $($arguments:tt)*) => {
        $crate::$with! { $($arguments)*;
            inline: every_length_is_echoed, long_payload_is_continued,
                payload_of_many_slots_travels, an_empty_call_is_answered,
                many_calls_are_in_flight;
            placed: a_write_of_every_length_is_placed, a_read_of_every_length_is_placed,
                an_item_without_bytes_stays_in_line, several_items_are_placed_in_order,
                padding_of_many_pieces_does_no_harm,
                any_mixture_arrives, a_read_that_is_not_wanted_placed_comes_in_line,
                an_item_shorter_than_wanted_comes_in_line, wants_without_items_are_harmless,
                bulk_comes_in_line_where_it_cannot_be_placed, many_short_items_come_in_line,
                bulk_is_read_where_it_cannot_be_placed, calls_that_need_explicit_rdma_are_refused,
                a_reply_longer_than_announced_fails_its_call;
            explicit: a_write_of_every_length_is_fetched,
                a_read_of_every_length_is_written_to_its_sink,
                a_read_without_a_sink_arrives_in_a_buffer_of_the_engine,
                a_read_is_placed_as_requested, a_long_call_is_fetched_as_a_whole,
                a_long_reply_arrives_in_its_chunk, results_of_too_many_pieces_arrive_in_the_reply_chunk, a_long_call_gets_a_long_reply,
                several_items_are_sent_in_the_form_the_peer_supports, items_without_bytes_use_up_their_sinks,
                short_results_do_not_change_the_rest_of_their_sinks,
                any_mixture_arrives_by_explicit_rdma, fetched_memory_is_taken_and_relayed,
                rights_are_invalidated_by_the_agreed_side,
                items_of_the_extension_are_moved_where_limits_are_small;
            sinks: sinks_of_failed_calls_are_returned,
                unused_sinks_are_returned,
                a_connection_lost_at_any_step_returns_every_sink;
            scarce: calls_wait_for_windows, calls_wait_for_rdma_buffers_without_a_deadlock,
                one_call_is_fetched_at_a_time, calls_that_never_fit_are_refused_permanently,
                a_peer_without_explicit_rdma_is_not_asked_for_it,
                calls_that_need_most_of_the_buffers_take_turns, other_modes_of_exposure_work;
            loans: taken_segments_are_kept_and_returned, without_spares_nothing_is_taken,
                a_taken_segment_is_relayed, segments_of_a_reply_are_taken, own_buffers_return;
            late: answers_come_in_any_order, tickets_are_finished_through_the_handle,
                stale_tickets_are_void, answers_of_many_connections_find_room,
                a_ticket_belongs_to_its_shard, an_unanswered_call_ends_with_its_connection;
            given_up: a_deadline_ends_a_call_and_its_late_reply_is_dropped,
                cancelled_calls_keep_their_credits, a_call_that_was_not_sent_is_withdrawn,
                a_call_lost_before_it_was_sent_was_not_executed,
                memory_returns_when_no_peer_can_write_to_it, a_call_is_repeated_with_its_xid,
                a_late_result_reaches_no_other_call,
                windows_are_reused_after_the_late_answer,
                a_call_that_is_ending_is_not_cancelled;
            kept: a_late_reply_returns_all_credits_and_the_xid,
                the_end_of_a_connection_frees_given_up_calls;
            properties: changes_are_requested_and_answered, changes_are_announced;
            credits: used_up_credits_refuse_and_recover, a_refused_call_gives_its_memory_back,
                a_long_call_waits_for_all_its_credits,
                every_connection_gets_a_credit, the_table_of_calls_is_bounded,
                receives_are_kept_for_every_reply, few_send_slots_are_enough;
            connections: a_connect_without_a_listener_fails, a_full_server_rejects, a_full_client_does_not_connect,
                a_handler_refuses_a_connection, a_peer_is_rejected_before_it_is_accepted,
                two_simultaneous_requests_of_a_host_count_twice, connections_share_one_shard,
                the_address_of_a_peer_is_known_while_it_is_connected,
                the_configuration_decides_who_may_connect,
                the_connections_of_a_peer_are_counted_over_all_shards,
                connections_go_to_shards_in_turn, connections_come_and_go;
            ending: a_close_completes_open_calls, a_close_discards_calls_that_have_not_left,
                a_stop_lets_open_calls_finish, a_stopping_server_drops_new_calls,
                a_stop_ends_while_clients_continue_to_call,
                a_stop_does_not_wait_for_ever, a_client_stops_with_calls_open, a_dropped_shard_is_gone,
                a_stale_id_identifies_no_connection;
            threads: shards_that_back_off_serve_clients, shards_that_block_serve_clients,
                shards_share_several_clients, a_stop_completes_every_call;
            reactors: a_descriptor_is_readable_until_the_next_poll,
                a_message_of_another_thread_ends_a_sleep,
                sleeping_shards_and_clients_are_always_woken;
            refused: a_handler_refuses_a_call, a_dropped_call_takes_no_resources,
                a_message_over_the_limit_is_refused_here,
                payload_that_is_too_long_is_refused,
                payload_of_more_slots_than_there_are_is_too_long,
                payload_of_all_slots_is_sent_by_an_idle_shard,
                payload_of_all_slots_follows_short_messages, too_many_pieces_are_refused,
                one_item_in_many_pieces_travels,
                slices_in_a_call_that_is_fetched_whole_are_copied;
        }
    };
}

/// The same with those of version one.
#[doc(hidden)]
#[macro_export]
macro_rules! scenarios_one {
    ($with:ident, $($arguments:tt)*) => {
        $crate::$with! { $($arguments)*;
            inline: every_length_is_echoed, payload_of_many_slots_travels,
                an_empty_call_is_answered, many_calls_are_in_flight;
            placed: a_read_that_is_not_wanted_placed_comes_in_line;
            loans: own_buffers_return;
            late: answers_come_in_any_order, a_ticket_belongs_to_its_shard,
                an_unanswered_call_ends_with_its_connection;
            given_up: a_deadline_ends_a_call_and_its_late_reply_is_dropped,
                cancelled_calls_keep_their_credits;
            credits: used_up_credits_refuse_and_recover, every_connection_gets_a_credit,
                the_table_of_calls_is_bounded, few_send_slots_are_enough;
            connections: a_connect_without_a_listener_fails, a_full_server_rejects,
                a_peer_is_rejected_before_it_is_accepted, two_simultaneous_requests_of_a_host_count_twice;
            ending: a_close_completes_open_calls, a_stop_lets_open_calls_finish,
                a_stopping_server_drops_new_calls, a_stop_ends_while_clients_continue_to_call,
                a_stop_does_not_wait_for_ever, a_dropped_shard_is_gone, a_stale_id_identifies_no_connection;
            refused: a_handler_refuses_a_call, a_dropped_call_takes_no_resources,
                payload_that_is_too_long_is_refused,
                payload_of_more_slots_than_there_are_is_too_long,
                payload_of_all_slots_is_sent_by_an_idle_shard, too_many_pieces_are_refused,
                one_item_in_many_pieces_travels;
        }
    };
}

/// A module for each subject, with a test of each scenario.
#[doc(hidden)]
#[macro_export]
macro_rules! tests {
    ($open:expr, $version:literal, $attrs:tt; $($subject:ident: $($name:ident),+;)+) => {
        $(mod $subject {
            use super::*;
            $($crate::one_test! { $open, $version, $attrs, $subject, $name })+
        })+
    };
}

/// One test.
#[doc(hidden)]
#[macro_export]
macro_rules! one_test {
    ($open:expr, $version:literal, [$(#[$attr:meta])*], $subject:ident, $name:ident) => {
        $(#[$attr])*
        #[test]
        fn $name() {
            $crate::setup::speaking($version, || $crate::scenarios::$subject::$name(&$open));
        }
    };
}

/// A list of [`Scenario`](crate::Scenario).
#[doc(hidden)]
#[macro_export]
macro_rules! listed {
    ($provider:ident, $version:literal; $($subject:ident: $($name:ident),+;)+) => {
        vec![$($($crate::Scenario {
            version: $version,
            subject: stringify!($subject),
            name: stringify!($name),
            run: $crate::scenarios::$subject::$name::<$provider>,
        }),+),+]
    };
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rpcrdma::Fabric;

    use super::*;

    #[test]
    fn every_scenario_is_listed_once_and_can_be_run() {
        let all = Scenario::<Fabric>::all();
        let names: HashSet<_> =
            all.iter().map(|one| (one.version, one.subject, one.name)).collect();
        assert_eq!(names.len(), all.len());
        for version in ["auto", "one"] {
            let is_echo = |one: &&Scenario<Fabric>| {
                (one.version, one.name) == (version, "every_length_is_echoed")
            };
            let fabric = Fabric::new();
            all.iter().find(is_echo).expect("it is listed").check(&move || fabric.clone());
        }
    }
}
