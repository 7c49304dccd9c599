//! How builds go, for those who ask. That they began and how they ended outlasts the server; what they said does not.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use jiff::Timestamp;
use sandling_engine::StoreError;
use sandling_service::{Access, BuildEnd, BuildRecord};
use tokio::sync::{Semaphore, watch};

use super::uploads::Claims;
use crate::error::ApiError;

/// Builds that can be asked about; the oldest go first.
const KEPT: usize = 200;
/// Builds of a workspace that have begun and not come to their end.
const MOST_UNDER_WAY: usize = 8;
const MOST_LINES: usize = 10_000;
const MOST_LOG_BYTES: usize = 1 << 20;
const LONGEST_LINE: usize = 4000;
/// Why a build failed whose server ended first.
const RESTARTED: &str = "the server was restarted";

pub(crate) struct Builds {
    access: Arc<Access>,
    /// When this server began. Builds that another left unfinished count as ended then.
    since: Timestamp,
    all: Mutex<VecDeque<Arc<Build>>>,
    /// Two builds of packages at once would only make each other slow, on the host.
    pub(super) packages: Semaphore,
    /// Builds that run in machines wait for others of their workspace only.
    machines: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// What was uploaded for builds.
    pub(super) claims: Claims,
}

pub(crate) struct Build {
    pub(crate) id: String,
    pub(crate) workspace: String,
    /// What the template will be called.
    pub(crate) name: String,
    pub(crate) started_at: Timestamp,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Default)]
pub(crate) struct Progress {
    pub(crate) lines: Vec<Line>,
    bytes: usize,
    pub(crate) stage: Stage,
}

/// A line of a build's log.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) at: Timestamp,
    pub(crate) text: String,
    pub(crate) level: Level,
    /// The step it is of, counted from one.
    pub(crate) step: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Stage {
    /// It has an id; what is to be done is not known yet.
    #[default]
    Asked,
    Queued,
    Running,
    Done {
        at: Timestamp,
        bytes: u64,
    },
    Failed {
        at: Timestamp,
        why: String,
        /// Where: `base`, the number of a step, or `finalize`.
        step: String,
    },
}

impl Builds {
    /// With those that are remembered.
    pub(crate) fn open(access: Arc<Access>) -> Result<Self, StoreError> {
        let since = Timestamp::now();
        let past = access.past_builds()?.into_iter().map(|record| Arc::new(Build::past(record, since))).collect();
        Ok(Self {
            access,
            since,
            all: Mutex::new(past),
            packages: Semaphore::new(1),
            machines: Mutex::default(),
            claims: Claims::default(),
        })
    }

    /// A build that is yet to begin.
    pub(crate) fn ask(&self, workspace: &str, name: &str) -> Result<Arc<Build>, ApiError> {
        let mut all = self.all();
        if all.iter().filter(|build| build.workspace == workspace && build.is_under_way()).count() >= MOST_UNDER_WAY {
            let message = format!("{MOST_UNDER_WAY} builds of this workspace are under way; wait for one to end");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_builds", message));
        }
        let record = BuildRecord {
            id: crate::random::uuid(),
            workspace: workspace.to_owned(),
            name: name.to_owned(),
            started_at: Timestamp::now(),
            ended: None,
        };
        self.access.begin_build(&record)?;
        let build = Arc::new(Build::new(record));
        if all.len() >= KEPT {
            // Of the same workspace first, and none that somebody waits for.
            let own = all.iter().position(|old| old.workspace == workspace && !old.is_under_way());
            let oldest = own.or_else(|| all.iter().position(|old| !old.is_under_way()));
            if let Some(oldest) = oldest.and_then(|oldest| all.remove(oldest)) {
                self.access.forget_build(&oldest.id)?;
            }
        }
        all.push_back(build.clone());
        Ok(build)
    }

    /// Says what a build came to: bytes, or why not and where.
    pub(super) fn ended(&self, build: &Build, result: Result<u64, (String, String)>) {
        let at = Timestamp::now();
        let end = match result {
            Ok(bytes) => BuildEnd::Done { bytes },
            Err((why, step)) => BuildEnd::Failed { why, step },
        };
        self.keep(&build.id, at, &end);
        build.progress.send_modify(|progress| progress.stage = Stage::ended(at, end));
    }

    fn keep(&self, id: &str, at: Timestamp, end: &BuildEnd) {
        if let Err(error) = self.access.end_build(id, at, end) {
            // The next server will say that it was cut off.
            tracing::error!(build = id, error = &error as &dyn std::error::Error, "a build's end could not be kept");
        }
    }

    /// The builds that a server before this one was at, until it is written down that they failed.
    pub(super) fn cut_off(&self) -> Result<Vec<BuildRecord>, StoreError> {
        Ok(self.access.past_builds()?.into_iter().filter(|build| build.ended.is_none()).collect())
    }

    pub(super) fn keep_cut_off(&self, build: &BuildRecord) {
        self.keep(&build.id, self.since, &restarted());
    }

