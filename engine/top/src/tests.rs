//! The screen and its keys, without a terminal.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::app::App;
use crate::plain;
use crate::samples::parse;
use crate::screen;
use crate::source::Scrape;
use crate::tables::tables;

/// What a process with two shards shows after so many calls of each.
fn text(calls: [u64; 2]) -> String {
    let shard = |(shard, calls): (usize, u64)| {
        format!(
            "rpcrdma_up{{shard=\"{shard}\"}} {}\n\
             rpcrdma_calls_received_total{{shard=\"{shard}\"}} {calls}\n\
             rpcrdma_pool_size{{shard=\"{shard}\",pool=\"slots\"}} 64\n\
             rpcrdma_pool_used{{shard=\"{shard}\",pool=\"slots\"}} {shard}\n\
             rpcrdma_peer_info{{shard=\"{shard}\",connection=\"0.1\",peer=\"10.0.0.{shard}:5\",\
             state=\"up\",version=\"2\"}} 1\n\
             rpcrdma_peer_credits_limit{{shard=\"{shard}\",connection=\"0.1\",\
             peer=\"10.0.0.{shard}:5\"}} 32\n",
            1 - shard
        )
    };
    calls.into_iter().enumerate().map(shard).collect()
}

struct Scene {
    app: App,
    start: Instant,
    terminal: Terminal<TestBackend>,
}

impl Scene {
    fn new() -> Scene {
        let terminal = Terminal::new(TestBackend::new(120, 12)).expect("a terminal");
        Scene { app: App::new("http://x/metrics"), start: Instant::now(), terminal }
    }

    /// A look so many seconds after the start.
    fn look(&mut self, seconds: u64, calls: [u64; 2]) {
        let at = self.start + Duration::from_secs(seconds);
        let samples = parse(&text(calls)).expect("metrics");
        self.app.take(Ok(Scrape { at, samples }), at);
    }

    fn press(&mut self, key: KeyCode) -> bool {
        self.app.press(KeyEvent::new(key, KeyModifiers::NONE))
    }

    /// What is on the screen, so many seconds after the start.
    fn lines(&mut self, seconds: u64) -> Vec<String> {
        let at = self.start + Duration::from_secs(seconds);
        self.terminal.draw(|frame| screen::draw(&self.app, at, frame)).expect("drawn");
        let buffer = self.terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        cells.chunks(width).map(|line| line.concat().trim_end().to_owned()).collect()
    }

    /// The lines of rows, as words.
    fn rows(&mut self, seconds: u64) -> Vec<Vec<String>> {
        let lines = self.lines(seconds);
        let rows = lines[3..lines.len() - 1].iter().filter(|line| !line.is_empty());
        rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }
}

#[test]
fn rates_are_shown_by_shard_from_the_second_look_on() {
    let mut scene = Scene::new();
    assert!(scene.lines(0)[0].starts_with("asking http://x/metrics"));
    scene.look(0, [100, 0]);
    assert_eq!(scene.rows(0)[0][3], "-");
    scene.look(2, [5_100, 20]);
    let rows = scene.rows(2);
    assert_eq!(rows[0][..4], ["0", "up", "-", "2.50k"]);
    assert_eq!(rows[1][..5], ["1", "no", "answer", "-", "10.0"]);
    assert!(rows[1].contains(&"1/64".to_owned()));
}

#[test]
fn a_process_that_comes_back_has_no_negative_rates() {
    let mut scene = Scene::new();
    scene.look(0, [100, 100]);
    scene.look(1, [200, 200]);
    let why = || Err("connection refused".into());
    scene.app.take(why(), scene.start + Duration::from_secs(2));
    scene.app.take(why(), scene.start + Duration::from_secs(3));
    let lines = scene.lines(5);
    assert_eq!(lines[0], "no answer from http://x/metrics for 3 s: connection refused");
    assert_eq!(scene.rows(5)[0][3], "100", "what was seen last stays");
    scene.look(6, [10, 300]);
    let rows = scene.rows(6);
    assert_eq!(scene.lines(6)[0], "http://x/metrics");
    assert_eq!((rows[0][3].as_str(), rows[1][4].as_str()), ("-", "20.0"));
}

