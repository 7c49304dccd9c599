//! What all requests share.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use sandling_engine::Engine;
use sandling_service::Access;
use tokio::sync::watch;

use crate::activity::Activity;
use crate::build::Builds;
use crate::closing::Closing;
use crate::meter::Meter;
use crate::preview::Ledger;
use crate::turns::Turns;

/// The directory of the home that previews keep their secret in.
const PREVIEWS: &str = "previews";

/// The server's state behind its routes. It knows the engine and who may do what; it owns neither's rules.
pub struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) access: Arc<Access>,
    pub(crate) previews: Ledger,
    pub(crate) builds: Builds,
    pub(crate) meter: Meter,
    pub(crate) turns: Turns,
    pub(crate) activity: Activity,
    dialect_states: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    /// Held while a machine is found for a volume's files.
    pub(crate) opening: tokio::sync::Mutex<()>,
    closing: watch::Sender<bool>,
}

impl App {
    /// What previews need, and how builds went, is kept in the engine's home.
    pub fn new(engine: Arc<Engine>, access: Arc<Access>) -> io::Result<Arc<Self>> {
        let previews = Ledger::open(&engine.config().home.root().join(PREVIEWS), access.clone())?;
        let builds = Builds::open(access.clone()).map_err(io::Error::other)?;
        Ok(Arc::new(Self {
            engine,
            access,
            previews,
            builds,
            meter: Meter::new(),
            turns: Turns::new(),
            activity: Activity::new(),
            dialect_states: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            closing: watch::Sender::new(false),
        }))
    }

    /// State that one dialect keeps between requests. Only the dialect knows its type.
    pub(crate) fn dialect_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut states = self.dialect_states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        state.downcast().expect("a state is stored under its own type")
    }

    pub(crate) fn closing(&self) -> Closing {
        Closing::of(&self.closing)
    }

    pub(crate) fn close_streams(&self) {
        self.closing.send_replace(true);
    }
}
