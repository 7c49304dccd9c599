//! Recovery: at every start, the engine takes over or ends what dead engines left behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandling_vmm::machine::{Machine, MachineDir};
use tokio::task::JoinSet;

use super::instance::Engine;
use crate::link::Link;
use crate::machine::{ENGINE_FILE, Live, remove_leftover};
use crate::model::{SandboxInfo, State};
use crate::owner;
use crate::snapshot::mend;
use crate::store::{LivingSandboxes, SandboxRow, StoreError};

/// How long a guest has to answer the engine that takes it over. A guest that does not is ended.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A directory that does not name its engine is left alone for so long: its engine may be about to write the name.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

/// Recovers everything that belongs to dead engines, all at once. What belongs to living engines is left alone.
pub(super) async fn recover(engine: &Arc<Engine>) -> Result<(), StoreError> {
    let engines = engine.config.home.engines();
    let LivingSandboxes { readable: mut rows, unreadable } = engine.parts.store.living_sandboxes()?;
    // The sandboxes of a server are for the next server.
    let ours = |name: &str| engine.config.takeover || !owner::is_server(name);
    rows.retain(|row| !owner::is_alive(&engines, &row.engine) && ours(&row.engine));
    let with_row: BTreeSet<String> = rows.iter().map(|row| row.id.clone()).collect();
    for row in unreadable.iter().filter(|row| !owner::is_alive(&engines, &row.engine)) {
        engine.set_aside(row.clone());
    }
    let mut work = JoinSet::new();
    for row in rows {
        engine.registry.unsettle(&row.info.id);
        work.spawn(settle(engine.clone(), row));
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

async fn settle(engine: Arc<Engine>, row: SandboxRow) {
    let id = row.info.id.clone();
    if let Err(error) = recover_sandbox(&engine, row).await {
        tracing::error!(sandbox = %id, error = &error as &dyn std::error::Error, "could not record the end of a sandbox of a dead engine");
    }
    engine.registry.settle(&id);
}

async fn recover_sandbox(engine: &Arc<Engine>, row: SandboxRow) -> Result<(), StoreError> {
    let dir = engine.config.home.sandboxes().join(&row.id);
    let why = if engine.config.takeover {
        match take_over(engine, &dir, row.info.clone()).await {
            Ok(()) => return Ok(()),
            Err(why) => why,
        }
    } else {
        "the engine that kept it died".to_owned()
    };
    remove_leftover(&dir).await;
    engine.parts.store.end_sandbox(&row.id, &why)?;
    engine.parts.volumes.drop_private(&row.info.id)?;
    engine.parts.events.record(&row.info.id, &row.info.workspace, "ended", serde_json::json!({ "why": why }))
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

/// Takes over a running machine of a dead engine, with its id and its processes.
async fn take_over(engine: &Arc<Engine>, dir: &Path, mut info: SandboxInfo) -> Result<(), String> {
    let gone = |error: &dyn std::error::Error| format!("it could not be taken over: {error}");
    if info.state == State::Hibernated {
        // The machine was saved, and may have outlived the engine that was about to end it.
        remove_leftover(dir).await;
        engine.parts.store.give_sandbox(info.id.as_str(), engine.owner.id()).map_err(|error| gone(&error))?;
        return engine.host.start(None, info).map(drop).ok_or_else(|| "the engine is closing".to_owned());
    }
    let machine = Machine::adopt(MachineDir::new(dir)).await.map_err(|error| gone(&error))?;
    let machine = machine.ok_or_else(|| "its machine had ended".to_owned())?;
    let was_paused = info.state == State::Paused;
    info.state = State::Running;
    let link = async {
        let connection = machine.connect_control().await.map_err(|error| gone(&error))?;
        let greeting = Link::greet(connection).await.map_err(|error| gone(&error))?;
        // It may have been paused, and only a running guest can answer.
        machine.cont().await.map_err(|error| gone(&error))?;
        greeting.answered(ANSWER_WITHIN).await.map_err(|error| gone(&error))
    };
    let link = match link.await {
        Ok(link) => link,
        Err(why) => {
            // If this fails, `remove_leftover` ends it by its directory.
            let _ = machine.end().await;
            return Err(why);
        }
    };
    match mend::mended(&engine.parts.snapshots, &machine, dir, &info.standing).await {
        Ok(standing) => info.standing = standing,
        Err(error) => {
            let _ = machine.end().await;
            return Err(gone(&error));
        }
    }
    engine.parts.store.update_sandbox(&info).map_err(|error| gone(&error))?;
    fs::write(dir.join(ENGINE_FILE), engine.owner.id()).map_err(|error| gone(&error))?;
    engine.parts.store.give_sandbox(info.id.as_str(), engine.owner.id()).map_err(|error| gone(&error))?;
    let _ = engine.parts.events.record(&info.id, &info.workspace, "taken_over", serde_json::json!({}));
    let sandbox =
        engine.host.start(Some(Live { machine, link }), info).ok_or_else(|| "the engine is closing".to_owned())?;
    if was_paused && let Err(error) = sandbox.pause().await {
        tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "could not pause a sandbox that was paused before; it runs");
    }
    Ok(())
}
