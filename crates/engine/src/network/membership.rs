//! Whether a sandbox can join a group.

use super::change::{GroupChange, NetworkChange};
use super::error::NetworkError;
use super::networks::Networks;
use crate::model::{Membership, SandboxId, SandboxInfo};

/// A gateway has addresses for twice as many names, and some to spare.
const MOST_MEMBERS: usize = 100;

impl Networks {
    /// Whether a sandbox can be changed so, as far as that depends on others.
    pub(crate) fn check_change(&self, info: &SandboxInfo, change: &NetworkChange) -> Result<(), NetworkError> {
        match &change.group {
            Some(GroupChange::Join(wanted)) => self.check_membership(&info.workspace, Some(&info.id), wanted),
            Some(GroupChange::Leave) | None => Ok(()),
        }
    }

    /// Whether a sandbox can be in a group, under that name.
    pub(super) fn check_membership(
        &self,
        workspace: &str,
        own: Option<&SandboxId>,
        wanted: &Membership,
    ) -> Result<(), NetworkError> {
        if !wanted.is_valid() {
            return Err(NetworkError::GroupWords);
        }
        let networks = self.of_workspace(workspace);
        let others = networks.iter().filter(|network| Some(network.id()) != own);
        let others = others.filter_map(|network| network.settings().group);
        let others: Vec<Membership> = others.filter(|other| other.group == wanted.group).collect();
        if others.len() >= MOST_MEMBERS {
            return Err(NetworkError::GroupFull { most: MOST_MEMBERS });
        }
        match &wanted.hostname {
            Some(name) if others.iter().any(|other| other.hostname.as_ref() == Some(name)) => {
                Err(NetworkError::NameTaken(name.clone()))
            }
            _ => Ok(()),
        }
    }
}
