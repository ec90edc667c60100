//! `check` on recorded hosts: findings, texts, and that every command is valid.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rpcrdma::ProviderKind;
use rpcrdma_bench::check::conclusion::Reach;
use rpcrdma_bench::check::finding::{Finding, Severity};
use rpcrdma_bench::check::host::{Ask, Host, Seen};
use rpcrdma_bench::check::wanted::{Source, Wanted};
use rpcrdma_bench::check::{self, Args, Checkup, measure};
use rpcrdma_bench::cli::Cli;
use rpcrdma_bench::machine::{CorePair, Jitter};
use rpcrdma_bench::output::outcome::{Outcome, check};
use rpcrdma_bench::output::{Report, Session};

#[derive(Clone)]
struct Answers {
    cores: Vec<u32>,
    libraries: bool,
    devices: Vec<Seen>,
    files: bool,
    /// Gaps a second and the longest one, of both cores.
    gaps: Option<(f64, u64)>,
    optimised: bool,
}

impl Answers {
    fn new(cores: u32) -> Answers {
        Answers {
            cores: (0..cores).collect(),
            libraries: true,
            devices: Vec::new(),
            files: true,
            gaps: None,
            optimised: true,
        }
    }

    fn device(self, name: &str, mtu: u32) -> Answers {
        Answers { devices: vec![Seen { name: name.to_owned(), ports: vec![(1, mtu)] }], ..self }
    }
}

impl Ask for Answers {
    fn allowed_cores(&self) -> Vec<u32> {
        self.cores.clone()
    }

    fn missing_libraries(&self) -> Vec<&'static str> {
        if self.libraries { Vec::new() } else { vec!["libibverbs.so.1", "librdmacm.so.1"] }
    }

    fn devices(&self) -> Result<Vec<Seen>, String> {
        if self.libraries { Ok(self.devices.clone()) } else { Err("no library".to_owned()) }
    }

    fn closed(&self, _: &Path) -> Option<String> {
        (!self.files).then(|| "Permission denied (os error 13)".to_owned())
    }

    fn jitter(&self, cores: CorePair) -> Option<[Jitter; 2]> {
        let (gaps_per_second, longest_ns) = self.gaps?;
        let lost_share = gaps_per_second * 20e-6;
        Some(cores.both().map(|core| Jitter { core, gaps_per_second, lost_share, longest_ns }))
    }

    fn is_optimised(&self) -> bool {
        self.optimised
    }
}

/// The files of a recorded host, written where cargo lets tests write.
fn unpack(name: &str) -> PathBuf {
    // Tests run at the same time: each has its own.
    let test = std::thread::current().name().unwrap_or("test").replace("::", "-");
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts").join(test).join(name);
    drop(fs::remove_dir_all(&root));
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/hosts/{name}.txt"));
    let text = fs::read_to_string(archive).expect("a recorded host");
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        if line.ends_with('/') {
            fs::create_dir_all(root.join(line)).expect("it is writable");
            continue;
        }
        let (path, value) = line.split_once(" =").expect("`path = value`");
        let mut value = value.trim().to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with("    ")) {
            value = value + more.trim_start() + "\n";
        }
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("it is writable");
        fs::write(path, value + "\n").expect("it is writable");
    }
    root
}

fn look(name: &str, answers: &Answers, wanted: &Wanted) -> Checkup {
    Checkup::new(&Host::new(&unpack(name), answers), wanted)
}

fn plain() -> Wanted {
    Wanted::new(Source::Default).expect("a profile")
}

fn verbs() -> Wanted {
    Wanted { providers: vec![ProviderKind::Verbs], ..plain() }
}

fn of<'a>(checkup: &'a Checkup, name: &str) -> &'a Finding {
    let found = checkup.findings().find(|finding| finding.name == name);
    found.unwrap_or_else(|| panic!("nothing was found of {name}:\n{}", checkup.table()))
}

fn severity(checkup: &Checkup, name: &str) -> Severity {
    of(checkup, name).severity
}

