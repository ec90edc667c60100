//! The test client of NFS version 4.1 and the Linux kernel's NFS server, on an RDMA device: calls
//! of both directions on one connection.
//!
//! `RPCRDMA_TEST_DEVICE` and `RPCRDMA_TEST_ADDRESS` say which device. The server exports `/export`
//! from this machine as its root, with RDMA port 20049; what is read and written is compared with
//! the directory itself. Linux 6.1 grants read delegations only, and only for a file that was not
//! recalled a minute ago: each test has files of its own.

use std::env;
use std::fs;
use std::net::SocketAddr;

use rpcrdma::{Address, Engine};
use rpcrdma_config::Raw;
use rpcrdma_tests::device::{address, device};
use rpcrdma_tests::nfs41::suite::{self, Directory, Scene};
use rpcrdma_verbs::Verbs;

const EXPORT: &str = "/export";

fn server() -> Address {
    SocketAddr::new(address(), 20_049).into()
}

fn engine(change: impl Fn(&mut Raw)) -> Engine<Verbs> {
    let device = device().device;
    let config = suite::config(&device, change);
    Engine::new(device, config).expect("an engine")
}

/// Hands a test the scene.
fn with_server(change: impl Fn(&mut Raw), test: impl FnOnce(Scene<'_, Verbs>)) {
    let engine = engine(change);
    let files = Directory(EXPORT.into());
    test(Scene { engine: &engine, at: server(), files: &files });
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_recalled_delegation_is_returned() {
    with_server(|_| {}, suite::recall::a_recalled_delegation_is_returned);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn data_move_by_every_way() {
    with_server(|_| {}, suite::data::data_move_by_every_way);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_refused_recall_comes_again() {
    with_server(|_| {}, suite::refusals::a_refused_recall_comes_again);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_recall_may_be_answered_late() {
    with_server(|_| {}, suite::refusals::a_recall_may_be_answered_late);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn the_limits_of_the_back_channel_are_kept() {
    with_server(|_| {}, suite::refusals::the_limits_of_the_back_channel_are_kept);
}

/// The smallest inline thresholds: a recall fits them, as every backward call has to.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_recall_fits_the_smallest_messages() {
    let small = |raw: &mut Raw| {
        raw.receive.inline = "1KiB".into();
        raw.send.length = "1KiB".into();
    };
    with_server(small, suite::recall::a_recalled_delegation_is_returned);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn both_directions_under_load() {
    with_server(|_| {}, suite::load::both_directions_under_load);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_connection_lost_during_a_recall() {
    with_server(|_| {}, suite::losses::a_connection_lost_during_a_recall);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn another_session_after_a_loss() {
    with_server(|_| {}, suite::losses::another_session_after_a_loss);
}

/// Where `RPCRDMA_TEST_SERVER` is another machine, what crosses the wire can be captured. The server
/// has a file `captured` of 20000 bytes. How many messages there were goes to the file
/// `RPCRDMA_TEST_COUNT`.
#[test]
#[ignore = "needs an RDMA device, and a server that has the file: tests/run vm"]
fn a_recall_crosses_the_wire() {
    let server = env::var("RPCRDMA_TEST_SERVER");
    let server = server.map_or(address(), |it| it.parse().expect("an address of the server"));
    let engine = engine(|_| {});
    let at = SocketAddr::new(server, 20_049).into();
    let files = Directory("/nowhere".into());
    let scene = Scene { engine: &engine, at, files: &files };
    let messages = suite::recall::a_recall_crosses_the_wire(scene, "captured", 20_000);
    if let Ok(file) = env::var("RPCRDMA_TEST_COUNT") {
        fs::write(file, format!("{messages}\n")).expect("it is written");
    }
}

/// Our server in place of the kernel's.
mod ours {
    use super::*;

    rpcrdma_tests::ours_suite!(device(), |_| {}; #[ignore = "needs an RDMA device: tests/run vm"]);
}

/// The other way round: the kernel of this machine mounts a server on this engine, which calls it.
#[test]
#[ignore = "needs an RDMA device, and root: tests/run vm"]
fn the_kernel_mounts_and_is_called_back() {
    let engine = engine(|_| {});
    let at = SocketAddr::new(address(), 0).into();
    suite::served::the_kernel_mounts_and_is_called_back(&engine, at);
}
