//! Exports, imports, and archives that somebody damaged or forged.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::header::{ArchiveHeader, HEADER, MANIFEST};
use super::{ArchiveError, Existing, ExportOptions, ExportedArchive, ImportRules, ImportedImage};
use crate::digest::FileDigest;
use crate::error::BuildError;
use crate::manifest::{Manifest, Part, Provenance};
use crate::name::TemplateName;
use crate::progress::Report;
use crate::recipe::Recipe;
use crate::store::names;
use crate::store::parts::{Kind, Parts};
use crate::store::tests::{Fake, Fixture, base, named, oci};
use crate::store::{BuildOptions, Image, ImageStore};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1/template.tar.zst");
const KEY: &str = "tcg-1c-512m-0123456789ab";
const OTHER_KEY: &str = "kvm-1c-512m-0123456789ab";

/// A host that can use the bakes of one key.
struct Host;

impl ImportRules for Host {
    fn stored_name(&self, name: &TemplateName) -> Result<TemplateName, ArchiveError> {
        Ok(name.clone())
    }

    fn fits(&self, _header: &ArchiveHeader, _recipe: &Recipe, key: &str) -> bool {
        key == KEY
    }

    fn is_bake(&self, dir: &Path, _recipe: &Recipe) -> bool {
        dir.join("baked.json").is_file()
    }
}

/// A built template with two bakes, one of which has a cached process.
fn built() -> (Fixture, Image) {
    let fixture = Fixture::new(Fake::default());
    let image = with_small_initrd(&fixture.store, fixture.ensure(&base(), BuildOptions::default()).unwrap());
    for key in [KEY, OTHER_KEY] {
        let dir = image.baked_dir(key);
        fs::create_dir_all(dir.join("warm-1")).unwrap();
        fs::write(dir.join("warm-1/process"), "of this boot").unwrap();
        fs::write(dir.join("baked.json"), "{}").unwrap();
        let memory = File::create(dir.join("memory")).unwrap();
        memory.set_len(4 << 20).unwrap();
        memory.write_all_at(b"pages", (2 << 20) + 4096).unwrap();
    }
    fs::create_dir(image.dir.join("baked/half.tmp-1")).unwrap();
    (fixture, image)
}

/// The real initrd has a guest of some megabytes.
fn with_small_initrd(store: &ImageStore, image: Image) -> Image {
    let (_guard, dir) = store.scratch().unwrap();
    fs::write(dir.join("initrd"), "initrd").unwrap();
    let initrd = Parts::new(store.dir()).publish(Kind::Initrd, &dir, Provenance::Initrd, &mut |_| ()).unwrap();
    let mut manifest = Manifest { initrd, ..image.manifest };
    manifest.id = manifest.computed_id();
    let image = store.publish_image(manifest).unwrap();
    names::set(store.dir(), &named("base"), &image.id).unwrap();
    image
}

fn export(image: &Image) -> (Vec<u8>, ExportedArchive) {
    let mut archive = Vec::new();
    let options = ExportOptions { name: named("base"), bakes: image.bakes(), tsc_mhz: Some(2500) };
    let exported = image.export(options, &mut archive, &mut |_| ()).unwrap();
    (archive, exported)
}

fn import(store: &ImageStore, archive: &[u8]) -> Result<ImportedImage, ArchiveError> {
    store.import(archive, None, Existing::Keep, &Host, &mut |_| ())
}

fn assert_empty(fixture: &Fixture) {
    for sub in ["images", "names", "roots", "kernels", "initrds", "scratch"] {
        assert!(fixture.entries(sub).is_empty(), "{sub} is not empty");
    }
}

/// The import must fail with this message and leave nothing.
fn assert_refused(archive: &[u8], message: &str) {
    let fixture = Fixture::new(Fake::default());
    let error = import(&fixture.store, archive).unwrap_err().to_string();
    assert!(error.contains(message), "{error:?} instead of {message:?}");
    assert_empty(&fixture);
}

#[derive(Clone)]
struct Entry {
    path: String,
    kind: tar::EntryType,
    content: Vec<u8>,
}

fn unpack(archive: &[u8]) -> Vec<Entry> {
    let mut tar = tar::Archive::new(zstd::Decoder::new(archive).unwrap());
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        Entry { path, kind: tar::EntryType::Regular, content }
    });
    entries.collect()
}

fn pack(entries: &[Entry]) -> Vec<u8> {
    compress(&tar_of(entries))
}

