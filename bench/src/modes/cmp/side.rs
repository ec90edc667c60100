//! Parsing of sides: a mode of this program, a saved result, a tool, or sockets.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Parser;
use strum::VariantArray;

use super::entrant::{Entrant, Runner};
use crate::args::DeviceArgs;
use crate::call::Traffic;
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::modes::contest::{self, Contest, Plan, PlanArgs};
use crate::output::{Modes, Records, Report, title};
use crate::peers::iceoryx2::Iceoryx2;
use crate::peers::libfabric::FiPingpong;
use crate::peers::perftest::{IbSendBw, IbSendLat};
use crate::peers::socket::{self, Sockets};
use crate::peers::tool::{self, Tool, ToolKind, length};
use crate::peers::ucx::Ucx;
use crate::peers::{Pattern, PeerTask};

#[derive(Debug, Clone)]
pub struct Side {
    pub asked: String,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    Ours(Box<Ours>),
    Saved {
        path: PathBuf,
        of: Option<String>,
    },
    /// A mode that is run as a whole: its words.
    Mode(String),
    /// A tool of others.
    Tool(Rc<dyn ToolKind>),
    /// Sockets, with what differs from the other side.
    Sockets(socket::SocketKind, SocketArgs),
}

#[derive(Debug, Clone)]
pub struct Ours {
    /// What it does; where and how long are the comparison's.
    pub plan: Plan,
    pub device: DeviceArgs,
}

impl Side {
    /// Reads a side: a mode with its options, a file, or the name of a peer with its options.
    pub fn parse(asked: &str, modes: Modes) -> Result<Side, BenchError> {
        let asked = asked.trim();
        let mut words = asked.split_whitespace();
        let first = words.next().unwrap_or_default();
        let what = if let Some(what) = saved(asked) {
            what
        } else if let Some(kind) =
            socket::SocketKind::VARIANTS.iter().find(|kind| kind.into_str() == first)
        {
            What::Sockets(*kind, options::<SocketArgs>(asked, words)?)
        } else {
            match first {
                "ucx" | "ucx_perftest" => What::tool(options::<Ucx>(asked, words)?),
                "fi_pingpong" | "libfabric" => What::tool(options::<FiPingpong>(asked, words)?),
                "iceoryx2" => What::tool(options::<Iceoryx2>(asked, words)?),
                "ib_send_lat" | "perftest" => What::tool(options::<IbSendLat>(asked, words)?),
                "ib_send_bw" => What::tool(options::<IbSendBw>(asked, words)?),
                mode if MODES.contains(&mode) => What::Ours(Box::new(ours(asked)?)),
                mode if (modes.has)(mode) && !NO_SIDES.contains(&mode) => {
                    What::Mode(asked.to_owned())
                }
                _ => return Err(BenchError::Usage(format!("`{asked}` is no side: {SIDES}"))),
            }
        };
        Ok(Side { asked: asked.to_owned(), what })
    }

    pub fn every_peer() -> Vec<Side> {
        let side = |what: What| Side { asked: what.name(), what };
        let sockets = socket::SocketKind::VARIANTS.iter().map(|kind| What::Sockets(*kind, usual()));
        let tools = [
            What::tool(usual::<Ucx>()),
            What::tool(usual::<FiPingpong>()),
            What::tool(usual::<Iceoryx2>()),
            What::tool(usual::<IbSendLat>()),
            What::tool(usual::<IbSendBw>()),
        ];
        sockets.chain(tools).map(side).collect()
    }

    /// Why it cannot be run here, and what can be done about it; `None` if it can.
    pub fn absence(&self) -> Option<String> {
        match &self.what {
            What::Tool(kind) => tool::absence(&**kind),
            _ => None,
        }
    }

    /// Whether it can have more than one call under way.
    pub fn has_windows(&self) -> bool {
        match &self.what {
            What::Sockets(kind, _) => kind.spins(),
            What::Tool(kind) => kind.can(Pattern::Messages),
            What::Ours(_) | What::Saved { .. } | What::Mode(_) => true,
        }
    }

    /// Whether it can have one message under way and time it.
    pub fn has_round_trips(&self) -> bool {
        match &self.what {
            What::Tool(kind) => kind.can(Pattern::RoundTrips),
            What::Sockets(kind, _) => !kind.is_one_way(),
            What::Ours(_) | What::Saved { .. } | What::Mode(_) => true,
        }
    }

    /// Whether its messages have no replies.
    pub fn is_one_way(&self) -> bool {
        matches!(&self.what, What::Sockets(kind, _) if kind.is_one_way())
    }

    pub fn plan(&self) -> Option<&Plan> {
        match &self.what {
            What::Ours(ours) => Some(&ours.plan),
            _ => None,
        }
    }

