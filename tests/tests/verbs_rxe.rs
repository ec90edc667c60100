//! The engine on an RDMA device: the API suite, many connections, killed processes, and IPv4 and
//! IPv6 addresses.
//!
//! `RPCRDMA_TEST_DEVICE` and `RPCRDMA_TEST_ADDRESS` say which device.

use rpcrdma_tests::device::device as open;

mod auto {
    use super::*;

    rpcrdma_tests::api_suite!(open(); #[ignore = "needs an RDMA device: tests/run vm"]);
}

/// What is the same in version one.
mod version_one {
    use super::*;

    rpcrdma_tests::api_suite_one!(open(); #[ignore = "needs an RDMA device: tests/run vm"]);
}

/// Many connections of one shard.
mod many {
    use super::*;

    #[test]
    #[ignore = "needs an RDMA device: tests/run vm"]
    fn sixty_four_connections_share_one_shard() {
        rpcrdma_tests::many::sixty_four_connections_share_one_shard(&open());
    }

    #[test]
    #[ignore = "needs an RDMA device: tests/run vm"]
    fn connections_come_and_go_under_load() {
        rpcrdma_tests::many::connections_come_and_go_under_load(&open());
    }
}

/// Processes at both ends; one is killed without a chance to say good-bye.
mod killed {
    use std::env;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use rpcrdma::CallError;
    use rpcrdma_tests::script::{Order, Part, Place, Script};
    use rpcrdma_tests::suite::explicit;
    use rpcrdma_tests::world::{Plan, World, is_passing};

    use super::*;

    /// This program once more, with one test that plays a peer.
    struct Peer(Child);

    impl Peer {
        fn start(role: &str, to: &str) -> Peer {
            let own = env::current_exe().expect("this program has a path");
            let child = Command::new(own)
                .args(["--exact", "--ignored", "--nocapture", role])
                .env(TO, to)
                .stdout(Stdio::piped())
                .spawn();
            Peer(child.expect("this program can be started once more"))
        }

        /// What it says behind `key`.
        fn says(&mut self, key: &str) -> String {
            let stdout = self.0.stdout.take().expect("it is a pipe");
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // The test runner may have begun the line.
            let said = lines.find_map(|line| {
                let (_, said) = line.split_once(key)?;
                Some(said.trim().to_owned())
            });
            said.expect("the peer gets that far")
        }

        fn kill(mut self) {
            self.0.kill().expect("it is still there");
            self.0.wait().expect("it was killed");
        }
    }

    impl Drop for Peer {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Where the peer finds this process; what plays a peer does nothing without it.
    const TO: &str = "RPCRDMA_TEST_PEER";
    const SERVER: &str = "killed::serves_until_it_is_killed";
    const CLIENT: &str = "killed::calls_until_it_is_killed";

    fn plan() -> Plan {
        explicit::plan("two")
    }

    /// Calls of every kind of leg.
    fn calls() -> [Script; 4] {
        let (bulk, long) = ([Part::Inline(4), Part::Bulk(40_000)], [Part::Inline(9_000)]);
        [
            Script::new(1, &bulk, &[]),
            Script::new(2, &[], &bulk).place(Place::Into(3)),
            Script::new(4, &bulk, &bulk).place(Place::Into(1)).order(Order::Later),
            Script::new(3, &long, &[]),
        ]
    }

    #[test]
    #[ignore = "needs an RDMA device: tests/run vm"]
    fn serves_until_it_is_killed() {
        if env::var(TO).is_err() {
            return;
        }
        let mut world = World::new(&open(), &Plan { clients: 0, ..plan() });
        println!("\nserves at {}", world.at);
        loop {
            world.step();
        }
    }

    #[test]
    #[ignore = "needs an RDMA device: tests/run vm"]
    fn calls_until_it_is_killed() {
        let Ok(to) = env::var(TO) else { return };
        // Soft-RoCE waits for most of a minute when it takes down, for a process that was killed, a
        // queue pair with windows bound to it. Memory is shown by registrations here.
        let mut plan = plan();
        plan.call.explicit.exposure = "registration".into();
        let mut world = World::new(&open(), &plan);
        world.lends = true;
        world.at = to.parse().expect("the address of the server");
        let peer = world.connect(0);
        loop {
            for script in calls() {
                if let Err(why) = world.call(0, peer, &script) {
                    assert!(is_passing(why), "{why}");
                }
                world.step();
                world.check_done();
            }
        }
    }

    #[test]
    #[ignore = "needs an RDMA device: tests/run vm"]
    fn a_server_that_is_killed_takes_only_its_calls_with_it() {
        let mut world = World::new(&open(), &plan());
        world.lends = true;
        let own = world.at;
        let alive = world.connect(0);
        for _ in 0..3 {
            let mut server = Peer::start(SERVER, "any client");
            world.at = server.says("serves at").parse().expect("an address");
            let doomed = world.connect(0);
            for script in calls() {
                world.round(0, doomed, &script);
            }
            let never = Script::new(9, &[Part::Bulk(20_000)], &[]).order(Order::Never);
            let mut open = vec![world.call_when_possible(0, doomed, &never)];
            for script in calls() {
                open.extend(world.call(0, doomed, &script));
            }
            (0..20).for_each(|_| world.step());
            server.kill();
            let done = world.finish();
            for done in &done {
                done.check_sinks();
                if done.result.is_ok() {
                    done.check();
                }
            }
            let never = done.iter().find(|done| done.cookie == open[0]).expect("it is over");
            let is_lost = matches!(never.result, Err(CallError::ConnectionLost(..)));
            assert!(is_lost, "{:?}", never.result);
            world.until("it is gone", |world| world.clients[0].handle().connections() == 1);
            world.round(0, alive, &calls()[0]);
        }
        world.at = own;
        world.check_all_returned();
        world.check_nothing_leaked();
    }

    #[test]
    #[ignore = "needs an RDMA device: tests/run vm"]
    fn a_client_that_is_killed_leaves_nothing_behind() {
        let mut world = World::new(&open(), &plan());
        let alive = world.connect(0);
        for count in 1..=3 {
            let before = world.servers[0].handler().calls;
            let client = Peer::start(CLIENT, &world.at.to_string());
            world.until("it calls", |world| world.servers[0].handler().calls > before + 30);
            client.kill();
            world.until("the server knows", |world| {
                world.servers[0].handler().closed.len() == count
            });
            world.round(0, alive, &calls()[2]);
        }
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}
