//! Unpacks an image from a file or directory: `unpack IMAGE DISK MIB`. The conformance tests compare its result with
//! umoci's.

use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;

use sandling_oci::{Limits, UnpackOptions, open_image, unpack};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, disk, disk_mib] = arguments.as_slice() else { return Err("usage: unpack IMAGE DISK MIB".into()) };
    let image = open_image(Path::new(image))?;
    let out = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(disk)?;
    let options = UnpackOptions { disk_mib: disk_mib.parse()?, limits: Limits::default(), extras: Vec::new() };
    let summary = unpack(&image.layers, &out, &options, &mut |_| ())?;
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}