    /// What a build in a machine waits for.
    pub(super) fn turn(&self, workspace: &str) -> Arc<Semaphore> {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.retain(|_, turn| Arc::strong_count(turn) > 1);
        machines.entry(workspace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }

    /// Whether any build has begun and not come to its end.
    pub(crate) fn are_under_way(&self) -> bool {
        self.all().iter().any(|build| build.is_under_way())
    }

    /// A build of this workspace.
    pub(crate) fn find(&self, workspace: &str, id: &str) -> Result<Arc<Build>, ApiError> {
        let found = self.all().iter().find(|build| build.id == id && build.workspace == workspace).cloned();
        found.ok_or_else(|| ApiError::not_found("build"))
    }

    /// The builds of a workspace, newest first.
    pub(crate) fn list(&self, workspace: &str) -> Vec<Arc<Build>> {
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

    /// One that is over: it ended, or was cut off before `since`.
    fn past(mut record: BuildRecord, since: Timestamp) -> Self {
        let (at, end) = record.ended.take().unwrap_or_else(|| (since, restarted()));
        let build = Self::new(record);
        if let BuildEnd::Failed { why, .. } = &end {
            build.say(why, Level::Error, None);
        }
        build.progress.send_modify(|progress| progress.stage = Stage::ended(at, end));
        build
    }

    fn is_under_way(&self) -> bool {
        matches!(self.progress.borrow().stage, Stage::Queued | Stage::Running)
    }

    /// Takes the build for whoever asks first.
    pub(super) fn queue(&self) -> Result<(), ApiError> {
        let queued = self.progress.send_if_modified(|progress| {
            let first = matches!(progress.stage, Stage::Asked);
            if first {
                progress.stage = Stage::Queued;
            }
            first
        });
        if queued { Ok(()) } else { Err(ApiError::conflict("build_begun", "this build has begun already")) }
    }

    pub(super) fn runs(&self) {
        self.progress.send_modify(|progress| progress.stage = Stage::Running);
    }

    pub(super) fn say(&self, text: &str, level: Level, step: Option<usize>) {
        self.progress.send_if_modified(|progress| {
            // A step tells how far it is again and again.
            let again = progress.lines.last().is_some_and(|last| step.is_none() && last.text == text);
            if again || progress.bytes > MOST_LOG_BYTES {
                return false;
            }
            let mut text: String = text.chars().take(LONGEST_LINE).collect();
            let mut level = level;
            progress.bytes += text.len();
            if progress.lines.len() >= MOST_LINES || progress.bytes > MOST_LOG_BYTES {
                progress.bytes = MOST_LOG_BYTES + 1;
                (text, level) = ("more was said, and is not kept".to_owned(), Level::Warn);
            }
            progress.lines.push(Line { at: Timestamp::now(), text, level, step });
            true
        });
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
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
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done { .. } | Stage::Failed { .. })
    }
}

#[cfg(test)]
mod tests {
    use sandling_engine::Home;
    use sandling_service::{AccessSettings, WorkspaceName};

    use super::*;

    fn builds_in(directory: &tempfile::TempDir) -> Builds {
        let home = Home::new(directory.path().join("home"));
        home.prepare().unwrap();
        Builds::open(Access::open(&home, AccessSettings::default()).unwrap()).unwrap()
    }

    #[test]
    fn a_build_begins_once_and_is_seen_by_its_own_workspace() {
        let directory = tempfile::tempdir().unwrap();
        let builds = builds_in(&directory);
        let build = builds.ask("default", "mine").unwrap();
        assert!(!builds.are_under_way());
        build.queue().unwrap();
        assert!(build.queue().is_err() && builds.are_under_way());
        build.runs();
        build.say("hello", Level::Info, Some(1));
        builds.ended(&build, Err(("no".to_owned(), "1".to_owned())));
        let progress = build.progress().borrow().clone();
        assert_eq!(progress.lines.len(), 1);
        assert!(progress.is_over() && !builds.are_under_way());
        assert!(builds.find("other", &build.id).is_err() && builds.find("default", &build.id).is_ok());
    }

    #[test]
    fn a_build_is_known_to_the_next_server_and_one_that_was_cut_off_has_failed() {
        let directory = tempfile::tempdir().unwrap();
        let first = builds_in(&directory);
        let [done, cut_off] = ["done", "cut-off"].map(|name| first.ask("default", name).unwrap());
        first.ended(&done, Ok(7));
        drop(first);
        for kept in [true, false] {
            let builds = builds_in(&directory);
            let stage = |id: &str| builds.find("default", id).unwrap().progress().borrow().stage.clone();
            assert!(matches!(stage(&done.id), Stage::Done { bytes: 7, .. }));
            assert!(matches!(stage(&cut_off.id), Stage::Failed { why, .. } if why == RESTARTED));
            let found = builds.cut_off().unwrap();
            assert_eq!(found.iter().map(|build| &build.id).collect::<Vec<_>>(), [&cut_off.id][..usize::from(kept)]);
            found.iter().for_each(|build| builds.keep_cut_off(build));
        }
    }

    #[test]
    fn nobody_fills_the_list_or_the_memory() {
        let directory = tempfile::tempdir().unwrap();
        let builds = builds_in(&directory);
        for name in ["quiet", "busy"] {
            builds.access.create_workspace(&WorkspaceName::parse(name).unwrap()).unwrap();
        }
        let running = builds.ask("quiet", "mine").unwrap();
        running.queue().unwrap();
        for number in 0..KEPT * 2 {
            let build = builds.ask("busy", "other").unwrap();
            if number < MOST_UNDER_WAY - 1 {
                build.queue().unwrap();
            }
        }
        assert!(builds.find("quiet", &running.id).is_ok() && builds.all().len() <= KEPT);
        builds.ask("busy", "other").unwrap().queue().unwrap();
        assert_eq!(builds.ask("busy", "other").err().map(|error| error.code), Some("too_many_builds"));
        for number in 0..100_000 {
            running.say(&format!("{number} {}", "x".repeat(3000)), Level::Info, Some(1));
        }
        let progress = running.progress().borrow().clone();
        assert!(progress.lines.iter().map(|line| line.text.len()).sum::<usize>() < 2 * MOST_LOG_BYTES);
        assert_eq!(progress.lines.last().map(|line| line.level), Some(Level::Warn));
    }
}