fn compress(tar: &[u8]) -> Vec<u8> {
    zstd::encode_all(tar, 3).unwrap()
}

fn tar_of(entries: &[Entry]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        // Not `set_path`, which refuses the paths that a forger uses.
        header.as_mut_bytes()[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
        header.set_entry_type(entry.kind);
        header.set_size(entry.content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, &*entry.content).unwrap();
    }
    tar.into_inner().unwrap()
}

/// An archive whose header and manifest were changed and fit each other.
fn forged(change: impl FnOnce(&mut ArchiveHeader, &mut Manifest)) -> Vec<u8> {
    let (_fixture, image) = built();
    let mut entries = unpack(&export(&image).0);
    let mut header: ArchiveHeader = serde_json::from_slice(&entries[0].content).unwrap();
    let mut manifest: Manifest = serde_json::from_slice(&entries[1].content).unwrap();
    change(&mut header, &mut manifest);
    for part in
        [&mut manifest.root, &mut manifest.kernel, &mut manifest.initrd].into_iter().chain(header.bakes.values_mut())
    {
        *part = Part::of(part.files.clone());
    }
    manifest.id = manifest.computed_id();
    header.image = manifest.id.clone();
    entries[0].content = serde_json::to_vec(&header).unwrap();
    entries[1].content = serde_json::to_vec(&manifest).unwrap();
    pack(&entries)
}

#[test]
fn a_template_is_the_same_after_an_export_and_an_import() {
    let (_here, image) = built();
    let (archive, exported) = export(&image);
    assert_eq!(exported.bytes, archive.len() as u64);
    assert!(archive.len() < 16 << 10, "{} bytes for holes", archive.len());
    assert_eq!(export(&image).1, exported, "the same template becomes the same archive");
    let there = Fixture::new(Fake::default());
    let imported = import(&there.store, &archive).unwrap();
    assert_eq!((imported.name.as_str(), &imported.sha256), ("base", &exported.sha256));
    let loaded = there.store.load(&named("base")).unwrap();
    assert_eq!(loaded.manifest, image.manifest);
    loaded.verify_full().unwrap();
    assert_eq!(fs::read(loaded.root_img()).unwrap(), fs::read(image.root_img()).unwrap());
    assert!(there.entries("scratch").is_empty());
}

#[test]
fn only_bakes_that_fit_the_host_are_unpacked_and_their_holes_stay_holes() {
    let (_here, image) = built();
    let there = Fixture::new(Fake::default());
    let imported = import(&there.store, &export(&image).0).unwrap();
    assert_eq!(imported.image.bakes(), [KEY]);
    assert_eq!(imported.bakes.into_iter().collect::<Vec<_>>(), [KEY]);
    let memory = imported.image.baked_dir(KEY).join("memory");
    assert_eq!(fs::read(&memory).unwrap(), fs::read(image.baked_dir(KEY).join("memory")).unwrap());
    assert!(fs::metadata(&memory).unwrap().blocks() * 512 < 1 << 20, "holes were written");
    let mut files: Vec<_> = fs::read_dir(imported.image.baked_dir(KEY)).unwrap().flatten().collect();
    files.retain(|file| !["baked.json", "memory"].iter().any(|name| file.file_name() == *name));
    assert!(files.is_empty(), "a process of another host was imported: {files:?}");
}

#[test]
fn a_template_of_that_name_is_replaced_only_on_request() {
    let (here, image) = built();
    let (archive, _) = export(&image);
    let rebuilt = here.ensure(&base(), BuildOptions { force: true, ..Default::default() }).unwrap();
    let error = import(&here.store, &archive).unwrap_err();
    assert!(matches!(error, ArchiveError::Exists { .. }), "{error}");
    assert_eq!(here.store.load(&named("base")).unwrap().id, rebuilt.id);
    here.store.import(&*archive, None, Existing::Replace, &Host, &mut |_| ()).unwrap();
    assert_eq!(here.store.load(&named("base")).unwrap().id, image.id);
    assert!(image.baked_dir(OTHER_KEY).exists(), "snapshots stand on it");
    here.store.import(&*archive, Some(named("copy")), Existing::Keep, &Host, &mut |_| ()).unwrap();
    assert_eq!(here.store.load(&named("copy")).unwrap().id, image.id);
}