    /// A side that is a whole result.
    ///
    /// # Panics
    /// If it is another one.
    pub fn enter_whole(&self, label: String, modes: Modes) -> Result<Entrant, BenchError> {
        let (notes, runner) = match &self.what {
            What::Saved { path, of } => enter_saved(path, of.as_deref())?,
            What::Mode(words) => enter_result((modes.run)(words)?, words, None)?,
            What::Ours(_) | What::Sockets(..) | What::Tool(_) => panic!("it is run in turns"),
        };
        Ok(Entrant { label, notes, runner })
    }

    /// Sets it up. A peer does what `example` does.
    pub fn enter(
        &self,
        label: String,
        cores: CorePair,
        example: &Ours,
        modes: Modes,
    ) -> Result<Entrant, BenchError> {
        let (notes, runner) = match &self.what {
            What::Ours(ours) => enter_ours(ours, cores)?,
            What::Saved { .. } | What::Mode(_) => return self.enter_whole(label, modes),
            What::Sockets(kind, args) => enter_sockets(*kind, args, cores, &example.plan)?,
            What::Tool(kind) => {
                let task = task(&example.plan);
                let tool = Tool::new(Rc::clone(kind), task, cores, &example.device)?;
                (tool.notes(), Runner::Tool { tool, rounds: Vec::new() })
            }
        };
        Ok(Entrant { label, notes, runner })
    }
}

impl What {
    pub fn name(&self) -> String {
        match self {
            What::Ours(ours) => ours.plan.kind.into_str().to_owned(),
            What::Saved { path, .. } => {
                path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
            }
            What::Mode(words) => words.split(' ').next().unwrap_or_default().to_owned(),
            What::Sockets(kind, _) => kind.into_str().to_owned(),
            What::Tool(kind) => kind.what().name.to_owned(),
        }
    }

    /// Whether it is a whole result, which is not measured in turns.
    pub fn is_result(&self) -> bool {
        matches!(self, What::Mode(_) | What::Saved { .. })
    }

    fn tool(kind: impl ToolKind + 'static) -> What {
        What::Tool(Rc::new(kind))
    }
}

impl Ours {
    /// The round trip of an RPC: the default to compare peers with.
    pub fn usual() -> Result<Ours, BenchError> {
        ours("lat")
    }
}

/// What sides are called: their kinds where these differ, else their words.
pub fn labels(sides: &[Side]) -> Vec<String> {
    let names: Vec<String> = sides.iter().map(|side| side.what.name()).collect();
    let mut labels: Vec<String> = Vec::new();
    for (side, name) in sides.iter().zip(&names) {
        let is_alone = names.iter().filter(|other| *other == name).count() == 1;
        let label = if is_alone { name } else { &side.asked };
        let same = labels.iter().filter(|other| *other == label).count();
        let clash = labels.iter().any(|other| other == label);
        labels.push(if clash { format!("{label} ({})", same + 1) } else { label.clone() });
    }
    labels
}

/// A file, if it looks like one: `saved:FILE`, `FILE.json`, each with `#NAME` behind it if not the
/// usual contender is meant.
fn saved(asked: &str) -> Option<What> {
    let (file, of) = match asked.rsplit_once('#') {
        Some((file, of)) => (file, Some(of.to_owned())),
        None => (asked, None),
    };
    let is_json = Path::new(file).extension().is_some_and(|extension| extension == "json");
    let path = match file.strip_prefix("saved:") {
        Some(path) => path,
        None if is_json => file,
        None => return None,
    };
    Some(What::Saved { path: path.into(), of })
}

fn options<'a, P: Parser>(
    asked: &str,
    words: impl Iterator<Item = &'a str>,
) -> Result<P, BenchError> {
    P::try_parse_from(words).map_err(|error| unclear(asked, &error))
}

fn unclear(asked: &str, error: &clap::Error) -> BenchError {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    BenchError::Usage(format!("`{asked}`: {text}"))
}

fn usual<P: Parser>() -> P {
    P::try_parse_from([""; 0]).expect("every option has a default")
}

/// The options behind the name of a socket.
#[derive(Debug, Clone, Parser)]
#[command(name = "sockets", no_binary_name = true, disable_version_flag = true)]
pub struct SocketArgs {
    /// Bytes of a message in both directions [default: wire length of the other side; of a stream,
    /// its data]
    #[arg(short, long, value_name = "BYTES", value_parser = length)]
    size: Option<usize>,
    /// Requests under way at one time [default: as many as the other side has]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: Option<u32>,
}

