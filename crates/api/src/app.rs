//! What all requests share.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sandling_engine::{Engine, State};
use sandling_service::{Build, Service};
use tokio::sync::watch;

use crate::activity::Activity;
use crate::cell_lanes::CellLanes;
use crate::closing::Closing;
use crate::error::ApiError;
use crate::live_requests::LiveRequests;
use crate::meter::Meter;

/// How often an idle server checks whether it is still idle.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The state behind the routes. The rules are those of the engine and of the service.
pub struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) service: Arc<Service>,
    pub(crate) meter: Meter,
    pub(crate) activity: Activity,
    pub(crate) live_requests: LiveRequests,
    pub(crate) cell_lanes: CellLanes,
    domain: OnceLock<String>,
    dialect_states: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    closing: watch::Sender<bool>,
}

impl App {
    /// The domain of the server and its port, if it has one.
    pub(crate) fn domain(&self) -> Option<&str> {
        self.domain.get().map(String::as_str)
    }

    pub(crate) fn set_domain(&self, domain: String) {
        // The first listener's domain stays.
        let _ = self.domain.set(domain);
    }

    pub fn new(engine: Arc<Engine>, service: Arc<Service>) -> Arc<Self> {
        Arc::new(Self {
            engine,
            service,
            meter: Meter::new(),
            domain: OnceLock::new(),
            activity: Activity::new(),
            live_requests: LiveRequests::default(),
            cell_lanes: CellLanes::default(),
            dialect_states: Mutex::default(),
            closing: watch::Sender::new(false),
        })
    }

    /// State that one dialect keeps between requests. Only the dialect knows its type.
    pub(crate) fn dialect_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut states = self.dialect_states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        state.downcast().expect("a state is stored under its own type")
    }

    /// A build of a workspace.
    pub(crate) fn build(&self, workspace: &str, id: &str) -> Result<Arc<Build>, ApiError> {
        self.service.builds.registry.find(workspace, id).ok_or_else(|| ApiError::not_found("build"))
    }

    /// Ends the requests in progress whose tokens no longer work.
    pub(crate) fn end_unauthorized(&self) {
        self.live_requests.sweep(&self.service);
    }

    pub(crate) fn closing(&self) -> Closing {
        Closing::of(&self.closing)
    }

    pub(crate) fn close_streams(&self) {
        self.closing.send_replace(true);
    }

    /// Returns after this time without a request, a build or a running sandbox. An endless stream either follows a
    /// running sandbox or may be cut off.
    pub async fn idle(&self, after: Duration) {
        loop {
            if self.is_needed() {
                self.activity.touch();
            }
            if self.activity.quiet() >= after {
                return;
            }
            tokio::time::sleep(LOOK_EVERY.min(after)).await;
        }
    }

    fn is_needed(&self) -> bool {
        let runs = |state| !matches!(state, State::Hibernated | State::Ended | State::Unreadable);
        self.activity.is_busy()
            || self.service.builds.registry.any_running()
            || self.engine.list().iter().any(|sandbox| runs(sandbox.state))
    }
}
