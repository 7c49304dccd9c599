//! Chooses between an engine in this process and a server.

use std::sync::Arc;

use anyhow::{Context, bail};
use sandling_api::FleetSettings;
use sandling_engine::{Engine, EngineConfig, Home, NetworkConfig};
use sandling_fleet::node_tag;
use sandling_vmm::accelerator::AcceleratorChoice;

use crate::client::{Client, Origin, Version};
use crate::options::Common;

/// Opens an engine for the user's home in this process.
pub async fn open_engine(common: &Common) -> anyhow::Result<Arc<Engine>> {
    open_engine_with(common, NetworkConfig::default()).await
}

/// The same, with network settings.
pub async fn open_engine_with(common: &Common, network: NetworkConfig) -> anyhow::Result<Arc<Engine>> {
    Ok(Engine::open(EngineConfig { network, ..config(common)? }).await?)
}

pub fn config(common: &Common) -> anyhow::Result<EngineConfig> {
    let home = Home::from_environment().context("neither SANDLING_HOME nor HOME is set; set one of them")?;
    let node_tag = FleetSettings::load(&home)?.map(|fleet| node_tag(&fleet.name));
    let config = EngineConfig::new(home).context("cannot find the path of this program")?;
    Ok(EngineConfig { accelerator: common.accelerator, node_tag, ..config })
}

/// The server to use, if one is running with the requested accelerator.
pub async fn server_for(common: &Common) -> anyhow::Result<Option<Client>> {
    let Some(client) = Client::find()? else { return Ok(None) };
    let wanted = match common.accelerator {
        AcceleratorChoice::Auto => return Ok(Some(client)),
        AcceleratorChoice::Kvm => "kvm",
        AcceleratorChoice::Tcg => "tcg",
    };
    let Version { accelerator } = client.get("/version").await?;
    match client.server().origin {
        _ if accelerator == wanted => Ok(Some(client)),
        Origin::Home => Ok(None),
        Origin::Environment => {
            bail!("the server at {} uses {accelerator}, not {wanted}; leave out --accelerator", client.server().address)
        }
    }
}
