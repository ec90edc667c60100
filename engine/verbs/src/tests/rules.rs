//! The rules of a device that the fake libraries let through: private data, and Sends that
//! find a Receive. The others are the device's own, as are its limits.

use rpcrdma_conformance::subject::{Options, Subject};
use rpcrdma_provider::{Address, SetupError};

use crate::Verbs;
use crate::fake::Fake;

impl Subject for Verbs {
    fn made(_: &Options) -> Result<Verbs, SetupError> {
        Fake::wired().open()
    }

    fn address() -> Address {
        "192.0.2.1:20049".parse().expect("an address")
    }

    /// The fake listener receives requests to any address.
    fn nowhere() -> Address {
        Verbs::address()
    }
}

rpcrdma_conformance::some_rules! {
    Verbs:
    connections {
        private_data_go_both_ways,
    }
    messages {
        messages_meet_receives_in_the_order_of_posting,
        an_unsignaled_send_completes_silently,
        a_long_message_is_gathered_from_and_scattered_to_its_lists_in_order,
        an_inline_send_needs_no_key,
        a_poll_appends_no_more_than_there_is_room_for,
        queues_connected_to_themselves_carry_messages_both_ways,
    }
}