fn ours(asked: &str) -> Result<Ours, BenchError> {
    let contest = Contest::parse(asked).map_err(|error| unclear(asked, &error))?;
    let bare = Contest::parse("lat").expect("everything has a default");
    let PlanArgs { contest: options, length, .. } = contest.args();
    if length != bare.args().length
        || options.cores.cores.is_some()
        || contest.output() != bare.output()
    {
        let text = "cores, rounds, times and outputs are those of cmp: give them before the sides";
        return Err(BenchError::Usage(format!("`{asked}`: {text}")));
    }
    Ok(Ours { plan: contest.plan()?, device: options.device.clone() })
}

fn enter_ours(ours: &Ours, cores: CorePair) -> Result<(Vec<String>, Runner), BenchError> {
    let plan = Plan { cores, ..ours.plan.clone() };
    let (contender, notes) = contest::alone(&plan, &ours.device)?;
    let data_len = contest::data_len(&plan);
    Ok((notes, Runner::Ours { contender, data_len, records: Records::default() }))
}

fn enter_sockets(
    kind: socket::SocketKind,
    args: &SocketArgs,
    cores: CorePair,
    plan: &Plan,
) -> Result<(Vec<String>, Runner), BenchError> {
    let example = plan.traffic();
    let (request_len, reply_len, data_len) = match (args.size, contest::data_len(plan)) {
        (Some(len), _) if kind.is_one_way() => (0, len, len),
        (Some(len), _) => (len, len, 2 * len),
        (None, data_len) if kind.is_one_way() => (0, data_len, data_len),
        (None, data_len) => (example.request_len, example.reply_len, data_len),
    };
    let window = args.window.unwrap_or(example.window);
    let traffic = Traffic { request_len, reply_len, window };
    let sockets = Sockets::new(kind, cores, traffic, plan.is_timed())?;
    let notes = sockets.notes();
    Ok((notes, Runner::Ours { contender: Box::new(sockets), data_len, records: Records::default() }))
}

fn enter_saved(path: &Path, of: Option<&str>) -> Result<(Vec<String>, Runner), BenchError> {
    enter_result(Report::read(path)?, &path.display().to_string(), of)
}

fn enter_result(
    report: Report,
    from: &str,
    of: Option<&str>,
) -> Result<(Vec<String>, Runner), BenchError> {
    let mut names: Vec<&str> = Vec::new();
    for figure in &report.figures {
        if !names.contains(&&*figure.of) {
            names.push(&figure.of);
        }
    }
    let usual = match &*report.mode {
        mode @ ("floor" | "raw") => mode,
        _ => "rpc",
    };
    let wanted = of.unwrap_or(usual);
    let found = names.iter().find(|name| **name == wanted);
    let first = names.first().filter(|_| of.is_none());
    let whose = (*found.or(first).ok_or_else(|| {
        let list = names.join(", ");
        BenchError::Usage(format!("{from}: it has no `{wanted}`, but {list}"))
    })?)
    .to_owned();
    let note = format!("{from}: {} of `{}`", title(&whose), report.what);
    let (report, is_chosen) = (Box::new(report), of.is_some());
    Ok((vec![note], Runner::Whole { report, of: whose, is_chosen }))
}

/// What a peer is to do: as much as an RPC does.
fn task(plan: &Plan) -> PeerTask {
    let traffic = plan.traffic();
    PeerTask {
        pattern: if plan.is_timed() { Pattern::RoundTrips } else { Pattern::Messages },
        data_len: plan.load.shape.data_len().max(1),
        wire_len: traffic.request_len.max(traffic.reply_len),
    }
}

const MODES: [&str; 5] = ["lat", "rate", "bw", "raw", "floor"];
/// Modes that have no points of their own.
const NO_SIDES: [&str; 4] = ["cmp", "serve", "prove", "check"];
const SIDES: &str = "a side is a mode with its options (lat, rate, bw, raw, floor in turns with \
    others; load, conns and the like as a whole), a saved result (FILE.json or saved:FILE, with \
    #NAME for one of its contenders), or a peer (unix, tcp, \
    unix-block, tcp-block, tcp-stream, ucx, fi_pingpong, iceoryx2, ib_send_lat, ib_send_bw)";

#[cfg(test)]
mod tests {
    use super::*;

    /// A side; `None` on a machine with one core, where modes have no plan.
    fn side(asked: &str) -> Option<Side> {
        match Side::parse(asked, Modes::NONE) {
            Err(BenchError::OneCore { .. }) => None,
            side => Some(side.unwrap_or_else(|error| panic!("{asked}: {error}"))),
        }
    }

    fn error(asked: &str) -> String {
        Side::parse(asked, Modes::NONE).err().map_or_else(|| panic!("{asked} is a side"), |e| e.to_string())
    }

