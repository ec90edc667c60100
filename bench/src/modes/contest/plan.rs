//! The plan of a contest: the options with all defaults filled in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rpcrdma_config::Config;
use serde_json::{Value, json};

use super::args::{Contest, ContestArgs, Kind, PlanArgs};
use crate::args::LengthArgs;
use crate::call::{Load, Traffic, padded};
use crate::contenders::raw::Posting;
use crate::contenders::wire::{self, Message, OnWire};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::modes::experiment::Experiment;
use crate::settings::Need;
use crate::stats::{End, Quota};
use crate::values::{Op, Placement};

#[derive(Debug, Clone)]
pub struct Plan {
    pub kind: Kind,
    pub load: Load,
    pub config: Config,
    pub cores: CorePair,
    pub rounds: u32,
    pub quota: Quota,
    /// How `raw` posts its Sends: a contender each.
    pub postings: Vec<Posting>,
    /// Whether the prefetched floor is measured beside the serial one.
    pub prefetched_floor: bool,
    /// Whether the calls are measured as futures beside the polled ones.
    pub futures: bool,
    /// A file that is looked at beside the other contenders.
    pub stat: Option<PathBuf>,
}

impl Contest {
    pub fn plan(&self) -> Result<Plan, BenchError> {
        Plan::new(self.into(), &self.args())
    }
}

impl Plan {
    pub fn new(kind: Kind, args: &PlanArgs<'_>) -> Result<Plan, BenchError> {
        let PlanArgs { contest, length, .. } = args;
        contest.device.check()?;
        if contest.device.connect.is_some() && matches!(kind, Kind::Floor | Kind::Raw) {
            let text = "it runs both ends itself: --connect is for lat, rate, bw, load";
            return Err(BenchError::Usage(format!("{}: {text}", kind.into_str())));
        }
        if contest.device.connect.is_some() && args.prefetched_floor {
            let text = "--prefetched-floor: with --connect there is no floor, whose ends are here";
            return Err(BenchError::Usage(text.into()));
        }
        if args.futures && !matches!(kind, Kind::Lat | Kind::Rate) {
            let text = "--futures: of lat and rate";
            return Err(BenchError::Usage(text.into()));
        }
        let load = load(kind, args)?;
        let need = Need {
            data_len: load.shape.data_len(),
            window: load.window,
            connections: load.connections,
            by_rdma: load.placement == Placement::Rdma,
        };
        Ok(Plan {
            kind,
            load,
            config: contest.engine.config(need, contest.call.continuation, &contest.device)?,
            cores: CorePair::choose(contest.cores.cores)?,
            rounds: length.rounds,
            quota: length.quota(SECONDS, WARM_UP),
            postings: postings(args.sends_per_post, load.window)?,
            prefetched_floor: args.prefetched_floor,
            futures: args.futures,
            stat: args.stat.map(Path::to_owned),
        })
    }

    pub fn traffic(&self) -> Traffic {
        let [call, reply] = self.on_wire();
        Traffic { request_len: call.len, reply_len: reply.len, window: self.load.window }
    }

    pub fn on_wire(&self) -> [OnWire; 2] {
        let shape = self.load.shape;
        if self.load.placement == Placement::Rdma {
            // One Send each way, and the data beside them; the chunk lists are not counted.
            let whole = |len: usize| OnWire { transmissions: 1, len: wire::PLAIN_LEN + len };
            return [whole(shape.call_len()), whole(shape.reply_len())];
        }
        let placed = |data: usize| if self.load.placement.is_placed() { data } else { 0 };
        let (there, back) = (placed(shape.request_data), placed(shape.reply_data));
        let call = Message {
            payload: shape.call_len() - if there > 0 { padded(there) } else { 0 },
            placed: there,
            kind: wire::Kind::Call { directs: back > 0 },
        };
        let reply = Message {
            payload: shape.reply_len() - if back > 0 { padded(back) } else { 0 },
            placed: back,
            kind: wire::Kind::Reply,
        };
        [call, reply].map(|message| message.on_wire(self.config.recv_structure()))
    }

    /// Whether round trips are timed one by one, and not counted.
    pub fn is_timed(&self) -> bool {
        self.load.window == 1 && !matches!(self.kind, Kind::Rate | Kind::Bw)
    }

    /// About how long the measuring of so many contenders takes.
    pub fn expected(&self, contenders: u32) -> Duration {
        let round = match self.quota.end {
            End::Time(time) => time,
            End::Count(count) => {
                ROUND_TRIP_GUESS.saturating_mul(count.try_into().unwrap_or(u32::MAX))
            }
        };
        round.saturating_mul(self.rounds.saturating_mul(contenders))
    }

