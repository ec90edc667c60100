//! The API suite: what every provider must let an engine do, written once.
//!
//! Each scenario is a function of the means to open the device; [`api_suite`](crate::api_suite)
//! makes a test of each.

pub mod inline;

/// Makes a test of every scenario. `$open` makes, for each test, a closure that opens a device.
#[macro_export]
macro_rules! api_suite {
    ($open:expr) => {
        $crate::api_suite! { @tests $open;
            inline: every_length_is_echoed, an_empty_call_is_answered, payload_of_many_slots_travels;
        }
    };
    (@tests $open:expr; $($room:ident: $($name:ident),+;)+) => {
        $(mod $room {
            use super::*;
            $(#[test]
            fn $name() {
                $crate::suite::$room::$name(&$open);
            })+
        })+
    };
}
