//! The modes that count, wait and starve, as a person types them.

use std::process::{Command, Output};

fn bench(options: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(options.split_whitespace())
        .output()
        .expect("the program was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program prints text")
}

#[test]
fn what_an_rpc_costs_is_counted_by_whoever_is_there() {
    let output = bench("cost -n 500 --warm-up 100");
    if text(&output.stderr).contains("two threads that spin need two") {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    assert!(table.starts_with("cost: echo of 64 bytes, window 32, 500 calls counted"), "{table}");
    let figure = |name: &str| {
        let row = table.lines().find(|line| line.starts_with(name));
        let row = row.unwrap_or_else(|| panic!("no {name} in\n{table}"));
        let words: Vec<&str> = row[name.len()..].split_whitespace().take(2).collect();
        words.iter().map(|word| word.parse::<f64>()).collect::<Result<Vec<_>, _>>()
    };
    assert_eq!(figure("sends "), Ok(vec![1.0, 1.0]));
    // The thread's own handful of them for the round, and none for a call.
    let allocations = figure("allocations ").expect("always counted");
    assert!(allocations.iter().all(|each| *each < 0.2), "{table}");
    match figure("instructions ") {
        Ok(sides) => assert!(sides.iter().all(|each| *each > 100.0), "{table}"),
        Err(_) => assert!(table.contains("valgrind is missing"), "{table}"),
    }
    match figure("system calls ") {
        Ok(sides) => assert!(sides.iter().all(|each| *each < 0.2), "{table}"),
        Err(_) => assert!(table.contains("strace"), "{table}"),
    }
}
