//! The test client of NFS version 4.1 and our small server of it, over shared memory.

use super::open;

rpcrdma_tests::ours_suite!(open(), |_| {});
