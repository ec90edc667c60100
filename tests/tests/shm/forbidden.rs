//! System calls that a program may not make (seccomp): setting up says which one has failed, or
//! goes on without it. Nothing panics, and nothing waits for ever.

use std::time::{Duration, Instant};

use libc::c_long;
use rpcrdma_config::Raw;
use rpcrdma_engine::{
    Address, Answer, Call, Clock, Config, Engine, Handler, Provider, Reply, SetupError,
};
use rpcrdma_tests::denied::Denied;
use rpcrdma_tests::setup::{checked, small};

struct Server;

impl Handler for Server {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.send()
    }
}

fn config(provider: &str) -> Config {
    let mut raw: Raw = small();
    raw.engine.provider = provider.into();
    raw.engine.idle.policy = "block".into();
    raw.connections.connect_timeout = "200ms".into();
    raw.connections.stop_timeout = "100ms".into();
    raw.protocol.negotiation_timeout = "100ms".into();
    checked(&raw)
}

/// Sets up a server and a client, which calls it. Returns whether the call is answered.
fn set_up<P: Provider>(device: P, config: Config, at: Address) -> Result<bool, SetupError> {
    let mut engine = Engine::new(device, config)?;
    let ended = (|| {
        engine.start(|_| Server)?;
        let at = engine.listen(at)?;
        let mut client = engine.client()?;
        let peer = client.connect(at)?;
        let Ok(mut call) = client.call(peer, 0) else { return Ok(false) };
        call.deadline(Clock::new().now() + ANSWER_TIME.as_nanos() as u64);
        let _ = call.submit();
        let (begun, mut answered) = (Instant::now(), None);
        while answered.is_none() && begun.elapsed() < ANSWER_TIME {
            client
                .poll_for(Duration::from_millis(20), |done| answered = Some(done.result().is_ok()));
        }
        Ok(answered == Some(true))
    })();
    assert!(engine.failures().is_empty(), "{:?}", engine.failures());
    ended
}

/// Tries it without each of the calls.
pub fn is_an_error_or_done_without<P: Provider>(
    kind: &str,
    at: &str,
    open: impl Fn(&Config) -> Result<P, SetupError> + Sync,
) {
    let at: Address = at.parse().expect("an address");
    for (number, word) in CALLS {
        let (denied, begun) = (Denied { calls: &[*number], errno: libc::EPERM }, Instant::now());
        let ended = denied.run(|| {
            let config = config(kind);
            open(&config).and_then(|device| set_up(device, config, at))
        });
        assert!(begun.elapsed() < LIMIT, "call {number} of the system: {ended:?}");
        match ended {
            Ok(is_answered) => assert!(is_answered && word.is_empty(), "call {number}"),
            Err(why) => assert!(why.to_string().contains(word), "call {number}: {why}"),
        }
    }
}

/// What the test takes for a hang: each timeout of the setup is a fraction of a second.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the answer may take, on a machine that is slow.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// System calls, and what an error of the setup says then. Without a word, either the call is done
/// without, or a listener or an attempt to connect has an error of any kind.
const CALLS: &[(c_long, &str)] = &[
    (libc::SYS_prlimit64, ""),
    (libc::SYS_sched_getaffinity, ""),
    (libc::SYS_sched_setaffinity, ""),
    (libc::SYS_sysinfo, ""),
    (libc::SYS_getcpu, ""),
    (libc::SYS_mbind, ""),
    (libc::SYS_mlock, ""),
    (libc::SYS_mlock2, ""),
    (libc::SYS_madvise, "MADV_DONTFORK"),
    (libc::SYS_memfd_create, ""),
    (libc::SYS_ftruncate, ""),
    (libc::SYS_fcntl, ""),
    (libc::SYS_fstat, ""),
    (libc::SYS_fstatfs, ""),
    (libc::SYS_statx, ""),
    (libc::SYS_newfstatat, ""),
    (libc::SYS_openat, ""),
    (libc::SYS_readlink, ""),
    (libc::SYS_getdents64, ""),
    (libc::SYS_read, ""),
    (libc::SYS_eventfd2, "eventfd failed"),
    (libc::SYS_epoll_create1, "epoll_create1 failed"),
    (libc::SYS_epoll_ctl, "epoll"),
    (libc::SYS_epoll_wait, ""),
    (libc::SYS_epoll_pwait, ""),
    (libc::SYS_epoll_pwait2, ""),
    (libc::SYS_ppoll, ""),
    (libc::SYS_poll, ""),
    (libc::SYS_clock_nanosleep, ""),
    (libc::SYS_socket, ""),
    (libc::SYS_bind, ""),
    (libc::SYS_listen, ""),
    (libc::SYS_connect, ""),
    (libc::SYS_accept4, ""),
    (libc::SYS_getsockname, ""),
    (libc::SYS_getpeername, ""),
    (libc::SYS_getsockopt, ""),
    (libc::SYS_setsockopt, ""),
    (libc::SYS_shutdown, ""),
    (libc::SYS_sendto, ""),
    (libc::SYS_sendmsg, ""),
    (libc::SYS_recvfrom, ""),
    (libc::SYS_recvmsg, ""),
    (libc::SYS_getrandom, ""),
    (libc::SYS_geteuid, ""),
    (libc::SYS_getpid, ""),
    (libc::SYS_gettid, ""),
    (libc::SYS_uname, ""),
    (libc::SYS_clone3, "pthread_create failed"),
];