    #[test]
    fn a_mode_has_the_options_that_it_has_as_a_command() {
        let Some(Side { what: What::Ours(ours), .. }) = side("lat -s 4KiB --op read -p send")
        else {
            return;
        };
        assert_eq!(ours.plan.load.shape.reply_data, 4096);
        let error = error("lat --sideways");
        assert!(error.contains("`lat --sideways`") && error.contains("--sideways"), "{error}");
    }

    #[test]
    fn what_all_sides_share_is_not_an_option_of_one() {
        if CorePair::choose(None).is_err() {
            return;
        }
        for asked in ["lat -t 3", "lat -r 3", "rate -c 0,1", "lat --warm-up 1", "lat --json x"] {
            assert!(error(asked).contains("those of cmp"), "{asked}");
        }
    }

    #[test]
    fn files_are_known_by_their_ending_or_by_their_prefix() {
        for (asked, path, of) in [
            ("old.json", "old.json", None),
            ("saved:old", "old", None),
            ("saved:a b.json", "a b.json", None),
            ("out/old.json#raw", "out/old.json", Some("raw")),
        ] {
            let Some(What::Saved { path: found, of: whose }) = saved(asked) else {
                panic!("{asked} is a file")
            };
            assert_eq!((found.as_path(), whose.as_deref()), (Path::new(path), of));
        }
        assert!(saved("lat").is_none());
    }

    #[test]
    fn peers_have_names_and_options() {
        for (asked, client) in [
            ("ucx am -s 4KiB", "-p 7 -t ucp_am_lat -f -v -s 4096 -n 9 -w 9 127.0.0.1"),
            ("fi_pingpong -p tcp", "-p tcp -e msg -I 9 -S 64 -P 7 127.0.0.1"),
            ("iceoryx2 --program ./ice", "client rpcrdma-bench-7 64 9 9"),
        ] {
            let Some(Side { what: What::Tool(kind), .. }) = side(asked) else {
                panic!("{asked} is a tool")
            };
            let task = PeerTask { pattern: Pattern::RoundTrips, data_len: 64, wire_len: 136 };
            let run = tool::ToolRun { port: 7, count: 9, device: None, address: None };
            assert_eq!(kind.arguments(&task, &run)[1].join(" "), client);
        }
        for (asked, name, size, window) in [
            ("tcp-block -s 100", "tcp-block", Some(100), None),
            ("tcp -w 1", "tcp", None, Some(1)),
            ("tcp-stream -s 1MiB", "tcp-stream", Some(1 << 20), None),
        ] {
            let Some(Side { what: What::Sockets(kind, args), .. }) = side(asked) else {
                panic!("{asked} is a socket")
            };
            assert_eq!((kind.into_str(), args.size, args.window), (name, size, window));
        }
        assert!(error("ucx sideways").contains("sideways"));
        let unknown = error("grpc");
        assert!(unknown.contains("`grpc` is no side") && unknown.contains("ucx"), "{unknown}");
        assert!(error("").contains("no side"));
    }

    #[test]
    fn every_peer_is_there_to_be_compared_with() {
        let names: Vec<String> = Side::every_peer().iter().map(|side| side.what.name()).collect();
        assert_eq!(
            names,
            [
                "unix",
                "tcp",
                "unix-block",
                "tcp-block",
                "tcp-stream",
                "ucx",
                "fi_pingpong",
                "iceoryx2",
                "ib_send_lat",
                "ib_send_bw"
            ]
        );
    }

    #[test]
    fn sides_are_called_by_their_kind_until_two_are_of_one_kind() {
        let label = |asked: &[&str]| {
            let sides: Vec<Side> = asked
                .iter()
                .map(|asked| Side { asked: (*asked).into(), what: usual_side(asked) })
                .collect();
            labels(&sides)
        };
        assert_eq!(label(&["unix", "ucx"]), ["unix", "ucx"]);
        assert_eq!(label(&["ucx", "ucx am", "unix"]), ["ucx", "ucx am", "unix"]);
        assert_eq!(label(&["unix", "unix"]), ["unix", "unix (2)"]);
    }

    fn usual_side(asked: &str) -> What {
        Side::parse(asked, Modes::NONE).expect("a peer").what
    }

    #[test]
    fn a_saved_result_names_its_contenders_if_the_wanted_one_is_not_among_them() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("no/such/file.json");
        let asked = format!("saved:{}", file.display());
        let side = Side::parse(&asked, Modes::NONE).expect("a file");
        let What::Saved { path, of } = side.what else { panic!("a file") };
        let missing = enter_saved(&path, of.as_deref()).err().expect("there is no such file");
        assert!(missing.to_string().contains("file.json"), "{missing}");
    }
}
