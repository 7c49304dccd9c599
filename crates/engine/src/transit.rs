//! Sandboxes on their way to or from another home. A file for each says so, so that a restart forgets none.
//!
//! A sandbox with such a file has no task: nobody wakes or ends it before [`Engine`](crate::Engine) is told whose it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandling_wire::private_directory;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{Format, SandboxId, SandboxInfo, SnapshotId};
use crate::network::ArrivingSecret;

/// The extension of a file that is being written.
const UNFINISHED: &str = "new";

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Transit {
    pub(crate) sandbox: SandboxId,
    /// Absent if the sandbox leaves: its row and its files are here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arrival: Option<Arrival>,
    #[serde(flatten)]
    pub(crate) format: Format<1>,
}

/// What is left to write down when a sandbox has arrived. Its files are here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arrival {
    pub(crate) row: Value,
    /// No other arrival has the same, so that the ledger's record of another one is not taken for it.
    pub(crate) token: String,
    /// Whether it was running a command, and wakes at once.
    pub(crate) wakes: bool,
    /// The node that it comes from.
    pub(crate) from: String,
    /// Whether it is taken over because its node was lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) fails_over: bool,
    /// Those of its secrets that this home lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) secrets: Vec<ArrivingSecret>,
}

impl Transit {
    pub(crate) fn new(sandbox: &SandboxId, arrival: Option<Arrival>) -> Self {
        Self { sandbox: sandbox.clone(), arrival, format: Format::default() }
    }
}

impl Arrival {
    pub(crate) fn row(&self) -> serde_json::Result<SandboxInfo> {
        serde_json::from_value(self.row.clone())
    }
}

pub(crate) struct Transits {
    dir: PathBuf,
    known: Mutex<BTreeMap<SandboxId, Transit>>,
}

impl Transits {
    /// A file that cannot be read stops the start: without it, a sandbox could run twice.
    pub(crate) fn open(dir: PathBuf) -> io::Result<Self> {
        let known = Mutex::new(read_all(&dir)?);
        Ok(Self { dir, known })
    }

    /// Written to the disk when this returns. A sandbox is in one move at a time: the second one is
    /// [`io::ErrorKind::AlreadyExists`].
    pub(crate) fn begin(&self, transit: Transit) -> io::Result<()> {
        let mut known = self.known();
        if known.contains_key(&transit.sandbox) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let path = self.path(&transit.sandbox);
        let beside = path.with_extension(UNFINISHED);
        if let Err(error) = self.write(&transit, &beside, &path) {
            // The sandbox goes on here, and the next start must not believe that it moves.
            for left in [&beside, &path] {
                let _ = fs::remove_file(left);
            }
            return Err(error);
        }
        known.insert(transit.sandbox.clone(), transit);
        Ok(())
    }

    fn write(&self, transit: &Transit, beside: &Path, path: &Path) -> io::Result<()> {
        private_directory(&self.dir)?;
        let mut file = File::create(beside)?;
        file.write_all(&serde_json::to_vec(transit)?)?;
        file.sync_all()?;
        fs::rename(beside, path)?;
        sync(&self.dir)
    }

    /// Removes what a process has left that died while it wrote. Only a server does so, because it is the only one that moves
    /// sandboxes.
    pub(crate) fn remove_unfinished(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|kind| kind == UNFINISHED) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    pub(crate) fn end(&self, sandbox: &SandboxId) -> io::Result<()> {
        match fs::remove_file(self.path(sandbox)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => sync(&self.dir)?,
        }
        self.known().remove(sandbox);
        Ok(())
    }

    pub(crate) fn get(&self, sandbox: &SandboxId) -> Option<Transit> {
        self.known().get(sandbox).cloned()
    }

    pub(crate) fn is_leaving(&self, sandbox: &SandboxId) -> bool {
        self.known().get(sandbox).is_some_and(|transit| transit.arrival.is_none())
    }

    pub(crate) fn all(&self) -> Vec<Transit> {
        self.known().values().cloned().collect()
    }

