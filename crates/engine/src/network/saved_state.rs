//! What a sandbox's gateway leaves to the next one: in memory through sleep, in the store through a restart.

use sandling_network::GatewayHandle;

use super::shared::Shared;
use crate::model::{SandboxInfo, SavedState};

impl SavedState {
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

impl Shared {
    /// What is written down for a sandbox's next gateway. One that has nothing pinned yet has its parent's pins; what it
    /// sends and learns is its own from the start.
    pub(super) fn saved_state_of(&self, info: &SandboxInfo) -> SavedState {
        let stored = |id: &str| {
            self.store.kept(id).unwrap_or_else(|error| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not read the saved state of a gateway; its pins and counts start anew"
                );
                SavedState::default()
            })
        };
        let mut saved = stored(info.id.as_str());
        if let Some(parent) = info.parent.as_ref().filter(|_| saved.pins.is_empty()) {
            saved.pins = stored(parent.as_str()).pins;
        }
        saved
    }
}
