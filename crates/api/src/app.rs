//! What all requests share.

use std::sync::Arc;

use sandling_engine::Engine;
use sandling_service::Service;
use tokio::sync::watch;

use crate::activity::Activity;
use crate::e2b::Memory;
use crate::meter::Meter;
use crate::promise::Promises;

/// The state behind the routes. The rules are those of the engine and of the service.
pub struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) service: Arc<Service>,
    pub(crate) meter: Meter,
    pub(crate) promises: Promises,
    pub(crate) activity: Activity,
    pub(crate) e2b: Memory,
    closing: watch::Sender<bool>,
}

impl App {
    pub fn new(engine: Arc<Engine>, service: Arc<Service>) -> Arc<Self> {
        Arc::new(Self {
            engine,
            service,
            meter: Meter::new(),
            promises: Promises::default(),
            activity: Activity::new(),
            e2b: Memory::default(),
            closing: watch::Sender::new(false),
        })
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
