//! The configuration of the engine for one benchmark.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rpcrdma_config::{Config, ConfigError, Raw};

use crate::args::{DeviceArgs, EngineArgs};
use crate::contenders::blocks::SLACK;
use crate::error::BenchError;
use crate::values::{Idle, Switch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The longest data of a request or of a reply, in bytes.
    pub data_len: usize,
    pub window: u32,
    pub connections: u32,
    /// Whether the data are moved by explicit RDMA, and by nothing else.
    pub by_rdma: bool,
}

impl EngineArgs {
    /// The configuration of these options over this device, with its limits raised to what is
    /// needed.
    pub fn config(
        &self,
        need: Need,
        continuation: Switch,
        device: &DeviceArgs,
    ) -> Result<Config, BenchError> {
        let mut raw = self.raised(need, continuation)?.raw().clone();
        device.name_in(&mut raw);
        Ok(Config::try_from(raw)?)
    }

    /// The same over any device. Without a profile or a file it is `latency` for data of up to a
    /// page, and `storage` cut down to one program for more.
    pub(crate) fn raised(&self, need: Need, continuation: Switch) -> Result<Config, ConfigError> {
        let mut raw = match (&self.config, &self.profile) {
            (Some(path), _) => file(path)?.raw().clone(),
            (None, Some(profile)) => Config::profile(profile)?.raw().clone(),
            (None, None) if need.data_len <= PAGE && !need.by_rdma => {
                Config::profile("latency")?.raw().clone()
            }
            (None, None) => small_storage()?,
        };
        match self.idle {
            Some(idle) => raw.engine.idle.policy = idle.into_str().into(),
            None if self.config.is_none() => {
                raw.engine.idle.policy = Idle::Spin.into_str().into();
            }
            None => {}
        }
        if let Some(hold) = self.hold {
            raw.send.hold = format!("{}ns", hold.as_nanos()).as_str().into();
        }
        raw.features.continuation &= continuation == Switch::On;
        if need.by_rdma {
            explicit_only(&mut raw, need);
        }
        let config = Config::try_from(raw.clone())?;
        raise(&mut raw, &config, need);
        Config::try_from(raw)
    }
}

/// The configuration in a file, which is read once: several parts of a run need it, and it may be a
/// pipe.
pub(crate) fn file(path: &Path) -> Result<Config, ConfigError> {
    static READ: Mutex<BTreeMap<PathBuf, Config>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(config) = read.get(path) {
        return Ok(config.clone());
    }
    let config = Config::load(path)?;
    read.insert(path.to_owned(), config.clone());
    Ok(config)
}

/// The profile `storage` without memory for hundreds of clients.
pub(crate) fn small_storage() -> Result<Raw, ConfigError> {
    let mut raw = Config::profile("storage")?.raw().clone();
    raw.connections.max = 1;
    raw.connections.credits = 8;
    raw.connections.credits_requested = 8;
    raw.connections.calls_max = 8;
    raw.receive.buffers = "auto".into();
    raw.receive.spares = 8;
    // Few pieces for the longest transmission, when a program copies its data into the payload.
    raw.send.length = "64KiB".into();
    raw.send.slots = 128;
    raw.app.bulk.count = 2;
    Ok(raw)
}

/// Leaves explicit RDMA as the only way for data that do not fit a Send, with memory for every call
/// under way.
fn explicit_only(raw: &mut Raw, need: Need) {
    raw.features.placement = false;
    raw.features.continuation = false;
    raw.receive.inline = "4KiB".into();
    raw.receive.placement.count = 0;
    raw.explicit.enabled = true;
    let len = need.data_len.next_multiple_of(PAGE).max(PAGE) as u64;
    // Half of them are for own calls.
    raw.explicit.buffers.count = 2 * i64::from(need.window) + 2;
    raw.explicit.buffers.length = rpcrdma_config::raw::RawText::length(len);
    raise_to(&mut raw.app.bulk.count, i64::from(need.window) + 1);
}

/// Raises limits, and lowers none.
fn raise(raw: &mut Raw, config: &Config, need: Need) {
    let structure = config.recv_structure();
    let room = structure.total_len() - structure.leading_len() + structure.leading_len() / 2;
    let transmissions = if raw.features.continuation {
        need.data_len.div_ceil(room.max(1) as usize).max(1) as i64
    } else {
        1
    };
    let connections = &mut raw.connections;
    let each = i64::from(need.window.div_ceil(need.connections)) * transmissions;
    let all = i64::from(need.window) * transmissions;
    raise_to(&mut connections.max, need.connections.into());
    raise_to(&mut connections.credits, each);
    raise_to(&mut connections.credits_requested, each);
    raise_to(&mut connections.calls_max, need.window.into());
    raise_to(&mut connections.call_transmissions_max, transmissions);
    raise_to(&mut connections.reply_transmissions_max, transmissions);
    raise_to(&mut connections.request_transmissions_max, transmissions);
    raise_to(&mut connections.response_transmissions_max, transmissions);
    raise_length(&mut connections.rpc_len_max, config.connections().rpc_len_max.value(), need);
    let longest = connections.reply_transmissions_max;
    let replies = (connections.calls_max * transmissions).max(4 * longest);
    if transmissions > 1 {
        raw.receive.replies = u32::try_from(replies).unwrap_or(u32::MAX).into();
    }
    let grants = connections.credits.max(connections.max + all);
    let buffers = grants + replies.max(connections.calls_max) + i64::from(CONTROL_MAX);
    if i64::from(config.receive().buffers.value()) < buffers
        && raw.receive.buffers.as_str() != "auto"
    {
        raw.receive.buffers = u32::try_from(buffers).unwrap_or(u32::MAX).into();
    }
    let slot = config.send().payload_len.value().max(1) as usize;
    let slots = (need.data_len + SLACK).div_ceil(slot) as i64 + 1;
    raise_to(&mut raw.send.slots, 2 * i64::from(need.window) * slots);
    raise_to(&mut raw.app.bulk.count, 1);
    raise_length(&mut raw.app.bulk.length, config.app().bulk.len.value(), need);
}

