//! Objects that the device does not release are kept, and released again later.

use rpcrdma_mempool::Access;
use rpcrdma_provider::Queues;

use super::rig::{Host, SMALL};
use crate::fake::Fake;

#[test]
fn a_registration_that_the_device_keeps_stays_known() {
    let fake = Fake::new();
    let device = fake.open().expect("a device");
    let mut host = Host::new(&device, &SMALL);
    let before = fake.alive();
    let sge = host.sge(0, 64);
    let [first, second] =
        [(); 2].map(|()| host.expose(&sge, Access::REMOTE_READ).expect("registered"));
    fake.refuse("ibv_dereg_mr", Some(libc::EBUSY));
    for _ in 0..2 {
        let error = host.queues.conceal(first).expect_err("peers may reach it as before");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    }
    fake.refuse("ibv_dereg_mr", None);
    host.queues.conceal(second).expect("it ends");
    host.queues.conceal(first).expect("now it ends, too");
    assert_eq!(fake.alive(), before);
    // A registration that is not concealed ends with the queues.
    host.expose(&sge, Access::REMOTE_WRITE).expect("registered");
    drop((host, device));
    assert!(fake.alive().is_empty(), "{:?}", fake.alive());
}
