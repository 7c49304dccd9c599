//! Watches directories: as a stream, or buffered for clients that poll.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use sandling_engine::{Sandbox, Watch};
use sandling_protocol::{Change, ChangeKind, EntryKind};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::connect::{Framed, both, patience, ping_every, refused, respond};
use super::entries::looked_at;
use super::paths::resolve;
use crate::e2b::gone::lost;
use crate::e2b::memory::memory;
use crate::e2b::place::Envd;
use crate::prelude::*;

/// The most changes that are buffered for a polling client. The oldest are dropped first.
const KEPT: usize = 10_000;
const MOST_WATCHERS: usize = 64;
/// How often a poll asks the guest whether more changes arrive.
const SETTLE_ROUNDS: usize = 5;
const SETTLE_PAUSE: Duration = Duration::from_millis(10);

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/filesystem.Filesystem/WatchDir", post(watch_dir))
        .route("/filesystem.Filesystem/CreateWatcher", post(create))
        .route("/filesystem.Filesystem/GetWatcherEvents", post(events))
        .route("/filesystem.Filesystem/RemoveWatcher", post(remove))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WatchRequest {
    path: String,
    recursive: bool,
    #[serde(alias = "include_entry")]
    include_entry: bool,
}

/// The watched directory, and how its changes are reported.
#[derive(Debug, Clone)]
struct WatchedDir {
    top: String,
    recursive: bool,
    include_entry: bool,
}

impl WatchedDir {
    async fn of(envd: &Envd, request: WatchRequest) -> Result<Self, ApiError> {
        let top = resolve(&envd.sandbox, envd.user(), &request.path).await?;
        if envd.sandbox.stat(&top).await?.kind != EntryKind::Directory {
            return Err(ApiError::bad_request(format!("{top} is not a directory")));
        }
        Ok(Self { top, recursive: request.recursive, include_entry: request.include_entry })
    }

    /// Opens the watch, and waits until it is active.
    async fn open(&self, sandbox: &Arc<Sandbox>) -> Result<Watch, ApiError> {
        let mut watch = sandbox.watch(&self.top, self.recursive)?;
        watch.placed().await?;
        Ok(watch)
    }

    async fn tell(&self, sandbox: &Arc<Sandbox>, change: &Change) -> Option<Value> {
        let kind = match change.kind {
            ChangeKind::Created => "EVENT_TYPE_CREATE",
            ChangeKind::Modified => "EVENT_TYPE_WRITE",
            ChangeKind::Removed => "EVENT_TYPE_REMOVE",
            ChangeKind::Renamed => "EVENT_TYPE_RENAME",
            ChangeKind::Attributes => "EVENT_TYPE_CHMOD",
            // E2B has no event type for an overflow.
            ChangeKind::Overflow => return None,
        };
        let mut event = json!({ "name": self.name(&change.path), "type": kind });
        let is_gone = matches!(change.kind, ChangeKind::Removed | ChangeKind::Renamed);
        if self.include_entry
            && !is_gone
            && let Ok(entry) = looked_at(sandbox, &change.path).await
        {
            event["entry"] = entry;
        }
        Some(event)
    }

    /// A path relative to the watched directory.
    fn name<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(self.top.trim_end_matches('/')).map_or(path, |rest| rest.trim_start_matches('/'))
    }
}

async fn watch_dir(
    State(app): State<Arc<App>>,
    envd: Result<Envd, ApiError>,
    headers: HeaderMap,
    request: Result<Framed<WatchRequest>, ApiError>,
) -> Response {
    let (envd, Framed(request)) = match both(envd, request) {
        Ok(both) => both,
        Err(error) => return refused(error),
    };
    let (ping, patience) = (ping_every(&headers), patience(&headers));
    respond(app.closing(), move |out| async move {
        let watched = WatchedDir::of(&envd, request).await?;
        let mut watch = watched.open(&envd.sandbox).await?;
        out.send(&json!({ "start": {} })).await;
        let watching = async {
            loop {
                match tokio::time::timeout(ping, watch.next()).await {
                    Err(_) => out.send(&json!({ "keepalive": {} })).await,
                    Ok(Err(error)) => return Err::<(), _>(lost(&envd.sandbox, error.into()).await),
                    Ok(Ok(change)) => {
                        if let Some(event) = watched.tell(&envd.sandbox, &change).await {
                            out.send(&json!({ "filesystem": event })).await;
                        }
                    }
                }
            }
        };
        match patience {
            None => watching.await,
            Some(patience) => tokio::time::timeout(patience, watching).await.unwrap_or_else(|_| Err(over(patience))),
        }
    })
}

