//! An echo server and its client, in one process or in two.
//!
//! ```text
//!   echo                                            both, over the software fabric
//!   echo --provider verbs --address 10.0.0.1        both, over the device with this address
//!   echo --listen 10.0.0.1:7777                     the server, until SIGINT or SIGTERM
//!   echo --connect 10.0.0.1:7777                    the client, here or on another machine
//! ```
//! An address leads over an RDMA device, if it is one's, and otherwise over TCP.

mod args;

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use args::Args;
use clap::Parser;
use rpcrdma::{
    Address, Answer, Call, Client, Clock, Config, Engine, Handler, Provider, Reply, SetupError,
    with_provider,
};
use rpcrdma_config::ProviderKind;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Answers every call with the bytes behind its transaction id and message type.
struct Echo;

impl Handler for Echo {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut skip = 8;
        for slice in call.payload() {
            let bytes = slice.get(skip..).unwrap_or_default();
            skip -= slice.len() - bytes.len();
            reply.payload().put_fixed(bytes);
        }
        reply.send()
    }
}

fn main() -> ExitCode {
    match open(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

/// A server whose output cannot be written, because its reader has gone, say, serves on.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "echo: {line}");
}

fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "echo: {line}");
}

/// Opens the device. Everything behind is the same for all of them.
fn open(args: &Args) -> Result<(), Box<dyn Error>> {
    let config = args.config()?;
    let kind = config.engine().provider;
    let hint = |error: SetupError| match kind {
        ProviderKind::Verbs => format!("{error}; shm:PATH and --provider tcp need no device"),
        _ => error.to_string(),
    };
    with_provider!(kind, |Device| run(Device::from_config(&config).map_err(hint)?, config, args))
}

fn run<P: Provider>(device: P, config: Config, args: &Args) -> Result<(), Box<dyn Error>> {
    say(format_args!("over {}", device.caps().name));
    let own = own_address(&config)?;
    let mut engine = Engine::new(device, config)?;
    engine.on_failure(|failure| complain(failure));
    let metrics = args.metrics.map(|at| engine.metrics().serve(at)).transpose()?;
    metrics.iter().for_each(|metrics| say(format_args!("metrics at {}", metrics.url())));
    if let Some(server) = args.connect {
        return call(&mut engine.client()?, server, args.calls);
    }
    let Some(at) = args.listen else {
        engine.start(|_| Echo)?;
        let server = engine.listen(own)?;
        return call(&mut engine.client()?, server, args.calls);
    };
    // Before there are threads: no other thread handles the signals.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let shards = engine.start(|_| Echo)?;
    shards.iter().for_each(|shard| say(shard.resources()));
    say(format_args!("listening at {}", engine.listen(at)?));
    signals.forever().next();
    let answered: u64 = shards.iter().map(|shard| shard.stats().replies_sent).sum();
    say(format_args!("{answered} calls answered"));
    Ok(())
}

/// Where this process can listen and reach itself.
fn own_address(config: &Config) -> Result<Address, Box<dyn Error>> {
    if config.engine().provider == ProviderKind::Shm {
        return Ok("shm:@".parse()?);
    }
    // The fabric's addresses are its own, and TCP has those of this host.
    let own = config.verbs().address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    Ok(SocketAddr::new(own, 0).into())
}

/// Makes calls, one at a time, and compares what comes back.
fn call<P: Provider>(
    client: &mut Client<P>,
    server: Address,
    calls: u64,
) -> Result<(), Box<dyn Error>> {
    let peer = client.connect(server)?;
    say(format_args!("connected to {server}"));
    let clock = Clock::new();
    let start = clock.now();
    for cookie in 0..calls {
        let mut call = client.call(peer, cookie)?;
        call.payload().put_u64(cookie);
        call.payload().put_opaque(b"hello, peer");
        call.submit()?;
        let mut outcome = None;
        while outcome.is_none() {
            client.poll_for(Duration::from_secs(1), |done| {
                assert_eq!(done.cookie(), cookie);
                outcome = Some(done.result().map(|reply| reply.reader().u64()));
            });
        }
        assert_eq!(outcome.transpose()?, Some(Ok(cookie)), "the server sent the number back");
    }
    let each = (clock.now() - start) / calls.max(1);
    say(format_args!("{calls} calls, one at a time: {each} ns each"));
    Ok(())
}
