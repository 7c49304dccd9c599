//! One home directory's access: what it is made of, and how it is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use sandling_engine::owner::Owner;
use sandling_engine::store::StoreError;
use sandling_wire::{Home, TOKEN_VARIABLE};

use crate::admission::Admission;
use crate::audit::{AuditRetention, PruneCounters};
use crate::store::Store;
use crate::tokens::{self, TokenError};

#[derive(Debug, Clone, Default)]
pub struct AccessSettings {
    /// A token that is accepted as an operator's and never stored. Empty is none.
    pub environment_token: Option<String>,
    pub audit: AuditRetention,
}

impl AccessSettings {
    /// The defaults, and the token of this process's environment.
    pub fn from_environment() -> Self {
        Self { environment_token: std::env::var(TOKEN_VARIABLE).ok(), ..Self::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("the home directory cannot be used")]
    Home(#[source] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the first token {path} cannot be kept")]
    LocalToken { path: PathBuf, source: std::io::Error },
    #[error("the first token cannot be made")]
    FirstToken(#[from] TokenError),
}

/// Who may do what in one home directory. Several processes may have it open.
pub struct Access {
    /// A connection of its own, so that a request is not kept waiting at the door by what the engine writes.
    pub(crate) store: Store,
    /// This process's sign of life, by which others know whether its requests still run.
    pub(crate) owner: Owner,
    pub(crate) engines: PathBuf,
    pub(crate) environment_token: Option<blake3::Hash>,
    pub(crate) admission: Admission,
    pub(crate) audit_retention: AuditRetention,
    pub(crate) audit_counters: PruneCounters,
    pub(crate) keys_begun: AtomicU32,
}

impl Access {
    /// Opens a prepared home. The first time, the first token is made.
    pub fn open(home: &Home, settings: AccessSettings) -> Result<Arc<Self>, AccessError> {
        let engines = home.engines();
        let access = Self {
            store: Store::open(&home.store())?,
            owner: Owner::new(&engines).map_err(AccessError::Home)?,
            engines,
            environment_token: settings.environment_token.filter(|t| !t.is_empty()).map(|t| tokens::hash(&t)),
            admission: Admission::default(),
            audit_retention: settings.audit,
            audit_counters: PruneCounters::default(),
            keys_begun: AtomicU32::new(0),
        };
        access.ensure_local_token(home)?;
        access.prune_all_audit()?;
        access.forget_old_keys()?;
        Ok(Arc::new(access))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::WorkspaceName;

    /// An opened home that is gone after the test.
    pub(crate) struct Fixture {
        pub(crate) access: Arc<Access>,
        pub(crate) home: Home,
        pub(crate) _dir: tempfile::TempDir,
    }

    impl Fixture {
        pub(crate) fn new() -> Self {
            Self::with(AccessSettings::default())
        }

        pub(crate) fn with(settings: AccessSettings) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let home = Home::new(dir.path().join("home"));
            home.prepare().unwrap();
            Self { access: Access::open(&home, settings).unwrap(), home, _dir: dir }
        }
    }

    pub(crate) fn workspace(name: &str) -> WorkspaceName {
        WorkspaceName::parse(name).unwrap()
    }
}
