//! Cached processes on disk.
//!
//! ```text
//! DIR/process    the process's memory, over that of the process that it was itself resumed from
//!     plan       the plan by which it is made again
//!     thaw.json  the fingerprint and the sizes of all files; written last
//!     process.used  empty, once a machine was resumed from it; it is then never evicted
//! ```
//!
//! A snapshot's directory may contain one. A template's bake has one for each boot of the host, in a directory that also
//! has the disk and the layer of guest memory that belong to it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandling_image::{Untrusted, check_trusted, check_trusted_files};
use sandling_vmm::machine::MachineDir;
use sandling_vmm::memory::{Frozen, Memory, MemoryMap};
use sandling_vmm::process_cache::{CachedProcess, CapturedProcess, ProcessCache as HostCache, capture};
use serde::{Deserialize, Serialize};

use super::fallback::Fallback;

const RECORD: &str = "thaw.json";
/// The record of a process that is not trusted any more.
const DISTRUSTED: &str = "distrusted.json";
/// The prefix of a process's directory in a bake's directory.
const TEMPLATES: &str = "warm-";
const PLAN: &str = "plan";
const PROCESS: &str = "process";
/// Beside a template's process: the layer of guest memory and its map, named as in a snapshot, and the disk.
const GUEST: &str = "pages";
const GUEST_MAP: &str = "map";
const OVERLAY: &str = "overlay.qcow2";
/// In a machine's directory: the directory of the process that it was resumed from, and that one's map of guest memory.
const RESUMED_FROM: &str = "thawed";
const RESUMED_MAP: &str = "thawed.map";
/// In the directory of a snapshot's process: a machine was resumed from it, and its later processes need its files.
const USED: &str = "process.used";
/// Writing a process takes far less than this, so an older one without a record is a leftover.
const UNFINISHED_FOR: Duration = Duration::from_secs(600);
/// A process with this many files of pages below it is stored as a whole again, because a resume opens all of them.
const MOST_FILES: usize = 12;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    fingerprint: String,
    /// The files of pages and their sizes, the lowest first. The last is the process's own, and relative to its
    /// directory.
    pages: Vec<(PathBuf, u64)>,
    /// For a template: the files beside it, and their sizes.
    #[serde(default)]
    beside: Vec<(PathBuf, u64)>,
}

impl Record {
    fn read(dir: &Path, name: &str) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(name)).ok()?).ok()
    }
}

/// A cached process in its directory.
#[derive(Debug, Clone)]
pub(crate) struct StoredProcess {
    dir: PathBuf,
    record: Record,
}

/// A cached process, and what a machine must be given to be resumed from it.
#[derive(Debug, Clone)]
pub(crate) struct Cached {
    pub(crate) process: StoredProcess,
    pub(crate) memory: Memory,
    pub(crate) overlay: PathBuf,
}

impl StoredProcess {
    /// The process in this directory, or `None` if there is none.
    pub(super) fn load(dir: &Path, host: &HostCache) -> Result<Option<Self>, Fallback> {
        let Some(mut record) = Record::read(dir, RECORD) else { return Ok(None) };
        for (path, _) in record.pages.iter_mut().chain(&mut record.beside) {
            *path = dir.join(&path);
        }
        let process = Self { dir: dir.to_owned(), record };
        if let Err(error) = process.check_trusted() {
            tracing::warn!(%error, "a cached process is not used");
            return Err(Fallback::Untrusted);
        }
        if process.record.fingerprint != host.fingerprint() {
            return Err(Fallback::Outdated);
        }
        if process.is_whole() { Ok(Some(process)) } else { Err(Fallback::Damaged) }
    }

    /// Refuses files that another user could have changed.
    fn check_trusted(&self) -> Result<(), Untrusted> {
        // Pages below the process's own are in other directories.
        self.record.pages.iter().try_for_each(|(path, _)| check_trusted(path))?;
        let own = [self.dir.clone(), self.dir.join(RECORD), self.dir.join(PLAN)];
        let beside = self.record.beside.iter().map(|(path, _)| path.as_path());
        check_trusted_files(own.iter().map(PathBuf::as_path).chain(beside))
    }