#[test]
fn keys_choose_table_row_and_order() {
    let mut scene = Scene::new();
    scene.look(0, [0, 0]);
    scene.look(1, [10, 20]);
    assert!(!scene.press(KeyCode::Tab));
    let rows = scene.rows(1);
    assert_eq!(rows[0][..5], ["0", "0.1", "10.0.0.0:5", "up", "2"]);
    scene.press(KeyCode::Char('r'));
    assert_eq!(scene.rows(1)[0][2], "10.0.0.1:5");
    scene.press(KeyCode::Char('1'));
    (0..3).for_each(|_| assert!(!scene.press(KeyCode::Right)));
    assert_eq!(scene.rows(1)[0][0], "1", "the most calls first");
    scene.press(KeyCode::Char('4'));
    let rows = scene.rows(1);
    assert_eq!(rows, [["calls_received", "30", "30.0"]]);
    (0..99).for_each(|_| assert!(!scene.press(KeyCode::Down)));
    (0..99).for_each(|_| assert!(!scene.press(KeyCode::Right)));
    assert_eq!((scene.app.row[3], scene.app.column[3]), (0, 2), "no further than there is");
    assert!(scene.press(KeyCode::Char('q')));
    assert!(scene.app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn a_narrow_terminal_shows_whole_columns_and_the_chosen_one() {
    let mut scene = Scene::new();
    scene.look(0, [0, 0]);
    scene.look(1, [10, 20]);
    scene.terminal.backend_mut().resize(32, 8);
    assert_eq!(scene.lines(1)[2], "shard state     conns in/s");
    (0..12).for_each(|_| assert!(!scene.press(KeyCode::Right)));
    let titles = scene.lines(1)[2].clone();
    assert!(titles.starts_with("shard ") && titles.ends_with(" slots"), "{titles}");
}

#[test]
fn any_size_of_the_terminal_is_drawn() {
    let mut scene = Scene::new();
    scene.look(0, [0, 0]);
    for (width, height) in [(1, 1), (10, 2), (40, 4), (300, 100), (3, 50)] {
        scene.terminal.backend_mut().resize(width, height);
        for table in ['1', '2', '3', '4'] {
            scene.press(KeyCode::Char(table));
            assert_eq!(scene.lines(1).len(), usize::from(height));
        }
    }
}

#[test]
fn a_name_that_a_peer_selects_controls_no_terminal() {
    let long = "9".repeat(1 << 17);
    let text = format!(
        "rpcrdma_peer_info{{shard=\"0\",connection=\"0.1\",\
         peer=\"shm:@\x1b]0;x\x07\u{9b}2J\\n\"}} 1\n\
         rpcrdma_peer_info{{shard=\"{long}\",connection=\"0.2\",peer=\"{long}\"}} 1\n"
    );
    let samples = parse(&text).expect("metrics");
    let scrape = Scrape { at: Instant::now(), samples };
    let mut written = Vec::new();
    plain::print(&tables(None, &scrape), &mut written).expect("a vector takes everything");
    let written = String::from_utf8(written).expect("text");
    assert!(!written.contains(|it: char| it.is_control() && it != '\n'), "{written:?}");
    assert!(written.contains("shm:@\\u{1b}]0;x\\u{7}\\u{9b}2J\\n "), "{written}");
    assert!(written.lines().all(|line| line.len() < 1000));
    let error = parse("\x1b[2J").expect_err("no metric").to_string();
    assert_eq!(error, "line 1 is no metric: \\u{1b}[2J");
}

#[test]
fn every_column_has_a_metric_of_its_own() {
    let peer = "shard=\"0\",connection=\"0.1\",peer=\"a\"";
    let gauges = [
        "credits_used",
        "credits_limit",
        "granted_used",
        "granted_limit",
        "calls_open",
        "messages_waiting",
        "messages_pending",
        "slots",
    ];
    let sample = |(at, name)| format!("rpcrdma_peer_{name}{{{peer}}} {at}\n");
    let mut text: String = gauges.into_iter().enumerate().map(sample).collect();
    for (name, bound) in [("service", 1), ("call", 2)] {
        for (bound, count) in [(bound.to_string(), 1000), ("+Inf".to_owned(), 1000)] {
            text +=
                &format!("rpcrdma_{name}_seconds_bucket{{shard=\"0\",le=\"{bound}\"}} {count}\n");
        }
    }
    let samples = parse(&text).expect("metrics");
    let [shards, peers, times, _] = tables(None, &Scrape { at: Instant::now(), samples });
    let shown = |row: &[crate::cell::Cell]| row.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&peers.rows[0][10..16]), ["0/1", "2/3", "4", "5", "6", "7"]);
    let [service, call] = [&shards.rows[0][5..7], &shards.rows[0][9..11]].map(shown);
    assert_eq!(
        (service, call),
        (vec!["500ms".into(), "990ms".into()], vec!["1.00s".into(), "1.98s".into()])
    );
    assert_eq!(shown(&times.rows[0][3..]), ["500ms", "900ms", "990ms", "999ms"]);
}

#[test]
fn keys_go_back_and_to_the_end() {
    let mut scene = Scene::new();
    scene.look(0, [0, 0]);
    scene.press(KeyCode::BackTab);
    assert_eq!(scene.app.table, 3);
    scene.press(KeyCode::Char('1'));
    scene.press(KeyCode::End);
    assert_eq!(scene.app.row[0], 1);
    let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    released.kind = ratatui::crossterm::event::KeyEventKind::Release;
    assert!(!scene.app.press(released), "the release of a key is no other press");
}