fn over(patience: Duration) -> ApiError {
    let mut error = ApiError::command_timeout(0.0);
    error.message = format!("the watch was to last {} s", patience.as_secs());
    error
}

/// Buffers changes for a client that polls.
pub(in crate::e2b) struct Watcher {
    watched: WatchedDir,
    events: Mutex<VecDeque<Value>>,
    task: Mutex<JoinHandle<()>>,
}

impl Watcher {
    async fn new(sandbox: &Arc<Sandbox>, watched: WatchedDir) -> Result<Arc<Self>, ApiError> {
        let watch = watched.open(sandbox).await?;
        Ok(Arc::new_cyclic(|watcher| {
            let task = tokio::spawn(gather(watcher.clone(), sandbox.clone(), watch));
            Self { watched, events: Mutex::default(), task: Mutex::new(task) }
        }))
    }

    /// Reopens the watch, which is lost when the sandbox hibernates.
    async fn mend(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<(), ApiError> {
        if !self.task().is_finished() {
            return Ok(());
        }
        let watch = self.watched.open(sandbox).await?;
        *self.task() = tokio::spawn(gather(Arc::downgrade(self), sandbox.clone(), watch));
        Ok(())
    }

    /// Waits for the changes that were made before this call: the guest reports them beside the answers to requests, so
    /// they can come a little later than the answer to the request that made them.
    async fn settle(&self, sandbox: &Sandbox) -> Result<(), ApiError> {
        let mut seen = 0;
        for _ in 0..SETTLE_ROUNDS {
            sandbox.stat("/").await?;
            tokio::time::sleep(SETTLE_PAUSE).await;
            let now = self.events().len();
            if now > 0 && now == seen {
                break;
            }
            seen = now;
        }
        Ok(())
    }

    fn task(&self) -> std::sync::MutexGuard<'_, JoinHandle<()>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> std::sync::MutexGuard<'_, VecDeque<Value>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task().abort();
    }
}

async fn gather(watcher: std::sync::Weak<Watcher>, sandbox: Arc<Sandbox>, mut watch: Watch) {
    while let Ok(change) = watch.next().await {
        let Some(watcher) = watcher.upgrade() else { return };
        if let Some(event) = watcher.watched.tell(&sandbox, &change).await {
            let mut events = watcher.events();
            if events.len() >= KEPT {
                events.pop_front();
            }
            events.push_back(event);
        }
    }
}

async fn create(
    State(app): State<Arc<App>>,
    envd: Envd,
    body: JsonBody<WatchRequest>,
) -> Result<Json<Value>, ApiError> {
    let id = envd.sandbox.id();
    if memory(&app).watchers(id) >= MOST_WATCHERS {
        let message = format!("the sandbox has {MOST_WATCHERS} watchers already; remove one");
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_watchers", message));
    }
    let watched = WatchedDir::of(&envd, body.value).await?;
    let watcher = Watcher::new(&envd.sandbox, watched).await?;
    let name = sandling_service::random::hex::<8>();
    memory(&app).watch(&app, id, &name, watcher);
    Ok(Json(json!({ "watcherId": name })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WatcherId {
    #[serde(alias = "watcher_id")]
    watcher_id: String,
}

async fn events(State(app): State<Arc<App>>, envd: Envd, body: JsonBody<WatcherId>) -> Result<Json<Value>, ApiError> {
    let watcher = memory(&app).watcher(envd.sandbox.id(), &body.value.watcher_id);
    let watcher = watcher.ok_or_else(|| ApiError::not_found("watcher"))?;
    watcher.mend(&envd.sandbox).await?;
    watcher.settle(&envd.sandbox).await?;
    let events: Vec<Value> = watcher.events().drain(..).collect();
    Ok(Json(json!({ "events": events })))
}

async fn remove(State(app): State<Arc<App>>, envd: Envd, body: JsonBody<WatcherId>) -> Result<Json<Value>, ApiError> {
    let found = memory(&app).unwatch(envd.sandbox.id(), &body.value.watcher_id);
    found.map(|_| Json(json!({}))).ok_or_else(|| ApiError::not_found("watcher"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named_from_what_is_watched() {
        let watched = |top: &str| WatchedDir { top: top.to_owned(), recursive: true, include_entry: false };
        assert_eq!(watched("/home/user").name("/home/user/a/b"), "a/b");
        assert_eq!(watched("/").name("/a"), "a");
    }
}
