//! A tar archive from a sandbox, with which an agent's project comes back: no path leads out of the project, and what is
//! read is no larger than what came.

use std::path::{Component, Path};

use sandling_agent::fuzzing::read_archive;

pub fn run(data: &[u8]) {
    let Ok(files) = read_archive(data) else { return };
    let mut total = 0;
    for (path, size) in files {
        assert!(Path::new(&path).components().all(|part| matches!(part, Component::Normal(_))), "{path:?}");
        total += size;
    }
    // Each hard link repeats a file, and takes a header.
    assert!(total <= data.len() * (1 + data.len() / 512), "{total} bytes of {}", data.len());
}
