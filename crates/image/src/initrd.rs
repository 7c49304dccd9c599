//! The initrd: the guest agent as `/init`, and the modules that it loads before it can see a disk.
//!
//! It is not compressed, because QEMU reads its few megabytes from the page cache, while decompression would run on the
//! emulated processor. Modules stay compressed; the kernel decompresses those that it loads. The same kernel and agent
//! give the same bytes.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use cpio::newc::{Builder, trailer};

use crate::error::{BuildError, io_at};
use crate::kernel::{MODULES, ORDER};

/// Raise it when the layout changes while the files stay the same.
pub(crate) const FORMAT: u32 = 1;

const DIRECTORY: u32 = 0o040_755;
const CHARACTER_DEVICE: u32 = 0o020_600;
const EXECUTABLE: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// Packs the archive for a kernel part and an agent.
pub(crate) fn pack(kernel: &Path, guest: &[u8]) -> Result<Vec<u8>, BuildError> {
    let modules = kernel.join(MODULES);
    let list = modules.join(ORDER);
    let order = fs::read_to_string(&list).map_err(io_at("read", &list))?;
    let mut files = vec![(format!("modules/{ORDER}"), order.clone().into_bytes())];
    for name in order.lines() {
        let path = modules.join(name);
        files.push((format!("modules/{name}"), fs::read(&path).map_err(io_at("read", &path))?));
    }
    archive(guest, &files).map_err(io_at("pack the initrd of", kernel))
}

fn archive(guest: &[u8], files: &[(String, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut packer = Packer { out: Vec::new(), inode: 0 };
    packer.add("dev", DIRECTORY, (0, 0), &[])?;
    // The agent's messages and panics go here until it has mounted devtmpfs.
    packer.add("dev/console", CHARACTER_DEVICE, (5, 1), &[])?;
    packer.add("init", EXECUTABLE, (0, 0), guest)?;
    for directory in ["proc", "sys", "root", "modules"] {
        packer.add(directory, DIRECTORY, (0, 0), &[])?;
    }
    for (name, content) in files {
        packer.add(name, FILE, (0, 0), content)?;
    }
    trailer(packer.out)
}

struct Packer {
    out: Vec<u8>,
    inode: u32,
}

impl Packer {
    fn add(&mut self, name: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let entry = Builder::new(name).ino(self.inode).mode(mode).nlink(1).rdev_major(major).rdev_minor(minor);
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut writer = entry.write(&mut self.out, size);
        writer.write_all(content)?;
        writer.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_reads_back_and_is_reproducible() {
        let files = [("modules/order".to_owned(), b"a.ko\n".to_vec()), ("modules/a.ko".to_owned(), vec![7; 4097])];
        let packed = archive(b"#!agent", &files).unwrap();
        assert_eq!(packed, archive(b"#!agent", &files).unwrap());
        let mut rest = packed.as_slice();
        let mut seen = Vec::new();
        loop {
            let mut reader = cpio::NewcReader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let mut content = Vec::new();
            io::Read::read_to_end(&mut reader, &mut content).unwrap();
            let entry = reader.entry();
            seen.push((entry.name().to_owned(), entry.mode(), entry.rdev_major(), entry.rdev_minor(), content.len()));
            rest = reader.finish().unwrap();
        }
        assert!(seen.contains(&("dev/console".to_owned(), 0o020_600, 5, 1, 0)));
        assert!(seen.contains(&("init".to_owned(), 0o100_755, 0, 0, 7)));
        assert!(seen.contains(&("modules/a.ko".to_owned(), 0o100_644, 0, 0, 4097)));
    }
}
