//! Processes that machines go on as: what makes a machine under emulation fast from its first moment.
//!
//! ```text
//! DIR/process    the memory of the process, over that of the one it was itself thawed from
//!     plan       how it is made again
//!     thaw.json  what all of it depends on; written last
//! ```
//!
//! A snapshot's directory may hold one; a template's bake has one for every boot of the host, beside which lie the disk
//! and the layer of guest memory that belong to it. All of this only saves time: what is missing, cut off or of another
//! boot is passed over, and the machine is restored from its devices' state.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandling_vmm::machine::MachineDir;
use sandling_vmm::memory::{Frozen, Memory, MemoryMap};
use sandling_vmm::process_cache::{CachedProcess, CapturedProcess, ProcessCache, capture};
use serde::{Deserialize, Serialize};

const RECORD: &str = "thaw.json";
/// What the record is called of one that did not go on.
const DISTRUSTED: &str = "distrusted.json";
/// In a bake's directory, the beginning of the names of those that hold a process.
const TEMPLATES: &str = "warm-";
const PLAN: &str = "plan";
const PROCESS: &str = "process";
/// Beside a template's: the layer of guest memory and its map, called as in a snapshot, and the disk.
const GUEST: &str = "pages";
const GUEST_MAP: &str = "map";
const OVERLAY: &str = "overlay.qcow2";
/// In a machine's directory: the directory that it was thawed from, and the map of guest memory from there.
const THAWED: &str = "thawed";
const THAWED_MAP: &str = "thawed.map";
/// Nobody takes this long to write one.
const UNFINISHED_FOR: Duration = Duration::from_secs(600);
/// A process on so many files is stored as a whole again: opening them takes time, too.
const MOST_FILES: usize = 12;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    fingerprint: String,
    /// The files of pages, the lowest first, and how large each is. Its own, the last, is named as in its directory.
    pages: Vec<(PathBuf, u64)>,
    /// Of a template's: what lies beside it, and how large that is.
    #[serde(default)]
    beside: Vec<(PathBuf, u64)>,
}

impl Record {
    fn read(dir: &Path, name: &str) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(name)).ok()?).ok()
    }
}

/// A process in its directory.
#[derive(Debug, Clone)]
pub(crate) struct Warm {
    dir: PathBuf,
    record: Record,
}

impl Warm {
    /// The process in this directory, if it is of this boot and whole.
    pub(crate) fn load(dir: &Path, thawing: &ProcessCache) -> Option<Self> {
        let mut record = Record::read(dir, RECORD)?;
        for (path, _) in record.pages.iter_mut().chain(&mut record.beside) {
            *path = dir.join(&path);
        }
        let warm = Self { dir: dir.to_owned(), record };
        (warm.record.fingerprint == thawing.fingerprint() && warm.is_whole()).then_some(warm)
    }

    /// A machine would not notice that the end of a file is missing until it runs into it.
    pub(crate) fn is_whole(&self) -> bool {
        let mut files = self.record.pages.iter().chain(&self.record.beside);
        self.dir.join(RECORD).exists()
            && files.all(|(path, bytes)| fs::metadata(path).is_ok_and(|file| file.len() == *bytes))
    }

    /// One that is kept beside a bake, for machines of its template.
    pub(crate) fn find(bake: &Path, thawing: &ProcessCache) -> Option<Self> {
        template_dirs(bake).find_map(|dir| Self::load(&dir, thawing))
    }

    /// Lets nobody go on as it any more. Its files stay for those that do already.
    pub(crate) fn distrust(&self) {
        let _ = fs::rename(self.dir.join(RECORD), self.dir.join(DISTRUSTED));
    }

    /// What the machine in this directory was thawed from, if it was.
    pub(crate) fn of_machine(dir: &MachineDir, thawing: &ProcessCache) -> Option<Self> {
        let from = fs::read_to_string(dir.path().join(THAWED)).ok()?;
        Self::load(Path::new(&from), thawing)
    }

