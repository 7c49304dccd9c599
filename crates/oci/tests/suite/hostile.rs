//! Layers that must be refused, each with its own sentence.

use sandling_oci::{Digest, Limits, UnpackOptions, unpack};
use tar::EntryType;

use crate::support::{Disk, Layer, gzip, input, input_of, options, refused, refused_all};

fn unpack_error(bytes: &[u8], digest: Digest, diff_id: Option<Digest>) -> String {
    let disk = Disk::new();
    unpack(&[input_of(bytes, digest, diff_id)], &disk.file, &options(16), &mut |_| ()).unwrap_err().to_string()
}

#[test]
fn a_path_that_leaves_the_root_is_refused() {
    for name in ["../x", "a/../../x", "/../x", ".."] {
        let error = refused(Layer::default().file(name, b"x"), Limits::default());
        assert_eq!(error, format!("layer 1: the path `{name}` leaves the root directory"));
    }
    let layer = Layer::default().hard_link("link", "../../etc/passwd");
    let error = refused(layer, Limits::default());
    assert_eq!(error, "layer 1: the path `../../etc/passwd` leaves the root directory");
}

#[test]
fn a_symbolic_link_that_leaves_the_root_leads_to_the_root() {
    let disk = Disk::new();
    let layer = Layer::default().symlink("out", "../../../..").file("out/etc/evil", b"inside").symlink("abs", "/sub");
    disk.unpack(vec![layer, Layer::default().file("abs/file", b"sub")], &options(16)).unwrap();
    assert_eq!(disk.debugfs("cat /etc/evil"), "inside");
    assert_eq!(disk.debugfs("cat /sub/file"), "sub");
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    let lost = refused(Layer::default().hard_link("a", "missing"), Limits::default());
    assert_eq!(lost, "layer 1: the hard link `a` points to `missing`, which does not exist");
    let directory = refused(Layer::default().directory("d").hard_link("a", "d"), Limits::default());
    assert_eq!(directory, "layer 1: the hard link `a` points to `d`, which is a directory");
    let endless = Layer::default().symlink("a", "b").symlink("b", "a").file("a/x", b"");
    assert_eq!(refused(endless, Limits::default()), "layer 1: `a/x` has too many symbolic links in its path");
    let below_file = Layer::default().file("file", b"").file("file/x", b"");
    let error = refused(below_file, Limits::default());
    assert_eq!(error, "layer 1: `file/x` cannot be created because one of its parents is not a directory");
}

#[test]
fn a_link_swapped_for_a_directory_in_the_middle_of_a_layer_stays_inside() {
    let disk = Disk::new();
    let layer = Layer::default()
        .directory("d")
        .file("d/one", b"1")
        .symlink("d", "/")
        .file("d/two", b"2")
        .directory("d")
        .file("d/three", b"3");
    disk.unpack(vec![layer], &options(16)).unwrap();
    assert_eq!(disk.debugfs("cat /two"), "2");
    assert_eq!(disk.debugfs("cat /d/three"), "3");
    assert!(!disk.debugfs("ls /d").contains("one"));
}

#[test]
fn malformed_entries_are_refused() {
    let bad = |layer: Layer, reason: &str| {
        let error = refused(layer, Limits::default());
        assert!(error.ends_with(reason), "{error}");
    };
    bad(Layer::default().pax("path", b"a\0b").file("x", b""), "`a\\x00b` is invalid: its name contains a zero byte");
    bad(Layer::default().file(".wh...", b""), "`.wh...` is invalid: the whiteout names no file");
    bad(Layer::default().symlink("./", "/etc"), "`./` is invalid: it would replace the root directory");
    bad(Layer::default().entry("x", EntryType::new(b'?'), "", b""), "`x` is invalid: its type is unknown");
    bad(Layer::default().pax("uid", b"4294967295").file("x", b""), "`x` is invalid: its owner is malformed");
    bad(Layer::default().pax("mtime", b"soon").file("x", b""), "`x` is invalid: its time is malformed");
    bad(Layer::default().pax("size", b"-1").file("x", b""), "`x` is invalid: its size is malformed");
    bad(Layer::default().pax("GNU.sparse.major", b"9").file("x", b""), "its sparse format is unknown");
    bad(Layer::default().pax("path", &[b'n'; 256]).file("x", b""), "a name in it is longer than 255 bytes");
    bad(Layer::default().entry("x", EntryType::XHeader, "", b"9 a=b\n"), "a PAX header is malformed");
}

