//! Takes addresses and folders out of what is shown to others.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

/// A text with every IP address but those of loopbacks replaced.
pub fn addresses(text: &str) -> String {
    let mut hidden = String::with_capacity(text.len());
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_alphanumeric() || "_.:".contains(letter) {
            word.push(letter);
            continue;
        }
        hidden.push_str(&without_address(&word));
        word.clear();
        hidden.push(letter);
    }
    hidden.pop();
    hidden
}

/// A word of letters, digits, points and colons. Behind an address may stand a port, a colon or
/// the point of a sentence.
fn without_address(word: &str) -> String {
    let plain = word.trim_end_matches(['.', ':']);
    let rest = &word[plain.len()..];
    let is_hidden = |address: IpAddr| !address.is_loopback() && !address.is_unspecified();
    if plain.parse().is_ok_and(is_hidden) {
        return format!("{ADDRESS}{rest}");
    }
    match plain.rsplit_once(':') {
        Some((host, port)) if host.parse::<Ipv4Addr>().is_ok_and(|it| is_hidden(it.into())) => {
            format!("{ADDRESS}:{port}{rest}")
        }
        _ => word.to_owned(),
    }
}

/// The same of every text in a value.
pub fn in_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = addresses(text),
        Value::Array(items) => items.iter_mut().for_each(in_value),
        Value::Object(members) => members.values_mut().for_each(in_value),
        _ => {}
    }
}

/// What was typed, without addresses, hosts and folders.
pub fn command(words: &[String]) -> Vec<String> {
    let mut shown = Vec::new();
    let mut is_host = false;
    for word in words {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        let names_host = ["-a", "--address", "--peer"].contains(&option);
        let file = word.rsplit('/').next().unwrap_or(word);
        shown.push(match () {
            () if is_host => ADDRESS.to_owned(),
            () if names_host && !value.is_empty() => format!("{option}={ADDRESS}"),
            () => attached(word).unwrap_or_else(|| addresses(file)),
        });
        is_host = names_host && value.is_empty();
    }
    shown
}

/// `-aADDRESS`, or `-qaADDRESS`: `-q` is the only short option without a value.
fn attached(word: &str) -> Option<String> {
    let value = word.strip_prefix('-')?.trim_start_matches('q').strip_prefix('a')?;
    let option = word.strip_suffix(value)?;
    (!value.is_empty()).then(|| format!("{option}{ADDRESS}"))
}

pub const ADDRESS: &str = "ADDRESS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hidden_and_nothing_else() {
        for (text, shown) in [
            ("mlx5_0 at 10.0.0.1, up to", "mlx5_0 at ADDRESS, up to"),
            ("the server is at 10.0.0.2:4000.", "the server is at ADDRESS:4000."),
            ("fd00::1: no route", "ADDRESS: no route"),
            ("[fd00::1]:4000", "[ADDRESS]:4000"),
            ("fe80::1%eth0", "ADDRESS%eth0"),
            ("at 127.0.0.1:9 and ::1", "at 127.0.0.1:9 and ::1"),
            ("Linux 6.1.0-44-amd64, 5.0 us, 1.2.3", "Linux 6.1.0-44-amd64, 5.0 us, 1.2.3"),
            ("inline::every_length; 1: ACTIVE", "inline::every_length; 1: ACTIVE"),
            ("10.0.0.1", "ADDRESS"),
            ("e::e, ab::cd::ef and fe80::dead:beef", "ADDRESS, ab::cd::ef and ADDRESS"),
            ("", ""),
        ] {
            assert_eq!(addresses(text), shown);
        }
        let mut value = serde_json::json!({ "a": ["10.0.0.1/24", 5], "b": null });
        in_value(&mut value);
        assert_eq!(value, serde_json::json!({ "a": ["ADDRESS/24", 5], "b": null }));
    }

    #[test]
    fn what_was_typed_has_no_folder_and_no_host() {
        let typed = "/home/ann/bin/rpcrdma-bench prove -d mlx5_0 -a 10.0.0.1 --peer=nas7 -r 3";
        let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
        let shown = command(&words).join(" ");
        assert_eq!(shown, "rpcrdma-bench prove -d mlx5_0 -a ADDRESS --peer=ADDRESS -r 3");
        let words = ["--peer", "nas7", "x"].map(str::to_owned);
        assert_eq!(command(&words), ["--peer", "ADDRESS", "x"]);
        let words = ["-a10.0.0.1", "-qafd00::1", "-a=10.0.0.1", "--all", "-q", "-dmana_0"];
        let shown = ["-aADDRESS", "-qaADDRESS", "-a=ADDRESS", "--all", "-q", "-dmana_0"];
        assert_eq!(command(&words.map(str::to_owned)), shown);
    }
}
