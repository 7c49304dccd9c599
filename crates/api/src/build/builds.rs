//! How builds go, for those who ask.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use crate::error::ApiError;

/// Builds that can be asked about; the oldest go first.
const KEPT: usize = 200;
const MOST_LINES: usize = 10_000;
const LONGEST_LINE: usize = 4000;

pub(crate) struct Builds {
    all: Mutex<VecDeque<Arc<Build>>>,
    /// Two at once would only make each other slow.
    pub(super) turn: Arc<Semaphore>,
}

impl Default for Builds {
    fn default() -> Self {
        Self { all: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
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
    pub(crate) fn ask(&self, workspace: &str, name: &str) -> Arc<Build> {
        let build = Arc::new(Build {
            id: crate::random::uuid(),
            workspace: workspace.to_owned(),
            name: name.to_owned(),
            started_at: Timestamp::now(),
            progress: watch::Sender::default(),
        });
        let mut all = self.all();
        all.push_back(build.clone());
        if all.len() > KEPT {
            all.pop_front();
        }
        build
    }

    /// Whether any build has begun and not come to its end.
    pub(crate) fn are_under_way(&self) -> bool {
        let under_way = |build: &Arc<Build>| matches!(build.progress.borrow().stage, Stage::Queued | Stage::Running);
        self.all().iter().any(under_way)
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
            let (text, level) = match progress.lines.len() {
                most if most > MOST_LINES => return false,
                MOST_LINES => ("more was said, and is not kept".to_owned(), Level::Warn),
                _ => (text.chars().take(LONGEST_LINE).collect(), level),
            };
            if !again {
                progress.lines.push(Line { at: Timestamp::now(), text, level, step });
            }
            !again
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
        let build = builds.ask("default", "mine");
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
}
