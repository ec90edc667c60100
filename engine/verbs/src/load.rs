//! Opens a library at run time, and resolves its functions.
//!
//! `library!` makes a structure with a function pointer for each named function; loading it fails
//! if a function is missing. A library is opened once and stays open until the process ends: it may
//! have threads and exit handlers that are not safe to unload.
#![expect(unsafe_code, reason = "symbols of a foreign library become functions")]

use std::error::Error;
use std::mem::ManuallyDrop;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rpcrdma_provider::SetupError;

/// Declares the functions that are used of a library, with the signatures of its header.
macro_rules! library {
    (
        $(#[$doc:meta])*
        pub struct $name:ident in $file:literal {
            $($(#[$note:meta])* fn $function:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            $($(#[$note])* pub $function: unsafe extern "C" fn($($arg: $type),*) $(-> $result)?,)+
        }

        impl $name {
            /// The functions of the library; the first call opens it.
            ///
            /// # Errors
            /// If the library is not there or lacks one of them.
            pub fn load() -> Result<&'static $name, rpcrdma_provider::SetupError> {
                static LOADED: std::sync::OnceLock<$name> = std::sync::OnceLock::new();
                if let Some(loaded) = LOADED.get() {
                    return Ok(loaded);
                }
                let library = $crate::load::Opened::open($file)?;
                let loaded = $name {
                    $(
                        // SAFETY: the signature is that of the library's header.
                        $function: unsafe { library.function(stringify!($function))? },
                    )+
                };
                Ok(LOADED.get_or_init(|| loaded))
            }
        }
    };
}
pub(crate) use library;

/// A library that stays open.
pub(crate) struct Opened {
    library: ManuallyDrop<Library>,
    name: &'static str,
}

impl Opened {
    /// Opens a library, or returns the open one.
    pub fn open(name: &'static str) -> Result<Opened, SetupError> {
        // SAFETY: the initialisers of libibverbs and librdmacm are safe in any program that links
        // with them. A caller that names another library has to check the initialisers of that one.
        let opened = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        match opened {
            Ok(library) => Ok(Opened { library: ManuallyDrop::new(library), name }),
            Err(error) => {
                let (reason, advice) = (reason(&error), advice());
                Err(SetupError::Library { library: name, reason, advice })
            }
        }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` is a function pointer type, with the signature that the library's header declares for
    /// this name.
    pub unsafe fn function<F: Copy>(&self, name: &'static str) -> Result<F, SetupError> {
        // SAFETY: the caller knows the signature.
        match unsafe { self.library.get::<F>(name) } {
            // The library is never closed.
            Ok(symbol) => Ok(*symbol),
            Err(error) => {
                let reason = format!("{name}: {}", reason(&error));
                Err(SetupError::Library { library: self.name, reason, advice: LATER })
            }
        }
    }
}

/// What makes a library load.
fn advice() -> &'static str {
    // Without a dynamic linker, no library that is installed helps.
    if cfg!(target_feature = "crt-static") { NOT_STATIC } else { INSTALL }
}

const INSTALL: &str = "install libibverbs1, librdmacm1 and ibverbs-providers";
const NOT_STATIC: &str = "this program is linked statically and loads no library: build it for a \
                          target with a dynamic C library, such as x86_64-unknown-linux-gnu";
const LATER: &str = "install a later version of rdma-core";

/// The dynamic linker's message; the error itself only names the linker function that failed.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    library! {
        /// A library that every process has.
        pub struct Libc in "libc.so.6" {
            fn labs(number: std::ffi::c_long) -> std::ffi::c_long;
        }
    }

    library! {
        /// A library without such a function.
        #[expect(dead_code, reason = "it cannot be loaded")]
        pub struct Lacking in "libc.so.6" {
            fn there_is_no_such_function();
        }
    }

    #[test]
    fn a_function_of_a_library_can_be_called() {
        let libc = Libc::load().expect("libc is there");
        // SAFETY: the function takes a number and gives one.
        assert_eq!(unsafe { (libc.labs)(-3) }, 3);
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_what_to_install() {
        let error = Opened::open("librdmacm.so.999").err().expect("it is not there");
        let error = error.to_string();
        assert!(error.contains("librdmacm.so.999"), "{error}");
        assert!(error.contains("libibverbs1") && error.contains("TCP"), "{error}");
    }

    #[test]
    fn a_function_that_is_not_there_is_named() {
        let error = Lacking::load().expect_err("it is not there").to_string();
        assert!(error.contains("there_is_no_such_function"), "{error}");
    }
}
