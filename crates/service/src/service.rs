//! All parts of the service over one home and its engine.

use std::io;
use std::sync::Arc;

use sandling_engine::Engine;
use sandling_engine::store::StoreError;
use sandling_wire::TOKEN_VARIABLE;

use crate::admission::Admission;
use crate::audit::{AuditLog, AuditRetention};
use crate::builds::Builds;
use crate::create_limiter::CreateLimiter;
use crate::idempotency::Idempotency;
use crate::presence::Presence;
use crate::previews::Previews;
use crate::request_limiter::RequestLimiter;
use crate::sandboxes::Sandboxes;
use crate::store::Store;
use crate::tokens::{LocalTokenError, Tokens};
use crate::volume_files::VolumeFiles;
use crate::workspaces::Workspaces;

/// The directory of the home that holds the secret of preview tokens.
const PREVIEWS: &str = "previews";

#[derive(Debug, Clone, Default)]
pub struct ServiceSettings {
    /// A token that is accepted as an operator's and never stored. An empty one counts as none.
    pub environment_token: Option<String>,
    pub audit: AuditRetention,
}

impl ServiceSettings {
    /// The defaults, with the token of this process's environment.
    pub fn from_environment() -> Self {
        Self { environment_token: std::env::var(TOKEN_VARIABLE).ok(), ..Self::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("the home directory cannot be used")]
    Home(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    LocalToken(#[from] LocalTokenError),
    #[error("the secret of preview tokens cannot be opened")]
    Previews(#[source] io::Error),
}

/// What a server decides and remembers. Several processes may have the same home open.
pub struct Service {
    pub tokens: Tokens,
    pub workspaces: Workspaces,
    pub admission: Arc<Admission>,
    pub create_limiter: Arc<CreateLimiter>,
    pub request_limiter: Arc<RequestLimiter>,
    pub sandboxes: Arc<Sandboxes>,
    pub volume_files: VolumeFiles,
    pub builds: Arc<Builds>,
    pub previews: Previews,
    pub idempotency: Idempotency,
    pub audit: AuditLog,
}

impl Service {
    /// Opens the home of an engine. The first time, this makes the first token.
    pub fn open(engine: Arc<Engine>, settings: ServiceSettings) -> Result<Arc<Self>, ServiceError> {
        let home = engine.config().home.clone();
        // A connection of its own, so that requests do not wait for what the engine writes.
        let store = Arc::new(Store::open(&home.store())?);
        let presence = Arc::new(Presence::announce(home.engines()).map_err(ServiceError::Home)?);
        let tokens = Tokens::new(store.clone(), settings.environment_token);
        tokens.ensure_local_token(&home)?;
        let admission = Arc::new(Admission::new(store.clone()));
        let create_limiter = Arc::new(CreateLimiter::new());
        let sandboxes = Arc::new(Sandboxes::new(engine.clone(), admission.clone(), create_limiter.clone()));
        let previews = Previews::open(&home.root().join(PREVIEWS), store.clone()).map_err(ServiceError::Previews)?;
        Ok(Arc::new(Self {
            tokens,
            workspaces: Workspaces::new(store.clone()),
            volume_files: VolumeFiles::new(engine.clone(), sandboxes.clone()),
            builds: Arc::new(Builds::open(engine, sandboxes.clone(), store.clone(), presence.clone())?),
            previews,
            idempotency: Idempotency::open(store.clone(), presence)?,
            audit: AuditLog::open(store, settings.audit)?,
            request_limiter: Arc::new(RequestLimiter::new(admission.clone())),
            admission,
            create_limiter,
            sandboxes,
        }))
    }
}
