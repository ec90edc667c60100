//! The API suite on the software fabric: wrapped, checked, in real time, and with faults that must
//! have no effect. The engine's own tests run it on the fabric as it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpcrdma::Fabric;
use rpcrdma::provider::interposed::Interposed;
use rpcrdma_testing::fault::{FaultPlan, FaultyProvider};
use rpcrdma_tests::checked_provider::{CheckedProvider, Watch};
use rpcrdma_tests::opener::OnDevice;

/// With hooks that do nothing; `checked` runs the whole suite on hooks.
mod interposed {
    use super::*;

    fn open() -> impl Fn() -> Interposed<Fabric, ()> {
        let fabric = Fabric::new();
        move || Interposed::new(fabric.clone(), ())
    }

    rpcrdma_tests::api_suite_one!(open());
}

/// What is the same in version one.
mod version_one {
    use super::*;

    fn open() -> impl Fn() -> CheckedProvider<Fabric> {
        let (fabric, watch) = (Fabric::new(), Arc::new(Watch::default()));
        move || CheckedProvider::new(fabric.clone(), Arc::clone(&watch))
    }

    rpcrdma_tests::api_suite_one!(open());
}

/// With the clock's time, as on a device.
mod by_the_clock {
    use super::*;

    fn open() -> OnDevice<Fabric> {
        OnDevice { device: Fabric::new(), address: SocketAddr::from(([127, 0, 0, 1], 0)).into() }
    }

    rpcrdma_tests::api_suite_one!(open());
}

/// No rule of verbs is broken, and no memory is touched that the device has.
mod checked {
    use super::*;

    fn open() -> impl Fn() -> CheckedProvider<Fabric> {
        let (fabric, watch) = (Fabric::new(), Arc::new(Watch::default()));
        move || CheckedProvider::new(fabric.clone(), Arc::clone(&watch))
    }

    rpcrdma_tests::api_suite!(open());
}

/// Posts are refused or cut short, Receives are handed on late, completions come late and overtake
/// each other between queue pairs: a program sees none of it.
mod faulty {
    use super::*;

    fn open() -> impl Fn() -> CheckedProvider<FaultyProvider<Fabric>> {
        let (fabric, watch) = (Fabric::new(), Arc::new(Watch::default()));
        let seed = AtomicU64::new(1);
        move || {
            let plan = FaultPlan {
                seed: seed.fetch_add(1, Ordering::Relaxed),
                send_refused_ppm: 100_000,
                send_cut_ppm: 200_000,
                recv_withheld_ppm: 50_000,
                completion_delayed_ppm: 100_000,
                polls_late_max: 5,
                ..FaultPlan::default()
            };
            CheckedProvider::new(FaultyProvider::new(fabric.clone(), plan), Arc::clone(&watch))
        }
    }

    rpcrdma_tests::api_suite!(open());
}
