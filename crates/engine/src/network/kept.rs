//! What a sandbox's gateway leaves to the next one: in memory through sleep, in the store through a restart.

use sandling_network::policy::Learned;
use sandling_network::{GatewayHandle, Pin};
use serde::{Deserialize, Serialize};

use super::counts::NetworkCounts;
use crate::engine::Engine;
use crate::sandbox::SandboxInfo;

/// What a sandbox's gateways leave to the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    pub(crate) pins: Vec<Pin>,
    pub(crate) counts: NetworkCounts,
    pub(crate) learned: Learned,
}

impl Kept {
    /// The same after another gateway.
    pub(super) fn after(&self, gateway: &GatewayHandle) -> Self {
        let counts = self.counts.and(&gateway.stats());
        Self { pins: gateway.pins(), counts, learned: gateway.learned() }
    }

    /// How many entries it has.
    pub(super) fn size(&self) -> usize {
        self.pins.len() + self.learned.count()
    }
}

impl Engine {
    /// What is written down for a sandbox's next gateway. One that has nothing pinned yet has its parent's pins; what it
    /// sends and learns is its own from the start.
    pub(crate) fn kept_of(&self, info: &SandboxInfo) -> Kept {
        let stored = |id: &str| {
            self.store.kept(id).unwrap_or_else(|error| {
                tracing::warn!(error = &error as &dyn std::error::Error, "what a gateway left cannot be read");
                Kept::default()
            })
        };
        let mut kept = stored(info.id.as_str());
        if let Some(parent) = info.parent.as_ref().filter(|_| kept.pins.is_empty()) {
            kept.pins = stored(parent.as_str()).pins;
        }
        kept
    }
}
