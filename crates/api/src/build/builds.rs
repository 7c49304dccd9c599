//! How builds go, for those who ask.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use jiff::Timestamp;
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

pub(crate) struct Builds {
    all: Mutex<VecDeque<Arc<Build>>>,
    /// Two builds of packages at once would only make each other slow, on the host.
    pub(super) packages: Semaphore,
    /// Builds that run in machines wait for others of their workspace only.
    machines: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// What was uploaded for builds.
    pub(super) claims: Claims,
}

impl Default for Builds {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            packages: Semaphore::new(1),
            machines: Mutex::default(),
            claims: Claims::default(),
        }
    }
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
    /// A build that is yet to begin.
    pub(crate) fn ask(&self, workspace: &str, name: &str) -> Result<Arc<Build>, ApiError> {
        let mut all = self.all();
        if all.iter().filter(|build| build.workspace == workspace && build.is_under_way()).count() >= MOST_UNDER_WAY {
            let message = format!("{MOST_UNDER_WAY} builds of this workspace are under way; wait for one to end");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_builds", message));
        }
        let build = Arc::new(Build {
            id: crate::random::uuid(),
            workspace: workspace.to_owned(),
            name: name.to_owned(),
            started_at: Timestamp::now(),
            progress: watch::Sender::default(),
        });
        if all.len() >= KEPT {
            // Of the same workspace first, and none that somebody waits for.
            let own = all.iter().position(|old| old.workspace == workspace && !old.is_under_way());
            let oldest = own.or_else(|| all.iter().position(|old| !old.is_under_way()));
            oldest.and_then(|oldest| all.remove(oldest));
        }
        all.push_back(build.clone());
        Ok(build)
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

impl Build {
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

    /// What it came to: bytes, or why not and where.
    pub(super) fn ended(&self, result: Result<u64, (String, String)>) {
        let at = Timestamp::now();
        self.progress.send_modify(|progress| {
            progress.stage = match result {
                Ok(bytes) => Stage::Done { at, bytes },
                Err((why, step)) => Stage::Failed { at, why, step },
            };
        });
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}

impl Progress {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done { .. } | Stage::Failed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_begins_once_and_is_seen_by_its_own_workspace() {
        let builds = Builds::default();
        let build = builds.ask("default", "mine").unwrap();
        assert!(!builds.are_under_way());
        build.queue().unwrap();
        assert!(build.queue().is_err() && builds.are_under_way());
        build.runs();
        build.say("hello", Level::Info, Some(1));
        build.ended(Err(("no".to_owned(), "1".to_owned())));
        let progress = build.progress().borrow().clone();
        assert_eq!(progress.lines.len(), 1);
        assert!(progress.is_over() && !builds.are_under_way());
        assert!(builds.find("other", &build.id).is_err() && builds.find("default", &build.id).is_ok());
    }

    #[test]
    fn nobody_fills_the_list_or_the_memory() {
        let builds = Builds::default();
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