fn raise_to(value: &mut i64, least: i64) {
    *value = (*value).max(least);
}

/// No time limits of connections: for engines that are not polled while others are set up or
/// measured. A shard that comes back would take its peers for dead.
pub(crate) fn patient(raw: &mut Raw) {
    raw.connections.send_timeout = "0s".into();
    raw.connections.idle_timeout = "0s".into();
    raw.connections.connect_timeout = "1h".into();
}

/// A length that must hold the data, their slack, and a page for the headers.
fn raise_length(text: &mut rpcrdma_config::raw::RawText, value: u32, need: Need) {
    let least = (need.data_len + SLACK + PAGE).next_multiple_of(PAGE) as u64;
    if u64::from(value) < least {
        *text = rpcrdma_config::raw::RawText::length(least);
    }
}

const PAGE: usize = 4096;
/// Receives for control messages, at most.
const CONTROL_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use rpcrdma_config::IdlePolicy;

    use super::*;

    fn config(options: &EngineArgs, need: Need) -> Result<Config, ConfigError> {
        options.raised(need, Switch::On)
    }

    fn need(data_len: usize, window: u32, connections: u32) -> Need {
        Need { data_len, window, connections, by_rdma: false }
    }

    #[test]
    fn short_calls_get_the_latency_profile_as_it_is() {
        let config = config(&EngineArgs::default(), need(64, 1, 1)).expect("the profile fits");
        assert_eq!(config, Config::profile("latency").expect("it comes with the engine"));
    }

    #[test]
    fn a_file_that_can_be_read_once_serves_every_part_of_a_run() {
        let (file, mut text) = std::io::pipe().expect("two descriptors");
        write!(text, "send.hold = \"3us\"").expect("there is room");
        drop(text);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let options = EngineArgs { config: Some(path.into()), ..EngineArgs::default() };
        for _ in 0..2 {
            let config = config(&options, need(64, 1, 1)).expect("it fits");
            assert_eq!(config.send().hold, Duration::from_micros(3));
        }
    }

    #[test]
    fn a_named_profile_spins_unless_another_policy_is_requested() {
        let laptop = EngineArgs { profile: Some("laptop".into()), ..EngineArgs::default() };
        let spinning = config(&laptop, need(64, 1, 1)).expect("the profile fits");
        assert_eq!(spinning.engine().idle.policy, IdlePolicy::Spin);
        let blocking = EngineArgs { idle: Some(Idle::Block), ..laptop };
        let blocking = config(&blocking, need(64, 1, 1)).expect("the profile fits");
        assert_eq!(blocking.engine().idle.policy, IdlePolicy::Block);
    }

    #[test]
    fn limits_are_raised_for_any_load_within_reason() {
        for data_len in [0, 64, 4096, 65_536, 1 << 20, 4 << 20] {
            for (window, connections) in [(1, 1), (32, 1), (64, 4), (32, 1024), (1024, 1024)] {
                if data_len * window as usize > 64 << 20 {
                    continue;
                }
                let need = need(data_len, window, connections);
                let config = config(&EngineArgs::default(), need)
                    .unwrap_or_else(|error| panic!("{need:?}: {error}"));
                assert!(config.connections().max.value() >= connections);
                assert!(config.connections().calls_max.value() >= window);
            }
        }
    }

    #[test]
    fn features_are_switched_off_as_requested() {
        let plain = EngineArgs::default().raised(need(64, 1, 1), Switch::Off);
        let plain = plain.expect("the profile fits");
        assert!(!plain.features().continuation);
    }

    #[test]
    fn by_explicit_rdma_no_data_are_placed_by_sends() {
        for data_len in [4096, 65_536, 1 << 20] {
            let need = Need { by_rdma: true, ..need(data_len, 8, 1) };
            let config = config(&EngineArgs::default(), need).expect("it fits");
            assert!(!config.features().placement && !config.features().continuation);
            assert!(config.app().bulk.count.value() > 8, "a result buffer for each call");
        }
    }

    #[test]
    fn a_profile_that_does_not_exist_is_an_error() {
        let wrong = EngineArgs { profile: Some("fast".into()), ..EngineArgs::default() };
        assert!(config(&wrong, need(64, 1, 1)).is_err());
    }
}
