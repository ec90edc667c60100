//! Which values a configuration accepts, for every key and every check across keys.

use rpcrdma_config::{
    Config, ConfigError, Cores, DeviceLimits, Exposure, IdlePolicy, Lock, Pages, ProviderKind, Raw,
    ReplyChunkUse, RnrTimer, VersionChoice, Who,
};
use std::time::Duration;

/// The message of the error that `text` must give.
fn refusal(text: &str) -> String {
    match Config::parse(text) {
        Ok(_) => panic!("was accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

/// The default configuration with one change.
fn with(change: impl FnOnce(&mut Raw)) -> Result<Config, ConfigError> {
    let mut raw = Raw::default();
    change(&mut raw);
    Config::try_from(raw)
}

/// The key to blame and the message for a change that must be refused.
fn blame(change: impl FnOnce(&mut Raw)) -> (String, String) {
    let error = with(change).expect_err("the change must be refused");
    (error.key().expect("a key is to blame").to_owned(), error.to_string())
}

/// `key` has a range: both ends are accepted, their neighbours are refused by the name of the key.
fn assert_range(key: &str, smallest: &str, largest: &str, below: &str, above: &str, more: &str) {
    let (section, name) = key.rsplit_once('.').expect("a key has a section");
    for value in [smallest, largest] {
        let text = format!("[{section}]\n{name} = {value}\n{more}");
        Config::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    for value in [below, above] {
        let message = refusal(&format!("[{section}]\n{name} = {value}\n{more}"));
        assert!(message.starts_with(&format!("{key} = ")), "{message}");
        assert!(message.contains("allowed: "), "{message}");
    }
}

#[test]
fn an_empty_file_is_the_profile_laptop() {
    let empty = Config::parse("").expect("nothing has to be written");
    assert_eq!(empty, Config::default());
    assert_eq!(empty, Config::profile("laptop").expect("the profile is there"));
}

#[test]
fn every_profile_passes_and_names_every_key() {
    for (name, text) in rpcrdma_config::PROFILES {
        let config = Config::profile(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        // For 10,000 connections a device has longer queues than the usual one.
        let srq_depth = if name == "storage-large" { 32_767 } else { 8192 };
        let usual = DeviceLimits { recv_sge: 16, srq_depth, message_len: 1 << 30 };
        config.check_device(&usual).unwrap_or_else(|error| panic!("{name}: {error}"));
        for key in rpcrdma_config::keys() {
            let last = key.rsplit('.').next().expect("a key is not empty");
            assert!(text.contains(&format!("{last} = ")), "{name} leaves out {key}");
        }
    }
}

#[test]
fn every_profile_explains_every_section_line() {
    for (name, text) in rpcrdma_config::PROFILES {
        let mut commented = false;
        let mut values = 0;
        for line in text.lines() {
            match line.chars().next() {
                Some('#') => commented = true,
                Some('[') | None => commented = false,
                // A comment covers the values below it up to the next empty line or section.
                Some(_) => {
                    assert!(commented, "{name}: no comment above {line}");
                    values += 1;
                }
            }
        }
        assert!(values > 20, "{name} was not read");
    }
}

#[test]
fn an_unknown_profile_is_refused_with_the_known_names() {
    let message = Config::profile("desktop").expect_err("there is none").to_string();
    assert_eq!(
        message,
        "unknown profile \"desktop\"; allowed: latency, storage, storage-large, laptop"
    );
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_its_line() {
    let message = refusal("[engine]\nshards = 1\nshards = 2\n");
    assert!(message.starts_with("line 3: "), "{message}");
    let message = refusal("[engine\n");
    assert!(message.starts_with("line 1: "), "{message}");
}

#[test]
fn an_unknown_key_is_refused_with_its_path_value_line_and_neighbours() {
    assert_eq!(
        refusal("[receive]\ninline = \"8KiB\"\n\nplacement = { size = \"16KiB\" }\n"),
        "line 4: receive.placement.size = \"16KiB\": unknown key; \
         allowed: align, count, length",
    );
    let message = refusal("[recieve]\n");
    assert!(message.contains("recieve = a table: unknown key"), "{message}");
    assert!(message.contains("receive"), "{message}");
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_its_path_and_line() {
    let cases = [
        ("[engine]\nshards = \"2\"", "line 2: engine.shards = \"2\"; allowed: a whole number"),
        ("[engine]\nshards = 1.5", "line 2: engine.shards = 1.5; allowed: a whole number"),
        ("[engine]\nnuma_bind = 1", "line 2: engine.numa_bind = 1; allowed: true or false"),
        ("[engine]\nidle = \"spin\"", "line 2: engine.idle = \"spin\"; allowed: a table"),
        ("engine = 3", "line 1: engine = 3; allowed: a table"),
        ("[engine]\ncores = [1, 2]", "line 2: engine.cores = an array; allowed: text in quotes"),
        (
            "[connections]\nallow = \"10.0.0.0/8\"",
            "line 2: connections.allow = \"10.0.0.0/8\"; allowed: a list of texts in quotes",
        ),
        (
            "[connections]\ndeny = [\n\"uid:0\",\n1000]",
            "line 4: connections.deny = 1000; allowed: a list of texts in quotes",
        ),
        (
            "[send]\nslots = 99999999999999999999",
            "line 2: send.slots = 99999999999999999999; allowed: a whole number of at most 63 bits",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refusal(text), message);
    }
}

#[test]
fn a_bare_number_where_a_unit_belongs_is_refused_by_key() {
    assert_eq!(
        refusal("[receive]\ninline = 4096"),
        "receive.inline = \"4096\"; allowed: 1KiB to 4MiB, a whole number with its unit B, KiB, \
         MiB or GiB (the unit is missing or unknown)",
    );
    assert_eq!(
        refusal("[fabric]\ndelay = \"2µs\""),
        "fabric.delay = \"2µs\"; allowed: 0ns to 1s, a whole number with its unit ns, us, ms, s, \
         min or h (the unit is missing or unknown)",
    );
    let huge = refusal("[app]\nbulk = { length = \"99999999999999GiB\" }");
    assert!(huge.contains("(too large)"), "{huge}");
}

#[test]
fn lengths_have_ranges() {
    assert_range("receive.inline", "\"1KiB\"", "\"3MiB\"", "\"1023B\"", "\"4097KiB\"", "");
    let alone = "placement = { count = 0 }\n[protocol]\nversion = \"one\"";
    assert_range("receive.inline", "\"1KiB\"", "\"4MiB\"", "\"1020B\"", "\"4194308B\"", alone);
    assert_range(
        "receive.placement.length",
        "\"4KiB\"",
        "\"1020KiB\"",
        "\"0B\"",
        "\"4194308B\"",
        "",
    );
    assert_range("receive.placement.align", "\"4B\"", "\"16KiB\"", "\"2B\"", "\"4MiB\"", "");
    assert_range("send.length", "\"1KiB\"", "\"4MiB\"", "\"1023B\"", "\"5MiB\"", "");
    assert_range("send.zero", "\"4KiB\"", "\"1MiB\"", "\"4095B\"", "\"2MiB\"", "");
    assert_range("explicit.buffers.length", "\"4KiB\"", "\"1GiB\"", "\"4095B\"", "\"2GiB\"", "");
    assert_range("app.bulk.length", "\"4KiB\"", "\"1GiB\"", "\"4095B\"", "\"2GiB\"", "");
    assert_range("connections.rpc_len_max", "\"1KiB\"", "\"1GiB\"", "\"1023B\"", "\"4GiB\"", "");
    let (key, _) = blame(|raw| raw.send.inline_max = "1025B".into());
    assert_eq!(key, "send.inline_max");
    with(|raw| raw.send.inline_max = "0B".into()).expect("no copying is allowed");
}

#[test]
fn counts_have_ranges() {
    assert_range("engine.shards", "1", "1024", "0", "1025", "");
    assert_range("receive.placement.count", "0", "63", "-1", "64", "");
    assert_range("receive.spares", "0", "65536", "-1", "65537", "");
    assert_range("connections.max", "1", "2043", "0", "16385", "");
    assert_range("connections.max_per_peer", "0", "65536", "-1", "65537", "");
    assert_range("connections.credits", "16", "1024", "0", "1025", "");
    let single = "call_transmissions_max = 1";
    assert_range("connections.credits_requested", "1", "1024", "0", "1025", single);
    assert_range("connections.calls_max", "0", "65000", "-1", "65537", "");
    let credits = "credits = 64\ncredits_requested = 64";
    for key in ["call", "reply", "request", "response"] {
        let key = format!("connections.{key}_transmissions_max");
        assert_range(&key, "1", "64", "0", "65", credits);
    }
    assert_range("fabric.ring_slots", "16", "65536", "8", "131072", "");
    assert_range("shm.ring_slots", "16", "16384", "8", "32768", "");
    assert_range("shm.staging", "\"64KiB\"", "\"1GiB\"", "\"32KiB\"", "\"2GiB\"", "");
    assert_range("tcp.message_len", "\"64KiB\"", "\"1GiB\"", "\"32KiB\"", "\"2GiB\"", "");
    assert_range("connections.rnr_retry", "0", "7", "-1", "8", "");
    assert_range("verbs.port", "1", "254", "0", "255", "");
    assert_range("verbs.gid", "0", "255", "-1", "256", "");
    assert_range("verbs.inline", "\"0B\"", "\"1KiB\"", "\"-1B\"", "\"1025B\"", "");
    assert_range("verbs.reads", "1", "255", "0", "256", "");
    assert_range("verbs.retry_count", "0", "7", "-1", "8", "");
    assert_range("verbs.ack_timeout", "1", "31", "0", "32", "");
    assert_range("verbs.traffic_class", "0", "255", "-1", "256", "");
    assert_range("verbs.backlog", "1", "4096", "0", "4097", "");
    assert_range("verbs.attempts", "1", "1000", "0", "1001", "");
    assert_range("app.bulk.count", "0", "65536", "-1", "65537", "");
    assert_range("stats.sample", "0", "1024", "-1", "1025", "");
    assert_range("send.signal_every", "1", "128", "0", "1025", "");
    assert_range("send.slots", "128", "65536", "1", "65537", "");
    assert_range("receive.buffers", "352", "65536", "0", "65537", "");
    assert_range("explicit.windows", "0", "65536", "-1", "65537", "");
    assert_range("explicit.fetches", "0", "65536", "-1", "65537", "");
    assert_range("explicit.buffers.count", "0", "65536", "-1", "65537", "");
    assert_range("interop.read_chunks_max", "1", "64", "0", "65", "");
    assert_range("interop.write_chunks_max", "1", "64", "0", "65", "");
    assert_range("interop.segments_max", "1", "256", "0", "257", "");
}

#[test]
fn durations_have_ranges() {
    assert_range("engine.idle.spin", "\"0us\"", "\"60s\"", "\"61s\"", "\"-1s\"", "");
    assert_range("send.hold", "\"0us\"", "\"10ms\"", "\"10001us\"", "\"1s\"", "");
    assert_range("fabric.delay", "\"0ns\"", "\"1s\"", "\"1001ms\"", "\"2s\"", "");
    for key in ["resolve_timeout", "answer_timeout"] {
        assert_range(&format!("verbs.{key}"), "\"1ms\"", "\"1min\"", "\"999us\"", "\"61s\"", "");
    }
    let key = "verbs.pause";
    assert_range(key, "\"1ms\"", "\"1min\"", "\"999us\"", "\"61s\"", "pause_max = \"1min\"");
    assert_range("verbs.pause_max", "\"20ms\"", "\"1min\"", "\"19ms\"", "\"61s\"", "");
    for key in ["group", "connect", "stop"] {
        let key = format!("connections.{key}_timeout");
        assert_range(&key, "\"1ms\"", "\"3600s\"", "\"999us\"", "\"3601s\"", "");
    }
    let key = "protocol.negotiation_timeout";
    assert_range(key, "\"1ms\"", "\"1h\"", "\"0s\"", "\"61min\"", "");
    let key = "protocol.version_memory";
    assert_range(key, "\"0s\"", "\"1440min\"", "\"-1s\"", "\"1441min\"", "");
    for key in ["call", "send"] {
        let key = format!("connections.{key}_timeout");
        assert_range(&key, "\"1ms\"", "\"1h\"", "\"999us\"", "\"61min\"", "");
    }
    let key = "connections.idle_timeout";
    assert_range(key, "\"1ms\"", "\"1440min\"", "\"999us\"", "\"1441min\"", "");
}

#[test]
fn call_timeouts_may_be_zero_or_in_range() {
    let owed = |text: &str| {
        let config = with(|raw| raw.connections.call_timeout = text.into());
        config.map(|config| config.connections().call_timeout)
    };
    assert_eq!(owed("0s").expect("for ever"), None);
    assert_eq!(owed("0ms").expect("for ever, in another unit"), None);
    assert_eq!(owed("10s").expect("for some time"), Some(Duration::from_secs(10)));
    assert_eq!(
        owed("2us").expect_err("shorter than any answer").to_string(),
        "connections.call_timeout = 2us; allowed: 0s, 1ms to 1h",
    );
    // A nought without a unit is no duration.
    assert_eq!(owed("0").expect_err("no unit").key(), Some("connections.call_timeout"));
}

#[test]
fn unknown_words_are_refused_with_the_allowed_ones() {
    let config = Config::parse(
        "[engine]\nprovider = \"verbs\"\nidle = { policy = \"backoff\" }\n[memory]\npages = \"1G\"",
    )
    .expect("all words are known");
    assert_eq!(config.engine().provider, ProviderKind::Verbs);
    assert_eq!(config.engine().idle.policy, IdlePolicy::Backoff);
    assert_eq!((config.memory().pages, config.memory().smaller_pages), (Pages::OneGiB, false));
    let config = Config::parse("[memory]\npages = \"try-2M\"\nlock = true").expect("words");
    assert_eq!((config.memory().pages, config.memory().smaller_pages), (Pages::TwoMiB, true));
    assert_eq!(config.memory().lock, Lock::Always);
    assert_eq!(
        refusal("[memory]\npages = \"2MiB\""),
        "memory.pages = \"2MiB\"; allowed: \"1G\", \"try-1G\", \"2M\", \"try-2M\", \"transparent\", \"4K\"",
    );
    assert_eq!(
        refusal("[memory]\nlock = \"yes\""),
        "memory.lock = \"yes\"; allowed: \"true\", \"false\", \"try\"",
    );
    assert_eq!(
        refusal("[engine]\nprovider = true"),
        "engine.provider = \"true\"; allowed: \"auto\", \"fabric\", \"shm\", \"tcp\", \"verbs\"",
    );
    assert_eq!(
        refusal("[engine.idle]\npolicy = \"sleep\""),
        "engine.idle.policy = \"sleep\"; allowed: \"spin\", \"backoff\", \"block\"",
    );
}

#[test]
fn a_device_is_chosen_by_name_or_by_address() {
    let config =
        Config::parse("[verbs]\ndevice = \"mlx5_0\"\naddress = \"fd00::1\"").expect("both");
    assert_eq!(config.verbs().device.as_deref(), Some("mlx5_0"));
    assert_eq!(config.verbs().address, Some("fd00::1".parse().expect("an address")));
    let config = Config::default();
    assert_eq!((&config.verbs().device, config.verbs().address), (&None, None));
    assert_eq!(
        refusal("[verbs]\naddress = \"10.0.0.1:20049\""),
        "verbs.address = \"10.0.0.1:20049\"; allowed: \"auto\", or an IPv4 or IPv6 address of one \
         device without a port",
    );
    for address in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "", "localhost"] {
        let message = refusal(&format!("[verbs]\naddress = \"{address}\""));
        assert!(message.starts_with("verbs.address = "), "{message}");
    }
    let longest = "x".repeat(63);
    let config =
        with(|raw| raw.verbs.device = longest.as_str().into()).expect("as long as it goes");
    assert_eq!(config.verbs().device, Some(longest));
    for device in ["", "a/b", "a b", "\u{fc}", &"x".repeat(64)] {
        let (key, message) = blame(|raw| raw.verbs.device = device.into());
        assert_eq!(key, "verbs.device", "{message}");
    }
}

#[test]
fn a_peer_waits_for_one_of_32_times() {
    let all: Vec<_> = RnrTimer::all().collect();
    assert_eq!(all.len(), 32);
    assert!(all.windows(2).all(|pair| pair[0].span() < pair[1].span()), "shortest first");
    let code = |text: &str| {
        let config = with(|raw| raw.verbs.rnr_timer = text.into());
        config.map(|config| config.verbs().rnr_timer.code())
    };
    // InfiniBand, table 45.
    for (text, expected) in [
        ("10us", 1),
        ("20us", 2),
        ("30us", 3),
        ("120us", 7),
        ("640us", 12),
        ("1920us", 15),
        ("491520us", 31),
        ("655360us", 0),
    ] {
        assert_eq!(code(text).expect(text), expected, "{text}");
    }
    for text in ["0us", "9us", "50us", "655361us", "10"] {
        let message = code(text).expect_err(text).to_string();
        assert!(message.starts_with("verbs.rnr_timer = "), "{message}");
        assert!(message.contains("\"10us\", \"20us\", \"30us\""), "{message}");
    }
}

#[test]
fn versions_exposures_and_uses_have_names() {
    let version = |word: &str| {
        with(|raw| raw.protocol.version = word.into()).map(|config| config.protocol().version)
    };
    assert_eq!(version("auto").expect("a word"), VersionChoice::Auto);
    assert_eq!(version("one").expect("a word"), VersionChoice::One);
    assert_eq!(version("two").expect("a word"), VersionChoice::Two);
    assert_eq!(
        version("2").expect_err("a number").to_string(),
        "protocol.version = \"2\"; allowed: \"auto\", \"one\", \"two\"",
    );
    let exposure = |word: &str| {
        with(|raw| raw.explicit.exposure = word.into()).map(|config| config.explicit().exposure)
    };
    assert_eq!(exposure("auto").expect("a word"), Exposure::Auto);
    assert_eq!(exposure("windows").expect("a word"), Exposure::Windows);
    assert_eq!(exposure("registration").expect("a word"), Exposure::Registration);
    assert_eq!(exposure("static-insecure").expect("a word"), Exposure::StaticInsecure);
    let refused = exposure("static").expect_err("it has to be called what it is").to_string();
    assert!(refused.ends_with("\"registration\", \"static-insecure\""), "{refused}");
    let used = |word: &str| {
        with(|raw| raw.interop.reply_chunk = word.into()).map(|config| config.interop().reply_chunk)
    };
    assert_eq!(used("when-needed").expect("a word"), ReplyChunkUse::WhenNeeded);
    assert_eq!(used("always").expect("a word"), ReplyChunkUse::Always);
    assert_eq!(
        used("never").expect_err("that is to refuse replies").to_string(),
        "interop.reply_chunk = \"never\"; allowed: \"when-needed\", \"always\"",
    );
}

#[test]
fn interop_keys_reach_the_configuration() {
    let config = Config::parse(
        "[interop]\nread_chunk_last = true\nlong_call_with_chunks = true\n\
         write_chunk_padding = true\nlinks_in_line = true\n\
         write_with_reply = true\nremote_invalidation = false\nsegments_max = 1\n",
    )
    .expect("all keys are known");
    let (given, default) = (config.interop(), Config::default());
    assert!(given.read_chunk_last && given.long_call_with_chunks && given.write_with_reply);
    assert!(!given.remote_invalidation && given.write_chunk_padding && given.links_in_line);
    assert_eq!((given.read_chunks_max.value(), given.segments_max.value()), (1, 1));
    let default = default.interop();
    assert!(!default.read_chunk_last && !default.long_call_with_chunks);
    assert!(!default.write_with_reply && default.remote_invalidation);
    assert!(!default.write_chunk_padding && !default.links_in_line);
    assert_eq!(default.write_chunks_max.value(), 1);
    assert_eq!(default.segments_max.value(), 16);
}

#[test]
fn derived_windows_follow_the_calls_up_to_all_there_may_be() {
    let derived = |calls: i64| {
        let config = with(|raw| {
            raw.connections.calls_max = calls;
            raw.connections.reply_transmissions_max = 1;
        });
        config.expect("any number of calls").explicit().windows.value()
    };
    assert_eq!(derived(64), 256);
    assert_eq!(derived(0), 0);
    assert_eq!(derived(16_384), 65_536);
    assert_eq!(derived(16_385), 65_536);
}

#[test]
fn exposure_by_windows_needs_a_window() {
    let none = |raw: &mut Raw| {
        raw.explicit.exposure = "windows".into();
        raw.explicit.windows = 0.into();
    };
    let (key, message) = blame(none);
    assert_eq!(key, "explicit.windows");
    assert!(message.ends_with("allowed: 1 or more"), "{message}");
    with(|raw| {
        none(raw);
        raw.explicit.windows = 1.into();
    })
    .expect("one is enough");
    with(|raw| {
        none(raw);
        raw.explicit.enabled = false;
    })
    .expect("no memory is exposed");
    with(|raw| {
        none(raw);
        raw.connections.calls_max = 0;
    })
    .expect("no own calls");
    with(|raw| raw.explicit.windows = 0.into()).expect("there are registrations");
}

#[test]
fn alignment_must_be_a_power_of_two() {
    let (key, message) = blame(|raw| raw.receive.placement.align = "3KiB".into());
    assert_eq!(key, "receive.placement.align");
    assert!(message.ends_with("allowed: a power of two from 4B to 2MiB"), "{message}");
    let (key, _) = blame(|raw| raw.fabric.ring_slots = 100);
    assert_eq!(key, "fabric.ring_slots");
}

#[test]
fn lengths_on_the_wire_must_be_multiples_of_four() {
    let (key, message) = blame(|raw| raw.receive.inline = "1026B".into());
    assert_eq!(key, "receive.inline");
    assert!(message.contains("a multiple of 4B"), "{message}");
    with(|raw| raw.receive.inline = "1028B".into()).expect("257 words");
}

#[test]
fn placement_segments_must_pack() {
    let (key, message) = blame(|raw| raw.receive.placement.length = "6KiB".into());
    assert_eq!(key, "receive.placement.length");
    assert!(message.contains("a multiple of receive.placement.align 4KiB"), "{message}");
    with(|raw| {
        raw.receive.placement.length = "6KiB".into();
        raw.receive.placement.align = "2KiB".into();
    })
    .expect("three times the alignment");
    with(|raw| {
        raw.receive.placement.length = "6KiB".into();
        raw.receive.placement.count = 0;
    })
    .expect("there are no segments to pack");
}

#[test]
fn a_receive_buffer_ends_at_four_mebibytes() {
    let fill = |inline: &str| {
        with(|raw| {
            raw.receive.inline = inline.into();
            raw.receive.placement.count = 1;
            raw.receive.placement.length = "4092KiB".into();
        })
    };
    let full = fill("4KiB").expect("exactly 4 MiB");
    assert_eq!(full.recv_structure().total_len(), 4 << 20);
    let error = fill("4100B").expect_err("four bytes more");
    assert_eq!(error.key(), Some("receive.placement.count"));
}

#[test]
fn the_structure_is_the_leading_segment_and_the_placement_segments() {
    let config = Config::default();
    let structure = config.recv_structure();
    assert_eq!(structure.leading_len(), 4096);
    assert_eq!(structure.segment_count(), 5);
    assert_eq!(structure.total_len(), 4096 + 4 * 16_384);
    let plain = with(|raw| raw.receive.placement.count = 0).expect("placement is not a must");
    assert_eq!(plain.recv_structure().segment_count(), 1);
    assert_eq!(plain.recv_structure().total_len(), 4096);
    let off = with(|raw| raw.features.placement = false).expect("a feature is not a must");
    assert_eq!(off.recv_structure(), plain.recv_structure(), "segments would be placed into");
    let most = with(|raw| raw.receive.placement.count = 63).expect("64 segments");
    assert_eq!(most.recv_structure().segment_count(), 64);
}

#[test]
fn receives_cover_grants_control_and_replies_and_one_less_is_refused() {
    // 100 connections have one credit each, 64 control messages, 64 replies.
    let sum = |buffers: u32| {
        with(|raw| {
            raw.connections.max = 100;
            raw.receive.buffers = buffers.into();
        })
    };
    let exact = sum(228).expect("100 + 64 + 64");
    assert_eq!(exact.control_reserve(), 64);
    assert_eq!(exact.receive().replies.value(), 64);
    assert_eq!(exact.grants_max(), 100);
    let error = sum(227).expect_err("a grant would be without a Receive");
    assert_eq!(error.key(), Some("receive.buffers"));
    assert_eq!(
        error.to_string(),
        "receive.buffers = 227: one credit for each of connections.max 100, or connections.credits 32 \
         for a single one, 64 for control messages and 64 for replies; allowed: 228 or more",
    );
}

#[test]
fn a_single_connection_can_have_all_its_credits() {
    // One connection: 200 credits, 4 control messages, 64 replies.
    let sum = |buffers: u32| {
        with(|raw| {
            raw.connections.max = 1;
            raw.connections.credits = 200;
            raw.receive.buffers = buffers.into();
        })
    };
    assert_eq!(sum(268).expect("200 + 4 + 64").grants_max(), 200);
    assert_eq!(sum(267).expect_err("one less").key(), Some("receive.buffers"));
}

#[test]
fn derived_receives_give_every_connection_its_credits() {
    let config = Config::default();
    assert_eq!(config.receive().buffers.value(), 8 * 32 + 32 + 64);
    assert_eq!(config.grants_max(), 8 * 32);
    let (key, message) = blame(|raw| raw.connections.max = 16_384);
    assert_eq!(key, "receive.buffers");
    assert!(message.contains("524416"), "{message}");
}

#[test]
fn derived_replies_follow_calls_and_the_longest_reply() {
    let replies = |calls: i64, longest: i64| {
        let config = with(|raw| {
            raw.connections.calls_max = calls;
            raw.connections.reply_transmissions_max = longest;
        });
        config.expect("the sums come out").receive().replies.value()
    };
    assert_eq!(replies(0, 16), 0);
    assert_eq!(replies(1, 16), 16);
    assert_eq!(replies(2, 16), 32);
    assert_eq!(replies(8, 16), 64);
    assert_eq!(replies(1000, 16), 1000);
    assert_eq!(replies(64, 1), 64);
}

#[test]
fn replies_cover_every_call_and_the_longest_reply() {
    let given = |replies: u32, calls: i64, longest: i64| {
        with(|raw| {
            raw.receive.replies = replies.into();
            raw.connections.calls_max = calls;
            raw.connections.reply_transmissions_max = longest;
        })
    };
    given(40, 40, 16).expect("one each");
    assert_eq!(given(39, 40, 16).expect_err("one short").key(), Some("receive.replies"));
    given(16, 1, 16).expect("one of the longest");
    assert_eq!(given(15, 1, 16).expect_err("one short").key(), Some("receive.replies"));
    given(0, 0, 16).expect("who does not call gets no reply");
}

#[test]
fn a_request_never_costs_more_than_the_credits() {
    let given = |group: i64, credits: i64| {
        with(|raw| {
            raw.connections.request_transmissions_max = group;
            raw.connections.credits = credits;
        })
    };
    given(32, 32).expect("all credits for one request");
    let error = given(33, 32).expect_err("one more");
    assert_eq!(error.key(), Some("connections.request_transmissions_max"));
}

#[test]
fn send_slots_cover_a_reply_and_twice_the_unsignalled() {
    let given = |slots: i64, signal: i64, group: i64| {
        with(|raw| {
            raw.send.slots = slots;
            raw.send.signal_every = signal;
            raw.connections.response_transmissions_max = group;
        })
    };
    given(32, 16, 32).expect("exactly");
    assert_eq!(given(32, 17, 32).expect_err("over").key(), Some("send.signal_every"));
    let error = given(32, 16, 33).expect_err("over");
    assert_eq!(error.key(), Some("connections.response_transmissions_max"));
}

#[test]
fn a_call_never_costs_more_than_the_credits_asked_for_or_the_slots() {
    let given = |group: i64, credits: i64, slots: i64| {
        with(|raw| {
            raw.connections.call_transmissions_max = group;
            raw.connections.credits_requested = credits;
            raw.connections.response_transmissions_max = 1;
            raw.send.slots = slots;
            raw.send.signal_every = 1;
        })
    };
    given(20, 20, 20).expect("exactly");
    let key = Some("connections.call_transmissions_max");
    assert_eq!(given(21, 20, 21).expect_err("credits are short").key(), key);
    assert_eq!(given(21, 21, 20).expect_err("slots are short").key(), key);
}

#[test]
fn features_require_properties() {
    let alone = "[features]\nproperties = false\nplacement = false\ncontinuation = false\n";
    for key in ["placement", "continuation"] {
        let on = alone.replace(&format!("{key} = false"), &format!("{key} = true"));
        let message = refusal(&on);
        assert!(message.starts_with(&format!("features.{key} = true")), "{message}");
    }
    Config::parse(alone).expect("the base protocol alone");
}

#[test]
fn in_version_two_a_buffer_has_the_default_size_at_least() {
    let given = |inline: &str, properties: bool, version: &str| {
        with(|raw| {
            raw.features.properties = properties;
            raw.features.placement = false;
            raw.features.continuation = false;
            raw.protocol.version = version.into();
            raw.receive.inline = inline.into();
            raw.receive.placement.count = 0;
        })
    };
    for properties in [false, true] {
        given("4KiB", properties, "auto").expect("the default size");
        for version in ["auto", "two"] {
            let error = given("4092B", properties, version).expect_err("too short");
            assert_eq!(error.key(), Some("receive.inline"));
        }
        given("1KiB", properties, "one").expect("version one has shorter ones");
    }
    // All segments count.
    let placed = |len: &str| {
        with(|raw| {
            raw.receive.inline = "2KiB".into();
            raw.receive.placement.count = 1;
            raw.receive.placement.length = len.into();
            raw.receive.placement.align = "4B".into();
        })
    };
    placed("2KiB").expect("4 KiB in all");
    assert_eq!(placed("2044B").expect_err("too short").key(), Some("receive.inline"));
}

#[test]
fn cores_must_be_there_and_enough() {
    let config = with(|raw| raw.engine.cores = "2-3".into()).expect("a good list");
    assert_eq!(config.engine().cores, Cores::List(vec![2, 3]));
    config.check_cores(&[0, 1, 2, 3]).expect("both are there");
    let error = config.check_cores(&[0, 1, 2]).expect_err("core 3 is not there");
    assert_eq!(
        error.to_string(),
        "engine.cores = 2-3: this machine has no core 3; allowed: cores of 0-2",
    );
    let (key, _) = blame(|raw| {
        raw.engine.cores = "2-3".into();
        raw.engine.shards = 3;
    });
    assert_eq!(key, "engine.shards");
    let (key, message) = blame(|raw| raw.engine.cores = "3-2".into());
    assert_eq!(key, "engine.cores");
    assert!(message.contains("\"3-2\""), "{message}");
}

#[test]
fn only_shards_that_do_not_spin_share_a_core() {
    let three_shards = |policy: &str| {
        with(|raw| {
            raw.engine.shards = 3;
            raw.engine.idle.policy = policy.into();
        })
        .expect("how many cores there are is not known yet")
    };
    three_shards("block").check_cores(&[0, 1]).expect("they take turns");
    three_shards("backoff").check_cores(&[0, 1]).expect("they take turns");
    three_shards("spin").check_cores(&[0, 1, 2]).expect("one each");
    let error = three_shards("spin").check_cores(&[0, 1]).expect_err("three spin on two");
    assert_eq!(error.key(), Some("engine.shards"));
}

#[test]
fn a_device_limits_segments_receives_and_messages() {
    let config = Config::default();
    let enough = DeviceLimits { recv_sge: 5, srq_depth: 352, message_len: 69_632 };
    config.check_device(&enough).expect("exactly enough");
    let error =
        config.check_device(&DeviceLimits { recv_sge: 4, ..enough }).expect_err("one short");
    assert_eq!(
        error.to_string(),
        "receive.placement.count = 4: a Receive has 5 scatter entries, with the leading segment; \
         allowed: at most 3 on this device",
    );
    let error =
        config.check_device(&DeviceLimits { srq_depth: 351, ..enough }).expect_err("one short");
    assert_eq!(error.key(), Some("receive.buffers"));
    let short = DeviceLimits { message_len: 69_631, ..enough };
    let error = config.check_device(&short).expect_err("one short");
    assert_eq!(error.key(), Some("receive.placement.length"));
}

#[test]
fn the_memory_of_a_shard_is_the_sum_of_its_pools() {
    let config = Config::default();
    let receives = 352 * (4096 + 4 * 16_384);
    let sends = 256 * 8192 + 65_536;
    assert_eq!(config.shard_memory_len(), receives + 64 * 16_384 + sends + 24 * (1 << 20));
    let plain = with(|raw| raw.receive.placement.count = 0).expect("no placement");
    assert_eq!(plain.shard_memory_len(), 352 * 4096 + sends + 24 * (1 << 20));
    let closed = with(|raw| raw.explicit.enabled = false).expect("nothing is exposed");
    assert_eq!(closed.shard_memory_len(), config.shard_memory_len() - 8 * (1 << 20));
}

#[test]
fn who_may_connect_is_two_lists() {
    let host = |text: &str| Who::Host(text.parse().expect("an address"));
    let text = "[connections]\nallow = [\"10.0.0.0/8\", \"uid:1000\"]\ndeny = [\"10.0.0.1\"]";
    let config = Config::parse(text).expect("both lists are valid");
    let access = &config.connections().access;
    assert!(access.permits(host("10.0.0.2")) && !access.permits(host("10.0.0.1")));
    assert!(access.permits(Who::Process { uid: 1000, gid: 1 }));
    assert!(!access.permits(Who::Process { uid: 1, gid: 1000 }));
    let (key, message) = blame(|raw| raw.connections.allow = vec!["10.0.0.1/8".to_owned()]);
    assert_eq!(key, "connections.allow");
    assert!(message.contains("\"10.0.0.0/8\", the network"), "{message}");
}

#[test]
fn a_changed_configuration_is_checked_again() {
    let config = Config::profile("storage").expect("the profile is there");
    let mut raw = config.raw().clone();
    raw.receive.placement.count = 8;
    let changed = Config::try_from(raw.clone()).expect("the change is fine");
    assert_eq!(changed.receive().placement.count.value(), 8);
    raw.receive.placement.count = 64;
    assert!(Config::try_from(raw).is_err());
}

#[test]
fn a_file_is_read_and_its_errors_name_it() {
    let folder = std::env::temp_dir().join(format!("rpcrdma-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let path = folder.join("server.toml");
    std::fs::write(&path, "[engine]\nshards = 2\n").expect("a temporary file");
    assert_eq!(Config::load(&path).expect("a good file").engine().shards.value(), 2);
    std::fs::write(&path, "[engine]\nshards = 0\n").expect("a temporary file");
    let error = Config::load(&path).expect_err("a bad file");
    assert_eq!(error.key(), Some("engine.shards"));
    assert!(error.to_string().contains("server.toml: engine.shards = 0"), "{error}");
    let absent = Config::load(folder.join("absent.toml")).expect_err("no file");
    assert!(matches!(absent, ConfigError::Read { .. }), "{absent}");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

#[test]
fn a_file_of_a_program_is_over_its_values_and_has_its_table() {
    let folder = std::env::temp_dir().join(format!("rpcrdma-config-over-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let path = folder.join("server.toml");
    let base = with(|raw| (raw.engine.shards, raw.connections.max) = (2, 3)).expect("sound");
    let text = "[own]\na = 1\nb = true\nc = \"x\"\n[connections]\nmax = 5\nallow = [\"uid:7\"]";
    std::fs::write(&path, text).expect("a temporary file");
    let (config, own) = base.load_over(&path, "own").expect("a good file");
    let own: Vec<_> = own.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(own, [("a", "1"), ("b", "true"), ("c", "x")]);
    assert_eq!((config.engine().shards.value(), config.connections().max.value()), (2, 5));
    assert_eq!(config.raw().connections.allow, ["uid:7"]);
    assert_eq!(config.raw().receive, base.raw().receive);
    let error = base.load_over(&path, "other").expect_err("a table of no program");
    assert!(error.to_string().contains("line 1: own = a table: unknown key"), "{error}");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

#[test]
fn every_key_has_a_value_as_a_file_has_it() {
    let config = with(|raw| {
        raw.send.slots = 500;
        raw.connections.deny = ["10.0.0.0/8", "uid:7"].map(String::from).into();
    });
    let config = config.expect("within the range");
    for (key, value) in [
        ("send.slots", "500"),
        ("memory.prefault", "true"),
        ("engine.idle.policy", "\"block\""),
        ("explicit.buffers.count", "16"),
        ("connections.deny", "[\"10.0.0.0/8\", \"uid:7\"]"),
    ] {
        assert_eq!(config.value_of(key).as_deref(), Some(value));
    }
    assert!(rpcrdma_config::keys().iter().all(|key| config.value_of(key).is_some()));
    for other in ["send", "send.slots.more", "send.slot", "receive.placement", "", "."] {
        assert_eq!(config.value_of(other), None, "{other}");
    }
}
