//! Events of the library, for a function of the program.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{Debug, Write};
use std::sync::{Once, PoisonError, RwLock};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::arguments::OK;
use crate::failure::{c_text, invalid};

/// How important an event is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_level {
    /// A part of the engine has failed.
    RPCRDMA_LEVEL_ERROR = 1,
    /// Something did not succeed, such as a connection.
    RPCRDMA_LEVEL_WARN = 2,
    /// Engines, shards, listeners and connections begin and end.
    RPCRDMA_LEVEL_INFO = 3,
    /// Steps of these.
    RPCRDMA_LEVEL_DEBUG = 4,
}

/// Something happened where connections, listeners and shards begin and end. It ends with the
/// callback. Later versions may add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_event {
    /// A value of `rpcrdma_level`.
    pub level: c_int,
    /// What happened, such as "connection closed".
    pub name: *const c_char,
    /// Its values, as "shard=0 peer=192.0.2.1:20049".
    pub values: *const c_char,
}

/// Passes the events of all engines of the process to `on_event`: those of `level`, a value of
/// `rpcrdma_level`, and of more important ones. Any thread calls it, at any time: it must not block,
/// and uses no function of the library but those for errors and counters. It takes the place of the
/// one before, which is not called any more when this returns. NULL ends it.
///
/// Thread: any, not `on_event`.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_on_event(
    level: c_int,
    on_event: Option<unsafe extern "C" fn(arg: *mut c_void, event: *const rpcrdma_event)>,
    arg: *mut c_void,
) -> c_int {
    static INSTALLED: Once = Once::new();
    let level = match level {
        1 => LevelFilter::ERROR,
        2 => LevelFilter::WARN,
        3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        _ => return invalid("level"),
    };
    // A program in Rust may have a subscriber of its own.
    INSTALLED.call_once(|| _ = tracing::subscriber::set_global_default(Events));
    let sink = on_event.map(|on_event| Sink { level, on_event, arg });
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = sink;
    tracing::callsite::rebuild_interest_cache();
    OK
}

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// The function of the program that gets events.
struct Sink {
    level: LevelFilter,
    on_event: unsafe extern "C" fn(arg: *mut c_void, event: *const rpcrdma_event),
    arg: *mut c_void,
}

// SAFETY: the header states that any thread calls it.
unsafe impl Send for Sink {}

// SAFETY: as above.
unsafe impl Sync for Sink {}

/// Runs `act` with the function, if there is one.
fn with_sink<R>(act: impl FnOnce(&Sink) -> R) -> Option<R> {
    SINK.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(act)
}

/// What receives the events of the crate `tracing`.
struct Events;

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        with_sink(|sink| *metadata.level() <= sink.level).unwrap_or(false)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(with_sink(|sink| sink.level).unwrap_or(LevelFilter::OFF))
    }

    fn event(&self, event: &Event<'_>) {
        // Until all places have asked anew, some go by the level of the function before.
        if !self.enabled(event.metadata()) {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let (name, values) = (c_text(&text.name), c_text(&text.values));
        let level = match *event.metadata().level() {
            Level::ERROR => rpcrdma_level::RPCRDMA_LEVEL_ERROR,
            Level::WARN => rpcrdma_level::RPCRDMA_LEVEL_WARN,
            Level::INFO => rpcrdma_level::RPCRDMA_LEVEL_INFO,
            _ => rpcrdma_level::RPCRDMA_LEVEL_DEBUG,
        };
        let event =
            rpcrdma_event { level: level as c_int, name: name.as_ptr(), values: values.as_ptr() };
        with_sink(|sink| {
            // SAFETY: the program gave it for this; the event stays during the call.
            unsafe { (sink.on_event)(sink.arg, &event) };
        });
    }

    // The library has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event as texts.
#[derive(Default)]
struct Text {
    name: String,
    values: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String does not fail.
        let _ = match field.name() {
            "message" => write!(self.name, "{value:?}"),
            name => {
                let gap = if self.values.is_empty() { "" } else { " " };
                write!(self.values, "{gap}{name}={value:?}")
            }
        };
    }
}
