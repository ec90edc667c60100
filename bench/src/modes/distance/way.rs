//! The ways to transfer the data of a call, and the engine configuration of each.

use std::time::Duration;

use rpcrdma_config::{Config, ConfigError, Raw};
use strum::IntoStaticStr;

use crate::call::{Load, Shape};
use crate::contenders::blocks::SLACK;
use crate::settings::{self, small_storage};
use crate::values::{Idle, Placement, Touch};

#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Way {
    One,
    /// The same, and the client takes its memory back by itself.
    #[strum(serialize = "one, local")]
    OneLocal,
    /// By explicit RDMA in version two, without the extension.
    Two,
    /// By Sends that place, as many as it takes: version two with the extension.
    Sends,
}

impl Way {
    /// All, in the order in which they are measured and shown.
    pub const ALL: [Way; 4] = [Way::One, Way::OneLocal, Way::Two, Way::Sends];

    pub fn meaning(self) -> &'static str {
        match self {
            Way::One => "explicit RDMA, version one, memory taken back by the reply's Send",
            Way::OneLocal => "explicit RDMA, version one, memory taken back by the client",
            Way::Two => "explicit RDMA, version two without the extension",
            Way::Sends => "version two, placed by Sends and continued",
        }
    }

    pub fn is_explicit(self) -> bool {
        self != Way::Sends
    }

    pub fn version(self) -> u32 {
        match self {
            Way::One | Way::OneLocal => 1,
            Way::Two | Way::Sends => 2,
        }
    }

    /// One call after the other of such a shape.
    pub fn load(self, shape: Shape, touch: Touch) -> Load {
        let sinks = u32::from(self.is_explicit() && shape.reply_data > 0);
        Load { shape, placement: Placement::Send, window: 1, connections: 1, touch, sinks }
    }

    /// The engine for calls with data of such a length, over such a distance.
    pub fn config(
        self,
        data_len: usize,
        delay: Duration,
        idle: Idle,
    ) -> Result<Config, ConfigError> {
        let mut raw = small_storage()?;
        // The ways are set up one after the other, and take turns.
        settings::patient(&mut raw);
        raw.engine.idle.policy = idle.into_str().into();
        raw.fabric.delay = format!("{}us", delay.as_micros()).as_str().into();
        raw.connections.calls_max = 2;
        raw.send.length = "4KiB".into();
        let whole = (data_len + SLACK).next_multiple_of(PAGE) as u64;
        raw.app.bulk.length = rpcrdma_config::raw::RawText::length(whole);
        self.choose(&mut raw, data_len);
        Config::try_from(raw)
    }

    fn choose(self, raw: &mut Raw, data_len: usize) {
        raw.protocol.version = if self.version() == 1 { "one" } else { "two" }.into();
        raw.interop.remote_invalidation = self != Way::OneLocal;
        raw.features.placement = !self.is_explicit();
        raw.features.continuation = !self.is_explicit();
        raw.explicit.enabled = self.is_explicit();
        if self.is_explicit() {
            raw.receive.inline = "4KiB".into();
            raw.receive.placement.count = 0;
            raw.explicit.buffers.count = 4;
            let buffer_len = data_len.next_multiple_of(PAGE).max(PAGE) as u64;
            raw.explicit.buffers.length = rpcrdma_config::raw::RawText::length(buffer_len);
            return;
        }
        let transmissions = data_len.div_ceil(SEGMENT_LEN).max(1) as i64;
        let connections = &mut raw.connections;
        connections.credits = connections.credits.max(transmissions);
        connections.credits_requested = connections.credits;
        connections.call_transmissions_max = transmissions;
        connections.reply_transmissions_max = transmissions;
        connections.request_transmissions_max = transmissions;
        connections.response_transmissions_max = transmissions;
        raw.receive.inline = "1KiB".into();
        raw.receive.placement.count = 1;
        raw.receive.placement.length = rpcrdma_config::raw::RawText::length(SEGMENT_LEN as u64);
    }
}

/// Data bytes of one transmission, at most.
const SEGMENT_LEN: usize = 32 << 10;
const PAGE: usize = 4096;