fn command<'a>(checkup: &'a Checkup, name: &str) -> &'a str {
    let finding = of(checkup, name);
    &finding.fix.as_ref().unwrap_or_else(|| panic!("{finding:?} has no command")).command
}

fn names(checkup: &Checkup, severity: Severity) -> BTreeSet<&'static str> {
    checkup.findings().filter(|found| found.severity == severity).map(|found| found.name).collect()
}

fn laptop() -> Answers {
    Answers { libraries: false, ..Answers::new(8) }
}

fn tuned() -> Answers {
    Answers::new(8).device("mlx5_0", 4096)
}

fn spoiled() -> Answers {
    Answers {
        gaps: Some((1000.0, 4_000_000)),
        files: false,
        optimised: false,
        ..Answers::new(8).device("mlx5_0", 1024)
    }
}

#[test]
fn on_a_laptop_the_fabric_can_be_shown_and_nothing_is_an_error() {
    let checkup = look("laptop", &laptop(), &plain());
    assert_eq!(names(&checkup, Severity::Error), BTreeSet::new(), "{}", checkup.table());
    assert_eq!(names(&checkup, Severity::Warning), BTreeSet::from(["governor", "huge-pages"]));
    assert_eq!(checkup.conclusion.reach, Reach::Fabric);
    assert!(checkup.conclusion.next[0].starts_with("rpcrdma-bench "), "{:?}", checkup.conclusion);
    let said = checkup.conclusion.sentences.join(" ");
    assert!(said.contains("governor") && said.contains("type rxe netdev wlp0s20f3"), "{said}");
}

#[test]
fn on_a_laptop_whole_cores_are_picked_and_their_other_threads_are_named() {
    let checkup = look("laptop", &laptop(), &plain());
    let siblings = of(&checkup, "siblings");
    assert_eq!(siblings.severity, Severity::Hint);
    assert!(siblings.seen.contains("5-6") && siblings.seen.contains("1-2"), "{siblings:?}");
    let pair = Wanted { cores: "1,5".parse().ok(), ..plain() };
    let checkup = look("laptop", &laptop(), &pair);
    assert_eq!(severity(&checkup, "siblings"), Severity::Warning);
    assert!(command(&checkup, "siblings").contains("--cores 0,1"));
}

#[test]
fn commands_for_root_begin_with_sudo_unless_root_asks() {
    let checkup = look("laptop", &laptop(), &plain());
    assert_eq!(
        command(&checkup, "governor"),
        "sudo sh -c 'echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor'"
    );
    let pages = command(&checkup, "huge-pages");
    assert!(
        pages.contains("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages")
    );
    let guest = look("soft-roce", &Answers::new(2).device("rxe0", 1024), &plain());
    assert!(!command(&guest, "huge-pages").contains("sudo"), "root is root already");
}

#[test]
fn on_a_tuned_server_all_is_well_and_a_nic_can_be_shown() {
    let wanted = Wanted { cores: "4,5".parse().ok(), ..verbs() };
    let quiet = Answers { gaps: Some((2.0, 9000)), ..tuned() };
    let checkup = look("tuned", &quiet, &wanted);
    assert_eq!(checkup.findings().map(|found| found.severity).max(), Some(Severity::Ok));
    assert_eq!(checkup.conclusion.reach, Reach::Nic);
    assert_eq!(checkup.conclusion.next[0], "rpcrdma-bench lat --provider verbs --device mlx5_0");
    assert!(checkup.conclusion.sentences.iter().any(|text| text.contains("tails can be believed")));
}

#[test]
fn cores_of_another_node_than_the_device_are_a_warning_with_better_ones() {
    let wanted = Wanted { cores: "1,2".parse().ok(), ..plain() };
    let checkup = look("tuned", &tuned(), &wanted);
    let finding = of(&checkup, "device-node");
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.seen.contains("distance 32"), "{finding:?}");
    assert!(command(&checkup, "device-node").ends_with("--cores 4,5"));
    // One here and one there is worse still.
    let wanted = Wanted { cores: "3,4".parse().ok(), ..plain() };
    assert_eq!(severity(&look("tuned", &tuned(), &wanted), "core-nodes"), Severity::Warning);
}