    /// Whether all files have their sizes: a machine would not notice that the end of one is missing until it reads it.
    pub(crate) fn is_whole(&self) -> bool {
        let mut files = self.record.pages.iter().chain(&self.record.beside);
        self.dir.join(RECORD).exists()
            && files.all(|(path, bytes)| fs::metadata(path).is_ok_and(|file| file.len() == *bytes))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Prevents further use. The files stay for the machines that have been resumed from them.
    pub(super) fn distrust(&self) {
        let _ = fs::rename(self.dir.join(RECORD), self.dir.join(DISTRUSTED));
    }

    /// The process that the machine in this directory was resumed from, if it was.
    pub(super) fn of_machine(dir: &MachineDir, host: &HostCache) -> Option<Self> {
        let from = fs::read_to_string(dir.path().join(RESUMED_FROM)).ok()?;
        Self::load(Path::new(&from), host).ok().flatten()
    }

    /// Records in a machine's directory that it is resumed from this process, with a copy of the memory map: the process
    /// may be deleted before the machine ends.
    pub(crate) fn mark(&self, machine: &Path) -> io::Result<()> {
        let text = self.dir.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        // Those of templates are never evicted.
        if self.record.beside.is_empty() {
            fs::write(self.dir.join(USED), "")?;
        }
        fs::copy(self.dir.join(GUEST_MAP), machine.join(RESUMED_MAP))?;
        fs::write(machine.join(RESUMED_FROM), text)
    }

    /// A template's process, with the layer of guest memory over `base` and the disk that belong to it.
    pub(crate) fn of_template(self, base: Memory) -> Cached {
        let memory = Memory { layers: vec![self.dir.join(GUEST)], map: Some(self.dir.join(GUEST_MAP)), ..base };
        Cached { memory, overlay: self.dir.join(OVERLAY), process: self }
    }

    pub(super) fn files(&self, host: &HostCache) -> CachedProcess {
        let pages = self.record.pages.iter().map(|(path, _)| path.clone()).collect();
        host.process(self.dir.join(PLAN), pages)
    }
}

/// The map of the guest memory that the machine in this directory was resumed with; empty if it was not resumed.
pub(crate) fn guest_memory_of(dir: &MachineDir) -> io::Result<MemoryMap> {
    match fs::read(dir.path().join(RESUMED_MAP)) {
        Ok(map) => MemoryMap::decode(&map).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(MemoryMap::default()),
        Err(error) => Err(error),
    }
}

/// A process whose pages are stored.
pub(crate) struct CapturedPages {
    process: CapturedProcess,
    pages: Vec<(PathBuf, u64)>,
    beside: Vec<(PathBuf, u64)>,
}

impl CapturedPages {
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.process.stored_bytes
    }
}

/// A file of pages whose writes fail when it is given up.
struct PagesFile<'a> {
    file: File,
    is_given_up: &'a dyn Fn() -> bool,
}

