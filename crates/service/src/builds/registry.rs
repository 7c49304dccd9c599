//! The builds of a home and their progress.
//!
//! The database stores that a build began and how it ended, so the next server knows it. Its log is lost with the server.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use tokio::sync::{Semaphore, watch};

use super::record::{BuildEnd, BuildRecord};
use crate::presence::Presence;
use crate::random;
use crate::store::Store;

/// How many builds are remembered. The oldest are forgotten first.
const REMEMBERED: usize = 200;
/// How many builds of a workspace may be queued or running.
const MOST_RUNNING: usize = 8;
const MOST_LINES: usize = 10_000;
const MOST_LOG_BYTES: usize = 1 << 20;
const LONGEST_LINE: usize = 4000;
/// The failure of a build whose server ended first.
const RESTARTED: &str = "the server was restarted";

#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("{MOST_RUNNING} builds of this workspace are under way; wait for one to end")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All builds that are remembered.
pub(super) struct Registry {
    store: Arc<Store>,
    presence: Arc<Presence>,
    /// When this server started. Builds that an earlier server left unfinished count as ended then.
    since: Timestamp,
    all: Mutex<VecDeque<Arc<Build>>>,
    /// Package builds run on the host, one at a time, because two would only slow each other down.
    pub(super) packages: Semaphore,
    /// Builds in machines run one at a time for each workspace.
    machines: Mutex<HashMap<String, Arc<Semaphore>>>,
}

pub struct Build {
    pub id: String,
    pub workspace: String,
    /// The name of the template.
    pub name: String,
    pub started_at: Timestamp,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Default)]
pub struct Progress {
    pub lines: Vec<Line>,
    bytes: usize,
    pub stage: Stage,
}

/// A line of a build's log.
#[derive(Debug, Clone)]
pub struct Line {
    pub at: Timestamp,
    pub text: String,
    pub level: Level,
    /// The step that it belongs to, counted from one.
    pub step: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, Default)]
pub enum Stage {
    /// The build has an id, but its steps are not known yet.
    #[default]
    Registered,
    Queued,
    Running,
    Done {
        at: Timestamp,
        bytes: u64,
    },
    Failed {
        at: Timestamp,
        why: String,
        /// Where it failed: `base`, the number of a step, or `finalize`.
        step: String,
    },
}

impl Registry {
    /// Opens the registry with the builds of earlier servers.
    pub(super) fn open(store: Arc<Store>, presence: Arc<Presence>) -> Result<Self, StoreError> {
        let registry = Self {
            store,
            presence,
            since: Timestamp::now(),
            all: Mutex::default(),
            packages: Semaphore::new(1),
            machines: Mutex::default(),
        };
        let past = registry.past()?.into_iter().map(|record| Arc::new(Build::past(record, registry.since)));
        registry.all().extend(past);
        Ok(registry)
    }

    /// The builds that no process runs, oldest first. One without an end was interrupted.
    fn past(&self) -> Result<Vec<BuildRecord>, StoreError> {
        let all = self.store.builds()?.into_iter();
        let past = all.filter(|(build, owner)| build.ended.is_some() || !self.presence.is_alive(owner));
        Ok(past.map(|(build, _)| build).collect())
    }

    /// Registers a build that is yet to start.
    pub(super) fn register(&self, workspace: &str, name: &str) -> Result<Arc<Build>, RegisterError> {
        let mut all = self.all();
        if all.iter().filter(|build| build.workspace == workspace && build.is_running()).count() >= MOST_RUNNING {
            return Err(RegisterError::TooMany);
        }
        let record = BuildRecord {
            id: random::uuid(),
            workspace: workspace.to_owned(),
            name: name.to_owned(),
            started_at: Timestamp::now(),
            ended: None,
        };
        self.store.insert_build(&record, self.presence.id())?;
        let build = Arc::new(Build::new(record));
        if all.len() >= REMEMBERED {
            // A build of the same workspace first, and never one that is running.
            let own = all.iter().position(|old| old.workspace == workspace && !old.is_running());
            let oldest = own.or_else(|| all.iter().position(|old| !old.is_running()));
            if let Some(oldest) = oldest.and_then(|oldest| all.remove(oldest)) {
                self.store.remove_build(&oldest.id)?;
            }
        }
        all.push_back(build.clone());
        Ok(build)
    }

