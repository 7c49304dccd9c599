//! The builds of a home and their progress.
//!
//! The database stores that a build began and how it ended, so the next server knows it. Its log is lost with the server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use sandling_engine::owner::Owner;
use sandling_engine::store::StoreError;
use sandling_engine::{FairSlots, Slot};
use tokio::sync::watch;

use super::record::{BuildRecord, Stage};
use crate::random;
use crate::store::Store;

/// How many builds are remembered. The oldest are forgotten first.
const REMEMBERED: usize = 200;
/// How many builds of a workspace may be queued or running.
const MOST_RUNNING: usize = 8;
/// How many builds a workspace runs at once, and how many all workspaces together.
const PER_WORKSPACE: usize = 1;
const MACHINE_BUILDS: usize = 8;
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
    Size(#[from] sandling_engine::CreateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All builds that are remembered.
pub struct Registry {
    store: Arc<Store>,
    owner: Arc<Owner>,
    /// When this server started. Builds that an earlier server left unfinished count as ended then.
    since: Timestamp,
    all: Mutex<VecDeque<Arc<Build>>>,
    pub(super) slots: Arc<FairSlots>,
}

pub struct Build {
    pub id: String,
    pub workspace: String,
    /// The name of the template.
    pub name: String,
    pub started_at: Timestamp,
    progress: watch::Sender<Progress>,
    /// The machine that a failed build has left for a look at it.
    machine: OnceLock<String>,
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

impl Registry {
    /// Opens the registry with the builds of earlier servers.
    pub(super) fn open(store: Arc<Store>, owner: Arc<Owner>) -> Result<Self, StoreError> {
        let registry = Self {
            store,
            owner,
            since: Timestamp::now(),
            all: Mutex::default(),
            slots: FairSlots::new(MACHINE_BUILDS, PER_WORKSPACE),
        };
        let past = registry.past()?.into_iter().map(|record| Arc::new(Build::past(record, registry.since)));
        registry.all().extend(past);
        Ok(registry)
    }

    /// The builds that no process runs, oldest first. One without an end was interrupted.
    fn past(&self) -> Result<Vec<BuildRecord>, StoreError> {
        let all = self.store.builds()?.into_iter();
        let past = all.filter(|(build, owner)| build.ended.is_some() || !self.owner.is_alive(owner));
        Ok(past.map(|(build, _)| build).collect())
    }

    /// Registers a build that is yet to start.
    pub fn register(&self, workspace: &str, name: &str) -> Result<Arc<Build>, RegisterError> {
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
        self.store.insert_build(&record, self.owner.id())?;
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
            Ok(bytes) => Stage::Done { at, bytes },
            Err((why, step)) => Stage::Failed { at, why, step },
        };
        self.store_end(&build.id, &end);
        build.progress.send_modify(|progress| progress.stage = end);
    }

    fn store_end(&self, id: &str, end: &Stage) {
        if let Err(error) = self.store.end_build(id, end) {
            // The next server will report the build as interrupted.
            tracing::error!(build = id, error = &error as &dyn std::error::Error, "cannot store the end of a build");
        }
    }

    /// The builds that an earlier server left unfinished, until [`Self::end_interrupted`] stores that they failed.
    pub(super) fn interrupted(&self) -> Result<Vec<BuildRecord>, StoreError> {
        Ok(self.past()?.into_iter().filter(|build| build.ended.is_none()).collect())
    }

    pub(super) fn end_interrupted(&self, build: &BuildRecord) {
        self.store_end(&build.id, &restarted(self.since));
    }

    /// Whether any build is queued or running.
    pub fn any_running(&self) -> bool {
        self.all().iter().any(|build| build.is_running())
    }

    /// A build of this workspace.
    pub fn find(&self, workspace: &str, id: &str) -> Option<Arc<Build>> {
        self.all().iter().find(|build| build.id == id && build.workspace == workspace).cloned()
    }

    /// The builds of a workspace, newest first.
    pub fn list(&self, workspace: &str) -> Vec<Arc<Build>> {
        self.all().iter().rev().filter(|build| build.workspace == workspace).cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Arc<Build>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn restarted(at: Timestamp) -> Stage {
    Stage::Failed { at, why: RESTARTED.to_owned(), step: "base".to_owned() }
}

impl Build {
    fn new(BuildRecord { id, workspace, name, started_at, .. }: BuildRecord) -> Self {
        Self { id, workspace, name, started_at, progress: watch::Sender::default(), machine: OnceLock::new() }
    }

    /// A build of an earlier server. If it did not end, it was interrupted before `since`.
    fn past(mut record: BuildRecord, since: Timestamp) -> Self {
        let end = record.ended.take().unwrap_or_else(|| restarted(since));
        let build = Self::new(record);
        if let Stage::Failed { why, .. } = &end {
            build.log(why, Level::Error, None);
        }
        build.progress.send_modify(|progress| progress.stage = end);
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

    /// Waits for a slot, and then runs. A build that has to wait says so in its log.
    pub(super) async fn wait_for(&self, slots: &Arc<FairSlots>) -> Slot {
        let mut slot = std::pin::pin!(slots.acquire(&self.workspace));
        let slot = tokio::select! {
            biased;
            slot = &mut slot => slot,
            () = std::future::ready(()) => {
                self.log("waiting for other builds to end", Level::Info, None);
                slot.await
            }
        };
        self.set_running();
        slot
    }

    pub(super) fn set_running(&self) {
        self.progress.send_modify(|progress| progress.stage = Stage::Running);
    }

    pub(super) fn log(&self, text: &str, level: Level, step: Option<usize>) {
        self.progress.send_if_modified(|progress| {
            // The base reports how far it got, with the same text.
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

    /// Adds a line about the progress to the log.
    pub fn report(&self, text: &str) {
        self.log(text, Level::Info, None);
    }

    pub(super) fn leave_machine(&self, id: &str) {
        let _ = self.machine.set(id.to_owned());
    }

    /// The sandbox that a failed build has left for a look at it.
    pub fn machine(&self) -> Option<&str> {
        self.machine.get().map(String::as_str)
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
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
        Registry::open(fixture.store.clone(), fixture.owner.clone()).unwrap()
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

    #[tokio::test]
    async fn a_workspace_with_many_builds_does_not_hold_up_another() {
        let fixture = Fixture::new();
        let names = ["busy", "quiet", "late"];
        names.iter().for_each(|name| fixture.workspaces.create(&workspace(name)).map(drop).unwrap());
        let builds = registry(&fixture);
        let slots = &FairSlots::new(2, PER_WORKSPACE);
        let make = |name| builds.register(name, "mine").unwrap();
        let is_running = |build: &Build| matches!(build.progress().borrow().stage, Stage::Running);
        let (first, second, quiet, late) = (make("busy"), make("busy"), make("quiet"), make("late"));
        [&first, &second, &quiet, &late].iter().for_each(|build| assert!(build.queue()));
        let holds = first.wait_for(slots).await;
        let second_waits = tokio::spawn({
            let (second, slots) = (second.clone(), slots.clone());
            async move { second.wait_for(&slots).await }
        });
        let mut progress = second.progress();
        progress.wait_for(|progress| !progress.lines.is_empty()).await.unwrap();
        assert_eq!(second.progress().borrow().lines[0].text, "waiting for other builds to end");
        let other = quiet.wait_for(slots).await;
        assert!(is_running(&quiet) && quiet.progress().borrow().lines.is_empty() && !is_running(&second));
        let late_waits = tokio::spawn({
            let (late, slots) = (late.clone(), slots.clone());
            async move { late.wait_for(&slots).await }
        });
        late.progress().wait_for(|progress| !progress.lines.is_empty()).await.unwrap();
        // The third workspace came last, but the first one still holds a slot.
        drop(other);
        drop(late_waits.await.unwrap());
        assert!(!is_running(&second));
        drop(holds);
        drop(second_waits.await.unwrap());
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
