//! The configuration, from a file or a text.

use core::ffi::{c_char, c_int};

use crate::unfinished;

/// A checked configuration. Its keys are in docs/configuration.md.
pub struct rpcrdma_config {
    _config: (),
}

/// The default configuration.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_default(config: *mut *mut rpcrdma_config) -> c_int {
    unfinished()
}

/// The configuration of a file.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_load(
    path: *const c_char,
    config: *mut *mut rpcrdma_config,
) -> c_int {
    unfinished()
}

/// The configuration of a text, as a file would hold it.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_parse(
    text: *const c_char,
    config: *mut *mut rpcrdma_config,
) -> c_int {
    unfinished()
}

/// One of the built-in profiles: "latency", "storage" or "laptop".
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_profile(
    name: *const c_char,
    config: *mut *mut rpcrdma_config,
) -> c_int {
    unfinished()
}

/// The value of a key, such as "engine.provider", as text.
///
/// `text` receives it with a NUL at its end, in at most `len` bytes.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_get(
    config: *const rpcrdma_config,
    key: *const c_char,
    text: *mut c_char,
    len: usize,
) -> c_int {
    unfinished()
}

/// Frees a configuration. NULL is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_config_free(config: *mut rpcrdma_config) {}