    /// The snapshots that the sandboxes which arrive will need, also those that arrive in another process of this home. `None`
    /// if that is unknown.
    pub(crate) fn needs(&self) -> Option<BTreeSet<SnapshotId>> {
        let mut needs = BTreeSet::new();
        for arrival in read_all(&self.dir).ok()?.values().filter_map(|transit| transit.arrival.as_ref()) {
            needs.extend(arrival.row().ok()?.snapshots().cloned());
        }
        Some(needs)
    }

    fn path(&self, sandbox: &SandboxId) -> PathBuf {
        self.dir.join(format!("{sandbox}.json"))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Transit>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_all(dir: &Path) -> io::Result<BTreeMap<SandboxId, Transit>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|kind| kind != "json") {
            continue;
        }
        let bytes = match fs::read(&path) {
            // The move has ended just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        let transit: Transit = serde_json::from_slice(&bytes)
            .map_err(|error| io::Error::other(format!("{} cannot be read: {error}", path.display())))?;
        all.insert(transit.sandbox.clone(), transit);
    }
    Ok(all)
}

/// A name in a directory survives a power failure only after this.
fn sync(dir: &Path) -> io::Result<()> {
    match File::open(dir) {
        Ok(dir) => dir.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_outlives_the_process_that_began_it() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Transits::open(dir.path().join("moves")).unwrap();
        let (one, other) = (SandboxId::fresh_on(None), SandboxId::fresh_on(None));
        let transits = open();
        transits.begin(Transit::new(&one, None)).unwrap();
        let arrival = Arrival {
            row: Value::Null,
            token: "t".to_owned(),
            wakes: false,
            from: "a".to_owned(),
            fails_over: false,
            secrets: Vec::new(),
        };
        transits.begin(Transit::new(&other, Some(arrival))).unwrap();
        let twice = transits.begin(Transit::new(&other, None)).unwrap_err();
        assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists, "one move at a time");
        let again = open();
        assert_eq!(again.all(), transits.all());
        assert!(again.is_leaving(&one) && !again.is_leaving(&other));
        assert_eq!(again.needs(), None, "nothing is swept while a row cannot be read");
        again.end(&other).unwrap();
        again.end(&other).unwrap();
        let half = dir.path().join(format!("moves/{other}.new"));
        fs::write(&half, "{").unwrap();
        again.remove_unfinished();
        assert!(!half.exists());
        assert_eq!(open().all().len(), 1);
        assert_eq!(open().needs(), Some(BTreeSet::new()));
        fs::write(dir.path().join("moves/x.json"), "{}").unwrap();
        assert!(Transits::open(dir.path().join("moves")).is_err());
    }

    #[test]
    fn another_process_of_the_home_knows_what_arrives() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1/moves");
        let dir = tempfile::tempdir().unwrap();
        let [server, other] = [(); 2].map(|()| Transits::open(dir.path().join("moves")).unwrap());
        let arrival = Transits::open(golden).unwrap().all().remove(0);
        server.begin(arrival.clone()).unwrap();
        assert_eq!(other.needs().unwrap().len(), 1);
        server.end(&arrival.sandbox).unwrap();
        assert_eq!(other.needs(), Some(BTreeSet::new()));
    }

    #[test]
    fn a_move_that_could_not_begin_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Transits::open(dir.path().join("moves")).unwrap();
        let transits = open();
        let one = SandboxId::fresh_on(None);
        // A file cannot take the place of a directory.
        fs::create_dir_all(dir.path().join(format!("moves/{one}.json"))).unwrap();
        assert!(transits.begin(Transit::new(&one, None)).is_err());
        assert_eq!(transits.all(), []);
        fs::remove_dir(dir.path().join(format!("moves/{one}.json"))).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("moves")).unwrap().count(), 0);
        transits.begin(Transit::new(&one, None)).unwrap();
        assert!(open().is_leaving(&one));
    }

    #[test]
    fn a_move_of_the_first_version_is_read() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1/moves");
        let transits = Transits::open(golden).unwrap();
        let [arriving, leaving]: [Transit; 2] = transits.all().try_into().unwrap();
        assert_eq!(leaving.arrival, None);
        assert_eq!(arriving.arrival.unwrap().row().unwrap().id, arriving.sandbox);
    }
}
