//! What is going to be measured: the options with every default filled in.

use std::time::Duration;

use serde::Serialize;

use crate::args::{Args, Mode, Op};
use crate::call::{INLINE_HEADER_LEN, Shape, Traffic};
use crate::cores::CorePair;
use crate::error::BenchError;
use crate::meter::{End, Quota};

/// A benchmark, completely described.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is measured.
    pub mode: Mode,
    /// What one call carries.
    pub shape: Shape,
    /// Round trips under way at one time.
    pub window: u32,
    /// Where the threads run.
    pub cores: CorePair,
    /// Rounds of each contender.
    pub rounds: u32,
    /// The length of one round.
    pub quota: Quota,
}

impl Plan {
    /// Fills in the defaults of the mode.
    ///
    /// # Errors
    /// When options contradict each other, or the machine does not have the cores.
    pub fn new(args: &Args) -> Result<Plan, BenchError> {
        let op = args.op.unwrap_or(Op::Echo);
        if args.reply.is_some() && op != Op::Echo {
            let what = op.name();
            return Err(BenchError::Usage(format!(
                "--reply is the length of an echo's reply; {what} has it from --size"
            )));
        }
        let size = args.size.unwrap_or(match op {
            Op::Null | Op::Echo => 64,
            Op::Read | Op::Write => 4096,
        });
        Ok(Plan {
            mode: args.mode.unwrap_or(Mode::Raw),
            shape: Shape::new(op, size, args.reply.unwrap_or(size)),
            window: args.window.unwrap_or(1),
            cores: CorePair::choose(args.cores)?,
            rounds: args.rounds,
            quota: quota(args),
        })
    }

    /// What the call puts on the wire.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            request_len: INLINE_HEADER_LEN + self.shape.call_len(),
            reply_len: INLINE_HEADER_LEN + self.shape.reply_len(),
            window: self.window,
        }
    }

    /// Whether round trips are timed one by one, and not counted.
    pub fn is_timed(&self) -> bool {
        self.window == 1
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

    /// What is measured, as a sentence for people.
    pub fn sentence(&self) -> String {
        let Shape { op, request_data, reply_data } = self.shape;
        let data = match op {
            Op::Null => "null calls".to_owned(),
            Op::Echo if request_data == reply_data => format!("echo of {request_data} bytes"),
            Op::Echo => format!("echo of {request_data} bytes with {reply_data} back"),
            Op::Read => format!("read of {reply_data} bytes"),
            Op::Write => format!("write of {request_data} bytes"),
        };
        let round = match self.quota.end {
            End::Time(time) => format!("{:.3} s", time.as_secs_f64()),
            End::Count(count) => format!("{count} round trips"),
        };
        format!(
            "{}: {data}, window {}, cores {}, {} rounds of {round}",
            self.mode.name(),
            self.window,
            self.cores,
            self.rounds
        )
    }

    /// The same for programs.
    pub fn settings(&self) -> Settings {
        let Traffic { request_len, reply_len, .. } = self.traffic();
        Settings {
            mode: self.mode.name(),
            op: self.shape.op.name(),
            request_data_bytes: self.shape.request_data,
            reply_data_bytes: self.shape.reply_data,
            request_wire_bytes: request_len,
            reply_wire_bytes: reply_len,
            window: self.window,
            cores: self.cores,
            rounds: self.rounds,
            warm_up: self.quota.warm_up,
        }
    }
}

/// The settings of a run, as a result names them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// What was measured.
    pub mode: &'static str,
    /// What one call did.
    pub op: &'static str,
    /// Data bytes of a request.
    pub request_data_bytes: usize,
    /// Data bytes of a reply.
    pub reply_data_bytes: usize,
    /// Bytes of a request on the wire, all headers included.
    pub request_wire_bytes: usize,
    /// Bytes of a reply on the wire, all headers included.
    pub reply_wire_bytes: usize,
    /// Round trips under way at one time.
    pub window: u32,
    /// Where the threads ran.
    pub cores: CorePair,
    /// Rounds of each contender.
    pub rounds: u32,
    /// Uncounted round trips at the start of each round.
    pub warm_up: u64,
}

/// The share of one round in the whole time or count.
fn quota(args: &Args) -> Quota {
    let end = match args.iterations {
        Some(count) => End::Count(count.div_ceil(u64::from(args.rounds))),
        None => End::Time(args.seconds.unwrap_or(SECONDS) / args.rounds),
    };
    Quota { warm_up: args.warm_up, end }
}

const SECONDS: Duration = Duration::from_secs(2);
/// For the decision whether progress is worth showing.
const ROUND_TRIP_GUESS: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(options: &[&str]) -> Option<Result<Plan, BenchError>> {
        let args = Args::try_parse_from([&["rpcrdma-bench"], options].concat()).expect("it parses");
        match Plan::new(&args) {
            Err(BenchError::OneCore { .. }) => None,
            other => Some(other),
        }
    }

    fn good(options: &[&str]) -> Option<Plan> {
        plan(options).map(|plan| plan.expect("the options fit together"))
    }

    #[test]
    fn the_time_is_spread_over_the_rounds() {
        let Some(plan) = good(&["-t", "3", "-r", "12"]) else { return };
        assert_eq!(plan.quota.end, End::Time(Duration::from_millis(250)));
        assert_eq!(plan.expected(3), Duration::from_secs(9));
    }

    #[test]
    fn the_count_is_spread_over_the_rounds_and_rounded_up() {
        let Some(plan) = good(&["-n", "101", "-r", "10"]) else { return };
        assert_eq!(plan.quota.end, End::Count(11));
    }

    #[test]
    fn sizes_have_defaults_by_operation() {
        let Some(echo) = good(&[]) else { return };
        assert_eq!((echo.shape.request_data, echo.shape.reply_data), (64, 64));
        let read = good(&["--op", "read"]).expect("the machine is the same");
        assert_eq!((read.shape.request_data, read.shape.reply_data), (0, 4096));
        let wide = good(&["--size", "8", "--reply", "100"]).expect("the machine is the same");
        assert_eq!((wide.shape.request_data, wide.shape.reply_data), (8, 100));
    }

    #[test]
    fn a_reply_length_is_refused_where_it_would_be_ignored() {
        let Some(refused) = plan(&["--op", "read", "--reply", "8"]) else { return };
        assert!(matches!(refused, Err(BenchError::Usage(_))));
    }

    #[test]
    fn the_sentence_says_what_is_done() {
        let Some(plan) = good(&["-w", "4"]) else { return };
        let sentence = plan.sentence();
        assert!(sentence.contains("echo of 64 bytes, window 4"), "{sentence}");
        assert!(sentence.contains("10 rounds of 0.200 s"), "{sentence}");
    }
}