    /// Which part of guest memory the machine in this directory had from where it was thawed, if it was.
    pub(crate) fn guest_of_machine(dir: &MachineDir) -> io::Result<MemoryMap> {
        match fs::read(dir.path().join(THAWED_MAP)) {
            Ok(map) => MemoryMap::decode(&map).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(MemoryMap::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes down that the machine in this directory is thawed from here, and what only this place knows: it may be gone
    /// before the machine is.
    pub(crate) fn mark(&self, machine: &Path) -> io::Result<()> {
        let text = self.dir.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        fs::copy(self.dir.join(GUEST_MAP), machine.join(THAWED_MAP))?;
        fs::write(machine.join(THAWED), text)
    }

    /// A template's guest memory, with the layer that belongs to this process.
    pub(crate) fn memory(&self, base: Memory) -> Memory {
        Memory { layers: vec![self.dir.join(GUEST)], map: Some(self.dir.join(GUEST_MAP)), ..base }
    }

    /// A template's disk, as this process left it.
    pub(crate) fn overlay(&self) -> PathBuf {
        self.dir.join(OVERLAY)
    }

    pub(crate) fn process(&self, cache: &ProcessCache) -> CachedProcess {
        let pages = self.record.pages.iter().map(|(path, _)| path.clone()).collect();
        cache.process(self.dir.join(PLAN), pages)
    }

    /// Stores the pages of a frozen machine's process, over what it was itself thawed from. `layers` are files that were
    /// its own: their inodes, and what they are called as layers.
    pub(crate) fn save_pages(
        dir: &Path,
        frozen: &Frozen,
        below: Option<&Self>,
        layers: &[(u64, String)],
    ) -> io::Result<Pages> {
        let below = below.filter(|below| below.record.pages.len() < MOST_FILES);
        let mut pages = below.map(|below| below.record.pages.clone()).unwrap_or_default();
        let path = dir.join(PROCESS);
        let mut out = io::BufWriter::with_capacity(1 << 20, File::create(&path)?);
        let process = capture(frozen, pages.len(), layers, &mut out)?;
        drop(out.into_inner()?);
        readable(&path)?;
        pages.push((PROCESS.into(), process.stored_bytes));
        Ok(Pages { process, pages, beside: Vec::new() })
    }

    /// Makes it whole: from now on it can be thawed, over guest memory that was saved with this map.
    pub(crate) fn finish(dir: &Path, stored: Pages, guest: &MemoryMap, thawing: &ProcessCache) -> io::Result<()> {
        fs::write(dir.join(PLAN), stored.process.plan(guest))?;
        readable(&dir.join(PLAN))?;
        let record =
            Record { fingerprint: thawing.fingerprint().to_owned(), pages: stored.pages, beside: stored.beside };
        fs::write(dir.join(RECORD), serde_json::to_vec(&record)?)
    }
}

/// A process whose pages are stored.
pub(crate) struct Pages {
    process: CapturedProcess,
    pages: Vec<(PathBuf, u64)>,
    beside: Vec<(PathBuf, u64)>,
}

/// Stores a template's machine, which stands still on the bake alone, beside the bake. Each has a place of its own, and
/// none is ever replaced: machines stand on it.
pub(crate) fn save_template(bake: &Path, disk: &Path, frozen: &Frozen, thawing: &ProcessCache) -> io::Result<()> {
    let place = bake.join(format!("{TEMPLATES}{}", uuid::Uuid::new_v4().simple()));
    fs::create_dir(&place)?;
    store_template(&place, disk, frozen, thawing).inspect_err(|_| drop(fs::remove_dir_all(&place)))
}

fn store_template(work: &Path, disk: &Path, frozen: &Frozen, thawing: &ProcessCache) -> io::Result<()> {
    let mut pages = File::create(work.join(GUEST))?;
    let guest = frozen.save(&MemoryMap::default(), &[], &mut pages)?;
    fs::write(work.join(GUEST_MAP), guest.map.encode())?;
    fs::copy(disk, work.join(OVERLAY))?;
    for name in [GUEST, GUEST_MAP] {
        readable(&work.join(name))?;
    }
    let mut stored = Warm::save_pages(work, frozen, None, &[])?;
    for name in [GUEST, GUEST_MAP, OVERLAY] {
        stored.beside.push((name.into(), fs::metadata(work.join(name))?.len()));
    }
    Warm::finish(work, stored, &guest.map, thawing)
}

/// Removes those beside a bake that no machine of this boot can stand on.
pub(crate) fn sweep(bake: &Path, thawing: &ProcessCache) {
    for dir in template_dirs(bake) {
        let age = fs::metadata(&dir).and_then(|dir| dir.modified()).ok().and_then(|at| at.elapsed().ok());
        let gone = match Record::read(&dir, RECORD).or_else(|| Record::read(&dir, DISTRUSTED)) {
            Some(record) => !thawing.is_of_this_boot(&record.fingerprint),
            None => age.is_some_and(|age| age > UNFINISHED_FOR),
        };
        if gone {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

fn template_dirs(bake: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(bake).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMPLATES)).map(|entry| entry.path())
}

/// What a frozen machine's process leaves in a directory if it could not be stored.
pub(crate) fn forget(dir: &Path) {
    for name in [RECORD, PROCESS, PLAN] {
        let _ = fs::remove_file(dir.join(name));
    }
}

/// Machines run as other users.
fn readable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_whole_and_of_this_boot_is_thawed() {
        let dir = tempfile::tempdir().unwrap();
        let thawing = ProcessCache::open(dir.path(), Path::new("/bin/sh")).unwrap();
        let other = ProcessCache::open(dir.path(), Path::new("/bin")).unwrap();
        let file = |name: &str, bytes: usize| fs::write(dir.path().join(name), vec![1; bytes]).unwrap();
        let sized = |name: &str| vec![(PathBuf::from(name), 10)];
        let record =
            Record { fingerprint: thawing.fingerprint().to_owned(), pages: sized(PROCESS), beside: sized(GUEST) };
        fs::write(dir.path().join(RECORD), serde_json::to_vec(&record).unwrap()).unwrap();
        for (process, guest, whole) in [(10, 10, true), (9, 10, false), (10, 9, false), (10, 10, true)] {
            file(PROCESS, process);
            file(GUEST, guest);
            assert_eq!(Warm::load(dir.path(), &thawing).is_some(), whole, "{process} and {guest} bytes");
        }
        assert!(Warm::load(dir.path(), &other).is_none());
        let warm = Warm::load(dir.path(), &thawing).unwrap();
        warm.distrust();
        assert!(!warm.is_whole() && Warm::load(dir.path(), &thawing).is_none());
    }
}