#[test]
fn a_template_of_an_oci_image_is_carried_with_its_configuration() {
    let here = Fixture::new(Fake::default());
    let make_root = |path: &Path, _: Report<'_>| -> Result<(), BuildError> {
        fs::write(path, "disk").unwrap();
        Ok(())
    };
    let image = here.store.ensure_oci(&oci("app", "layer"), &make_root, &mut |_| ()).unwrap();
    let there = Fixture::new(Fake::default());
    let mut archive = Vec::new();
    let options = ExportOptions { name: named("app"), bakes: Vec::new(), tsc_mhz: None };
    image.export(options, &mut archive, &mut |_| ()).unwrap();
    import(&there.store, &archive).unwrap();
    let loaded = there.store.load(&named("app")).unwrap();
    assert_eq!(loaded.manifest.recipe, oci("app", "layer"));
    loaded.verify_full().unwrap();
}

#[test]
fn a_built_in_name_is_only_for_that_template() {
    let (_here, image) = built();
    let there = Fixture::new(Fake::default());
    let name = Some(named("code-interpreter"));
    let error = there.store.import(&*export(&image).0, name, Existing::Keep, &Host, &mut |_| ()).unwrap_err();
    assert!(matches!(error, ArchiveError::NotThatBuiltIn { .. }), "{error}");
    assert_empty(&there);
}

#[test]
fn builds_do_not_reuse_imported_parts() {
    let (_here, image) = built();
    let there = Fixture::new(Fake::default());
    import(&there.store, &export(&image).0).unwrap();
    assert!(!there.store.has_root(&base()).unwrap());
    let other = there.ensure(&base().renamed("other").unwrap(), BuildOptions::default()).unwrap();
    assert!(matches!(other.manifest.kernel_origin, crate::kernel::KernelOrigin::Debian { .. }));
}

#[test]
fn a_cut_or_altered_archive_is_refused_and_leaves_nothing() {
    let (_here, image) = built();
    let (archive, _) = export(&image);
    let there = Fixture::new(Fake::default());
    let steps = (archive.len() / 150).max(1);
    for at in (0..archive.len()).step_by(steps).chain([archive.len() - 1]) {
        let refused = import(&there.store, &archive[..at]);
        assert!(
            matches!(refused, Err(ArchiveError::Damaged(_) | ArchiveError::NotAnArchive)),
            "cut at {at}: {refused:?}"
        );
        assert_empty(&there);
        let mut altered = archive.clone();
        altered[at] ^= 1 << (at % 8);
        // The header of a zstd frame has a bit without a meaning. In all other cases, something is wrong.
        if let Ok(imported) = import(&there.store, &altered) {
            assert_eq!(imported.image.manifest, image.manifest, "altered at {at}");
            imported.image.verify_full().unwrap();
            there.store.remove(&imported.name, Some(&Default::default()), &mut |_| ()).unwrap();
        }
        assert_empty(&there);
    }
}

#[test]
fn other_files_are_not_archives() {
    for other in [&b""[..], b"hello", &[0; 4096], &pack(&[]), &zstd::encode_all(&b"hello"[..], 3).unwrap()] {
        assert_refused(other, "this is not an exported template");
    }
    let stranger = Entry { path: "etc/passwd".into(), kind: tar::EntryType::Regular, content: b"root".to_vec() };
    assert_refused(&pack(&[stranger]), "this is not an exported template");
}

#[test]
fn links_and_other_paths_are_refused() {
    let (_here, image) = built();
    let entries = unpack(&export(&image).0);
    let root = entries.iter().position(|entry| entry.path == "root/root.img").unwrap();
    for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Directory, tar::EntryType::Fifo] {
        let mut forged = entries.clone();
        forged[root].kind = kind;
        assert_refused(&pack(&forged), "something else in place of root/root.img");
    }
    for path in ["/etc/passwd", "../../names/base.json", "root/../root/root.img", "root/./root.img", "root/other"] {
        let mut forged = entries.clone();
        forged[root].path = path.to_owned();
        assert_refused(&pack(&forged), "something else in place of root/root.img");
    }
}