#[test]
fn in_a_guest_soft_roce_can_be_shown_and_stolen_time_is_seen() {
    let answers = Answers { gaps: Some((250.0, 25_000)), ..Answers::new(2).device("rxe0", 1024) };
    let checkup = look("soft-roce", &answers, &verbs());
    assert_eq!(checkup.conclusion.reach, Reach::SoftRoce, "{}", checkup.table());
    assert_eq!(severity(&checkup, "steal"), Severity::Warning);
    assert!(of(&checkup, "steal").seen.starts_with("10.00 %"));
    assert_eq!(severity(&checkup, "clock"), Severity::Hint, "kvm-clock needs no system call");
    assert_eq!(severity(&checkup, "tick"), Severity::Hint);
    assert_eq!(severity(&checkup, "jitter"), Severity::Ok);
    // Root is not held by the limit.
    assert_eq!(severity(&checkup, "memlock"), Severity::Ok);
    assert_eq!(severity(&checkup, "mtu"), Severity::Hint);
    assert!(!checkup.findings().any(|finding| finding.name == "device-node"), "it has no bus");
}

#[test]
fn in_a_container_what_was_not_given_to_it_is_named_with_the_flag_that_gives_it() {
    let answers = Answers { libraries: false, files: false, ..Answers::new(4) };
    let checkup = look("container", &answers, &verbs());
    let errors = names(&checkup, Severity::Error);
    assert_eq!(errors, BTreeSet::from(["device-files", "libraries", "memlock"]));
    assert!(command(&checkup, "memlock").contains("--ulimit memlock=-1"));
    assert!(command(&checkup, "device-files").contains("--device=/dev/infiniband"));
    assert!(command(&checkup, "libraries").starts_with("apt-get install -y "));
    assert_eq!(severity(&checkup, "cpu-quota"), Severity::Warning);
    assert!(of(&checkup, "cpu-quota").seen.starts_with("2.0 cores"));
    let note = of(&checkup, "huge-pages").fix.as_ref().and_then(|fix| fix.note.clone());
    assert!(note.expect("a note").contains("on the host of this container"));
    assert_eq!(checkup.conclusion.reach, Reach::Fabric);
    // Unless a device is asked for, nothing of it is an error.
    let checkup = look("container", &answers, &plain());
    assert_eq!(names(&checkup, Severity::Error), BTreeSet::new(), "{}", checkup.table());
}

#[test]
fn shared_memory_needs_descriptors_and_a_barrier_if_it_is_asked_for() {
    let shm = || {
        let storage = Wanted::new(Source::Profile("storage".into())).expect("one");
        Wanted { providers: vec![ProviderKind::Shm], ..storage }
    };
    let root = unpack("laptop");
    let limits = root.join("proc/self/limits");
    let checkup = |soft: u64, hard: u64| {
        let line = format!("Max open files            {soft}   {hard}   files\n");
        fs::write(&limits, line).expect("it is writable");
        Checkup::new(&Host::new(&root, &laptop()), &shm())
    };
    let few = checkup(100, 1_000_000);
    assert_eq!(severity(&few, "shm-files"), Severity::Error);
    assert!(command(&few, "shm-files").starts_with("ulimit -n "));
    let fixed: u64 = command(&few, "shm-files")["ulimit -n ".len()..].parse().expect("a number");
    assert_eq!(severity(&checkup(fixed, fixed), "shm-files"), Severity::Ok);
    let fewer = checkup(fixed - 1, fixed - 1);
    assert_eq!(severity(&fewer, "shm-files"), Severity::Error);
    assert!(command(&fewer, "shm-files").contains("limits.d"));
    assert_eq!(severity(&fewer, "shm-wake"), Severity::Ok);
    fs::write(root.join("proc/sys/kernel/osrelease"), "4.15.0-1-amd64\n").expect("writable");
    let mut block = shm();
    let mut raw = block.config.raw().clone();
    raw.engine.idle.policy = "block".into();
    block.config = rpcrdma::Config::try_from(raw).expect("it adds up");
    let old = Checkup::new(&Host::new(&root, &laptop()), &block);
    assert_eq!(severity(&old, "shm-wake"), Severity::Warning);
    let plain = look("laptop", &laptop(), &plain());
    assert!(plain.findings().all(|found| !found.name.starts_with("shm-")));
}

