//! The configuration, from a file or a text.

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;

use ::rpcrdma::{Config, ConfigError};

use crate::arguments::{self, caught, give, given, taken_back, text, value, write_text};
use crate::failure::{invalid, with_text};
use crate::status::rpcrdma_status::RPCRDMA_E_CONFIG;

/// A checked configuration. Its keys are in docs/configuration.md.
pub struct rpcrdma_config(pub(crate) Config);

/// The configuration of a file.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_load(
    path: *const c_char,
    config: Option<&mut MaybeUninit<*mut rpcrdma_config>>,
) -> c_int {
    // SAFETY: the program passes a text.
    let path = value!(unsafe { text(path, "path") });
    made(|| Config::load(path), config)
}

/// The configuration of a text, as a file would hold it. NULL is the default configuration.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_parse(
    text: *const c_char,
    config: Option<&mut MaybeUninit<*mut rpcrdma_config>>,
) -> c_int {
    let text = match text.is_null() {
        true => "",
        // SAFETY: the program passes a text.
        false => value!(unsafe { arguments::text(text, "text") }),
    };
    made(|| Config::parse(text), config)
}

/// One of the built-in profiles: "latency", "storage", "storage-large" or "laptop".
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_profile(
    name: *const c_char,
    config: Option<&mut MaybeUninit<*mut rpcrdma_config>>,
) -> c_int {
    // SAFETY: the program passes a text.
    let name = value!(unsafe { text(name, "name") });
    made(|| Config::profile(name), config)
}

/// The value of a key, such as "engine.provider", as text.
///
/// `text` receives it with a NUL at its end, in at most `len` bytes.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_get(
    config: Option<&rpcrdma_config>,
    key: *const c_char,
    text: *mut c_char,
    len: usize,
) -> c_int {
    given!(config);
    // SAFETY: the program passes a text.
    let key = value!(unsafe { arguments::text(key, "key") });
    let Some(value) = config.0.value_of(key) else { return invalid("key") };
    // SAFETY: the program passes room for `len` bytes.
    unsafe { write_text(&value, text, len) }
}

/// Frees a configuration. NULL is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_free(config: *mut rpcrdma_config) {
    // SAFETY: the program had it from one of the functions above.
    drop(unsafe { taken_back(config) });
}

fn made(
    make: impl FnOnce() -> Result<Config, ConfigError>,
    config: Option<&mut MaybeUninit<*mut rpcrdma_config>>,
) -> c_int {
    given!(config);
    caught(|| match make() {
        Ok(made) => give(config, rpcrdma_config(made)),
        Err(error) => with_text(RPCRDMA_E_CONFIG, &error),
    })
}
