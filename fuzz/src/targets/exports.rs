//! An exported snapshot from anywhere, decompressed: nothing is written but the files that it names. The first section is
//! the manifest, and the rest follows it as it is. The lengths and the digests in between are those that fit.

use std::fs;
use std::path::Path;

use sandling_engine::fuzzing::read_export;

use crate::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let manifest = input.section();
    let mut export = (manifest.len() as u32).to_le_bytes().to_vec();
    export.extend_from_slice(manifest);
    export.extend_from_slice(input.0);
    // Most of the time, memory is where the files are smallest and the fastest.
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let directory = directory.expect("a directory");
    for bytes in [&export[..], data] {
        drop(read_export(bytes, directory.path()));
        for file in fs::read_dir(directory.path()).expect("the directory is still there") {
            let file = file.expect("a name");
            assert!(file.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit), "{:?}", file.file_name());
            fs::remove_file(file.path()).expect("a file");
        }
    }
}
