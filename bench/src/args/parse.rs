//! Parsers of option values: lengths, times, counts, addresses, providers.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rpcrdma::{Address, ProviderKind};
use rpcrdma_config::units::{Length, parse_duration, parse_length};

/// Bytes without a bound.
pub fn bytes(text: &str) -> Result<u64, String> {
    text.parse().or_else(|_| parse_length(text).map_err(|error| error.to_string()))
}

/// A length: bytes, or a number with `KiB` or `MiB` as in a configuration file.
pub fn length(text: &str) -> Result<usize, String> {
    let bytes = bytes(text)?;
    let most = format!("at most {}", Length(LENGTH_MAX));
    usize::try_from(bytes).ok().filter(|_| bytes <= LENGTH_MAX).ok_or(most)
}

/// A share within bounds: `70%` or `0.7`.
pub fn share(text: &str, bounds: RangeInclusive<f64>) -> Option<f64> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().ok()? / whole;
    bounds.contains(&share).then_some(share)
}

/// A time in seconds, with a fraction or without.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, as in 2 or 0.5")?;
    if !(0.001..=3600.0).contains(&seconds) {
        return Err("0.001 to 3600 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A time from one side to the other, in whole microseconds.
pub fn delay(text: &str) -> Result<Duration, String> {
    let delay = parse_duration(text).map_err(|error| error.to_string())?;
    if delay > DELAY_MAX || !delay.subsec_nanos().is_multiple_of(1000) {
        return Err("0us to 100ms, in whole microseconds".into());
    }
    Ok(delay)
}

pub fn duration(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    let bounds = || format!("{least:?} to {most:?}");
    if (least..=most).contains(&time) { Ok(time) } else { Err(bounds()) }
}

pub fn per_post(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count: &u32| count.is_power_of_two() && *count <= 32);
    count.ok_or_else(|| "1, 2, 4, 8, 16 or 32".into())
}

/// An address on the command line: `HOST`, `HOST:PORT`, `shm:/PATH`, `shm:@NAME`.
pub fn address(text: &str) -> Result<Address, String> {
    if text.starts_with("shm:") {
        return text.parse::<Address>().map_err(|error| error.to_string());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address.into());
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let found = if text.contains(':') && bare.parse::<Ipv6Addr>().is_err() {
        text.to_socket_addrs()
    } else {
        (bare, PORT).to_socket_addrs()
    };
    let mut found = found.map_err(|error| format!("{text}: {error}"))?;
    found.next().map(Address::Ip).ok_or_else(|| format!("{text}: unknown host"))
}

/// The providers by their names.
pub fn provider() -> impl TypedValueParser<Value = ProviderKind> {
    let value = |kind: ProviderKind| PossibleValue::new(kind.as_str()).help(kind.about());
    let words = PossibleValuesParser::new(ProviderKind::OPENED.map(value));
    words.map(|word| word.parse().expect("it is one of these"))
}

/// The default TCP port of a server.
pub const PORT: u16 = 18_530;
/// The longest delay: a call then takes some tenths of a second.
const DELAY_MAX: Duration = Duration::from_millis(100);
const LENGTH_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn lengths_have_units_or_are_bytes() {
        assert_eq!(length("64"), Ok(64));
        assert_eq!(length("64B"), Ok(64));
        assert_eq!(length("4KiB"), Ok(4096));
        assert_eq!(length("1MiB"), Ok(1 << 20));
        assert_eq!(length("64MiB"), Ok(64 << 20));
        for wrong in ["", "KiB", "4KB", "-1", "1GiB", "67108865", "99999999999999999999"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction_and_have_bounds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "NaN", "inf", "3601"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn delays_are_whole_microseconds_and_have_a_bound() {
        assert_eq!(delay("0us"), Ok(Duration::ZERO));
        assert_eq!(delay("100ms"), Ok(DELAY_MAX));
        for wrong in ["5", "us", "-1us", "101ms", "1500ns"] {
            assert!(delay(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_address_has_a_port_or_gets_the_usual_one() {
        let of = |text| address(text).expect("an address");
        assert_eq!(of("127.0.0.1:7"), "127.0.0.1:7".parse().expect("one"));
        let usual = |ip| of(ip).as_ip().map(|at| at.port());
        assert_eq!(of("127.0.0.1").as_ip().map(|at| at.ip()), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!([usual("127.0.0.1"), usual("::1"), usual("[::1]")], [Some(PORT); 3]);
        assert_eq!(usual("[::1]:9"), Some(9));
        assert_eq!(of("shm:/tmp/b.sock").to_string(), "shm:/tmp/b.sock");
        assert!(address("shm:b.sock").is_err_and(|why| why.contains("absolute path")));
        assert!(address("").is_err() || address("no.such.host.invalid").is_err());
    }

    #[test]
    fn sends_per_post_are_powers_of_two() {
        assert_eq!(["1", "4", "32"].map(per_post), [Ok(1), Ok(4), Ok(32)]);
        for wrong in ["0", "3", "64", "x"] {
            assert!(per_post(wrong).is_err(), "{wrong}");
        }
    }
}