    /// An experiment with so many turns, each as long as a contender's; `own` are the settings of
    /// its mode.
    pub fn experiment(
        &self,
        mode: &'static str,
        what: String,
        own: Value,
        turns: usize,
    ) -> Experiment {
        Experiment {
            mode,
            what,
            settings: self.settings(mode, own),
            cores: self.cores,
            rounds: self.rounds,
            turns,
            expected: self.expected(turns as u32),
            notes: Vec::new(),
        }
    }

    /// A plan of a mode that measures many calls under way, for rounds of such a length.
    pub fn of_rate(
        contest: &ContestArgs,
        length: &LengthArgs,
        seconds: Duration,
        warm_up: u64,
    ) -> Result<Plan, BenchError> {
        let plan = Plan::new(Kind::Rate, &PlanArgs::new(contest, length))?;
        Ok(Plan { quota: length.quota(seconds, warm_up), ..plan })
    }

    pub fn calls(&self) -> String {
        let Load { window, connections, .. } = self.load;
        let many = if connections == 1 {
            String::new()
        } else {
            format!(" over {connections} connections")
        };
        format!("{}, window {window}{many}", self.load.what())
    }

    pub fn sentence(&self) -> String {
        let round = self.quota.end.text("round trips");
        format!(
            "{}: {}, cores {}, {} rounds of {round}",
            self.kind.into_str(),
            self.calls(),
            self.cores,
            self.rounds
        )
    }

    /// The same for programs: the settings of this mode, and some of its own.
    pub fn settings(&self, mode: &str, own: Value) -> Value {
        let Load { shape, placement, window, connections, touch, .. } = self.load;
        let [call, reply] = self.on_wire();
        let mut settings = json!({
            "mode": mode,
            "op": shape.op,
            "placement": placement,
            "continuation": self.config.features().continuation,
            "touch": touch,
            "request_data_bytes": shape.request_data,
            "reply_data_bytes": shape.reply_data,
            // On the wire with all headers and padding.
            "request_wire_bytes": call.len,
            "reply_wire_bytes": reply.len,
            "request_transmissions": call.transmissions,
            "reply_transmissions": reply.transmissions,
            "window": window,
            "connections": connections,
            "cores": self.cores,
            "rounds": self.rounds,
            "warm_up": self.quota.warm_up,
        });
        if let (Value::Object(all), Value::Object(own)) = (&mut settings, own) {
            all.extend(own);
        }
        settings
    }
}

/// What the engine is to do, by the options and the defaults of the contest.
fn load(kind: Kind, args: &PlanArgs<'_>) -> Result<Load, BenchError> {
    let (call, window) = (&args.contest.call, &args.contest.window);
    let usual = if kind == Kind::Bw { Op::Read } else { Op::Echo };
    let shape = call.shape(usual, (kind == Kind::Bw).then_some(65_536))?;
    if kind == Kind::Bw && shape.op == Op::Null {
        return Err(BenchError::Usage("null calls carry no payload to measure".into()));
    }
    if kind == Kind::Lat && window.window.is_some_and(|window| window > 1) {
        return Err(BenchError::Usage(
            "lat measures one call at a time; for more calls in flight use `rate`".into(),
        ));
    }
    let placement = call.placement.unwrap_or(match kind {
        Kind::Bw => Placement::Send,
        _ => Placement::Inline,
    });
    let window_len = window.window.unwrap_or(match kind {
        Kind::Rate => 32,
        Kind::Bw => 8,
        Kind::Floor | Kind::Raw | Kind::Lat => 1,
    });
    let by_rdma = placement == Placement::Rdma;
    if by_rdma && (!matches!(shape.op, Op::Read | Op::Write) || shape.data_len() < RDMA_MIN) {
        let text = "-p rdma moves the data of reads and writes of 4 KiB or more: --op, --size";
        return Err(BenchError::Usage(text.into()));
    }
    Ok(Load {
        shape,
        placement,
        window: window_len,
        connections: window.connections,
        touch: call.touch,
        sinks: if by_rdma && shape.reply_data > 0 { window_len } else { 0 },
    })
}

/// How `raw` posts its Sends.
fn postings(sends_per_post: &[u32], window: u32) -> Result<Vec<Posting>, BenchError> {
    if sends_per_post.is_empty() {
        return Ok(vec![Posting::Whatever]);
    }
    if sends_per_post.iter().any(|count| *count > window) {
        let text = "--sends-per-post: must not exceed the window";
        return Err(BenchError::Usage(text.into()));
    }
    Ok(sends_per_post.iter().map(|count| Posting::Exactly(*count)).collect())
}

