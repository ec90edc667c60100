//! The calls that are counted.

/// A kind of call, and how many of them are in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// As the file of figures has it.
    pub name: &'static str,
    /// What a call does.
    pub op: Op,
    /// What carries it.
    pub over: Over,
    /// What makes it.
    pub by: By,
    /// Connections; the calls go to them in turns.
    pub connections: u64,
    /// Calls in progress at one time, on all connections together.
    pub window: u64,
    /// Whether some calls are timed, as by default.
    pub is_timed: bool,
    /// Whether bulk data are moved by RDMA Read and Write, by version one; otherwise they are placed
    /// by Sends, by version two.
    pub is_explicit: bool,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Headers there, headers back.
    Null,
    /// 64 bytes there and back.
    Echo,
    /// The same, with a deadline.
    TimedEcho,
    /// Bulk data there.
    Write {
        /// Bytes of data.
        len: usize,
    },
    /// Bulk data back.
    Read {
        /// Bytes of data.
        len: usize,
    },
}

/// What carries a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The software fabric, which is a provider and its device.
    Fabric,
    /// The provider of RDMA devices, up to the call of the driver: what is behind that is a fake,
    /// which does not count.
    Verbs,
}

/// What makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A client.
    Client,
    /// A session of one connection.
    Session,
    /// A client of the C interface, whose server is of the C interface, too. Their provider cannot
    /// be kept apart: it counts as the engine's.
    C,
}

/// All that is counted, in this order.
pub const CASES: [Case; 16] = [
    Case::new("null", Op::Null, 1, 32),
    Case::new("echo-64", Op::Echo, 1, 32),
    Case::new("echo-64", Op::Echo, 1, 1),
    Case::new("echo-64", Op::Echo, 1024, 1024),
    Case::new("echo-64-deadline", Op::TimedEcho, 1, 32),
    Case { by: By::Session, ..Case::new("echo-64-session", Op::Echo, 1, 32) },
    Case { by: By::C, ..Case::new("capi-echo-64", Op::Echo, 1, 32) },
    Case::new("write-4k-placed", Op::Write { len: 4 << 10 }, 1, 32),
    Case::new("read-64k-continued", Op::Read { len: 64 << 10 }, 1, 8),
    Case { over: Over::Verbs, ..Case::new("verbs-echo-64", Op::Echo, 1, 32) },
    Case { is_timed: false, ..Case::new("echo-64-untimed", Op::Echo, 1, 32) },
    Case {
        by: By::Session,
        is_timed: false,
        ..Case::new("echo-64-session-untimed", Op::Echo, 1, 32)
    },
    Case {
        is_timed: false,
        ..Case::new("read-64k-continued-untimed", Op::Read { len: 64 << 10 }, 1, 8)
    },
    Case::explicit("read-64k-explicit", Op::Read { len: 64 << 10 }),
    Case::explicit("write-64k-explicit", Op::Write { len: 64 << 10 }),
    // Its chunk has four segments, each a buffer.
    Case::explicit("read-1m-explicit", Op::Read { len: 1 << 20 }),
];

impl Case {
    /// By a client, over the fabric, timed.
    const fn new(name: &'static str, op: Op, connections: u64, window: u64) -> Case {
        Case {
            name,
            op,
            over: Over::Fabric,
            by: By::Client,
            connections,
            window,
            is_timed: true,
            is_explicit: false,
        }
    }

    /// By RDMA Read and Write.
    const fn explicit(name: &'static str, op: Op) -> Case {
        Case { is_explicit: true, ..Case::new(name, op, 1, 8) }
    }
}
