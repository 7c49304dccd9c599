//! All parts of the service over one home and its engine.

use std::io;
use std::sync::Arc;

use sandling_engine::Engine;
use sandling_engine::owner::Owner;
use sandling_engine::store::StoreError;
use sandling_wire::TOKEN_VARIABLE;

use crate::admission::Admission;
use crate::agent_runs::AgentRuns;
use crate::audit::{AuditLog, AuditOpenError, AuditSettings};
use crate::builds::Builds;
use crate::create_limiter::CreateLimiter;
use crate::derived_tokens::DerivedTokens;
use crate::garbage::GarbageCollector;
use crate::idempotency::Idempotency;
use crate::images::{ImageSettings, Images};
use crate::metrics::MetricHistory;
use crate::previews::Previews;
use crate::request_limiter::RequestLimiter;
use crate::sandboxes::Sandboxes;
use crate::store::Store;
use crate::tokens::{LocalTokenError, Tokens};
use crate::volume_files::VolumeFiles;
use crate::webhooks::{WebhookAddresses, Webhooks};
use crate::workspaces::Workspaces;

#[derive(Clone, Default)]
pub struct ServiceSettings {
    /// A token that is accepted as an operator's and never stored. An empty one counts as none.
    pub environment_token: Option<String>,
    pub audit: AuditSettings,
    pub images: ImageSettings,
    /// Whether webhooks may send to private addresses.
    pub webhooks_allow_private: bool,
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
    #[error(transparent)]
    Audit(#[from] AuditOpenError),
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
    pub images: Arc<Images>,
    pub volume_files: VolumeFiles,
    pub builds: Arc<Builds>,
    pub garbage: Arc<GarbageCollector>,
    pub metrics: Arc<MetricHistory>,
    pub agent_runs: AgentRuns,
    pub webhooks: Arc<Webhooks>,
    pub previews: Previews,
    pub derived_tokens: DerivedTokens,
    pub idempotency: Idempotency,
    pub audit: AuditLog,
    pub(crate) store: Arc<Store>,
}

impl Service {
    /// Opens the home of an engine. The first time, this makes the first token.
    pub fn open(engine: Arc<Engine>, settings: ServiceSettings) -> Result<Arc<Self>, ServiceError> {
        let home = engine.config().home.clone();
        // A connection of its own, so that requests do not wait for what the engine writes.
        let store = Arc::new(Store::open(&home.store())?);
        let owner = Arc::new(Owner::new(&home.engines()).map_err(ServiceError::Home)?);
        let tokens = Tokens::new(store.clone(), settings.environment_token);
        tokens.ensure_local_token(&home)?;
        let admission = Arc::new(Admission::new(store.clone()));
        let create_limiter = Arc::new(CreateLimiter::new());
        let sandboxes = Arc::new(Sandboxes::new(engine.clone(), admission.clone(), create_limiter.clone()));
        let images = Arc::new(Images::new(engine.clone(), sandboxes.clone(), store.clone(), settings.images));
        let opened = engine.config().network.opened.clone();
        let addresses = WebhookAddresses { opened, allow_private: settings.webhooks_allow_private };
        let previews =
            Previews::open(&home.previews(), store.clone(), tokens.clone()).map_err(ServiceError::Previews)?;
        let workspaces = Workspaces::new(store.clone());
        let builds = Builds::open(engine.clone(), sandboxes.clone(), images.clone(), store.clone(), owner.clone())?;
        let builds = Arc::new(builds);
        let garbage =
            GarbageCollector::new(engine.clone(), images.clone(), builds.clone(), Workspaces::new(store.clone()));
        Ok(Arc::new(Self {
            workspaces,
            garbage: Arc::new(garbage),
            agent_runs: AgentRuns::new(home.transcripts()),
            metrics: Arc::new(MetricHistory::new(home.metrics())),
            webhooks: Webhooks::new(engine.clone(), store.clone(), addresses),
            volume_files: VolumeFiles::new(engine, sandboxes.clone()),
            builds,
            images,
            derived_tokens: DerivedTokens::new(previews.key(), tokens.clone()),
            previews,
            idempotency: Idempotency::open(store.clone(), owner.clone())?,
            audit: AuditLog::open(store.clone(), owner, settings.audit)?,
            store,
            tokens,
            request_limiter: Arc::new(RequestLimiter::new(admission.clone())),
            admission,
            create_limiter,
            sandboxes,
        }))
    }
}
