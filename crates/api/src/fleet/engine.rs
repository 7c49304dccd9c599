//! The etcd that the first node runs for a fleet that was not given one.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustls::pki_types::ServerName;
use sandling_fleet::own_etcd::{EtcdSettings, OwnEtcd};
use sandling_fleet::{EtcdLedger, Ledger};
use sandling_wire::Home;

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

/// Starts the fleet's etcd if this node runs it. It ends when the result is dropped.
pub async fn start_engine(
    settings: &FleetSettings,
    home: &Home,
    launcher: &Path,
) -> Result<Option<OwnEtcd>, FleetError> {
    if !settings.runs_engine {
        return Ok(None);
    }
    let directory = home.fleet().join("engine");
    LocalCertificate::at(&home.fleet()).create_elsewhere(&directory, NAME)?;
    let address = settings.engine.first().and_then(|url| url.strip_prefix(SCHEME)).unwrap_or_default();
    let mut found = tokio::net::lookup_host(address).await.map_err(FleetError::Engine)?;
    let none = || FleetError::Engine(io::Error::other(format!("{address} has no address")));
    let listen = found.next().ok_or_else(none)?;
    let settings = EtcdSettings { launcher: launcher.to_owned(), directory, listen };
    OwnEtcd::start(settings).map(Some).map_err(FleetError::Engine)
}

/// Waits for an etcd that has just started. If it does not start, the log says why.
pub(super) async fn wait_until_ready(ledger: &EtcdLedger) {
    let ready = async {
        while ledger.get("ready").await.is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let _ = tokio::time::timeout(READY_WITHIN, ready).await;
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
