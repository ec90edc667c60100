//! Many connections of one shard: each has a socket of its own.

use super::open;

#[test]
fn sixty_four_connections_share_one_shard() {
    rpcrdma_tests::many::sixty_four_connections_share_one_shard(&open());
}

#[test]
fn connections_come_and_go_under_load() {
    rpcrdma_tests::many::connections_come_and_go_under_load(&open());
}
