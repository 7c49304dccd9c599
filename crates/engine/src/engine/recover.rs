//! Recovery: at every start, the engine takes over or ends what dead engines left behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandling_vmm::machine::{MachineDir, MachineError, check_record};
use tokio::task::JoinSet;

use super::instance::Engine;
use crate::machine::{ENGINE_FILE, remove_leftover};
use crate::model::{EndReason, SandboxInfo, State};
use crate::owner;
use crate::sandbox::{Phase, Sandbox};
use crate::store::{LivingSandboxes, SandboxRow, StoreError};

/// A directory that does not name its engine is left alone for so long: its engine may be about to write the name.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

/// Recovers everything that belongs to dead engines, all at once. What belongs to living engines is left alone.
pub(super) async fn recover(engine: &Arc<Engine>) -> Result<(), StoreError> {
    if engine.config.takeover {
        engine.parts.snapshots.transits.remove_unfinished();
    }
    let engines = engine.config.home.engines();
    let LivingSandboxes { readable: mut rows, unreadable } = engine.parts.store.living_sandboxes()?;
    // The sandboxes of a server are for the next server.
    let ours = |name: &str| engine.config.takeover || !owner::is_server(name);
    rows.retain(|row| !owner::is_alive(&engines, &row.engine) && ours(&row.engine));
    let with_row: BTreeSet<String> = rows.iter().map(|row| row.id.clone()).collect();
    for row in unreadable.iter().filter(|row| !owner::is_alive(&engines, &row.engine)) {
        engine.set_aside(row.clone());
    }
    rows.retain(|row| has_readable_record(engine, &row.info));
    // Whose they are is not known yet.
    let departed: Vec<_> = rows.extract_if(.., |row| is_on_its_way(engine, &row.info)).collect();
    for row in departed {
        engine.host.park(Phase::Hibernated, row.info);
    }
    // Another node may have taken these over.
    let is_fenced = |row: &mut SandboxRow| engine.config.takeover && row.info.settings.failover.is_some();
    for row in rows.extract_if(.., is_fenced) {
        engine.unconfirmed().insert(row.info.id.clone());
        engine.host.park(Phase::Orphaned, row.info);
    }
    let mut work = JoinSet::new();
    for sandbox in rows.into_iter().filter_map(|row| engine.host.start(Phase::Orphaned, row.info)) {
        work.spawn(settle(engine.clone(), sandbox));
    }
    let left_alone = LivingSandboxes { readable: Vec::new(), unreadable };
    work.spawn(sweep(engine.clone(), with_row, left_alone));
    if engine.config.takeover {
        tokio::spawn(work.join_all());
    } else {
        work.join_all().await;
    }
    Ok(())
}

/// Whether a move of a sandbox has begun and not ended. Only a hibernated sandbox departs: if another one has the file of a
/// move, the move never began, and neither the file nor the sandbox's task could be restored then.
fn is_on_its_way(engine: &Engine, info: &SandboxInfo) -> bool {
    let transits = &engine.parts.snapshots.transits;
    if transits.get(&info.id).is_none() {
        return false;
    }
    if info.state == State::Hibernated || !transits.is_leaving(&info.id) {
        return true;
    }
    if let Err(error) = transits.end(&info.id) {
        tracing::warn!(sandbox = %info.id, %error, "the file of a move that never began cannot be removed");
    }
    false
}

/// Whether the record of a sandbox's machine can be read, if there is one. Otherwise the sandbox is set aside.
fn has_readable_record(engine: &Engine, info: &SandboxInfo) -> bool {
    let dir = MachineDir::new(engine.config.home.sandboxes().join(info.id.as_str()));
    match check_record(&dir) {
        Err(error @ MachineError::UnreadableRecord { .. }) if info.state != State::Hibernated => {
            engine.set_aside_machine(info.clone(), &error);
            false
        }
        _ => true,
    }
}

pub(super) async fn settle(engine: Arc<Engine>, sandbox: Arc<Sandbox>) {
    let settled = match engine.config.takeover {
        true => sandbox.take_over().await,
        false => sandbox.end(EndReason::Lost("the engine that kept it died".to_owned())).await,
    };
    if let Err(error) = settled {
        tracing::error!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "could not recover a sandbox of a dead engine");
    }
}

/// Removes directories without a row: standbys, and sandboxes whose engine died before it wrote the row.
async fn sweep(engine: Arc<Engine>, with_row: BTreeSet<String>, left_alone: LivingSandboxes) {
    while let Some(youngest) = sweep_once(&engine, &with_row, &left_alone).await
        && engine.config.takeover
    {
        tokio::time::sleep(NAMED_WITHIN.saturating_sub(youngest)).await;
    }
}

/// Returns the age of the youngest directory that was left alone because it does not name its engine yet.
async fn sweep_once(
    engine: &Arc<Engine>,
    with_row: &BTreeSet<String>,
    left_alone: &LivingSandboxes,
) -> Option<Duration> {
    let engines = engine.config.home.engines();
    let mut clearing = JoinSet::new();
    let mut youngest: Option<Duration> = None;
    for entry in fs::read_dir(engine.config.home.sandboxes()).into_iter().flatten().flatten() {
        let dir = entry.path();
        if entry.file_name().to_str().is_some_and(|name| with_row.contains(name) || left_alone.may_own(name)) {
            continue;
        }
        match fs::read_to_string(dir.join(ENGINE_FILE)) {
            Ok(owner) if owner::is_alive(&engines, owner.trim()) => {}
            Ok(owner) if owner::is_server(owner.trim()) && !engine.config.takeover => {}
            Err(_) if age(&dir).is_some_and(|age| age < NAMED_WITHIN) => {
                youngest = age(&dir).into_iter().chain(youngest).min();
            }
            _ => drop(clearing.spawn(async move { remove_leftover(&dir).await })),
        }
    }
    clearing.join_all().await;
    youngest
}

fn age(dir: &Path) -> Option<Duration> {
    fs::metadata(dir).and_then(|meta| meta.modified()).ok()?.elapsed().ok()
}
