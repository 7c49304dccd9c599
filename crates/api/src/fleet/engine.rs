//! The etcd that a node runs for a fleet that was not given one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use sandling_engine::with_causes;
use sandling_fleet::own_etcd::{EtcdSettings, OwnEtcd};
use sandling_fleet::{Engine, EtcdLedger, Ledger};
use sandling_wire::Home;
use tokio::sync::{Mutex, MutexGuard};

use super::follow_engine::Said;
use super::member::Fleet;
use super::settings::{FleetError, FleetSettings};
use crate::tls::LocalCertificate;

const SCHEME: &str = "https://";
/// The name in etcd's certificate. No node has such a name.
const NAME: &str = "engine.sandling";
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("it is the name of a host")
}

/// Where a node runs the fleet's etcd: at the port after its own. Debian's etcd has its usual port already.
pub fn address_of_own_engine(node_address: &str) -> Option<String> {
    let (host, port) = node_address.rsplit_once(':')?;
    let port = port.parse::<u16>().ok()?.checked_add(1)?;
    Some(format!("{SCHEME}{host}:{port}"))
}

/// Where a node keeps the data of an etcd. Each generation has its own, so that none begins with those of another.
pub(super) fn directory(home: &Home, generation: u32) -> PathBuf {
    match generation {
        0 => home.fleet().join("engine"),
        _ => home.fleet().join(format!("engine-{generation}")),
    }
}

/// The etcd that this server runs, if it does.
pub(super) struct OwnEngine {
    launcher: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// When this node starts the fleet's etcd, or ends another one. Absent while it runs what it should.
    correct_at: Option<Instant>,
}

struct Running {
    engine: Engine,
    etcd: OwnEtcd,
}

/// While it exists, nobody else starts or ends this node's etcd.
pub(super) struct EngineTurn<'a> {
    launcher: &'a Path,
    state: MutexGuard<'a, State>,
}

impl OwnEngine {
    pub(super) fn new(launcher: &Path) -> Self {
        Self { launcher: launcher.to_owned(), state: Mutex::default() }
    }

    pub(super) async fn turn(&self) -> EngineTurn<'_> {
        EngineTurn { launcher: &self.launcher, state: self.state.lock().await }
    }
}

impl EngineTurn<'_> {
    /// Starts an etcd, unless it runs already.
    pub(super) async fn start(
        &mut self,
        settings: &FleetSettings,
        home: &Home,
        engine: &Engine,
    ) -> Result<(), FleetError> {
        if self.state.running.as_ref().is_some_and(|running| running.engine == *engine) {
            return Ok(());
        }
        self.stop().await;
        let directory = directory(home, engine.generation);
        LocalCertificate::at(&home.fleet()).create_elsewhere(&directory, NAME)?;
        let address = engine.endpoints.first().and_then(|url| url.strip_prefix(SCHEME)).unwrap_or(&settings.address);
        let mut found = tokio::net::lookup_host(address).await.map_err(FleetError::Engine)?;
        let none = || FleetError::Engine(io::Error::other(format!("{address} has no address")));
        let listen = found.next().ok_or_else(none)?;
        let etcd = EtcdSettings { launcher: self.launcher.to_owned(), directory, listen };
        let etcd = OwnEtcd::start(etcd).map_err(FleetError::Engine)?;
        self.state.running = Some(Running { engine: engine.clone(), etcd });
        Ok(())
    }

    pub(super) async fn stop(&mut self) {
        if let Some(Running { etcd, .. }) = self.state.running.take() {
            // It waits until etcd has ended.
            let _ = tokio::task::spawn_blocking(move || drop(etcd)).await;
        }
    }

    /// From then on, this node corrects which etcd it runs.
    pub(super) fn correct_at(&mut self, at: Instant) {
        self.state.correct_at = Some(at);
    }

    fn is_due(&self) -> bool {
        self.state.correct_at.is_some_and(|at| at <= Instant::now())
    }
}

impl Fleet {
    /// Starts the fleet's etcd if this node runs it, and returns its address. The other nodes are asked first: while this node
    /// was down, the fleet may have got another etcd.
    pub async fn start_engine(&self) -> Result<Option<String>, FleetError> {
        let runs_engine = || self.settings.would_run(&self.engine());
        if !runs_engine() {
            return Ok(None);
        }
        if self.ask_for_engine(self.known_nodes.all()).await == Said::Removed {
            tracing::warn!("this machine was removed from the fleet, so it does not start the fleet's etcd");
            return Ok(None);
        }
        if !runs_engine() {
            return Ok(None);
        }
        let engine = self.engine();
        self.own_engine.turn().await.start(&self.settings, &self.home, &engine).await?;
        Ok(engine.endpoints.first().cloned())
    }

    /// Runs the fleet's etcd if it is this node's, and no other one. What fails, or is dropped in between, is tried again by
    /// [`correct_engine`](Self::correct_engine).
    pub(super) async fn run_fleets_engine(&self, turn: &mut EngineTurn<'_>) -> Result<(), FleetError> {
        turn.correct_at(Instant::now());
        let engine = self.engine();
        match self.settings.would_run(&engine) {
            true => turn.start(&self.settings, &self.home, &engine).await?,
            false => turn.stop().await,
        }
        turn.state.correct_at = None;
        Ok(())
    }

    /// After a rebuild that nobody finished, or a start that failed, the fleet would have no etcd.
    pub(super) async fn correct_engine(&self) {
        let mut turn = self.own_engine.turn().await;
        if !turn.is_due() {
            return;
        }
        match self.run_fleets_engine(&mut turn).await {
            Ok(()) => tracing::warn!("a rebuild was not finished, or etcd did not start; now the fleet has its etcd"),
            Err(error) => tracing::error!(error = with_causes(&error), "cannot run the fleet's etcd; tries again"),
        }
    }

    /// Ends the etcd that this node runs, if it does.
    pub async fn stop_engine(&self) {
        self.own_engine.turn().await.stop().await;
    }
}

/// Waits for an etcd that has just started. If it does not start, the log says why.
pub(super) async fn wait_until_ready(ledger: &EtcdLedger) -> bool {
    let ready = async {
        while ledger.get("ready").await.is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(READY_WITHIN, ready).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_has_the_port_after_the_nodes() {
        assert_eq!(address_of_own_engine("10.0.0.1:7443").as_deref(), Some("https://10.0.0.1:7444"));
        assert_eq!(address_of_own_engine("[::1]:7443").as_deref(), Some("https://[::1]:7444"));
        for bad in ["10.0.0.1", "10.0.0.1:", "host:65535", "host:x"] {
            assert_eq!(address_of_own_engine(bad), None, "{bad}");
        }
    }
}
