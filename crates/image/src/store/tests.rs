//! The store's rules, with a fake package source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sandling_oci::Digest;

use super::{BuildOptions, Image, ImageStore};
use crate::builtin::resolve;
use crate::error::{BuildError, LoadError};
use crate::kernel::tests::fake_kernel;
use crate::kernel::{KernelOrigin, from_files};
use crate::name::TemplateName;
use crate::progress::{Report, Step};
use crate::recipe::{OciImage, Recipe};
use crate::supply::{Session, Supply};

/// A package source that counts requests. Each root it makes differs, as with an archive that changes.
#[derive(Default)]
pub(super) struct Fake {
    roots: AtomicU32,
    kernels: AtomicU32,
    /// The newest kernel's version.
    version: AtomicU32,
    root_takes: Duration,
    missing: Option<&'static str>,
}

impl Supply for Arc<Fake> {
    fn begin<'a>(
        &'a self,
        _store: &Path,
        recipe: &'a Recipe,
        _lock: &'a File,
    ) -> Result<Box<dyn Session + 'a>, BuildError> {
        Ok(Box::new(FakeSession { fake: self, recipe }))
    }
}

struct FakeSession<'a> {
    fake: &'a Fake,
    recipe: &'a Recipe,
}

impl Session for FakeSession<'_> {
    fn root(&self, image: &Path, _fresh: bool, _report: Report<'_>) -> Result<BTreeMap<String, String>, BuildError> {
        let number = self.fake.roots.fetch_add(1, Ordering::SeqCst);
        fs::write(image, format!("root {number} of {}", self.recipe.suite)).unwrap();
        std::thread::sleep(self.fake.root_takes);
        match self.fake.missing {
            Some(name) => {
                Err(BuildError::NoSuchPackage { packages: vec![name.to_owned()], suite: self.recipe.suite.clone() })
            }
            None => Ok(BTreeMap::from([("bash".to_owned(), number.to_string())])),
        }
    }

    fn kernel(
        &self,
        dest: &Path,
        known: &dyn Fn(&KernelOrigin) -> bool,
        _report: Report<'_>,
    ) -> Result<KernelOrigin, BuildError> {
        let version = format!("6.12.{}", self.fake.version.load(Ordering::SeqCst));
        let origin = KernelOrigin::Debian { package: format!("linux-image-{version}"), version: version.clone() };
        if !known(&origin) {
            self.fake.kernels.fetch_add(1, Ordering::SeqCst);
            let source = tempfile::tempdir().unwrap();
            from_files(&fake_kernel(source.path()), dest)?;
            OpenOptions::new()
                .append(true)
                .open(dest.join("vmlinuz"))
                .and_then(|mut file| std::io::Write::write_all(&mut file, version.as_bytes()))
                .unwrap();
        }
        Ok(origin)
    }
}

pub(super) struct Fixture {
    dir: tempfile::TempDir,
    fake: Arc<Fake>,
    pub(super) store: ImageStore,
}

impl Fixture {
    pub(super) fn new(fake: Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fake = Arc::new(fake);
        let store = ImageStore::with_supply(dir.path().join("templates"), Box::new(fake.clone())).unwrap();
        Self { dir, fake, store }
    }

    pub(super) fn ensure(&self, recipe: &Recipe, options: BuildOptions) -> Result<Image, BuildError> {
        self.store.ensure(recipe, &options, &mut |_| ())
    }

    fn made(&self) -> (u32, u32) {
        (self.fake.roots.load(Ordering::SeqCst), self.fake.kernels.load(Ordering::SeqCst))
    }