#[test]
fn connections_over_tcp_need_descriptors_if_they_are_asked_for() {
    let mut tcp = Wanted::new(Source::Profile("storage".into())).expect("one");
    tcp.providers.push(ProviderKind::Tcp);
    let root = unpack("laptop");
    let limits = root.join("proc/self/limits");
    fs::write(&limits, "Max open files            20   20   files\n").expect("it is writable");
    let few = Checkup::new(&Host::new(&root, &laptop()), &tcp);
    assert_eq!(severity(&few, "tcp-files"), Severity::Error);
    assert!(few.findings().all(|found| !found.name.starts_with("shm-")));
}

#[test]
fn on_a_spoiled_server_everything_is_found() {
    let wanted = Wanted { cores: "2,3".parse().ok(), ..verbs() };
    let checkup = look("spoiled", &spoiled(), &wanted);
    let expected = BTreeSet::from([
        "build",
        "siblings",
        "load",
        "governor",
        "clock",
        "jitter",
        "huge-pages",
        "numa-balancing",
        "address",
        "mtu",
        "device-node",
    ]);
    assert_eq!(names(&checkup, Severity::Warning), expected, "{}", checkup.table());
    let expected = BTreeSet::from(["device-files", "memlock", "memory"]);
    assert_eq!(names(&checkup, Severity::Error), expected, "{}", checkup.table());
    let expected = BTreeSet::from([
        "isolation",
        "interrupts",
        "turbo",
        "sleep-states",
        "heat",
        "tick",
        "page-merging",
        "losses",
        "bus",
        "iommu",
        "bus-power",
        "watchdog",
    ]);
    assert_eq!(names(&checkup, Severity::Hint), expected, "{}", checkup.table());
    assert!(of(&checkup, "losses").seen.contains("out_of_sequence 17"));
    assert!(
        of(&checkup, "isolation").seen.contains("keep the timer tick and the callbacks of RCU")
    );
    // The hard limit lets the shell raise it.
    assert_eq!(command(&checkup, "memlock"), "ulimit -l unlimited");
}

#[test]
fn whatever_is_wrong_comes_with_its_reason_and_a_command() {
    let hosts = [
        look("laptop", &laptop(), &verbs()),
        look("tuned", &Answers { libraries: false, ..tuned() }, &verbs()),
        look("soft-roce", &Answers::new(1), &verbs()),
        look("container", &Answers { files: false, ..Answers::new(4) }, &verbs()),
        look("spoiled", &spoiled(), &verbs()),
    ];
    for checkup in &hosts {
        for finding in checkup.findings() {
            assert!(finding.why.ends_with('.'), "{finding:?}");
            assert!(!finding.seen.is_empty(), "{finding:?}");
            let is_well = finding.severity == Severity::Ok;
            assert_eq!(finding.fix.is_none(), is_well, "{finding:?}");
            if let Some(fix) = &finding.fix {
                assert!(is_shell(&fix.command) && is_ours_right(&fix.command), "{fix:?}");
            }
        }
        assert!(!checkup.conclusion.next.is_empty() && !checkup.conclusion.sentences.is_empty());
        assert!(checkup.conclusion.next.iter().all(|command| is_shell(command)));
        let wrong = checkup.conclusion.next.iter().find(|command| !is_ours_right(command));
        assert_eq!(wrong, None);
    }
}

