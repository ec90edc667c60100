//! Checks single values: text to a typed value in its range, or an error that names the key.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::bounded::Bounded;
use crate::choice::{Cores, ProviderKind, RnrTimer, Words};
use crate::error::ConfigError;
use crate::text::RawText;
use crate::units::{
    CORE_MAX, DURATION_EXPECTED, LENGTH_EXPECTED, Length, TimeSpan, parse_cores, parse_duration,
    parse_length,
};

/// A count in its range.
pub(crate) fn count<const MIN: u32, const MAX: u32>(
    key: &'static str,
    given: &i64,
) -> Result<Bounded<MIN, MAX>, ConfigError> {
    let in_range = u32::try_from(*given).ok().and_then(Bounded::new);
    in_range.ok_or_else(|| value(key, given, format!("{MIN} to {MAX}")))
}

/// A count in its range, or `None` for `auto`.
pub(crate) fn count_or_auto<const MIN: u32, const MAX: u32>(
    key: &'static str,
    given: &RawText,
) -> Result<Option<Bounded<MIN, MAX>>, ConfigError> {
    if given.as_str() == "auto" {
        return Ok(None);
    }
    let in_range = given.as_str().parse().ok().and_then(Bounded::new);
    in_range.map(Some).ok_or_else(|| value(key, given, format!("\"auto\" or {MIN} to {MAX}")))
}

/// A length in its range.
pub(crate) fn length<const MIN: u32, const MAX: u32>(
    key: &'static str,
    given: &RawText,
) -> Result<Bounded<MIN, MAX>, ConfigError> {
    let allowed = || format!("{} to {}", Length(MIN.into()), Length(MAX.into()));
    let bytes = parse_length(given.as_str()).map_err(|error| {
        value(key, quoted(given), format!("{}, {LENGTH_EXPECTED} ({error})", allowed()))
    })?;
    let in_range = u32::try_from(bytes).ok().and_then(Bounded::new);
    in_range.ok_or_else(|| value(key, given, allowed()))
}

/// A length in its range that is a multiple of four, as XDR and placement offsets require.
pub(crate) fn word_length<const MIN: u32, const MAX: u32>(
    key: &'static str,
    given: &RawText,
) -> Result<Bounded<MIN, MAX>, ConfigError> {
    let length = length::<MIN, MAX>(key, given)?;
    if !length.value().is_multiple_of(4) {
        return Err(value(key, given, "a multiple of 4B".to_owned()));
    }
    Ok(length)
}

/// A length in its range that is a power of two.
pub(crate) fn power_of_two_length<const MIN: u32, const MAX: u32>(
    key: &'static str,
    given: &RawText,
) -> Result<Bounded<MIN, MAX>, ConfigError> {
    let length = length::<MIN, MAX>(key, given)?;
    if !length.value().is_power_of_two() {
        let range = format!("{} to {}", Length(MIN.into()), Length(MAX.into()));
        return Err(value(key, given, format!("a power of two from {range}")));
    }
    Ok(length)
}

/// A count in its range that is a power of two.
pub(crate) fn power_of_two<const MIN: u32, const MAX: u32>(
    key: &'static str,
    given: &i64,
) -> Result<Bounded<MIN, MAX>, ConfigError> {
    let count = count::<MIN, MAX>(key, given)?;
    if !count.value().is_power_of_two() {
        return Err(value(key, given, format!("a power of two from {MIN} to {MAX}")));
    }
    Ok(count)
}

/// A duration in its range of nanoseconds.
pub(crate) fn duration<const MIN: u64, const MAX: u64>(
    key: &'static str,
    given: &RawText,
) -> Result<Duration, ConfigError> {
    duration_within(key, given, Duration::from_nanos(MIN)..=Duration::from_nanos(MAX))
}

/// As [`duration`], with limits that depend on other values.
pub(crate) fn duration_within(
    key: &'static str,
    given: &RawText,
    range: RangeInclusive<Duration>,
) -> Result<Duration, ConfigError> {
    let allowed = || format!("{} to {}", TimeSpan(*range.start()), TimeSpan(*range.end()));
    let span = parse_duration(given.as_str()).map_err(|error| {
        value(key, quoted(given), format!("{}, {DURATION_EXPECTED} ({error})", allowed()))
    })?;
    if !range.contains(&span) {
        return Err(value(key, given, allowed()));
    }
    Ok(span)
}

