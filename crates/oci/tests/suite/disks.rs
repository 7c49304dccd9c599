//! The disks that layers become.

use std::os::unix::fs::MetadataExt;

use sandling_oci::{Extra, UnpackError, UnpackOptions};

use crate::support::{Disk, Layer, noise, options};

fn allocated(disk: &Disk) -> u64 {
    disk.file.metadata().unwrap().blocks() * 512
}

#[test]
fn a_disk_is_sparse_and_depends_only_on_its_layers() {
    let layers =
        || vec![Layer::default().directory("d").file("d/f", &noise(100_000)), Layer::default().file("g", b"g")];
    let (one, other) = (Disk::new(), Disk::new());
    let summary = one.unpack(layers(), &options(512)).unwrap();
    other.unpack(layers(), &options(512)).unwrap();
    assert_eq!(summary.inodes, 4);
    assert_eq!(summary.disk_bytes, 4096 * (25 + 1 + 2));
    assert!(std::fs::read(&one.path).unwrap() == std::fs::read(&other.path).unwrap());
    assert_eq!(one.file.metadata().unwrap().len(), 512 << 20);
    assert!(allocated(&one) < 1 << 20, "{}", allocated(&one));
}

#[test]
fn blocks_of_replaced_files_are_holes_and_are_used_again() {
    let disk = Disk::new();
    let layer = || Layer::default().file("large", &noise(6 << 20));
    let summary = disk.unpack(vec![layer(), layer(), layer(), layer(), layer()], &options(16)).unwrap();
    assert!(summary.disk_bytes < 7 << 20, "{}", summary.disk_bytes);
    assert!(allocated(&disk) < 8 << 20, "{}", allocated(&disk));
    let removed = Layer::default().file(".wh.large", b"");
    disk.unpack(vec![layer(), removed], &options(16)).unwrap();
    assert!(allocated(&disk) < 1 << 20, "{}", allocated(&disk));
}

#[test]
fn a_disk_that_is_too_small_is_reported() {
    for size in [17 << 20, (15 << 20) + 800_000] {
        let error = Disk::new().unpack(vec![Layer::default().file("large", &noise(size))], &options(16)).unwrap_err();
        assert!(error.is_disk_too_small(), "{error}");
        let expected = "the image does not fit on a disk of 16 MiB; give the template a larger disk";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    let error = Disk::new().unpack(Vec::new(), &options(2 << 20)).unwrap_err();
    assert!(matches!(error, UnpackError::Ext4(_)), "{error}");
}

#[test]
fn disks_of_all_sizes_are_valid() {
    for disk_mib in [16, 127, 129, 385, 512, 1000, 16 << 10] {
        let disk = Disk::new();
        disk.unpack(vec![Layer::default().file("file", b"content")], &options(disk_mib)).unwrap();
        assert_eq!(disk.debugfs("cat /file"), "content", "{disk_mib} MiB");
    }
}

#[test]
fn a_disk_of_a_tebibyte_takes_little_space() {
    let disk = Disk::new();
    let layers = [crate::support::input(&Layer::default().file("file", b"content").bytes())];
    sandling_oci::unpack(&layers, &disk.file, &options(1 << 20), &mut |_| ()).unwrap();
    // e2fsck would read all inode tables.
    assert_eq!(disk.debugfs("cat /file"), "content");
    assert!(allocated(&disk) < 40 << 20, "{}", allocated(&disk));
}

#[test]
fn more_inodes_than_usual_are_made_if_the_image_needs_them() {
    let layer =
        (0..6000).fold(Layer::default().directory("d"), |layer, number| layer.file(&format!("d/{number}"), b""));
    let disk = Disk::new();
    assert_eq!(disk.unpack(vec![layer], &options(16)).unwrap().inodes, 6002);
}

#[test]
fn a_file_with_more_extents_than_fit_in_one_block_is_valid() {
    let stripe = [[7; 4096], [0; 4096]].concat();
    let content = stripe.repeat(1500);
    let disk = Disk::new();
    disk.unpack(vec![Layer::default().file("striped", &content)], &options(32)).unwrap();
    let copy = tempfile::NamedTempFile::new().unwrap();
    disk.debugfs(&format!("dump /striped {}", copy.path().display()));
    assert!(std::fs::read(copy.path()).unwrap() == content);
}

#[test]
fn extra_entries_are_created_only_if_they_are_missing() {
    let path = |path: &str| path.to_owned();
    let extras = vec![
        Extra::Directory { path: path("/proc"), mode: 0o555 },
        Extra::Directory { path: path("/tmp"), mode: 0o1777 },
        Extra::File { path: path("/etc/hosts"), mode: 0o644, content: path("127.0.0.1 localhost\n") },
        Extra::File { path: path("/etc/hostname"), mode: 0o644, content: path("sandbox\n") },
        Extra::Symlink { path: path("/etc/mtab"), target: path("/proc/mounts") },
    ];
    let disk = Disk::new();
    let layer = Layer::default().directory("tmp").file("etc/hosts", b"mine");
    disk.unpack(vec![layer], &UnpackOptions { extras, ..options(16) }).unwrap();
    assert_eq!(disk.debugfs("cat /etc/hosts"), "mine");
    assert_eq!(disk.debugfs("cat /etc/hostname"), "sandbox\n");
    assert!(disk.debugfs("stat /tmp").contains("Mode:  0644"), "{}", disk.debugfs("stat /tmp"));
    assert!(disk.debugfs("stat /proc").contains("Mode:  0555"));
    assert!(disk.debugfs("stat /etc/mtab").contains("/proc/mounts"));
}