/// Whether this program takes it, if it is a command of this program.
fn is_ours_right(command: &str) -> bool {
    if !command.starts_with("rpcrdma-bench ") {
        return true;
    }
    let parts = command.split('"').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    <Cli as clap::Parser>::try_parse_from(words).is_ok()
}

fn is_shell(command: &str) -> bool {
    let said = std::process::Command::new("sh").args(["-n", "-c", command]).status();
    said.expect("a shell").success()
}

#[test]
fn every_finding_has_its_place_in_the_table_and_no_line_of_words_is_too_long() {
    let checkup = look("spoiled", &spoiled(), &verbs());
    let table = checkup.table();
    for finding in checkup.findings() {
        assert!(table.contains(finding.name), "{finding:?}");
        if let Some(fix) = &finding.fix {
            assert!(table.contains(&format!("$ {}\n", fix.command)), "{fix:?} in one piece");
        }
    }
    let long = table.lines().find(|line| line.chars().count() > 100 && !line.contains("$ "));
    assert_eq!(long, None);
    assert!(table.contains("Conclusion") && table.contains("Next"), "{table}");
}

#[test]
fn one_core_is_an_error_and_nothing_can_be_shown() {
    let checkup = look("soft-roce", &Answers::new(1), &plain());
    assert_eq!(severity(&checkup, "cores"), Severity::Error);
    assert_eq!(command(&checkup, "cores"), "taskset -c 0-1 rpcrdma-bench lat");
    assert_eq!(checkup.conclusion.reach, Reach::Nothing);
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_those_that_are() {
    let wanted = Wanted { device: Some("mlx5_9".to_owned()), ..verbs() };
    let checkup = look("tuned", &tuned(), &wanted);
    assert_eq!(severity(&checkup, "device"), Severity::Error);
    assert!(of(&checkup, "device").seen.contains("there are: mlx5_0"));
    assert_eq!(checkup.conclusion.reach, Reach::Fabric);
    let none = look("laptop", &laptop(), &verbs());
    assert_eq!(severity(&none, "device"), Severity::Error);
    assert_eq!(severity(&look("laptop", &laptop(), &plain()), "device"), Severity::Hint);
}

#[test]
fn a_device_of_the_kernel_that_the_libraries_do_not_see_lacks_its_driver() {
    let checkup = look("tuned", &Answers { devices: Vec::new(), ..tuned() }, &verbs());
    assert_eq!(severity(&checkup, "device-drivers"), Severity::Error);
    assert_eq!(command(&checkup, "device-drivers"), "sudo dnf install -y libibverbs");
    assert_eq!(severity(&look("tuned", &tuned(), &verbs()), "device-drivers"), Severity::Ok);
}

#[test]
fn a_card_without_a_driver_is_named_with_its_module() {
    let root = unpack("laptop");
    let card = root.join("sys/bus/pci/devices/0000:3b:00.0");
    fs::create_dir_all(&card).expect("it is writable");
    fs::write(card.join("vendor"), "0x15b3\n").expect("it is writable");
    fs::write(card.join("class"), "0x020000\n").expect("it is writable");
    let answers = laptop();
    let checkup = Checkup::new(&Host::new(&root, &answers), &plain());
    assert_eq!(severity(&checkup, "device"), Severity::Warning);
    assert_eq!(command(&checkup, "device"), "sudo modprobe mlx5_ib");
    // Another class of card of the same vendor is none.
    fs::write(card.join("class"), "0x060400\n").expect("it is writable");
    let checkup = Checkup::new(&Host::new(&root, &answers), &plain());
    assert_eq!(severity(&checkup, "device"), Severity::Hint);
}

#[test]
fn a_port_that_is_down_is_an_error_where_a_device_is_wanted() {
    let root = unpack("tuned");
    fs::write(root.join("sys/class/infiniband/mlx5_0/ports/1/state"), "1: DOWN\n")
        .expect("written");
    let answers = tuned();
    let look = |wanted| Checkup::new(&Host::new(&root, &answers), &wanted);
    assert_eq!(severity(&look(verbs()), "link"), Severity::Error);
    assert_eq!(severity(&look(plain()), "link"), Severity::Warning);
    assert!(command(&look(verbs()), "link").contains("ip link set ens2f0np0 up"));
    assert_eq!(look(verbs()).conclusion.reach, Reach::Fabric);
}

/// A configuration in a file of its own: a process reads each file once.
fn written(root: &Path, text: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let path = root.join(format!("rpcrdma-{}.toml", COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::write(&path, text).expect("it is writable");
    path
}

/// A configuration in a file, looked at on a host.
fn with_file(name: &str, answers: &Answers, text: &str) -> Checkup {
    let root = unpack(name);
    let wanted = Wanted::new(Source::File(written(&root, text))).expect("a configuration");
    Checkup::new(&Host::new(&root, answers), &wanted)
}

#[test]
fn the_memory_of_a_configuration_is_held_against_the_limit_to_the_byte() {
    let text = |lock: &str| {
        let pages = "pages = \"transparent\"\n[engine]\nprovider = \"fabric\"\n";
        format!("[memory]\nlock = {lock}\n{pages}")
    };
    let config = rpcrdma_config::Config::parse(&text("true")).expect("a configuration");
    let len = config.shard_memory_len();
    let check = |limit: u64, lock: &str| {
        let root = unpack("laptop");
        let line = format!("Max locked memory         {limit}  {limit}  bytes\n");
        fs::write(root.join("proc/self/limits"), line).expect("it is writable");
        let path = written(&root, &text(lock));
        let wanted = Wanted::new(Source::File(path)).expect("a configuration");
        severity(&Checkup::new(&Host::new(&root, &laptop()), &wanted), "memlock")
    };
    assert_eq!(check(len, "true"), Severity::Ok);
    assert_eq!(check(len - 1, "true"), Severity::Error, "nothing starts");
    assert_eq!(check(len, "\"try\""), Severity::Ok);
    assert_eq!(check(len - 1, "\"try\""), Severity::Hint, "the fabric runs without, and says so");
}

#[test]
fn cores_that_a_configuration_names_and_the_host_lacks_are_an_error() {
    let text = |cores: &str| format!("[engine]\ncores = \"{cores}\"\nshards = 1\n");
    let there = with_file("laptop", &laptop(), &text("7"));
    assert_eq!(severity(&there, "config-cores"), Severity::Ok);
    let absent = with_file("laptop", &laptop(), &text("8"));
    assert_eq!(severity(&absent, "config-cores"), Severity::Error);
    assert!(command(&absent, "config-cores").contains("cores = \\\"0-7\\\""));
    // Online, and not given to this program.
    let given = Answers { cores: vec![0, 1], ..laptop() };
    let kept = with_file("laptop", &given, &text("7"));
    assert!(command(&kept, "config-cores").starts_with("taskset -c 0-7 "));
}

#[test]
fn more_shards_that_spin_than_cores_are_an_error_and_as_many_are_not() {
    let text = |shards, policy: &str| {
        format!("[engine]\nshards = {shards}\nidle = {{ policy = \"{policy}\", spin = \"1ms\" }}\n")
    };
    let of = |shards, policy| with_file("laptop", &laptop(), &text(shards, policy));
    assert_eq!(severity(&of(8, "spin"), "config-shards"), Severity::Ok);
    assert_eq!(severity(&of(9, "spin"), "config-shards"), Severity::Error);
    assert_eq!(severity(&of(9, "block"), "config-shards"), Severity::Hint);
}

#[test]
fn a_long_rnr_timer_is_a_warning_and_few_retries_a_hint() {
    let text = |verbs: &str, retries: u32| {
        format!(
            "[engine]\nprovider = \"verbs\"\n[verbs]\nrnr_timer = \"{verbs}\"\n\
             [connections]\nrnr_retry = {retries}\n"
        )
    };
    let of = |timer, retries| {
        severity(&with_file("tuned", &tuned(), &text(timer, retries)), "config-rnr")
    };
    assert_eq!(of("640us", 7), Severity::Ok);
    assert_eq!(of("640us", 6), Severity::Hint);
    assert_eq!(of("1280us", 7), Severity::Warning);
}

fn report(checkup: &Checkup, strict: bool) -> Report {
    check::report(checkup, &plain(), strict)
}

#[test]
fn the_hosts_answers_are_json_for_a_program() {
    let json = report(&look("spoiled", &spoiled(), &verbs()), false).json();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["mode"], "check");
    assert_eq!(json["conclusion"]["reach"], "fabric");
    let findings = json["sections"].as_array().expect("sections").iter();
    let mut findings =
        findings.flat_map(|section| section["findings"].as_array().expect("findings"));
    let governor = findings.find(|found| found["name"] == "governor").expect("it is found");
    assert_eq!(governor["severity"], "warning");
    assert!(governor["fix"]["command"].as_str().expect("a command").contains("performance"));
    let errors =
        json["figures"].as_array().expect("figures").iter().find(|one| one["name"] == "errors");
    assert!(errors.is_some_and(|figure| figure["value"].as_f64() > Some(0.0)));
}

#[test]
fn a_host_without_any_file_is_looked_at_all_the_same() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts/empty");
    fs::create_dir_all(&root).expect("it is writable");
    let answers = Answers::new(2);
    let checkup = Checkup::new(&Host::new(&root, &answers), &plain());
    assert_eq!(checkup.conclusion.reach, Reach::Fabric);
    assert_eq!(names(&checkup, Severity::Error), BTreeSet::new(), "{}", checkup.table());
}

#[derive(clap::Parser)]
struct Options {
    #[command(flatten)]
    check: Args,
}

fn options(words: &[&str]) -> Args {
    let words = ["check"].iter().chain(words);
    <Options as clap::Parser>::try_parse_from(words).expect("options").check
}

#[test]
fn nothing_fails_unless_a_check_is_requested() {
    let outcome = |checkup: Checkup, words: &[&str]| {
        let options = options(words).output;
        check(&report(&checkup, options.strict), &options.fail_if, options.strict)
            .expect("no condition is wrong")
    };
    let bad = || look("spoiled", &spoiled(), &verbs());
    assert_eq!(outcome(bad(), &[]), Outcome::Good);
    assert!(matches!(outcome(bad(), &["--strict"]), Outcome::Failed(why) if why.len() == 3));
    let warned = || look("laptop", &laptop(), &plain());
    assert_eq!(outcome(warned(), &[]), Outcome::Good);
    assert!(matches!(outcome(warned(), &["--strict"]), Outcome::Noisy(why) if why.len() == 2));
    let wanted = Wanted { cores: "4,5".parse().ok(), ..verbs() };
    assert_eq!(outcome(look("tuned", &tuned(), &wanted), &["--strict"]), Outcome::Good);
}

#[test]
fn a_condition_on_the_number_of_errors_is_a_check_too() {
    let checkup = look("spoiled", &spoiled(), &verbs());
    let options = options(&["--fail-if", "check.errors>0"]).output;
    let outcome = check(&report(&checkup, false), &options.fail_if, false);
    let outcome = outcome.expect("there is such a figure");
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
}

#[test]
fn this_machine_is_looked_at_without_harm() {
    let options = options(&["--no-probe"]);
    assert!(measure(&options, &Session::silent()).is_ok());
    let checkup = check::look(&options, &check::wanted(&options).expect("a profile"));
    assert!(checkup.findings().count() > 10, "{}", checkup.table());
    assert!(!checkup.findings().any(|finding| finding.name == "jitter"), "no thread spun");
}

#[test]
fn a_profile_that_does_not_exist_is_an_error() {
    assert!(measure(&options(&["--profile", "fast"]), &Session::silent()).is_err());
}
