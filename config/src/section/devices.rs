//! The sections about devices: the software fabric, shared memory, iWARP over TCP, and RDMA
//! devices.

use std::net::IpAddr;
use std::time::Duration;

use super::table::section;
use crate::bounded::Bounded;
use crate::check::{self, MINUTE, MS, SECOND, as_it_is};
use crate::choice::RnrTimer;
use crate::error::ConfigError;
use crate::text::RawText;

section! {
    /// The software fabric: `[fabric]`.
    "fabric" FabricSection from RawFabric(raw) {
        /// The delay from sender to receiver; at most 1 s.
        delay: RawText = "0us" => delay: Duration, check::duration::<0, SECOND>;
        /// The maximum of messages in transit on one queue pair, per direction; a power of two.
        ring_slots: i64 = 256 => ring_slots: Bounded<16, 65_536>, check::power_of_two;
    }
}

section! {
    /// Shared memory: `[shm]`.
    "shm" ShmSection from RawShm(raw) {
        /// The maximum of messages in transit on one connection, per direction; a power of two.
        ring_slots: i64 = 128 => ring_slots: Bounded<16, 16_384>, check::power_of_two;
        /// The bytes of messages in transit on one connection, per direction, beyond those in
        /// slots: also the longest message, RDMA Read or RDMA Write. A power of two.
        staging: RawText = "4MiB"
            => staging: Bounded<65_536, 1_073_741_824>, check::power_of_two_length;
        /// Whether peers that do so, too, map this side's pools, read-only.
        map_pools: bool = false => map_pools: bool, as_it_is;
    }
}

section! {
    /// iWARP in user space, over TCP: `[tcp]`.
    "tcp" TcpSection from RawTcp(raw) {
        /// Whether this side asks for checksums (CRC32c); they are checked if either side does.
        crc: bool = false => crc: bool, as_it_is;
        /// The longest message, RDMA Read or RDMA Write in bytes; a power of two.
        message_len: RawText = "4MiB"
            => message_len: Bounded<65_536, 1_073_741_824>, check::power_of_two_length;
    }
}

section! {
    /// RDMA devices: `[verbs]`.
    "verbs" VerbsSection from RawVerbs(raw) {
        /// The device name; `auto` (`None`) is the device with the address, or the first with an
        /// active port.
        device: RawText = "auto" => device: Option<String>, check::name_or_auto;
        /// An address of the device: selects the device, and is the source address of connections;
        /// or `auto` (`None`).
        address: RawText = "auto" => address: Option<IpAddr>, check::address_or_auto;
        /// The number of the port, which must be active, from 1; or `auto` (`None`).
        port: RawText = "auto" => port: Option<Bounded<1, 254>>, check::count_or_auto;
        /// The index of the port's GID whose address is used if `address` is not given; or `auto`
        /// (`None`).
        gid: RawText = "auto" => gid: Option<Bounded<0, 255>>, check::count_or_auto;
        /// The longest inline send of a queue pair, in bytes; the device's own limit applies if it
        /// is lower.
        inline: RawText = "512B" => inline_len: Bounded<0, 1024>, check::length;
        /// The maximum of outstanding RDMA Reads of one connection, in each direction.
        reads: i64 = 16 => reads: Bounded<1, 255>, check::count;
        /// How long a peer waits before it retries a Send without a Receive (RNR timer).
        rnr_timer: RawText = "10us" => rnr_timer: RnrTimer, check::rnr_timer;
        /// How often an unacknowledged request is retried.
        retry_count: i64 = 7 => retry_count: Bounded<0, 7>, check::count;
        /// The acknowledgement timeout: 4.096 us times two to the power of this.
        ack_timeout: i64 = 17 => ack_timeout: Bounded<1, 31>, check::count;
        /// The traffic class of the packets, a byte of their IP header. `auto` (`None`) is the
        /// system's default.
        traffic_class: RawText = "auto" => traffic_class: Option<Bounded<0, 255>>, check::count_or_auto;
        /// The maximum of waiting connection requests of one listener.
        backlog: i64 = 128 => backlog: Bounded<1, 4096>, check::count;
        /// The timeout for resolving an address or a route; 1 ms to 1 min.
        resolve_timeout: RawText = "500ms"
            => resolve_timeout: Duration, check::duration::<MS, MINUTE>;
        /// The timeout for the answer to a connection request; 1 ms to 1 min.
        answer_timeout: RawText = "2s" => answer_timeout: Duration, check::duration::<MS, MINUTE>;
        /// The number of attempts to resolve the address and to connect.
        attempts: i64 = 16 => attempts: Bounded<1, 1000>, check::count;
        /// The pause after the first failed attempt, doubled after each further one; 1 ms to 1 min.
        pause: RawText = "20ms" => pause: Duration, check::duration::<MS, MINUTE>;
    }
    file {
        /// The longest pause between two attempts: a duration.
        pause_max: RawText = "1s";
    }
    fields {
        /// The longest pause between two attempts; `pause` to 1 min.
        pause_max: Duration = pause_max(raw);
    }
}

fn pause_max(raw: &RawVerbs) -> Result<Duration, ConfigError> {
    let pause = check::duration::<MS, MINUTE>("verbs.pause", &raw.pause)?;
    let longest = Duration::from_nanos(MINUTE);
    check::duration_within("verbs.pause_max", &raw.pause_max, pause..=longest)
}
