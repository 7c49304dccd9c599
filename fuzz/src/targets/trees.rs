//! A directory tree, as a hostile guest lists it: no path leads out of the directory into which a diff is unpacked.

use sandling_engine::fuzzing::read_tree;

pub fn run(data: &[u8]) {
    for root in ["/", "/work"] {
        for path in read_tree(data, root).unwrap_or_default() {
            assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?}");
        }
    }
}
