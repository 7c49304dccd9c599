//! What network a new sandbox asks for.

use sandling_network::policy::Policy;
use sandling_network::{HeaderRules, LimitRequest};

use super::error::NetworkError;
use crate::model::{AttachedSecret, Membership};
use crate::store::SecretRow;

/// A longer allow or deny list would slow down every connection.
const MOST_ENTRIES: usize = 512;

/// What network a new sandbox is to have.
#[derive(Debug, Clone, Default)]
pub struct NetworkSpec {
    /// Absent: it follows its template's default, then its workspace's, else it has none.
    pub policy: Option<Policy>,
    pub limits: LimitRequest,
    /// Secrets of its workspace, by name.
    pub secrets: Vec<String>,
    pub group: Option<Membership>,
    pub header_rules: HeaderRules,
}

impl AttachedSecret {
    /// Whether it is this secret, and not another that is called so by now.
    pub(super) fn is_of(&self, row: &SecretRow) -> bool {
        self.name == row.name && self.id == row.id
    }
}

pub(super) fn check(policy: &Policy) -> Result<(), NetworkError> {
    if policy.allow.len().max(policy.deny.len()) > MOST_ENTRIES {
        Err(NetworkError::TooLong { most: MOST_ENTRIES })
    } else {
        Ok(())
    }
}