    /// Ends a build: with its size, or with the reason and the step of its failure.
    pub(super) fn ended(&self, build: &Build, result: Result<u64, (String, String)>) {
        let at = Timestamp::now();
        let end = match result {
            Ok(bytes) => BuildEnd::Done { bytes },
            Err((why, step)) => BuildEnd::Failed { why, step },
        };
        self.store_end(&build.id, at, &end);
        build.progress.send_modify(|progress| progress.stage = Stage::ended(at, end));
    }

    fn store_end(&self, id: &str, at: Timestamp, end: &BuildEnd) {
        if let Err(error) = self.store.end_build(id, at, end) {
            // The next server will report the build as interrupted.
            tracing::error!(build = id, error = &error as &dyn std::error::Error, "cannot store the end of a build");
        }
    }

    /// The builds that an earlier server left unfinished, until [`Self::end_interrupted`] stores that they failed.
    pub(super) fn interrupted(&self) -> Result<Vec<BuildRecord>, StoreError> {
        Ok(self.past()?.into_iter().filter(|build| build.ended.is_none()).collect())
    }

    pub(super) fn end_interrupted(&self, build: &BuildRecord) {
        self.store_end(&build.id, self.since, &restarted());
    }

    /// The permit that a build in a machine waits for.
    pub(super) fn machine_slot(&self, workspace: &str) -> Arc<Semaphore> {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.retain(|_, slot| Arc::strong_count(slot) > 1);
        machines.entry(workspace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }

    /// Whether any build is queued or running.
    pub(super) fn any_running(&self) -> bool {
        self.all().iter().any(|build| build.is_running())
    }

    /// A build of this workspace.
    pub(super) fn find(&self, workspace: &str, id: &str) -> Option<Arc<Build>> {
        self.all().iter().find(|build| build.id == id && build.workspace == workspace).cloned()
    }

    /// The builds of a workspace, newest first.
    pub(super) fn list(&self, workspace: &str) -> Vec<Arc<Build>> {
        self.all().iter().rev().filter(|build| build.workspace == workspace).cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Arc<Build>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn restarted() -> BuildEnd {
    BuildEnd::Failed { why: RESTARTED.to_owned(), step: "base".to_owned() }
}

impl Build {
    fn new(BuildRecord { id, workspace, name, started_at, .. }: BuildRecord) -> Self {
        Self { id, workspace, name, started_at, progress: watch::Sender::default() }
    }

    /// A build of an earlier server. If it did not end, it was interrupted before `since`.
    fn past(mut record: BuildRecord, since: Timestamp) -> Self {
        let (at, end) = record.ended.take().unwrap_or_else(|| (since, restarted()));
        let build = Self::new(record);
        if let BuildEnd::Failed { why, .. } = &end {
            build.log(why, Level::Error, None);
        }
        build.progress.send_modify(|progress| progress.stage = Stage::ended(at, end));
        build
    }

    fn is_running(&self) -> bool {
        matches!(self.progress.borrow().stage, Stage::Queued | Stage::Running)
    }

    /// Queues the build. Returns false if it was queued before.
    pub(super) fn queue(&self) -> bool {
        self.progress.send_if_modified(|progress| {
            let first = matches!(progress.stage, Stage::Registered);
            if first {
                progress.stage = Stage::Queued;
            }
            first
        })
    }

    pub(super) fn set_running(&self) {
        self.progress.send_modify(|progress| progress.stage = Stage::Running);
    }

    pub(super) fn log(&self, text: &str, level: Level, step: Option<usize>) {
        self.progress.send_if_modified(|progress| {
            // Package builds report the same step again and again.
            let again = progress.lines.last().is_some_and(|last| step.is_none() && last.text == text);
            if again || progress.bytes > MOST_LOG_BYTES {
                return false;
            }
            let mut text: String = text.chars().take(LONGEST_LINE).collect();
            let mut level = level;
            progress.bytes += text.len();
            if progress.lines.len() >= MOST_LINES || progress.bytes > MOST_LOG_BYTES {
                progress.bytes = MOST_LOG_BYTES + 1;
                (text, level) = ("the log is full; further lines are dropped".to_owned(), Level::Warn);
            }
            progress.lines.push(Line { at: Timestamp::now(), text, level, step });
            true
        });
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}

impl Stage {
    fn ended(at: Timestamp, end: BuildEnd) -> Self {
        match end {
            BuildEnd::Done { bytes } => Self::Done { at, bytes },
            BuildEnd::Failed { why, step } => Self::Failed { at, why, step },
        }
    }
}

impl Progress {
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done { .. } | Stage::Failed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, workspace};

    fn registry(fixture: &Fixture) -> Registry {
        Registry::open(fixture.store.clone(), fixture.presence.clone()).unwrap()
    }

    #[test]
    fn a_build_starts_once_and_is_visible_to_its_own_workspace() {
        let fixture = Fixture::new();
        let builds = registry(&fixture);
        let build = builds.register("default", "mine").unwrap();
        assert!(!builds.any_running());
        assert!(build.queue());
        assert!(!build.queue() && builds.any_running());
        build.set_running();
        build.log("hello", Level::Info, Some(1));
        builds.ended(&build, Err(("no".to_owned(), "1".to_owned())));
        let progress = build.progress().borrow().clone();
        assert_eq!(progress.lines.len(), 1);
        assert!(progress.is_over() && !builds.any_running());
        assert!(builds.find("other", &build.id).is_none() && builds.find("default", &build.id).is_some());
    }

    #[test]
    fn the_next_server_knows_earlier_builds_and_interrupted_ones_have_failed() {
        let mut fixture = Fixture::new();
        let first = registry(&fixture);
        let [done, interrupted] = ["done", "interrupted"].map(|name| first.register("default", name).unwrap());
        first.ended(&done, Ok(7));
        assert_eq!(registry(&fixture.another_process()).past().unwrap().len(), 1, "the first process still runs one");
        drop(first);
        for unknown in [true, false] {
            fixture = fixture.restart();
            let builds = registry(&fixture);
            let stage = |id: &str| builds.find("default", id).unwrap().progress().borrow().stage.clone();
            assert!(matches!(stage(&done.id), Stage::Done { bytes: 7, .. }));
            assert!(matches!(stage(&interrupted.id), Stage::Failed { why, .. } if why == RESTARTED));
            let found = builds.interrupted().unwrap();
            let ids: Vec<_> = found.iter().map(|build| &build.id).collect();
            assert_eq!(ids, [&interrupted.id][..usize::from(unknown)]);
            found.iter().for_each(|build| builds.end_interrupted(build));
        }
    }

    #[test]
    fn the_number_of_builds_and_the_size_of_their_logs_are_limited() {
        let fixture = Fixture::new();
        for name in ["quiet", "busy"] {
            fixture.workspaces.create(&workspace(name)).unwrap();
        }
        let builds = registry(&fixture);
        let running = builds.register("quiet", "mine").unwrap();
        assert!(running.queue());
        for number in 0..REMEMBERED * 2 {
            let build = builds.register("busy", "other").unwrap();
            if number < MOST_RUNNING - 1 {
                assert!(build.queue());
            }
        }
        assert!(builds.find("quiet", &running.id).is_some() && builds.all().len() <= REMEMBERED);
        assert!(builds.register("busy", "other").unwrap().queue());
        assert!(matches!(builds.register("busy", "other"), Err(RegisterError::TooMany)));
        for number in 0..100_000 {
            running.log(&format!("{number} {}", "x".repeat(3000)), Level::Info, Some(1));
        }
        let progress = running.progress().borrow().clone();
        assert!(progress.lines.iter().map(|line| line.text.len()).sum::<usize>() < 2 * MOST_LOG_BYTES);
        assert_eq!(progress.lines.last().map(|line| line.level), Some(Level::Warn));
    }
}
