//! Arbitrary configurations: checking never panics, and accepted values are consistent.

use proptest::prelude::*;
use rpcrdma_config::{Config, DeviceLimits, Raw};

/// Mostly values near a limit, sometimes any at all.
fn count() -> impl Strategy<Value = i64> {
    let near = prop::sample::select(vec![0, 1, 2, 16, 63, 64, 65, 128, 1024, 16_384, 65_536]);
    prop_oneof![4 => near, 2 => 0..2048_i64, 1 => any::<i64>()]
}

/// Lengths in all units, right and wrong ones.
fn length() -> impl Strategy<Value = String> {
    let unit = prop::sample::select(vec!["B", "KiB", "MiB", "GiB", "", "KB"]);
    let number = prop::sample::select(vec![0_u64, 1, 4, 16, 64, 1024, 4096, u64::MAX]);
    (number, unit).prop_map(|(number, unit)| format!("{number}{unit}"))
}

prop_compose! {
    fn raw()(
        counts in prop::collection::vec(count(), 11),
        lengths in prop::collection::vec(length(), 3),
        derived in any::<(bool, bool)>(),
        features in any::<[bool; 3]>(),
    ) -> Raw {
        let mut raw = Raw::default();
        raw.receive.placement.count = counts[0];
        raw.receive.spares = counts[1];
        raw.send.slots = counts[2];
        raw.send.signal_every = counts[3];
        raw.connections.max = counts[4];
        raw.connections.credits = counts[5];
        raw.connections.calls_max = counts[6];
        raw.connections.reply_transmissions_max = counts[7];
        raw.connections.request_transmissions_max = counts[8];
        if derived.0 {
            raw.receive.buffers = counts[9].to_string().into();
        }
        if derived.1 {
            raw.receive.replies = counts[10].to_string().into();
        }
        raw.receive.inline = lengths[0].clone().into();
        raw.receive.placement.length = lengths[1].clone().into();
        raw.receive.placement.align = lengths[2].clone().into();
        [raw.features.properties, raw.features.placement, raw.features.continuation] = features;
        raw
    }
}

/// `raw` with every second value put back to its default, so that more of them are accepted.
fn tamed(mut raw: Raw, keep: u32) -> Raw {
    let default = Raw::default();
    let back = |bit: u32| keep & (1 << bit) == 0;
    if back(0) {
        raw.receive = default.receive;
    }
    if back(1) {
        raw.send = default.send;
    }
    if back(2) {
        raw.connections = default.connections;
    }
    if back(3) {
        raw.features = default.features;
    }
    raw
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..Default::default() })]

    #[test]
    fn accepted_configurations_satisfy_the_sums(raw in raw(), keep in 0..16_u32) {
        let raw = tamed(raw, keep);
        let Ok(config) = Config::try_from(raw.clone()) else { return Ok(()) };
        let (receive, connections) = (config.receive(), config.connections());

        // Every grant has a Receive, for any number of connections; computed independently.
        let control: u64 = (0..connections.max.value()).map(|_| 4).sum::<u64>().min(64);
        let granted = u64::from(receive.buffers.value()) - control
            - u64::from(receive.replies.value());
        prop_assert_eq!(u64::from(config.grants_max()), granted);
        prop_assert!(granted >= u64::from(connections.max.value()));
        prop_assert!(granted >= u64::from(connections.credits.value()));
        prop_assert!(receive.replies.value() >= connections.calls_max.value());

        // The structure is the buffer.
        let structure = config.recv_structure();
        let segments: Vec<_> = structure.segments().collect();
        prop_assert_eq!(segments.len(), 1 + receive.placement.count.as_usize());
        prop_assert_eq!(segments[0].length, receive.inline_len.value());
        prop_assert!(!segments[0].placement);
        prop_assert!(segments[1..].iter().all(|segment| segment.placement));
        let total: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
        prop_assert_eq!(total, u64::from(structure.total_len()));
        prop_assert!(total <= 4 << 20);
        prop_assert!(config.shard_memory_len() >= total * u64::from(receive.buffers.value()));

        // A device that is exactly large enough takes it.
        let exact = DeviceLimits {
            recv_sge: segments.len() as u32,
            srq_depth: receive.buffers.value(),
            message_len: structure.total_len(),
        };
        prop_assert!(config.check_device(&exact).is_ok());
        let short = DeviceLimits { recv_sge: exact.recv_sge - 1, ..exact };
        prop_assert!(config.check_device(&short).is_err());

        // And it is the same when it is checked again.
        prop_assert_eq!(&Config::try_from(raw).expect("it was accepted before"), &config);
    }
}

proptest! {
    // Each case reads every profile twice.
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_damaged_profile_never_panics(at in 0..4096_usize, byte in any::<u8>()) {
        for (_, text) in rpcrdma_config::PROFILES {
            let at = at % text.len();
            if let Some(cut) = text.get(..at) {
                let _ = Config::parse(cut);
            }
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(changed) = String::from_utf8(bytes)
                && let Err(error) = Config::parse(&changed)
            {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
