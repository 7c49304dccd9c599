//! What dead engines left behind: found at every start, and taken over or ended.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use sandling_vmm::machine::{Machine, MachineDir, kill_leftover};

use crate::engine::{Engine, OpenError};
use crate::keep;
use crate::lifecycle::State;
use crate::link::Link;
use crate::made::ANSWER_WITHIN;
use crate::owner;
use crate::sandbox::{Live, SandboxInfo};
use crate::store::SandboxRow;

/// A machine's directory names its engine in this file.
pub(crate) const ENGINE_FILE: &str = "engine";

/// Goes through everything that belongs to a dead engine. What belongs to living ones is left alone.
pub(crate) async fn recover(engine: &Arc<Engine>) -> Result<(), OpenError> {
    let engines = engine.config.home.engines();
    for row in engine.store.living_sandboxes()? {
        if !owner::is_alive(&engines, &row.engine) {
            recover_sandbox(engine, row).await?;
        }
    }
    // Directories without a row: standbys, and sandboxes whose engine died before it wrote the row.
    let sandboxes = fs::read_dir(engine.config.home.sandboxes()).map_err(|source| OpenError::Home { source })?;
    for entry in sandboxes.flatten() {
        if !belongs_to_the_living(&engines, &entry.path()) {
            clear(&entry.path()).await;
        }
    }
    Ok(())
}

async fn recover_sandbox(engine: &Arc<Engine>, row: SandboxRow) -> Result<(), OpenError> {
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
    engine.record(&row.info.id, &row.info.workspace, "ended", serde_json::json!({ "why": why }))?;
    Ok(())
}

/// Makes a running machine of a dead engine ours: same id, same processes.
async fn take_over(engine: &Arc<Engine>, dir: &Path, info: SandboxInfo) -> Result<(), String> {
    let gone = |error: &dyn std::error::Error| format!("it could not be taken over: {error}");
    if info.state == State::Hibernated {
        // Its machine had been saved, and may have outlived the engine that was about to end it.
        clear(dir).await;
        engine.store.give_sandbox(info.id.as_str(), engine.owner.id()).map_err(|error| gone(&error))?;
        return keep::start(engine, None, info).map(drop).ok_or_else(|| "the engine is closing".to_owned());
    }
    let machine = Machine::adopt(MachineDir::new(dir)).await.map_err(|error| gone(&error))?;
    let machine = machine.ok_or_else(|| "its machine had ended".to_owned())?;
    let link = async {
        let connection = machine.connect_control().await.map_err(|error| gone(&error))?;
        let greeting = Link::greet(connection).await.map_err(|error| gone(&error))?;
        // It may have been paused; asked for something, it runs.
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
    fs::write(dir.join(ENGINE_FILE), engine.owner.id()).map_err(|error| gone(&error))?;
    engine.store.give_sandbox(info.id.as_str(), engine.owner.id()).map_err(|error| gone(&error))?;
    let _ = engine.record(&info.id, &info.workspace, "taken_over", serde_json::json!({}));
    keep::start(engine, Some(Live { machine, link }), info).map(drop).ok_or_else(|| "the engine is closing".to_owned())
}

fn belongs_to_the_living(engines: &Path, dir: &Path) -> bool {
    match fs::read_to_string(dir.join(ENGINE_FILE)) {
        Ok(engine) => owner::is_alive(engines, engine.trim()),
        // Being made at this moment, perhaps: the file is written right after the directory.
        Err(_) => fs::metadata(dir)
            .and_then(|meta| meta.modified())
            .is_ok_and(|made| made.elapsed().is_ok_and(|age| age.as_secs() < 10)),
    }
}

async fn clear(dir: &Path) {
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
