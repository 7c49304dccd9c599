//! Makes the points from which other nodes go on: soon after a create, at each hibernation, and from time to time while the
//! sandbox is used.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use sandling_engine::{PointNote, Sandbox, SandboxId, SnapshotId, State, StoreError, tied, with_causes};
use sandling_fleet::FailoverPoint;
use sandling_protocol::ExecState;

use super::super::durable::{FleetStore, made_on};
use super::super::member::Fleet;
use super::super::uploads::Wanted;
use crate::app::App;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a sandbox's settings are compared with those of its point.
const COMPARE_EVERY: Duration = Duration::from_secs(10);
/// Points that are made at the same time.
const AT_ONCE: usize = 2;
/// The pause after one that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// How long a guest may take to list its commands.
const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// Why there is no new point. It is tried again later.
type Why = String;

/// A point that was made.
struct Made {
    at: Instant,
    runs: bool,
}

/// The sandboxes whose points are being made.
type Busy = Mutex<HashSet<SandboxId>>;

/// When points of a sandbox were made here, or could not.
struct Attempts {
    /// Since when this process knows it.
    seen: Instant,
    made: Option<Instant>,
    /// Whether a command ran in it at the last point. It goes on without requests.
    runs: bool,
    failed: Option<Instant>,
    compared: Instant,
}

impl Attempts {
    fn none() -> Self {
        let now = Instant::now();
        Self { seen: now, made: None, runs: false, failed: None, compared: now }
    }
}

impl Fleet {
    /// Runs until the future is dropped.
    pub(in crate::fleet) async fn keep_points(&self, app: &Arc<App>) {
        let Some(store) = &self.store else { return };
        // What a process has left that died during an upload.
        let _ = fs::remove_dir_all(self.descriptions());
        let busy = Busy::default();
        // Uploads and removals wait for each other's locks, so both go on.
        tokio::join!(self.make_points(app, store, &busy), self.tidy_points(app, &busy));
    }

