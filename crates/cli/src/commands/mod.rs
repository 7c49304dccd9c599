//! One file per command.

pub mod completions;
pub mod doctor;
pub mod run;
pub mod serve;
pub mod template;

use std::sync::Arc;

use anyhow::Context;
use sandling_engine::{Engine, EngineConfig, Home};

use crate::options::Common;

/// The engine of the user's home, in this process.
async fn open_engine(common: &Common) -> anyhow::Result<Arc<Engine>> {
    Ok(Engine::open(config(common)?).await?)
}

fn config(common: &Common) -> anyhow::Result<EngineConfig> {
    let home = Home::from_environment().context("neither SANDLING_HOME nor HOME is set")?;
    let config = EngineConfig::new(home).context("this program's own path is unknown")?;
    Ok(EngineConfig { accelerator: common.accelerator, ..config })
}
