//! Both ends in one process over a shared fabric, as two hosts share a network.

use std::net::TcpStream;

use rpcrdma::Fabric;

use super::*;
use crate::args::EngineArgs;
use crate::call::{Load, Shape};
use crate::contenders::far::Far;
use crate::contenders::rpc::Rpc;
use crate::device::Place;
use crate::settings::Need;
use crate::stats::{Contender, End, Quota};
use crate::values::{Op, Placement, Switch, Touch};

/// A port where clients come, and what a server does there with the next one.
struct Port {
    listener: Rendezvous,
    at: Address,
}

impl Port {
    fn new() -> Port {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into();
        let listener = Rendezvous::open(any).expect("a free port");
        Port { at: listener.at(), listener }
    }

    fn serve_one(&self, fabric: &Fabric, core: u32) -> Served {
        let device = DeviceArgs { provider: None, device: None, address: None, connect: None };
        let mut own = own_config(&device).expect("it comes with the engine").raw().clone();
        own.fabric = Raw::default().fabric;
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into();
        let here = Here { at, core, own: &own };
        let (lines, from) = next_client(&self.listener).expect("a socket").expect("a client");
        here.serve(&|_| Ok(fabric.clone()), Some(&self.listener), lines, from)
    }
}

/// A fabric on which a server is asked to answer there.
struct Elsewhere<'a>(&'a Fabric, Address);

impl Device for Elsewhere<'_> {
    type Provider = Fabric;

    fn open(&self) -> Result<Fabric, BenchError> {
        Ok(self.0.clone())
    }

    fn at(&self) -> Address {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()
    }

    fn far(&self) -> Option<Place> {
        Some(Place::Host(self.1))
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

fn load(op: Op, len: usize, placement: Placement, window: u32) -> Load {
    let shape = Shape::new(op, len, len);
    Load { shape, placement, window, connections: 2, touch: Touch::All, sinks: 0 }
}

fn config_for(load: &Load) -> Config {
    let (window, connections) = (load.window, load.connections);
    let need = Need { data_len: load.shape.data_len(), window, connections, by_rdma: false };
    let mut raw =
        EngineArgs::default().raised(need, Switch::On).expect("usual sizes").raw().clone();
    raw.fabric = Raw::default().fabric;
    Config::try_from(raw).expect("usual sizes")
}

#[test]
fn a_client_elsewhere_is_answered_with_whatever_it_calls() {
    let Ok(cores) = CorePair::choose(None) else { return };
    for (op, len, placement, window) in [
        (Op::Echo, 64, Placement::Inline, 1),
        (Op::Read, 100_000, Placement::Send, 4),
        (Op::Write, 5000, Placement::Send, 3),
        (Op::Null, 0, Placement::Inline, 32),
    ] {
        let (port, fabric) = (Port::new(), Fabric::new());
        let load = load(op, len, placement, window);
        let served = thread::scope(|scope| {
            let server = scope.spawn(|| port.serve_one(&fabric, cores.server));
            let client = Rpc::on(
                &Elsewhere(&fabric, port.at),
                "rpc",
                cores,
                &config_for(&load),
                &load,
                true,
            );
            let mut client = client.expect("the server does what it is asked");
            let quota = Quota { warm_up: 5, end: End::Count(100) };
            for _ in 0..2 {
                let round = client.round(quota).expect("it answers");
                assert!(round.completed >= 100, "{op:?}: {round:?}");
                assert_eq!(round.latency.count() > 0, window == 1, "{op:?}");
            }
            // As it was reported at the end of a round.
            let counted = client.counters()[1];
            assert!(
                counted.transmissions_sent >= 210 && counted.completions >= 210,
                "{op:?}: {counted:?}"
            );
            // What the server reads from.
            assert!(client.held().out > 0, "{op:?}");
            drop(client);
            server.join().expect("no panic")
        });
        assert_eq!(served.ended, None, "{op:?}");
        assert!(served.counted.calls_received >= 210, "{op:?}: {}", served.sentence());
        assert_eq!(served.load, Some(load.what()));
    }
}

#[test]
fn what_the_server_cannot_do_is_an_error_of_the_client_and_no_hang() {
    let Ok(cores) = CorePair::choose(None) else { return };
    let (port, fabric) = (Port::new(), Fabric::new());
    let usual = load(Op::Read, 64, Placement::Inline, 1);
    let long = load(Op::Read, (64 << 20) + 4, Placement::Inline, 1);
    thread::scope(|scope| {
        let server = scope.spawn(|| port.serve_one(&fabric, cores.server));
        let refused = Far::ask(Place::Host(port.at), cores, &long, &config_for(&usual))
            .expect_err("it is too much");
        assert!(refused.to_string().contains("bytes of data"), "{refused}");
        let served = server.join().expect("no panic");
        assert!(served.ended.is_some_and(|why| why.contains("bytes of data")));
    });
}

#[test]
fn a_second_client_is_refused_while_the_first_is_there() {
    let Ok(cores) = CorePair::choose(None) else { return };
    let (port, fabric) = (Port::new(), Fabric::new());
    let load = load(Op::Null, 0, Placement::Inline, 1);
    let config = config_for(&load);
    thread::scope(|scope| {
        let server = scope.spawn(|| port.serve_one(&fabric, cores.server));
        let (first, _) =
            Far::ask(Place::Host(port.at), cores, &load, &config).expect("the server is free");
        let second =
            Far::ask(Place::Host(port.at), cores, &load, &config).expect_err("the server is taken");
        assert!(second.to_string().contains("another client"), "{second}");
        drop(first);
        let served = server.join().expect("no panic");
        assert_eq!((served.ended, served.counted.calls_received), (None, 0));
    });
}

#[test]
fn a_client_that_says_nothing_or_goes_is_not_waited_for() {
    let Ok(cores) = CorePair::choose(None) else { return };
    let (port, fabric) = (Port::new(), Fabric::new());
    drop(TcpStream::connect(port.at.as_ip().expect("a port")).expect("it listens"));
    let served = port.serve_one(&fabric, cores.server);
    assert!(served.ended.as_ref().is_some_and(|why| why.contains("before its request")));
    assert!(served.sentence().contains("not served"), "{}", served.sentence());
}

#[test]
fn the_fabric_is_not_served_over() {
    let args = crate::testing::parsed("");
    let refused = measure(&args, &Session::silent()).expect_err("one process");
    assert!(refused.to_string().contains("lives inside one process"), "{refused}");
}

#[test]
fn a_server_that_goes_in_the_middle_of_a_round_ends_it() {
    let Ok(cores) = CorePair::choose(None) else { return };
    let (port, load) = (Port::new(), load(Op::Null, 0, Placement::Inline, 1));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut lines, _) = next_client(&port.listener).expect("a socket").expect("a client");
            read_request(&mut lines).expect("a request");
            notify(&mut lines, ServerMessage::At(port.at));
            assert!(matches!(
                lines.receive(),
                Ok(Received::Line(ClientMessage::Go(Tally::Events)))
            ));
            notify(&mut lines, ServerMessage::Going);
        });
        let config = config_for(&load);
        let (mut far, _) = Far::ask(Place::Host(port.at), cores, &load, &config).expect("a server");
        let round = far.round(cores.client, Tally::Events, |stop| {
            while !stop.is_set() {
                thread::yield_now();
            }
            Err::<(), _>(BenchError::PeerGone { who: "client" })
        });
        let error = round.expect_err("the server has gone");
        assert!(error.to_string().contains("it has gone"), "{error}");
    });
}
