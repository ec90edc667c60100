//! A ping-pong between two processes over iceoryx2: what `rpcrdma-bench cmp` runs as `iceoryx2`.
//!
//! ```text
//!   rpcrdma-peer-iceoryx2 server NAME BYTES ROUND_TRIPS WARM_UP
//!   rpcrdma-peer-iceoryx2 client NAME BYTES ROUND_TRIPS WARM_UP     prints whole round trips in ns
//! ```
//! A service in each direction, by publish-subscribe with a queue of one sample. Both sides poll,
//! and loan the memory of their next message while they wait, as iceoryx2's own benchmark does.
//! Each message is written once and read once.

use std::env;
use std::error::Error;
use std::os::unix::process::parent_id;

use hdrhistogram::Histogram;
use iceoryx2::node::Node;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{LogLevel, NodeBuilder, ipc, set_log_level};
use iceoryx2::sample::Sample;
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use quanta::Clock;

type Failed = Box<dyn Error>;

fn main() -> Result<(), Failed> {
    set_log_level(LogLevel::Error);
    let words: Vec<String> = env::args().skip(1).collect();
    let [side, name, numbers @ ..] = &words[..] else { return Err(USAGE.into()) };
    let numbers: Vec<u64> = numbers.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [len, count, warm_up] = numbers[..] else { return Err(USAGE.into()) };
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let (call, reply) = (service(&node, name, "call")?, service(&node, name, "reply")?);
    match &side[..] {
        "server" => End::new(&call, &reply, len as usize)?.serve(count + warm_up),
        "client" => End::new(&reply, &call, len as usize)?.measure(count, warm_up),
        _ => Err(USAGE.into()),
    }
}

type Service = PortFactory<ipc::Service, [u8], ()>;

fn service(node: &Node<ipc::Service>, name: &str, way: &str) -> Result<Service, Failed> {
    let builder = node.service_builder(&format!("{name}/{way}").as_str().try_into()?);
    let builder = builder.publish_subscribe::<[u8]>().max_publishers(1).max_subscribers(1);
    let builder = builder.history_size(0).subscriber_max_buffer_size(1).enable_safe_overflow(true);
    Ok(builder.open_or_create()?)
}

/// One end: it receives from one service and sends to the other.
struct End<'a> {
    from: Subscriber<ipc::Service, [u8], ()>,
    to: Publisher<ipc::Service, [u8], ()>,
    services: [&'a Service; 2],
    len: usize,
    parent: u32,
}

impl<'a> End<'a> {
    fn new(from: &'a Service, to: &'a Service, len: usize) -> Result<End<'a>, Failed> {
        Ok(End {
            from: from.subscriber_builder().create()?,
            to: to.publisher_builder().initial_max_slice_len(len).create()?,
            services: [from, to],
            len,
            parent: parent_id(),
        })
    }

    /// Sends back whatever comes, so often.
    fn serve(&self, count: u64) -> Result<(), Failed> {
        for _ in 0..count {
            let room = self.to.loan_slice_uninit(self.len)?;
            let came = self.receive()?;
            room.write_from_slice(&came).send()?;
        }
        // The client is to have the last one before its memory goes.
        self.wait(|[from, _]| from.dynamic_config().number_of_publishers() == 0)
    }

    fn measure(&self, count: u64, warm_up: u64) -> Result<(), Failed> {
        self.wait(|[from, to]| {
            from.dynamic_config().number_of_publishers() == 1
                && to.dynamic_config().number_of_subscribers() == 1
        })?;
        let (clock, mut data) = (Clock::new(), vec![0; self.len]);
        let mut times = Histogram::<u64>::new(3)?;
        let mut room = self.to.loan_slice_uninit(self.len)?;
        for number in 0..warm_up + count {
            data.fill(number as u8);
            let before = clock.raw();
            room.write_from_slice(&data).send()?;
            room = self.to.loan_slice_uninit(self.len)?;
            let came = self.receive()?;
            let after = clock.raw();
            if came[..] != data[..] {
                return Err("another message came back than was sent".into());
            }
            if number >= warm_up {
                times.record(clock.delta_as_nanos(before, after))?;
            }
        }
        let at = |quantile| times.value_at_quantile(quantile);
        let (min, max, mean) = (times.min(), times.max(), times.mean());
        println!("count,min,p50,mean,p99,p99.9,max");
        println!("{count},{min},{},{mean:.1},{},{},{max}", at(0.5), at(0.99), at(0.999));
        Ok(())
    }

    /// The next message: polls until it is there.
    fn receive(&self) -> Result<Sample<ipc::Service, [u8], ()>, Failed> {
        loop {
            for _ in 0..POLLS {
                if let Some(came) = self.from.receive()? {
                    return Ok(came);
                }
            }
            self.look_after_parent()?;
        }
    }

    fn wait(&self, is_so: impl Fn(&[&Service; 2]) -> bool) -> Result<(), Failed> {
        while !is_so(&self.services) {
            self.look_after_parent()?;
        }
        Ok(())
    }

    /// Who waits ends with the program that has started it.
    fn look_after_parent(&self) -> Result<(), Failed> {
        if parent_id() == self.parent { Ok(()) } else { Err("the process that started this has ended".into()) }
    }
}

/// Looks for a message between two looks at the parent.
const POLLS: u32 = 1 << 20;
const USAGE: &str = "rpcrdma-peer-iceoryx2 server|client NAME BYTES ROUND_TRIPS WARM_UP";