impl Write for PagesFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.is_given_up)() { Err(io::ErrorKind::ResourceBusy.into()) } else { self.file.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(super) fn save_pages(
    dir: &Path,
    frozen: &Frozen,
    below: Option<&StoredProcess>,
    layers: &[(u64, String)],
    is_given_up: &dyn Fn() -> bool,
) -> io::Result<CapturedPages> {
    let below = below.filter(|below| below.record.pages.len() < MOST_FILES);
    let mut pages = below.map(|below| below.record.pages.clone()).unwrap_or_default();
    let path = dir.join(PROCESS);
    let mut out = io::BufWriter::with_capacity(1 << 20, PagesFile { file: File::create(&path)?, is_given_up });
    let process = capture(frozen, pages.len(), layers, &mut out)?;
    drop(out.into_inner()?);
    make_readable(&path)?;
    pages.push((PROCESS.into(), process.stored_bytes));
    Ok(CapturedPages { process, pages, beside: Vec::new() })
}

pub(super) fn finish(dir: &Path, captured: CapturedPages, guest: &MemoryMap, host: &HostCache) -> io::Result<()> {
    fs::write(dir.join(PLAN), captured.process.plan(guest))?;
    make_readable(&dir.join(PLAN))?;
    let fingerprint = host.fingerprint().to_owned();
    let record = Record { fingerprint, pages: captured.pages, beside: captured.beside };
    fs::write(dir.join(RECORD), serde_json::to_vec(&record)?)
}

/// Each process gets its own directory and none is ever replaced, because machines use its files.
pub(super) fn save_template(bake: &Path, disk: &Path, frozen: &Frozen, host: &HostCache) -> io::Result<()> {
    let dir = bake.join(format!("{TEMPLATES}{}", uuid::Uuid::new_v4().simple()));
    sandling_wire::new_private_directory(&dir)?;
    store_template(&dir, disk, frozen, host).inspect_err(|_| drop(fs::remove_dir_all(&dir)))
}

fn store_template(dir: &Path, disk: &Path, frozen: &Frozen, host: &HostCache) -> io::Result<()> {
    let mut pages = File::create(dir.join(GUEST))?;
    let guest = frozen.select_whole(&MemoryMap::default())?;
    frozen.store(&guest, &mut pages)?;
    fs::write(dir.join(GUEST_MAP), guest.map.encode())?;
    fs::copy(disk, dir.join(OVERLAY))?;
    for name in [GUEST, GUEST_MAP, OVERLAY] {
        make_readable(&dir.join(name))?;
    }
    let mut captured = save_pages(dir, frozen, None, &[], &|| false)?;
    for name in [GUEST, GUEST_MAP, OVERLAY] {
        captured.beside.push((name.into(), fs::metadata(dir.join(name))?.len()));
    }
    finish(dir, captured, &guest.map, host)
}

pub(super) fn sweep(bake: &Path, host: &HostCache) {
    for dir in template_dirs(bake) {
        let age = fs::metadata(&dir).and_then(|dir| dir.modified()).ok().and_then(|at| at.elapsed().ok());
        let gone = match Record::read(&dir, RECORD).or_else(|| Record::read(&dir, DISTRUSTED)) {
            Some(record) => !host.is_of_this_boot(&record.fingerprint),
            None => age.is_some_and(|age| age > UNFINISHED_FOR),
        };
        if gone {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

pub(super) fn template_dirs(bake: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(bake).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMPLATES)).map(|entry| entry.path())
}

/// Removes the files of a process that could not be stored.
pub(super) fn remove(dir: &Path) {
    for name in [RECORD, PROCESS, PLAN] {
        let _ = fs::remove_file(dir.join(name));
    }
}

/// Whether there is a process in this directory.
pub(super) fn exists(dir: &Path) -> bool {
    dir.join(RECORD).exists()
}

/// Removes a process that no machine was resumed from. Returns whether there was one.
pub(super) fn evict(dir: &Path) -> bool {
    let evicted = !dir.join(USED).exists() && fs::remove_file(dir.join(RECORD)).is_ok();
    if evicted {
        remove(dir);
    }
    evicted
}

/// Machines run as other users.
fn make_readable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A directory with a process of 10 bytes, and 10 bytes beside it.
    pub(crate) fn example() -> (tempfile::TempDir, HostCache) {
        let dir = tempfile::tempdir().unwrap();
        let host = HostCache::open(dir.path(), Path::new("/bin/sh")).unwrap();
        let sized = |name: &str| vec![(PathBuf::from(name), 10)];
        let fingerprint = host.fingerprint().to_owned();
        let record = Record { fingerprint, pages: sized(PROCESS), beside: sized(GUEST) };
        fs::write(dir.path().join(RECORD), serde_json::to_vec(&record).unwrap()).unwrap();
        for name in [PROCESS, GUEST] {
            fs::write(dir.path().join(name), [1; 10]).unwrap();
        }
        (dir, host)
    }

    #[test]
    fn a_process_is_evicted_unless_a_machine_was_resumed_from_it() {
        let (dir, host) = example();
        let mut process = StoredProcess::load(dir.path(), &host).unwrap().unwrap();
        process.record.beside.clear();
        fs::write(dir.path().join(GUEST_MAP), MemoryMap::default().encode()).unwrap();
        let machine = tempfile::tempdir().unwrap();
        process.mark(machine.path()).unwrap();
        assert!(!evict(dir.path()) && process.is_whole());
        fs::remove_file(dir.path().join(USED)).unwrap();
        assert!(evict(dir.path()) && !dir.path().join(PROCESS).exists());
        assert!(!evict(dir.path()), "it is gone");
    }

    #[test]
    fn pages_that_are_given_up_are_not_written() {
        let mut file = PagesFile { file: tempfile::tempfile().unwrap(), is_given_up: &|| true };
        assert_eq!(file.write(b"page").unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        file.is_given_up = &|| false;
        assert_eq!(file.write(b"page").unwrap(), 4);
    }

    #[test]
    fn only_a_complete_process_of_this_boot_is_loaded() {
        let (dir, host) = example();
        let loaded = || StoredProcess::load(dir.path(), &host).map(|process| process.is_some());
        for (process, guest, expected) in
            [(10, 10, Ok(true)), (9, 10, Err(Fallback::Damaged)), (10, 9, Err(Fallback::Damaged))]
        {
            fs::write(dir.path().join(PROCESS), vec![1; process]).unwrap();
            fs::write(dir.path().join(GUEST), vec![1; guest]).unwrap();
            assert_eq!(loaded(), expected, "{process} and {guest} bytes");
        }
        let other = HostCache::open(dir.path(), Path::new("/bin")).unwrap();
        assert_eq!(StoredProcess::load(dir.path(), &other).unwrap_err(), Fallback::Outdated);
        fs::remove_file(dir.path().join(RECORD)).unwrap();
        assert_eq!(loaded(), Ok(false));
    }
}