pub const SECONDS: Duration = Duration::from_secs(2);
/// Shorter data fit a Send and are not worth an RDMA operation.
const RDMA_MIN: usize = 4096;
/// Uncounted round trips at the start of each round.
pub const WARM_UP: u64 = 2000;
/// For the decision whether progress is worth showing.
const ROUND_TRIP_GUESS: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: &str) -> Option<Result<Plan, BenchError>> {
        match Contest::parse(options).expect("it parses").plan() {
            Err(BenchError::OneCore { .. }) => None,
            other => Some(other),
        }
    }

    fn good(options: &str) -> Option<Plan> {
        plan(options).map(|plan| plan.expect("the options fit together"))
    }

    #[test]
    fn the_time_is_spread_over_the_rounds() {
        let Some(plan) = good("lat -t 3 -r 12") else { return };
        assert_eq!(plan.quota.end, End::Time(Duration::from_millis(250)));
        assert_eq!(plan.expected(3), Duration::from_secs(9));
    }

    #[test]
    fn the_count_is_spread_over_the_rounds_and_rounded_up() {
        let Some(plan) = good("lat -n 101 -r 10") else { return };
        assert_eq!(plan.quota.end, End::Count(11));
    }

    #[test]
    fn sizes_have_defaults_by_operation() {
        let Some(echo) = good("lat") else { return };
        assert_eq!((echo.load.shape.request_data, echo.load.shape.reply_data), (64, 64));
        let read = good("lat --op read").expect("the machine is the same");
        assert_eq!((read.load.shape.request_data, read.load.shape.reply_data), (0, 4096));
        let wide = good("lat --size 8 --reply 100").expect("the machine is the same");
        assert_eq!((wide.load.shape.request_data, wide.load.shape.reply_data), (8, 100));
    }

    #[test]
    fn a_reply_length_is_refused_where_it_would_be_ignored() {
        let Some(refused) = plan("lat --op read --reply 8") else { return };
        assert!(matches!(refused, Err(BenchError::Usage(_))));
    }

    #[test]
    fn an_echo_of_64_bytes_is_136_there_and_120_back_on_the_wire() {
        let Some(plan) = good("lat") else { return };
        let Traffic { request_len, reply_len, window } = plan.traffic();
        assert_eq!((request_len, reply_len, window), (136, 120, 1));
    }

    #[test]
    fn modes_have_defaults_of_their_own() {
        let Some(lat) = good("lat") else { return };
        assert_eq!((lat.kind, lat.load.window, lat.is_timed()), (Kind::Lat, 1, true));
        let rate = good("rate").expect("the machine is the same");
        assert_eq!((rate.load.window, rate.is_timed()), (32, false));
        let bw = good("bw").expect("the machine is the same");
        assert_eq!((bw.load.shape.reply_data, bw.load.placement), (65_536, Placement::Send));
    }

    #[test]
    fn a_placed_page_is_padded_to_its_segment() {
        let Some(plan) = good("lat --op read -p send") else { return };
        let leading = plan.config.recv_structure().leading_len() as usize;
        assert_eq!(plan.traffic().reply_len, leading + 4096);
    }

    #[test]
    fn a_round_trip_is_timed_alone() {
        let Some(refused) = plan("lat -w 2") else { return };
        assert!(matches!(refused, Err(BenchError::Usage(_))));
        assert!(good("lat -w 1").is_some_and(|plan| plan.is_timed()));
    }

    #[test]
    fn options_are_refused_where_they_would_mean_nothing() {
        let far = "lat --provider verbs --connect 127.0.0.1 --prefetched-floor";
        for options in ["lat --device rxe0", "raw --sends-per-post 4", far] {
            let refused = plan(options);
            assert!(matches!(refused, Some(Err(BenchError::Usage(_))) | None), "{options}");
        }
        for options in
            ["rate --stat /", "floor -w 32 --sends-per-post 4", "floor --prefetched-floor"]
        {
            assert!(Contest::parse(options).is_err(), "{options}");
        }
    }

    #[test]
    fn raw_runs_once_for_each_way_of_posting() {
        let Some(plan) = good("rate --sends-per-post 1,16") else { return };
        assert_eq!(plan.postings, [Posting::Exactly(1), Posting::Exactly(16)]);
    }

    #[test]
    fn the_prefetched_floor_is_measured_where_floors_are_the_subject_and_where_asked() {
        for (options, expected) in [
            ("lat", false),
            ("rate", false),
            ("floor", true),
            ("lat --prefetched-floor", true),
            ("raw --prefetched-floor", true),
        ] {
            let Some(plan) = good(options) else { return };
            assert_eq!(plan.prefetched_floor, expected, "{options}");
        }
    }

    #[test]
    fn null_calls_have_no_bandwidth() {
        assert!(matches!(plan("bw --op null"), Some(Err(BenchError::Usage(_))) | None));
    }

    #[test]
    fn the_sentence_says_what_is_done() {
        let Some(plan) = good("raw -w 4") else { return };
        let sentence = plan.sentence();
        assert!(sentence.contains("echo of 64 bytes, window 4"), "{sentence}");
        assert!(sentence.contains("10 rounds of 0.200 s"), "{sentence}");
    }
}
