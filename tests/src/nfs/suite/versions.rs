//! Servers that support only version one.

use rpcrdma::{Address, Provider};

use super::{Scene, names};

/// A client that prefers version two learns on its first connection that the server supports only
/// version one, and continues with it; the next connection uses version one at once.
///
/// # Panics
/// If not, or if anything but the version differs.
pub fn the_version_of_a_server_is_discovered_once<P: Provider>(
    scene: &mut Scene<'_, P>,
    at: Address,
) {
    let seen = |scene: &mut Scene<'_, P>| {
        let stats = scene.nfs.rpc.client().handle().stats();
        let lost = stats.fallbacks_loss + stats.fallbacks_silence + stats.versions_refused;
        assert_eq!(
            (stats.connections_version_two, lost),
            (0, 0),
            "the server answers, in version one"
        );
        (stats.connections_version_one, stats.fallbacks_error, stats.versions_remembered)
    };
    assert_eq!(seen(scene), (1, 1, 0), "asked for version two, and answered");
    assert!(scene.is_one());
    names::the_file_system_describes_itself(scene);
    for known in 1..=2 {
        scene.nfs.rpc.reconnect(at).expect("the server is there");
        assert_eq!(seen(scene), (1 + known, 1, known), "remembered");
        names::attributes_are_those_of_the_file_system(scene);
    }
}
