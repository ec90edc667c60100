//! Proofs: parts, files, exit codes, and devices that are not there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::{bench, errors, has, scratch, text};

/// A proof with these options, its JSON and its page, in a folder of its own; `None` on a machine
/// with one core.
fn proof(name: &str, options: &str) -> Option<(Output, Value, String)> {
    let folder = scratch(name);
    fs::create_dir_all(&folder).expect("a writable folder");
    let output = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["prove", "--quiet"])
        .args(options.split_whitespace())
        .current_dir(&folder)
        .output()
        .expect("the program was built for this test");
    let files: Vec<_> = fs::read_dir(&folder).expect("a folder").flatten().collect();
    let read = |end: &str| {
        let is = |name: &str| name.starts_with("prove-") && name.ends_with(end);
        let file = files.iter().find(|file| file.file_name().to_str().is_some_and(is));
        file.map(|file| fs::read_to_string(file.path()).expect("it can be read"))
    };
    let (json, page) = (read(".json"), read(".html"));
    fs::remove_dir_all(&folder).expect("it is ours");
    errors(&output)?;
    let json = json.unwrap_or_else(|| panic!("no JSON: {}", text(&output.stderr)));
    Some((output, serde_json::from_str(&json).expect("nothing but JSON"), page.expect("a page")))
}

fn part<'a>(json: &'a Value, name: &str) -> &'a Value {
    let parts = json["parts"].as_array().expect("a list");
    parts
        .iter()
        .find(|part| part["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {parts:#?}"))
}

const SHORT: &str = "--only inline,placed -n 100 -r 2 --warm-up 10";

#[test]
fn the_fabric_and_shared_memory_are_proved_in_files_of_the_folder() {
    for provider in ["fabric", "shm", "tcp"] {
        let options = format!("--provider {provider} {SHORT}");
        let Some((output, json, page)) = proof(provider, &options) else { return };
        let said = text(&output.stdout);
        let errors = text(&output.stderr);
        for name in ["scenarios", "latency", "rate", "bandwidth"] {
            assert_eq!(part(&json, name)["result"], "passed", "{said}\n{errors}");
        }
        // What does not work on this host is a failure of its own.
        let host = part(&json, "host")["result"] == "passed";
        assert_eq!(output.status.code(), Some(i32::from(!host)), "{said}\n{errors}");
        has(&said, &["inline ", "latency.rpc", "bandwidth.write_rdma", provider]);
        let scenarios = json["scenarios"].as_array().expect("a list");
        assert!(scenarios.len() > 10, "{scenarios:?}");
        for scenario in scenarios {
            assert_eq!(scenario["result"], "passed", "{scenario}");
            let name = scenario["name"].as_str().expect("a name");
            assert!(page.contains(name), "no {name} on the page");
        }
        assert_eq!(json["device"]["provider"], provider);
        assert!(json["conclusion"].as_str().is_some_and(|all| all.contains("scenarios pass")));
        assert!(page.contains("\"title\":\"Scenarios\""));
    }
}

#[test]
fn rpcs_are_measured_with_a_server_elsewhere() {
    let path = scratch("prove.sock");
    let at = format!("shm:{}", path.display());
    let mut server = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["serve", "--listen", &at])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built for this test");
    let mut first = String::new();
    let out = server.stdout.as_mut().expect("a pipe");
    BufReader::new(out).read_line(&mut first).expect("text");
    let proof = proof("peer", &format!("--provider shm --peer {at} {SHORT}"));
    let _ = server.kill();
    let _ = server.wait();
    let _ = fs::remove_file(&path);
    let Some((output, json, page)) = proof else { return };
    let said = text(&output.stdout);
    for name in ["scenarios", "latency", "rate", "bandwidth"] {
        assert_eq!(part(&json, name)["result"], "passed", "{said}\n{}", text(&output.stderr));
    }
    has(&said, &["latency.rpc", "bandwidth.read_rdma", "with another host"]);
    assert!(!said.contains("latency.raw"), "its other end would be here\n{said}");
    assert_eq!(json["settings"]["other_host"], true);
    let path = path.display().to_string();
    assert!(!json.to_string().contains(&path) && !page.contains(&path), "it is no one's business");
}

#[test]
fn a_device_that_is_not_there_fails_every_part_with_its_name() {
    let Some((output, json, _)) = proof("nosuch", &format!("-d nosuch0 {SHORT}")) else { return };
    assert_eq!(output.status.code(), Some(1));
    for name in ["host", "scenarios", "latency", "rate", "bandwidth"] {
        assert_eq!(part(&json, name)["result"], "failed", "{json:#}");
        assert!(!part(&json, name)["reasons"].as_array().expect("a list").is_empty());
    }
    let reason = part(&json, "scenarios")["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("were not run"), "{reason}");
    let scenarios = json["scenarios"].as_array().expect("a list");
    assert!(scenarios.iter().all(|one| one["result"] == "skipped"), "{scenarios:?}");
    assert!(text(&output.stderr).contains("failed: scenarios"), "{}", text(&output.stderr));
}

#[test]
fn nothing_is_run_and_the_exit_code_is_2_if_the_options_make_no_sense() {
    for (options, reason) in [
        ("prove --sideways", "--sideways"),
        ("prove --only inline,nonsense", "nonsense: no such subject; there are connections,"),
        ("prove --provider shm -d mlx5_0", "--provider verbs"),
        ("prove --peer 10.0.0.2", "name the device"),
        ("prove --limit 0s", "--limit"),
        ("prove --json /no/such/folder/x.json", "/no/such/folder"),
    ] {
        let output = bench(options);
        let Some(errors) = errors(&output) else { continue };
        assert_eq!(output.status.code(), Some(2), "{options}: {errors}");
        assert!(errors.contains(reason), "{options}: {errors}");
    }
}
