//! The images of all workspaces of a home.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandling_engine::store::StoreError;
use sandling_engine::{Engine, FairSlots};
use sandling_oci::registry::{Client, RegistryError, RegistryOptions};

use super::access::{self, Owner};
use super::layers::Layers;
use super::locks::Locks;
use super::progress::{PullView, Pulls};
use super::settings::ImageSettings;
use crate::admission::Admission;
use crate::cache::Freed;
use crate::create_limiter::CreateLimiter;
use crate::sandboxes::Sandboxes;
use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// How many images are pulled at once, and how many for one workspace.
const PULLS: usize = 8;
const PULLS_PER_WORKSPACE: usize = 2;

/// Makes templates of OCI images.
pub struct Images {
    pub(super) engine: Arc<Engine>,
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) store: Arc<Store>,
    pub(super) settings: ImageSettings,
    pub(super) layers: Layers,
    pub(super) locks: Locks,
    pub(super) slots: Arc<FairSlots>,
    pub(super) pulls: Pulls,
    /// One for each workspace, because a client holds credentials and tokens.
    clients: Mutex<HashMap<WorkspaceName, Arc<Client>>>,
}

impl Images {
    pub(crate) fn new(
        engine: Arc<Engine>,
        sandboxes: Arc<Sandboxes>,
        store: Arc<Store>,
        settings: ImageSettings,
    ) -> Self {
        Self {
            layers: Layers::new(engine.config().home.layers()),
            engine,
            sandboxes,
            store,
            settings,
            locks: Locks::default(),
            slots: FairSlots::new(PULLS, PULLS_PER_WORKSPACE),
            pulls: Pulls::default(),
            clients: Mutex::default(),
        }
    }

    /// Opens the images of a home without the other parts of the service, for a command that runs without a server.
    pub fn without_server(engine: Arc<Engine>, settings: ImageSettings) -> Result<Arc<Self>, StoreError> {
        let store = Arc::new(Store::open(&engine.config().home.store())?);
        let admission = Arc::new(Admission::new(store.clone()));
        let sandboxes = Arc::new(Sandboxes::new(engine.clone(), admission, Arc::new(CreateLimiter::new())));
        Ok(Arc::new(Self::new(engine, sandboxes, store, settings)))
    }

    /// The pulls of a workspace that are in progress, oldest first.
    pub fn pulls(&self, workspace: &WorkspaceName) -> Vec<PullView> {
        self.pulls.of(workspace)
    }

    /// Removes what is kept for a workspace that was deleted.
    pub fn forget_workspace(&self, workspace: &WorkspaceName) {
        self.forget_client(workspace);
        self.layers.evict(workspace);
    }

    /// Removes layers that were not used for weeks or exceed the limits.
    pub(crate) fn trim_layers(&self) -> Freed {
        self.layers.trim()
    }

    /// Removes the layers that count against a workspace.
    pub(crate) fn evict_layers(&self, workspace: &WorkspaceName) -> Freed {
        self.layers.evict(workspace)
    }

    pub(super) fn client(&self, workspace: &WorkspaceName) -> Result<Arc<Client>, RegistryError> {
        let mut clients = self.clients();
        if let Some(client) = clients.get(workspace) {
            return Ok(client.clone());
        }
        let client = Arc::new(Client::new(self.options(workspace))?);
        clients.insert(workspace.clone(), client.clone());
        Ok(client)
    }

    /// The next pull begins with the credentials as they are then.
    pub(super) fn forget_client(&self, workspace: &WorkspaceName) {
        self.clients().remove(workspace);
    }

    pub(super) fn options(&self, workspace: &WorkspaceName) -> RegistryOptions {
        let owner = if workspace.is_default() { Owner::Operator } else { Owner::Tenant };
        let mirrors = self.settings.mirrors.values().flatten();
        let mirrors = mirrors.filter_map(|mirror| mirror.split('/').next()).map(str::to_owned);
        let allowed: BTreeSet<String> = self.settings.allowed.iter().cloned().chain(mirrors).collect();
        let opened = self.engine.config().network.opened.clone();
        RegistryOptions {
            credentials: self.credentials_of(workspace),
            mirrors: self.settings.mirrors.clone(),
            insecure: self.settings.allowed.clone(),
            extra_ca: self.settings.extra_ca.clone(),
            proxy: self.settings.proxy.clone(),
            ..RegistryOptions::new(access::rule(owner, allowed, opened))
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<WorkspaceName, Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
