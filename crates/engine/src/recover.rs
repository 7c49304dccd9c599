//! What dead engines left behind: found at every start, and taken over or ended.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandling_vmm::machine::{Machine, MachineDir, kill_leftover};
use tokio::task::JoinSet;

use crate::engine::{Engine, OpenError};
use crate::keep;
use crate::lifecycle::State;
use crate::link::Link;
use crate::owner;
use crate::sandbox::{Live, SandboxInfo};
use crate::snapshot::mend;
use crate::store::{LivingSandboxes, SandboxRow, StoreError};

/// A machine's directory names its engine in this file.
pub(crate) const ENGINE_FILE: &str = "engine";

/// How long a guest has to answer whoever takes it over. It is ended if it does not; so it is given time.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A directory without a name in it is left alone so long: somebody may be about to write it.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

/// Goes through everything that belongs to a dead engine, all of it at once. What belongs to living ones is left alone.
pub(crate) async fn recover(engine: &Arc<Engine>) -> Result<(), OpenError> {
    let engines = engine.config.home.engines();
    let LivingSandboxes { readable: mut rows, unreadable } = engine.store.living_sandboxes()?;
    // What a server kept is for the next server.
    let ours = |name: &str| engine.config.takeover || !owner::is_server(name);
    rows.retain(|row| !owner::is_alive(&engines, &row.engine) && ours(&row.engine));
    let with_row: BTreeSet<String> = rows.iter().map(|row| row.id.clone()).collect();
    for row in unreadable.iter().filter(|row| !owner::is_alive(&engines, &row.engine)) {
        engine.set_aside(row.clone());
    }
    let mut work = JoinSet::new();
    for row in rows {
        engine.unsettle(&row.info.id);
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
        tracing::error!(sandbox = %id, error = &error as &dyn std::error::Error, "its end was not written down");
    }
    engine.settle(&id);
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
    clear(&dir).await;
    engine.store.end_sandbox(&row.id, &why)?;
    engine.drop_private_volumes(&row.info.id)?;
    engine.record(&row.info.id, &row.info.workspace, "ended", serde_json::json!({ "why": why }))
}

/// Clears away directories without a row: standbys, and sandboxes whose engine died before it wrote the row.
async fn sweep(engine: Arc<Engine>, with_row: BTreeSet<String>, left_alone: LivingSandboxes) {
    while let Some(youngest) = sweep_once(&engine, &with_row, &left_alone).await
        && engine.config.takeover
    {
        tokio::time::sleep(NAMED_WITHIN.saturating_sub(youngest)).await;
    }
}

/// The age of the youngest directory that had to be left, because nobody has put a name into it yet.
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
            _ => drop(clearing.spawn(async move { clear(&dir).await })),
        }
    }
    clearing.join_all().await;
    youngest
}

fn age(dir: &Path) -> Option<Duration> {
    fs::metadata(dir).and_then(|meta| meta.modified()).ok()?.elapsed().ok()
}

/// Makes a running machine of a dead engine ours: same id, same processes.
async fn take_over(engine: &Arc<Engine>, dir: &Path, mut info: SandboxInfo) -> Result<(), String> {
    let gone = |error: &dyn std::error::Error| format!("it could not be taken over: {error}");
    if info.state == State::Hibernated {
        // Its machine had been saved, and may have outlived the engine that was about to end it.
        clear(dir).await;
        engine.store.give_sandbox(info.id.as_str(), engine.owner.id()).map_err(|error| gone(&error))?;
        return keep::start(engine, None, info).map(drop).ok_or_else(|| "the engine is closing".to_owned());
    }
    let machine = Machine::adopt(MachineDir::new(dir)).await.map_err(|error| gone(&error))?;
    let machine = machine.ok_or_else(|| "its machine had ended".to_owned())?;
    let was_paused = info.state == State::Paused;
    info.state = State::Running;
    let link = async {
        let connection = machine.connect_control().await.map_err(|error| gone(&error))?;
        let greeting = Link::greet(connection).await.map_err(|error| gone(&error))?;
        // It may have been paused, and only one that runs can answer.
        machine.cont().await.map_err(|error| gone(&error))?;
        greeting.answered(ANSWER_WITHIN).await.map_err(|error| gone(&error))
    };
    let link = match link.await {
        Ok(link) => link,
        Err(why) => {
            // `clear` ends it by its directory if this does not.
            let _ = machine.end().await;
            return Err(why);
        }
    };
    match mend::mended(engine, &machine, dir, &info.standing).await {
        Ok(standing) => info.standing = standing,
        Err(error) => {
            let _ = machine.end().await;
            return Err(gone(&error));
        }
    }
    engine.store.update_sandbox(&info).map_err(|error| gone(&error))?;
    fs::write(dir.join(ENGINE_FILE), engine.owner.id()).map_err(|error| gone(&error))?;
    engine.store.give_sandbox(info.id.as_str(), engine.owner.id()).map_err(|error| gone(&error))?;
    let _ = engine.record(&info.id, &info.workspace, "taken_over", serde_json::json!({}));
    let sandbox =
        keep::start(engine, Some(Live { machine, link }), info).ok_or_else(|| "the engine is closing".to_owned())?;
    if was_paused && let Err(error) = sandbox.pause().await {
        tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "it was paused, and now runs");
    }
    Ok(())
}

pub(crate) async fn clear(dir: &Path) {
    if let Err(error) = kill_leftover(&MachineDir::new(dir)).await {
        tracing::warn!(dir = %dir.display(), error = &error as &dyn std::error::Error, "a machine that was left behind could not be ended");
        return;
    }
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "a directory that was left behind could not be removed");
    }
}
