//! The network of a sandbox, as its handle shows and changes it.

use sandling_network::policy::Policy;
use tokio::sync::{broadcast, oneshot};

use super::command::Command;
use super::handle::Sandbox;
use crate::model::{EffectivePolicy, NetworkSettings};
use crate::network::{CountsView, NetworkChange, NetworkChangeError, NetworkError, NetworkEvent};

impl Sandbox {
    /// Its own settings, including the names of its secrets.
    pub fn network(&self) -> NetworkSettings {
        self.network.settings()
    }

    /// What it may reach and use, including what follows from defaults.
    pub fn effective_policy(&self) -> EffectivePolicy {
        self.network.effective()
    }

    /// What went through its gateways so far.
    pub fn network_counts(&self) -> CountsView {
        self.network.counts()
    }

    /// The policy that would have allowed what it used while it learned.
    pub fn learned_policy(&self) -> Policy {
        self.network.learned_policy()
    }

    /// The newest decisions of its gateways after the event of this number, at most `most`, oldest first.
    pub fn network_events(&self, after: u64, most: usize) -> Vec<NetworkEvent> {
        self.network.feed().after(after, most)
    }

    /// The decisions of its gateways from now on.
    pub fn subscribe_network(&self) -> broadcast::Receiver<NetworkEvent> {
        self.network.feed().subscribe()
    }

    /// Changes its policy, limits, group or secrets. When this returns, the change applies, also to open connections.
    /// New secrets need the guest's cooperation; everything else applies whatever the guest does.
    pub async fn change_network(&self, change: NetworkChange) -> Result<NetworkSettings, NetworkChangeError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command::SetNetwork { change, answer }).await.map_err(|_| NetworkError::Ended)?;
        answered.await.unwrap_or(Err(NetworkError::Ended.into()))
    }
}