#[test]
fn every_limit_has_its_own_error() {
    let default = Limits::default;
    let files = (0..20).fold(Layer::default(), |layer, number| layer.file(&format!("f{number}"), b""));
    let error = refused(files, Limits { inodes: 10, ..default() });
    assert_eq!(error, "the image has more than 10 files and directories, which is the limit (layer 1, `f9`)");

    let error = refused(Layer::default().file("big", &[7; 9000]), Limits { bytes: 5000, ..default() });
    assert_eq!(error, "the image unpacks to more than 5000 bytes, which is the limit (layer 1)");

    let half = || Layer::default().file("half", &[7; 3000]);
    let error = refused_all(vec![half(), half()], Limits { bytes: 8000, ..default() });
    assert_eq!(error, "the image unpacks to more than 8000 bytes, which is the limit (layer 2)");

    let error = refused(Layer::default().file("long/path", b""), Limits { path_bytes: 5, ..default() });
    assert_eq!(error, "layer 1: the path `long/path` is longer than 5 bytes");
    let error = refused(Layer::default().symlink("l", "target"), Limits { path_bytes: 5, ..default() });
    assert_eq!(error, "layer 1: the path `target` is longer than 5 bytes");

    let error = refused(Layer::default().file("a/b/c/d", b""), Limits { depth: 2, ..default() });
    assert_eq!(error, "layer 1: `a/b/c/d` is below more than 2 directories");

    let large = Layer::default().pax("SCHILY.xattr.user.a", &[b'v'; 5000]).file("x", b"");
    assert_eq!(refused(large, default()), "layer 1: the extended attributes of `x` are larger than 4000 bytes");

    let error =
        refused(Layer::default().file("aaaa", b"").file("bbbb", b""), Limits { metadata_bytes: 40, ..default() });
    assert_eq!(error, "the names, links and attributes of the image are larger than 40 bytes (layer 1, `bbbb`)");
}

#[test]
fn a_decompression_bomb_is_refused_before_it_is_unpacked() {
    let bomb = gzip(&Layer::default().file("zeros", &vec![0; 8 << 20]).bytes());
    let limits = Limits { ratio: 100, ratio_floor: 1 << 20, ..Limits::default() };
    let options = UnpackOptions { limits, ..options(16) };
    let error = unpack(&[input(&bomb)], &Disk::new().file, &options, &mut |_| ()).unwrap_err().to_string();
    assert_eq!(error, "layer 1 expands to more than 100 times its compressed size: it looks like a decompression bomb");
}

#[test]
fn damaged_layers_are_reported_by_their_digest() {
    let plain = Layer::default().file("a", &[7; 100_000]).bytes();
    let packed = gzip(&plain);
    let digest = Digest::of(&packed);
    let mismatch = format!(
        "the content of layer {digest} does not match its digest: it is truncated or was changed; fetch it again"
    );
    for cut in [20, packed.len() / 2, packed.len() - 1] {
        assert_eq!(unpack_error(&packed[..cut], digest.clone(), None), mismatch);
    }
    let mut changed = packed.clone();
    changed[packed.len() / 2] ^= 1;
    assert_eq!(unpack_error(&changed, digest.clone(), None), mismatch);
    let mut longer = packed.clone();
    longer.extend_from_slice(&packed);
    assert_eq!(unpack_error(&longer, digest.clone(), None), mismatch);

    let other = Digest::of(b"other");
    let expected = format!("the uncompressed content of layer {other} does not match the image's configuration");
    assert_eq!(unpack_error(&packed, digest, Some(other)), expected);
}

#[test]
fn a_truncated_layer_is_refused_even_if_its_digest_is_right() {
    let plain = Layer::default().file("a", &[7; 100_000]).bytes();
    let packed = gzip(&plain);
    for cut in [&packed[..packed.len() / 2], &packed[..packed.len() - 4], &plain[..50_000], &plain[..100]] {
        assert_eq!(unpack_error(cut, Digest::of(cut), None), "layer 1 ends too early: it is truncated");
    }
    let noise = [7; 2000];
    let error = unpack_error(&noise, Digest::of(&noise), None);
    assert_eq!(error, "layer 1 is not a valid tar archive: the checksum of a header is wrong");
}

#[test]
fn a_layer_that_is_no_file_system_is_refused() {
    let mut layer = input(&Layer::default().bytes());
    layer.media_type = "application/vnd.in-toto+json".to_owned();
    let error = unpack(&[layer], &Disk::new().file, &options(16), &mut |_| ()).unwrap_err().to_string();
    assert_eq!(error, "layer 1 has the media type `application/vnd.in-toto+json`, which is not a file system layer");
}