    pub(super) fn entries(&self, sub: &str) -> Vec<String> {
        let entries = fs::read_dir(self.store.dir().join(sub)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

pub(super) fn base() -> Recipe {
    resolve("base").unwrap().recipe
}

pub(super) fn named(name: &str) -> TemplateName {
    name.parse().unwrap()
}

/// Replaces a file of a part, although it is read-only.
fn overwrite(path: &PathBuf, content: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn an_image_that_was_built_is_loaded_and_not_built_again() {
    let fixture = Fixture::new(Fake::default());
    let built = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    let loaded = fixture.store.load(&named("base")).unwrap();
    assert_eq!(loaded.manifest, built.manifest);
    assert!(loaded.root_img().is_file() && loaded.kernel().is_file() && loaded.initrd().is_file());
    assert_eq!(fixture.ensure(&base(), BuildOptions::default()).unwrap().id, built.id);
    assert_eq!(fixture.made(), (1, 1));
    assert!(fixture.entries("scratch").is_empty());
    built.verify_full().unwrap();
}

#[test]
fn only_parts_with_changed_inputs_are_built_again() {
    let fixture = Fixture::new(Fake::default());
    let first = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    let mut larger = base();
    larger.memory_mib *= 2;
    let second = fixture.ensure(&larger, BuildOptions::default()).unwrap();
    assert_ne!(second.id, first.id);
    assert_eq!((second.manifest.root, second.manifest.initrd), (first.manifest.root, first.manifest.initrd));
    assert_eq!(fixture.made(), (1, 1));
    larger.packages.insert("hello".to_owned());
    fixture.ensure(&larger, BuildOptions::default()).unwrap();
    assert_eq!(fixture.made(), (2, 1));
}

#[test]
fn force_replaces_only_the_root_and_upgrade_only_the_kernel() {
    let fixture = Fixture::new(Fake::default());
    let first = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    fixture.fake.version.store(7, Ordering::SeqCst);
    let forced = fixture.ensure(&base(), BuildOptions { force: true, ..Default::default() }).unwrap();
    assert_ne!(forced.manifest.root.id, first.manifest.root.id);
    assert_eq!(forced.manifest.kernel.id, first.manifest.kernel.id);
    let upgraded = fixture.ensure(&base(), BuildOptions { upgrade: true, ..Default::default() }).unwrap();
    assert_ne!(upgraded.manifest.kernel.id, first.manifest.kernel.id);
    assert!(matches!(&upgraded.manifest.kernel_origin, KernelOrigin::Debian { version, .. } if version == "6.12.7"));
    assert_eq!(fixture.made(), (2, 2));
    fixture.ensure(&base(), BuildOptions { upgrade: true, ..Default::default() }).unwrap();
    assert_eq!(fixture.made(), (2, 2));
}

#[test]
fn an_own_kernel_is_used_and_kept() {
    let fixture = Fixture::new(Fake::default());
    let own = Some(fake_kernel(fixture.dir.path()));
    let built = fixture.ensure(&base(), BuildOptions { kernel: own, ..Default::default() }).unwrap();
    assert_eq!(built.manifest.kernel_origin, KernelOrigin::File);
    let again = fixture.ensure(&base(), BuildOptions { force: true, ..Default::default() }).unwrap();
    assert_eq!(again.manifest.kernel.id, built.manifest.kernel.id);
    assert_eq!(fixture.made(), (2, 0));
}

#[test]
fn a_build_that_fails_leaves_the_template_as_it_was() {
    let fixture = Fixture::new(Fake::default());
    let built = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    let failing = Arc::new(Fake { missing: Some("`foo`"), ..Default::default() });
    let store = ImageStore::with_supply(fixture.store.dir().to_owned(), Box::new(failing)).unwrap();
    let error = store.ensure(&base(), &BuildOptions { force: true, ..Default::default() }, &mut |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "package `foo` does not exist in Debian trixie");
    assert_eq!(fixture.store.load(&named("base")).unwrap().id, built.id);
    assert!(fixture.entries("scratch").is_empty());
    assert_eq!((fixture.entries("roots").len(), fixture.entries("images").len()), (1, 1));
}

#[test]
fn a_damaged_file_is_reported_with_the_command_that_repairs_it() {
    let fixture = Fixture::new(Fake::default());
    let image = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    for (file, content) in [(image.root_img(), "short"), (image.kernel(), ""), (image.initrd(), "x")] {
        overwrite(&file, content.as_bytes());
        let error = fixture.store.load(&named("base")).unwrap_err().to_string();
        let file_name = file.file_name().unwrap().to_str().unwrap();
        assert!(error.contains("template `base` is damaged") && error.contains(file_name), "{error}");
        assert!(error.contains("`sandling template build base --force`"), "{error}");
        fixture.ensure(&base(), BuildOptions { force: true, ..Default::default() }).unwrap();
        fixture.store.load(&named("base")).unwrap().verify_full().unwrap();
    }
}

#[test]
fn a_file_altered_without_changing_its_size_is_detected() {
    let fixture = Fixture::new(Fake::default());
    let image = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    let mut bytes = fs::read(image.root_img()).unwrap();
    bytes[0] ^= 1;
    overwrite(&image.root_img(), &bytes);
    let error = fixture.store.load(&named("base")).unwrap_err();
    assert!(error.to_string().contains("root.img was altered"), "{error}");
}

#[test]
fn a_template_that_others_can_write_to_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new(Fake::default());
    let image = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let root = image.root_img();
    let paths = [fixture.store.dir(), &image.dir, root.parent().unwrap(), &root, &image.kernel()];
    for path in paths {
        let before = fs::metadata(path).unwrap().permissions().mode();
        set(path, before | 0o002);
        let error = fixture.store.load(&named("base")).unwrap_err();
        assert!(matches!(error, LoadError::Untrusted(_)), "{}: {error}", path.display());
        set(path, before);
        fixture.store.load(&named("base")).unwrap();
    }
}

#[test]
fn a_torn_manifest_or_entry_is_damage_and_is_repaired() {
    let fixture = Fixture::new(Fake::default());
    let image = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    let manifest = image.dir.join("manifest.json");
    let whole = fs::read(&manifest).unwrap();
    let bake = image.baked_dir("key");
    fs::create_dir_all(&bake).unwrap();
    let entry = fixture.store.dir().join("names/base.json");
    let altered = String::from_utf8(whole.clone()).unwrap().replace("512", "513");
    for (path, content) in
        [(&manifest, &whole[..whole.len() / 2]), (&manifest, b""), (&manifest, altered.as_bytes()), (&entry, b"{")]
    {
        overwrite(path, content);
        let error = fixture.store.load(&named("base")).unwrap_err();
        assert!(matches!(error, LoadError::Damaged { .. }), "{error}");
        assert_eq!(fixture.ensure(&base(), BuildOptions::default()).unwrap().id, image.id);
        fixture.store.load(&named("base")).unwrap();
        assert!(bake.exists(), "snapshots stand on it");
    }
    assert_eq!(fixture.made(), (1, 1));
}

#[test]
fn a_newer_manifest_is_refused() {
    let fixture = Fixture::new(Fake::default());
    let image = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    overwrite(&image.dir.join("manifest.json"), br#"{ "format": 99, "everything": "else" }"#);
    let error = fixture.store.load(&named("base")).unwrap_err();
    assert!(matches!(error, LoadError::TooNew { format: 99, .. }), "{error}");
}

#[test]
fn two_builders_at_once_make_one_image_and_the_second_reports_that_it_waits() {
    let fixture = Fixture::new(Fake { root_takes: Duration::from_secs(2), ..Default::default() });
    let build = || {
        let mut waited = false;
        let image = fixture.store.ensure(&base(), &BuildOptions::default(), &mut |progress| {
            waited |= progress.step == Step::Waiting;
        });
        (image.unwrap().id, waited)
    };
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(build);
        (build(), other.join().unwrap())
    });
    assert_eq!(one.0, two.0);
    assert!(one.1 != two.1, "exactly one of them waits");
    assert_eq!(fixture.made(), (1, 1));
}

#[test]
fn leftovers_of_an_interrupted_build_are_removed() {
    let fixture = Fixture::new(Fake::default());
    let stale = fixture.store.dir().join("scratch/part-dead/content");
    fs::create_dir_all(&stale).unwrap();
    fs::write(stale.join("root.img"), "half").unwrap();
    fixture.ensure(&base(), BuildOptions::default()).unwrap();
    assert!(fixture.entries("scratch").is_empty());
}

#[test]
fn removing_a_template_removes_what_nothing_else_uses() {
    let fixture = Fixture::new(Fake::default());
    let kept = fixture.ensure(&base(), BuildOptions::default()).unwrap();
    let mut mine = base().renamed("mine").unwrap();
    mine.packages.insert("hello".to_owned());
    let gone = fixture.ensure(&mine, BuildOptions::default()).unwrap();
    let running = fixture.ensure(&mine, BuildOptions { force: true, ..Default::default() }).unwrap();
    let in_use = BTreeSet::from([running.id.clone()]);
    let freed = fixture.store.remove(&named("mine"), Some(&in_use), &mut |_| ()).unwrap();
    assert!(freed > 0);
    assert!(matches!(fixture.store.load(&named("mine")), Err(LoadError::NotBuilt { .. })));
    assert!(!gone.dir.exists() && !gone.root_img().exists());
    fixture.store.load_image(&running.id).unwrap();
    fixture.store.load(&named("base")).unwrap();
    assert_eq!(fixture.store.list().unwrap().len(), 1);
    assert!(kept.root_img().exists());
    assert!(fixture.store.remove(&named("mine"), Some(&in_use), &mut |_| ()).is_err());
}

#[test]
fn a_template_that_was_never_built_says_how_to_build_it() {
    let fixture = Fixture::new(Fake::default());
    let error = fixture.store.load(&named("base")).unwrap_err().to_string();
    assert_eq!(error, "template `base` has not been built; `sandling template build base` builds it");
}

pub(super) fn oci(name: &str, blob: &str) -> Recipe {
    let config = r#"{"Entrypoint":["/app"],"Cmd":["serve"],"Labels":{"a":"b"},"StopSignal":"SIGINT","ExposedPorts":{"80/tcp":{}}}"#;
    let image = OciImage {
        reference: "registry.example/app:1".to_owned(),
        digest: Digest::of(b"manifest"),
        blobs: vec![Digest::of(blob.as_bytes())],
        layers: vec![Digest::of(b"uncompressed")],
        config: serde_json::from_str(config).unwrap(),
    };
    Recipe::of_oci(named(name), image)
}

#[test]
fn a_template_of_an_oci_image_keeps_its_configuration_and_shares_the_root_of_the_same_layers() {
    let fixture = Fixture::new(Fake::default());
    let made = AtomicU32::new(0);
    let ensure = |recipe: &Recipe| {
        let make_root = |path: &Path, _: Report<'_>| -> Result<(), BuildError> {
            made.fetch_add(1, Ordering::SeqCst);
            fs::write(path, "disk").unwrap();
            Ok(())
        };
        fixture.store.ensure_oci(recipe, &make_root, &mut |_| ()).unwrap()
    };
    let recipe = oci("app", "layer");
    assert!(!fixture.store.has_root(&recipe).unwrap());
    ensure(&recipe);
    let image = fixture.store.load(&named("app")).unwrap();
    assert_eq!((image.manifest.format, &image.manifest.recipe), (2, &recipe));
    let config = image.manifest.recipe.oci.unwrap().config;
    assert_eq!((config.entrypoint.unwrap(), config.cmd.unwrap()), (vec!["/app".to_owned()], vec!["serve".to_owned()]));
    assert_eq!((config.stop_signal.as_deref(), config.labels.unwrap().len()), (Some("SIGINT"), 1));
    assert!(config.exposed_ports.unwrap().contains_key("80/tcp"));
    ensure(&recipe);
    ensure(&oci("other", "layer"));
    assert_eq!((made.load(Ordering::SeqCst), fixture.made().0), (1, 0));
    // The same claim about uncompressed layers is not enough.
    ensure(&oci("forged", "other layer"));
    assert_eq!(made.load(Ordering::SeqCst), 2);
    // Older releases read what has nothing new.
    assert_eq!(fixture.ensure(&base(), BuildOptions::default()).unwrap().manifest.format, 3);
    let old = Recipe { pip: Default::default(), ..base().renamed("old").unwrap() };
    assert_eq!(fixture.ensure(&old, BuildOptions::default()).unwrap().manifest.format, 1);
}