/// A duration in its range, or `None` for a length of zero.
pub(crate) fn duration_or_none<const MIN: u64, const MAX: u64>(
    key: &'static str,
    given: &RawText,
) -> Result<Option<Duration>, ConfigError> {
    if parse_duration(given.as_str()) == Ok(Duration::ZERO) {
        return Ok(None);
    }
    duration::<MIN, MAX>(key, given).map(Some).map_err(|error| match error {
        ConfigError::Value { key, given, allowed } => {
            ConfigError::Value { key, given, allowed: format!("0s, {allowed}") }
        }
        other => other,
    })
}

/// `auto` or a core list.
pub(crate) fn cores(key: &'static str, given: &RawText) -> Result<Cores, ConfigError> {
    if given.as_str() == "auto" {
        return Ok(Cores::Auto);
    }
    parse_cores(given.as_str()).map(Cores::List).map_err(|error| {
        let allowed =
            format!("\"auto\" or a list in rising order, such as \"2-5,8\", up to {CORE_MAX}");
        value(key, quoted(given), format!("{allowed} ({error})"))
    })
}

/// A name of a device, or `None` for `auto`.
pub(crate) fn name_or_auto(
    key: &'static str,
    given: &RawText,
) -> Result<Option<String>, ConfigError> {
    let name = given.as_str();
    let is_name = (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    match name {
        "auto" => Ok(None),
        _ if is_name => Ok(Some(name.to_owned())),
        _ => {
            let allowed =
                format!("\"auto\" or a name of 1 to {NAME_LEN_MAX} ASCII characters without \"/\"");
            Err(value(key, quoted(given), allowed))
        }
    }
}

/// An address of one host, or `None` for `auto`.
pub(crate) fn address_or_auto(
    key: &'static str,
    given: &RawText,
) -> Result<Option<IpAddr>, ConfigError> {
    if given.as_str() == "auto" {
        return Ok(None);
    }
    let address = given.as_str().parse::<IpAddr>().ok();
    let address = address.filter(|it| !it.is_unspecified() && !it.is_multicast());
    address.map(Some).ok_or_else(|| {
        let allowed = "\"auto\", or an IPv4 or IPv6 address of one device without a port";
        value(key, quoted(given), allowed.to_owned())
    })
}

/// A receiver-not-ready timer that devices support.
pub(crate) fn rnr_timer(key: &'static str, given: &RawText) -> Result<RnrTimer, ConfigError> {
    let exact = parse_duration(given.as_str()).ok().and_then(RnrTimer::exactly);
    exact.ok_or_else(|| {
        let all: Vec<_> =
            RnrTimer::all().map(|it| format!("\"{}\"", TimeSpan(it.span()))).collect();
        value(key, quoted(given), format!("one of {}", all.join(", ")))
    })
}

/// A choice by its word.
pub(crate) fn word<T: Words>(key: &'static str, given: &RawText) -> Result<T, ConfigError> {
    let found = T::WORDS.iter().find(|(word, _)| *word == given.as_str());
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let allowed: Vec<_> = T::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        value(key, quoted(given), allowed.join(", "))
    })
}

impl std::str::FromStr for ProviderKind {
    type Err = ConfigError;

    /// By the word of a configuration.
    fn from_str(text: &str) -> Result<ProviderKind, ConfigError> {
        word("engine.provider", &text.into())
    }
}

/// A switch: both values are allowed.
pub(crate) fn as_it_is(_: &'static str, given: &bool) -> Result<bool, ConfigError> {
    Ok(*given)
}

fn value(key: &'static str, given: impl ToString, allowed: String) -> ConfigError {
    ConfigError::Value { key, given: given.to_string(), allowed }
}

fn quoted(given: &RawText) -> String {
    format!("{:?}", given.as_str())
}

/// Durations, in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

/// The kernel's limit for the name of a device.
const NAME_LEN_MAX: usize = 63;
