//! Builds of templates that were asked for over HTTP: one at a time, their log kept for whoever follows it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use sandling_engine::{Engine, TemplateError};
use sandling_image::Recipe;
use tokio::sync::{Semaphore, watch};

use crate::error::ApiError;
use crate::wire::template::BuildView;

/// Builds that can be asked about; the oldest go first.
const KEPT: usize = 200;
const MAX_LINES: usize = 10_000;

pub(crate) struct Builds {
    all: Mutex<VecDeque<Arc<Build>>>,
    /// Two at once would only make each other slow.
    turn: Arc<Semaphore>,
}

impl Default for Builds {
    fn default() -> Self {
        Self { all: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
    }
}

pub(crate) struct Build {
    id: String,
    workspace: String,
    name: String,
    started_at: Timestamp,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Default)]
pub(crate) struct Progress {
    pub(crate) lines: Vec<String>,
    pub(crate) stage: Stage,
}

#[derive(Clone, Default)]
pub(crate) enum Stage {
    #[default]
    Queued,
    Running,
    Done {
        at: Timestamp,
        bytes: u64,
    },
    Failed {
        at: Timestamp,
        why: String,
    },
}

impl Builds {
    /// Starts a build, or puts it into the queue.
    pub(crate) fn start(&self, engine: &Arc<Engine>, workspace: &str, name: String, recipe: Recipe) -> Arc<Build> {
        let build = Arc::new(Build {
            id: crate::random::hex::<8>(),
            workspace: workspace.to_owned(),
            name,
            started_at: Timestamp::now(),
            progress: watch::Sender::default(),
        });
        let mut all = self.all();
        all.push_back(build.clone());
        if all.len() > KEPT {
            all.pop_front();
        }
        let (engine, turn) = (engine.clone(), self.turn.clone());
        tokio::spawn(build.clone().run(engine, turn, recipe));
        build
    }

    /// Whether any build has not come to its end.
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
    pub(crate) fn list(&self, workspace: &str) -> Vec<BuildView> {
        self.all().iter().rev().filter(|build| build.workspace == workspace).map(|build| build.view()).collect()
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Arc<Build>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Build {
    async fn run(self: Arc<Self>, engine: Arc<Engine>, turn: Arc<Semaphore>, recipe: Recipe) {
        let _turn = turn.acquire().await.expect("the semaphore is never closed");
        self.progress.send_modify(|progress| progress.stage = Stage::Running);
        let heard = self.clone();
        let on_step = move |step: sandling_engine::Step| heard.line(step.text);
        let built = engine.build_template(recipe, Default::default(), on_step).await;
        let at = Timestamp::now();
        let stage = match built {
            Ok(summary) => Stage::Done { at, bytes: summary.size_bytes },
            Err(error) => Stage::Failed { at, why: why(error) },
        };
        self.progress.send_modify(|progress| progress.stage = stage);
    }

    fn line(&self, text: String) {
        self.progress.send_if_modified(|progress| {
            // A step tells how far it is again and again.
            let new = progress.lines.last() != Some(&text) && progress.lines.len() < MAX_LINES;
            if new {
                progress.lines.push(text);
            }
            new
        });
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn view(&self) -> BuildView {
        let stage = self.progress.borrow().stage.clone();
        let (status, ended_at, error, bytes) = match stage {
            Stage::Queued => ("queued", None, None, None),
            Stage::Running => ("running", None, None, None),
            Stage::Done { at, bytes } => ("done", Some(at), None, Some(bytes)),
            Stage::Failed { at, why } => ("failed", Some(at), Some(why), None),
        };
        BuildView {
            id: self.id.clone(),
            name: self.name.clone(),
            status,
            error,
            started_at: self.started_at.to_string(),
            ended_at: ended_at.map(|at| at.to_string()),
            bytes,
        }
    }
}

impl Progress {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done { .. } | Stage::Failed { .. })
    }
}

/// Why it failed, as a client may know it.
fn why(error: TemplateError) -> String {
    ApiError::from(error).message
}
