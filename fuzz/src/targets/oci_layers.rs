//! The layers of an image, which become a disk: whatever they contain, the work and the disk are bounded.

use std::io::Write;

use sandling_oci::{LayerInput, Limits, UnpackOptions, unpack};

use crate::input::Input;

const DISK_MIB: u32 = 64;
const MEDIA_TYPES: [&str; 3] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
];

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut layers = Vec::new();
    while !input.0.is_empty() && layers.len() < 3 {
        let kind = usize::from(input.byte()) % MEDIA_TYPES.len();
        let content = input.section();
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(content).expect("a temporary file is written");
        let (length, media_type) = (content.len() as u64, MEDIA_TYPES[kind].to_owned());
        layers.push(LayerInput { file, offset: 0, length, media_type, digest: None, diff_id: None });
    }
    let limits = Limits { bytes: 32 << 20, inodes: 10_000, metadata_bytes: 4 << 20, ..Limits::default() };
    let out = tempfile::tempfile().expect("a temporary file");
    let options = UnpackOptions { disk_mib: DISK_MIB, limits, extras: Vec::new() };
    if let Ok(summary) = unpack(&layers, &out, &options, &mut |_| {}) {
        assert!(summary.layer_bytes <= 32 << 20 && summary.disk_bytes <= u64::from(DISK_MIB) << 20, "{summary:?}");
        assert_eq!(out.metadata().expect("its size").len(), u64::from(DISK_MIB) << 20);
    }
}
