//! What pulls are doing, for a caller that waits for one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use sandling_engine::Step;

use crate::workspaces::WorkspaceName;

pub type OnStep = Arc<dyn Fn(Step) + Send + Sync>;

/// A pull in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullView {
    /// The image as the request names it.
    pub image: String,
    pub started_at: Timestamp,
    /// What happens now.
    pub step: String,
    /// How much of the step is done, and how much there is, if that is known.
    pub progress: Option<(u64, u64)>,
}

type Running = HashMap<u64, (WorkspaceName, PullView)>;

#[derive(Default)]
pub(super) struct Pulls {
    running: Arc<Mutex<Running>>,
    next: Mutex<u64>,
}

/// Removes the pull from the list when it ends, however it ends.
pub(super) struct RunningPull {
    running: Arc<Mutex<Running>>,
    id: u64,
}

impl Pulls {
    pub(super) fn begin(&self, workspace: &WorkspaceName, image: &str) -> RunningPull {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        let (image, step) = (image.to_owned(), "waiting".to_owned());
        let view = PullView { image, started_at: Timestamp::now(), step, progress: None };
        lock(&self.running).insert(*next, (workspace.clone(), view));
        RunningPull { running: self.running.clone(), id: *next }
    }

    /// The pulls of a workspace, oldest first.
    pub(super) fn of(&self, workspace: &WorkspaceName) -> Vec<PullView> {
        let running = lock(&self.running);
        let mut own: Vec<_> = running.iter().filter(|(_, (owner, _))| owner == workspace).collect();
        own.sort_by_key(|(id, _)| **id);
        own.into_iter().map(|(_, (_, view))| view.clone()).collect()
    }
}

impl RunningPull {
    /// Passes steps on to `on_step` and shows them to others who ask.
    pub(super) fn observe(&self, on_step: OnStep) -> OnStep {
        let (running, id) = (self.running.clone(), self.id);
        Arc::new(move |step: Step| {
            if let Some((_, view)) = lock(&running).get_mut(&id) {
                (view.step, view.progress) = (step.text.clone(), step.progress);
            }
            on_step(step);
        })
    }
}

impl Drop for RunningPull {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::workspace;

    #[test]
    fn a_pull_is_listed_for_its_workspace_until_it_ends() {
        let pulls = Pulls::default();
        let pull = pulls.begin(&workspace("a"), "python:3");
        pull.observe(Arc::new(|_| {}))(Step { text: "downloading".to_owned(), progress: Some((1, 2)) });
        assert!(pulls.of(&workspace("b")).is_empty());
        let shown = pulls.of(&workspace("a")).remove(0);
        assert_eq!((shown.step.as_str(), shown.progress), ("downloading", Some((1, 2))));
        drop(pull);
        assert!(pulls.of(&workspace("a")).is_empty());
    }
}
