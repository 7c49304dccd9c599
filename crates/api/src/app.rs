//! What all requests share.

use std::io;
use std::sync::Arc;

use sandling_engine::Engine;
use sandling_service::Access;
use tokio::sync::watch;

use crate::activity::Activity;
use crate::build::Builds;
use crate::e2b::Memory;
use crate::meter::Meter;
use crate::preview::Ledger;
use crate::promise::Promises;
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
    pub(crate) promises: Promises,
    pub(crate) activity: Activity,
    pub(crate) e2b: Memory,
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
            promises: Promises::default(),
            activity: Activity::new(),
            e2b: Memory::default(),
            opening: tokio::sync::Mutex::default(),
            closing: watch::Sender::new(false),
        }))
    }

    pub(crate) fn closing(&self) -> Closing {
        Closing::of(&self.closing)
    }

    pub(crate) fn close_streams(&self) {
        self.closing.send_replace(true);
    }
}

/// The moment when the server begins to drain. What would never end by itself watches it.
#[derive(Clone)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closing {
    pub(crate) fn of(sender: &watch::Sender<bool>) -> Self {
        Self(sender.subscribe())
    }

    pub(crate) async fn reached(&mut self) {
        // A sender that is gone means the same.
        let _ = self.0.wait_for(|closing| *closing).await;
    }
}