    async fn make_points(&self, app: &Arc<App>, store: &FleetStore, busy: &Busy) {
        let mut attempts: HashMap<SandboxId, Attempts> = HashMap::new();
        let mut making = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                Some((id, outcome)) = making.next(), if !making.is_empty() => {
                    lock(busy).remove(&id);
                    self.note_attempt(attempts.entry(id.clone()).or_insert_with(Attempts::none), &id, outcome);
                }
            }
            if self.membership.writer().is_none() || app.engine.is_closing() {
                continue;
            }
            let mut here = app.engine.with_failover();
            attempts.retain(|id, _| here.iter().any(|sandbox| sandbox.id() == id));
            // Those without a point come first, then those whose point is the oldest.
            here.sort_by_cached_key(|sandbox| attempts.get(sandbox.id()).and_then(|known| known.made));
            for sandbox in here {
                let known = attempts.entry(sandbox.id().clone()).or_insert_with(Attempts::none);
                if making.len() >= AT_ONCE || lock(busy).contains(sandbox.id()) {
                    continue;
                }
                if self.is_due(app, &sandbox, known) {
                    lock(busy).insert(sandbox.id().clone());
                    making.push(async move {
                        let made = self.make_point(app, store, &sandbox).await;
                        (sandbox.id().clone(), made)
                    });
                }
            }
        }
    }

    fn note_attempt(&self, attempts: &mut Attempts, id: &SandboxId, outcome: Result<Made, Why>) {
        match outcome {
            Ok(Made { at, runs }) => {
                (attempts.made, attempts.runs, attempts.failed) = (Some(at), runs, None);
                self.failover.problems().remove(id);
            }
            Err(why) => {
                attempts.failed = Some(Instant::now());
                tracing::warn!(sandbox = %id, why, "a failover point could not be made; it is tried again");
                self.failover.problems().insert(id.clone(), why);
            }
        }
    }

    fn is_due(&self, app: &App, sandbox: &Sandbox, attempts: &mut Attempts) -> bool {
        let id = sandbox.id();
        if !self.may_run(id) || attempts.failed.is_some_and(|at| at.elapsed() < AGAIN_AFTER) {
            return false;
        }
        let (info, record) = (sandbox.info(), self.failover.known.get(id.as_str()));
        let is_due = match (info.state, &record) {
            // What hibernates without its memory is not in the store.
            (State::Hibernated, record) => {
                let Some(image) = info.standing.restored else { return false };
                record.as_ref().is_none_or(|record| record.point.snapshot != image.as_str())
            }
            (State::Running | State::Paused, None) => true,
            // It may have been used before this process knew it.
            (State::Running | State::Paused, Some(_)) => {
                let since = attempts.made.unwrap_or(attempts.seen).elapsed();
                let was_used = attempts.made.is_none() || attempts.runs || sandbox.idle_for() < since;
                since >= self.failover.every && was_used
            }
            _ => return false,
        };
        if is_due || attempts.compared.elapsed() < COMPARE_EVERY {
            return is_due;
        }
        attempts.compared = Instant::now();
        // Who takes it over must not go back to older settings.
        let settings = app.engine.point_settings(id);
        settings.is_ok_and(|settings| record.is_some_and(|record| record.point.settings != settings))
    }

    async fn make_point(&self, app: &App, store: &FleetStore, sandbox: &Arc<Sandbox>) -> Result<Made, Why> {
        let (id, info, snapshots) = (sandbox.id(), sandbox.info(), app.engine.snapshots());
        if let Some(tied) = tied(&info) {
            return Err(format!("{tied}, so it cannot leave its node"));
        }
        let settings = app.engine.point_settings(id).map_err(|error| with_causes(&error))?;
        let runs = info.state != State::Hibernated && runs_a_command(sandbox).await;
        // As after a move: one that runs a command goes on, and so does one that only a request to resume would wake.
        let wakes = info.state == State::Running && (runs || info.settings.auto_resume == Some(false));
        let snapshot = match (info.state, &info.standing.restored) {
            (State::Hibernated, Some(image)) => image.clone(),
            (State::Hibernated, None) => return Err("it hibernates without its memory".to_owned()),
            _ => app.engine.save_point(sandbox).await.map_err(|error| with_causes(&error))?.id,
        };
        // The save itself counts as a use.
        let made = Made { at: Instant::now(), runs };
        snapshots.keep_point(&info.workspace, id, &snapshot).map_err(|error| error.to_string())?;
        let found = snapshots.find_any(&info.workspace, &snapshot).map_err(|error| error.to_string())?;
        let snapshot = found.ok_or("it was woken before its image was stored")?;
        let description = self.describe(app, id, &snapshot.id, (wakes, snapshot.created_at)).await?;
        let (at, workspace) = (snapshot.created_at.to_string(), snapshot.workspace.clone());
        let wanted = Wanted { info: snapshot, listed: false, description: Some(description.clone()) };
        let uploaded = self.upload(app, store, &wanted).await;
        let _ = fs::remove_file(&description);
        let manifest = uploaded.map_err(|error| with_causes(&error))?.ok_or("its snapshot was deleted meanwhile")?;
        if !app.engine.knows(id) {
            return Err("the sandbox has ended meanwhile".to_owned());
        }
        let point = FailoverPoint {
            snapshot: wanted.info.id.to_string(),
            manifest,
            made_on: made_on(&snapshots.host()).fingerprint(),
            at,
            settings,
        };
        match self.failovers().put_point(id.as_str(), &workspace, point).await {
            Ok(true) => Ok(made),
            Ok(false) => Err("this node has lost its lease".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Writes the description of a sandbox into a file for the upload. It has secrets.
    async fn describe(
        &self,
        app: &App,
        id: &SandboxId,
        snapshot: &SnapshotId,
        (wakes, at): (bool, jiff::Timestamp),
    ) -> Result<PathBuf, Why> {
        let more = app.service.pack(id.as_str()).map_err(|error| error.to_string())?;
        let more = serde_json::to_value(more).map_err(|error| error.to_string())?;
        let note = PointNote { wakes, from: self.settings.name.clone(), at, more };
        let (engine, dir, id, snapshot) = (app.engine.clone(), self.descriptions(), id.clone(), snapshot.clone());
        let writing = tokio::task::spawn_blocking(move || {
            let text = engine.describe_point(&id, &snapshot, note).map_err(|error| with_causes(&error))?;
            write(&dir, snapshot.as_str(), &text).map_err(|error| error.to_string())
        });
        writing.await.map_err(|error| error.to_string())?
    }

    pub(super) fn descriptions(&self) -> PathBuf {
        self.home.fleet().join("points")
    }

    async fn tidy_points(&self, app: &App, busy: &Busy) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if app.engine.is_closing() {
                continue;
            }
            if let Err(error) = self.tidy(app, busy).await {
                let why = with_causes(&error);
                tracing::warn!(why, "old failover points cannot be removed now; it is tried again");
            }
        }
    }

    /// Removes points that are none any more, and the records of sandboxes that have ended here.
    async fn tidy(&self, app: &App, busy: &Busy) -> Result<(), StoreError> {
        let Some(me) = self.membership.writer() else { return Ok(()) };
        if !self.failover.known.is_read() {
            return Ok(());
        }
        for (sandbox, record, _) in self.failover.known.all() {
            let gone = SandboxId::parse(&sandbox).is_some_and(|id| !app.engine.knows(&id));
            if record.node == me.node && gone {
                // What fails is tried again in the next round.
                let _ = self.failovers().forget(&sandbox).await;
            }
        }
        for point in app.engine.snapshots().points()? {
            // A point that is made becomes the current one before it is not busy any more.
            if lock(busy).contains(&point.sandbox) || app.engine.is_on_its_way(&point.sandbox) {
                continue;
            }
            let record = self.failover.known.get(point.sandbox.as_str());
            let is_current =
                record.is_some_and(|record| record.node == me.node && record.point.snapshot == point.snapshot.as_str());
            if !is_current {
                app.engine.snapshots().forget_point(&point).await?;
            }
        }
        Ok(())
    }
}

fn lock(busy: &Busy) -> MutexGuard<'_, HashSet<SandboxId>> {
    busy.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn runs_a_command(sandbox: &Sandbox) -> bool {
    // A guest that does not answer must not keep the others waiting.
    let listed = tokio::time::timeout(LISTED_WITHIN, sandbox.list_execs()).await;
    let commands = listed.unwrap_or(Ok(Vec::new())).unwrap_or_default();
    commands.iter().any(|command| matches!(command.state, ExecState::Running))
}

fn write(dir: &Path, name: &str, text: &[u8]) -> std::io::Result<PathBuf> {
    sandling_wire::private_directory(dir)?;
    let path = dir.join(name);
    fs::write(&path, text)?;
    Ok(path)
}