#[test]
fn missing_additional_and_altered_files_are_refused() {
    let (_here, image) = built();
    let entries = unpack(&export(&image).0);
    for at in 2..entries.len() {
        let mut forged = entries.clone();
        forged.remove(at);
        assert_refused(&pack(&forged), "the archive is damaged");
        let mut forged = entries.clone();
        forged.insert(at, entries[at].clone());
        assert_refused(&pack(&forged), "the archive is damaged");
        let mut forged = entries.clone();
        forged[at].content[0] ^= 1;
        assert_refused(&pack(&forged), "does not match its digest");
    }
    let mut forged = entries.clone();
    forged.push(Entry { path: "more".into(), ..entries[2].clone() });
    assert_refused(&pack(&forged), "more files than its manifest names");
    let mut trailing = pack(&entries);
    trailing.push(0);
    assert_refused(&trailing, "something follows its end");
}

#[test]
fn manifests_that_name_other_files_are_refused() {
    let digest = || FileDigest { size: 1, blake3: blake3::hash(b"x").to_hex().to_string() };
    for path in ["../escape", "/etc/cron.d/x", "a//b", "./a", "a/../b", "", "part.json", "stamps/x", "a\nb"] {
        let archive = forged(|_, manifest| drop(manifest.kernel.files.insert(path.to_owned(), digest())));
        assert_refused(&archive, "names files that a template does not have");
        let archive =
            forged(|header, _| drop(header.bakes.get_mut(KEY).unwrap().files.insert(path.to_owned(), digest())));
        assert_refused(&archive, "names bakes that a template does not have");
    }
    for key in ["../../../escape", "a/b", "", "A"] {
        let archive = forged(|header, _| drop(header.bakes.insert(key.to_owned(), header.bakes[KEY].clone())));
        assert_refused(&archive, "names bakes that a template does not have");
    }
    let archive = forged(|_, manifest| manifest.root.files.get_mut("root.img").unwrap().size = 1 << 50);
    assert_refused(&archive, "larger than it can be");
    let archive = forged(|_, manifest| manifest.recipe.memory_mib = u32::MAX);
    assert_refused(&archive, "its recipe");
    let archive = forged(|header, _| header.format = 99);
    assert_refused(&archive, "written by a newer Sandling (its format is 99)");
    let archive = forged(|header, _| header.stored_bytes = 1 << 60);
    assert_refused(&archive, "not enough disk space");
}

#[test]
fn a_manifest_that_does_not_match_its_id_is_refused() {
    let (_here, image) = built();
    let mut entries = unpack(&export(&image).0);
    let altered = String::from_utf8(entries[1].content.clone()).unwrap().replace("\"vcpus\": ", "\"vcpus\": 1");
    entries[1].content = altered.into_bytes();
    assert_refused(&pack(&entries), "its manifest was altered");
}

#[test]
fn a_name_of_many_megabytes_is_not_read_into_memory() {
    const END_OF_TAR: usize = 1024;
    let (_here, image) = built();
    let entries = unpack(&export(&image).0);
    let mut tar = tar_of(&entries[..2]);
    tar.truncate(tar.len() - END_OF_TAR);
    let mut header = tar::Header::new_gnu();
    header.set_path("././@LongLink").unwrap();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    tar.extend_from_slice(header.as_bytes());
    tar.resize(tar.len() + (64 << 20), b'a');
    assert_refused(&compress(&tar), "more bytes than a file of a template has");
}

#[test]
fn an_archive_of_the_first_version_is_imported() {
    if std::env::var_os("SANDLING_UPDATE_GOLDEN").is_some() {
        let (_here, image) = built();
        fs::write(GOLDEN, export(&image).0).unwrap();
    }
    let golden = fs::read(GOLDEN).unwrap();
    let there = Fixture::new(Fake::default());
    let imported = import(&there.store, &golden).unwrap();
    imported.image.verify_full().unwrap();
    assert_eq!((imported.name.as_str(), imported.image.bakes()), ("base", vec![KEY.to_owned()]));

    // A new archive has the same files, so older releases can import it.
    let paths = |archive: &[u8]| unpack(archive).into_iter().map(|entry| entry.path).collect::<Vec<_>>();
    let (again, _) = export(&imported.image);
    let of_other_bake = |path: &String| path.starts_with(&format!("baked/{OTHER_KEY}/"));
    let mut expected = paths(&golden);
    expected.retain(|path| !of_other_bake(path));
    assert_eq!(paths(&again), expected);
    assert_eq!(expected[..2], [HEADER, MANIFEST]);
    let fields = |archive: &[u8]| {
        let header: serde_json::Value = serde_json::from_slice(&unpack(archive)[0].content).unwrap();
        header.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(fields(&again), fields(&golden));
}
