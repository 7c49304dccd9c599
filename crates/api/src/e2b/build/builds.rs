//! How builds go, for those who ask.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::e2b::names::Name;
use crate::error::ApiError;

/// Builds that can be asked about; the oldest go first.
const KEPT: usize = 100;
const MOST_LINES: usize = 10_000;
const LONGEST_LINE: usize = 4000;

pub(in crate::e2b) struct Builds {
    all: Mutex<VecDeque<Arc<Build>>>,
    /// Two at once would only make each other slow.
    pub(super) turn: Arc<Semaphore>,
}

impl Default for Builds {
    fn default() -> Self {
        Self { all: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
    }
}

pub(in crate::e2b) struct Build {
    pub(in crate::e2b) id: String,
    pub(super) workspace: String,
    /// What it will be called, once for every tag.
    pub(in crate::e2b) names: Vec<Name>,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_mib: Option<u32>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    lines: Vec<Value>,
    stage: Stage,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Waiting,
    Building,
    Ready,
    Failed {
        message: String,
        step: String,
    },
}

impl Builds {
    pub(in crate::e2b) fn new_build(
        &self,
        workspace: &str,
        names: Vec<Name>,
        vcpus: Option<u32>,
        memory_mib: Option<u32>,
    ) -> Arc<Build> {
        let id = crate::random::uuid();
        let workspace = workspace.to_owned();
        let build = Arc::new(Build { id, workspace, names, vcpus, memory_mib, progress: Mutex::default() });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(build.clone());
        if all.len() > KEPT {
            all.pop_front();
        }
        build
    }

    /// A build of this workspace.
    pub(in crate::e2b) fn find(&self, workspace: &str, id: &str) -> Result<Arc<Build>, ApiError> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find(|build| build.workspace == workspace && build.id == id);
        found.cloned().ok_or_else(|| ApiError::not_found("build"))
    }
}

impl Build {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the build for whoever asks first.
    pub(super) fn claim(&self) -> Result<(), ApiError> {
        let mut progress = self.progress();
        if progress.stage != Stage::Waiting || !progress.lines.is_empty() {
            return Err(ApiError::conflict("build_begun", "this build has begun already"));
        }
        progress.lines.push(entry("waiting for a turn", "info", None));
        Ok(())
    }

    pub(super) fn begins(&self) {
        self.progress().stage = Stage::Building;
    }

    pub(super) fn say(&self, message: &str, level: &str, step: Option<usize>) {
        let mut progress = self.progress();
        match progress.lines.len() {
            MOST_LINES => progress.lines.push(entry("more was said, and is not kept", "warn", step)),
            more if more > MOST_LINES => {}
            _ => {
                let line: String = message.chars().take(LONGEST_LINE).collect();
                progress.lines.push(entry(&line, level, step));
            }
        }
    }

    pub(super) fn ended(&self, result: Result<(), (String, String)>) {
        let mut progress = self.progress();
        progress.stage = match result {
            Ok(()) => Stage::Ready,
            Err((message, step)) => Stage::Failed { message, step },
        };
    }

    /// What has happened from a line on.
    pub(in crate::e2b) fn status(&self, from: usize, limit: usize) -> Value {
        let progress = self.progress();
        let entries: Vec<&Value> = progress.lines.iter().skip(from).take(limit).collect();
        let logs: Vec<&Value> = entries.iter().map(|entry| &entry["message"]).collect();
        let status = match &progress.stage {
            Stage::Waiting => "waiting",
            Stage::Building => "building",
            Stage::Ready => "ready",
            Stage::Failed { .. } => "error",
        };
        let mut view = json!({ "buildID": self.id, "status": status, "logs": logs, "logEntries": entries });
        view["templateID"] = self.names.first().map(|name| name.name.clone()).into();
        if let Stage::Failed { message, step } = &progress.stage {
            view["reason"] = json!({ "message": message, "step": step });
        }
        view
    }
}

fn entry(message: &str, level: &str, step: Option<usize>) -> Value {
    let mut entry = json!({ "timestamp": Timestamp::now().to_string(), "message": message, "level": level });
    if let Some(step) = step {
        entry["step"] = step.to_string().into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_once_and_a_failure_names_its_step() {
        let builds = Builds::default();
        let build = builds.new_build("default", vec![Name::parse("mine").unwrap()], None, None);
        build.claim().unwrap();
        assert!(build.claim().is_err());
        build.begins();
        build.say("hello", "info", Some(1));
        build.ended(Err(("no".to_owned(), "1".to_owned())));
        let first = build.status(0, 100);
        assert_eq!((&first["status"], &first["reason"]["step"]), (&json!("error"), &json!("1")));
        assert_eq!(first["logEntries"].as_array().unwrap().len(), 2);
        assert_eq!(build.status(2, 100)["logEntries"], json!([]));
        assert!(builds.find("other", &build.id).is_err() && builds.find("default", &build.id).is_ok());
    }
}
