//! What the guest has yet to be told about its network.

use std::collections::VecDeque;
use std::sync::Arc;

use sandling_network::Authority;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};

use crate::model::NetworkSettings;
use crate::network::{Granted, NetworkChangeError, NetworkError};

pub(super) type Told = Result<Option<Arc<Authority>>, NetworkError>;
pub(super) type Answer = oneshot::Sender<Result<NetworkSettings, NetworkChangeError>>;

#[derive(Default)]
pub(super) struct Notices {
    /// The guest is being told about the first.
    pub(super) queue: VecDeque<Notice>,
    pub(super) telling: JoinSet<Told>,
}

#[derive(Default)]
pub(super) struct Notice {
    /// The sandbox gets these when the guest has been told.
    pub(super) granted: Granted,
    pub(super) answer: Option<Answer>,
}

impl Notices {
    /// Waits until the guest was told, or could not be. Returns `None` if nothing is being told.
    pub(super) async fn next(&mut self) -> Option<Result<Told, JoinError>> {
        self.telling.join_next().await
    }

    /// Gives only these secrets from now on.
    pub(super) fn give_only(&mut self, names: &[String]) {
        for notice in &mut self.queue {
            notice.granted.secrets.retain(|secret| names.contains(&secret.name));
        }
    }
}
