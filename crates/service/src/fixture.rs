//! The parts of the service that need no engine, in a home that is deleted after the test.

use std::sync::Arc;

use sandling_engine::owner::Owner;
use sandling_wire::Home;
use tempfile::TempDir;

use crate::admission::Admission;
use crate::audit::{AuditLog, AuditSettings};
use crate::idempotency::Idempotency;
use crate::store::Store;
use crate::tokens::Tokens;
use crate::workspaces::{WorkspaceName, Workspaces};

pub(crate) struct Fixture {
    pub(crate) store: Arc<Store>,
    pub(crate) owner: Arc<Owner>,
    pub(crate) tokens: Tokens,
    pub(crate) workspaces: Workspaces,
    pub(crate) admission: Arc<Admission>,
    pub(crate) audit: AuditLog,
    pub(crate) idempotency: Idempotency,
    pub(crate) home: Home,
    dir: Option<TempDir>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let (dir, home) = Self::empty_home();
        Self { dir: Some(dir), ..Self::open(&home) }
    }

    pub(crate) fn empty_home() -> (TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        home.prepare().unwrap();
        (dir, home)
    }

    /// Opens a home as one process does.
    pub(crate) fn open(home: &Home) -> Self {
        let store = Arc::new(Store::open(&home.store()).unwrap());
        let owner = Arc::new(Owner::new(&home.engines()).unwrap());
        let tokens = Tokens::new(store.clone(), None);
        tokens.ensure_local_token(home).unwrap();
        Self {
            tokens,
            workspaces: Workspaces::new(store.clone()),
            admission: Arc::new(Admission::new(store.clone())),
            audit: AuditLog::open(store.clone(), owner.clone(), AuditSettings::default()).unwrap(),
            idempotency: Idempotency::open(store.clone(), owner.clone()).unwrap(),
            home: home.clone(),
            dir: None,
            store,
            owner,
        }
    }

    /// The same home as a second process sees it.
    pub(crate) fn another_process(&self) -> Self {
        Self::open(&self.home)
    }

    /// The same home after this process has ended.
    pub(crate) fn restart(mut self) -> Self {
        let (dir, home) = (self.dir.take(), self.home.clone());
        drop(self);
        Self { dir, ..Self::open(&home) }
    }

    pub(crate) fn with_environment_token(self, token: &str) -> Self {
        Self { tokens: Tokens::new(self.store.clone(), Some(token.to_owned())), ..self }
    }

    pub(crate) fn with_audit(self, settings: AuditSettings) -> Self {
        Self { audit: AuditLog::open(self.store.clone(), self.owner.clone(), settings).unwrap(), ..self }
    }
}

pub(crate) fn workspace(name: &str) -> WorkspaceName {
    WorkspaceName::parse(name).unwrap()
}
