//! What a node stores about its fleet, in the `fleet` directory of the home.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sandling_fleet::store::{StoreError, StoreLocation};
use sandling_fleet::{BootClock, Engine, EtcdLedger};
use sandling_wire::Home;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsConnector;

use super::engine;
use crate::tls::{LocalCertificate, Tls, TlsError, machine_name};

/// How long the ledger may take to answer.
const LEDGER_WITHIN: std::time::Duration = std::time::Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("{0}")]
    Refused(String),
    #[error("cannot read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path} cannot be read; remove it and join the fleet again")]
    Settings { path: PathBuf, source: serde_json::Error },
    #[error("the fleet's certificates cannot be used")]
    Tls(#[from] TlsError),
    #[error("the fleet's certificates cannot be used: {0}")]
    Certificates(String),
    #[error("the fleet's store cannot be used")]
    Store(#[source] StoreError),
    #[error("cannot start the fleet's etcd")]
    Engine(#[source] io::Error),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FleetSettings {
    /// The node's name.
    pub name: String,
    /// Where other nodes reach this one.
    pub address: String,
    /// Addresses of etcd, such as `http://10.0.0.1:2379`. With `https`, etcd has a certificate of the fleet.
    pub engine: Vec<String>,
    /// How often the fleet was rebuilt with another etcd.
    #[serde(default)]
    pub engine_generation: u32,
    /// Whether this node's server runs the fleet's etcd.
    #[serde(default)]
    pub runs_engine: bool,
    /// Tells this machine from another one with the same name.
    pub fingerprint: String,
    /// Where the fleet keeps what is durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreLocation>,
    /// When this machine became a node, in milliseconds since 1970.
    #[serde(default)]
    pub joined_ms: i64,
}

impl FleetSettings {
    /// `None` if the home belongs to no fleet.
    pub fn load(home: &Home) -> Result<Option<Self>, FleetError> {
        let path = home.fleet().join("fleet.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FleetError::File { path, source }),
        };
        let mut settings: Self =
            serde_json::from_slice(&text).map_err(|source| FleetError::Settings { path, source })?;
        if settings.joined_ms == 0 {
            // Settings of an earlier version lack it. What this machine deleted before may be older than its fleet.
            settings.joined_ms = Timestamp::now().as_millisecond();
            settings.write(home)?;
        }
        Ok(Some(settings))
    }

    /// Stores the settings. The certificate authority is created unless it is there already.
    pub fn store(&self, home: &Home) -> Result<(), FleetError> {
        self.certificate(home)?;
        self.write(home)
    }

    fn write(&self, home: &Home) -> Result<(), FleetError> {
        let path = home.fleet().join("fleet.json");
        let text = serde_json::to_string_pretty(self).expect("settings have only text");
        replace(&path, text.as_bytes()).map_err(|source| FleetError::File { path, source })
    }

    /// The etcd that the fleet uses, as far as this node knows.
    pub fn engine(&self) -> Engine {
        Engine { generation: self.engine_generation, endpoints: self.engine.clone() }
    }

    /// Stores that the fleet uses another etcd.
    pub(super) fn store_engine(&self, home: &Home, engine: &Engine) -> Result<(), FleetError> {
        let Engine { generation, endpoints } = engine.clone();
        let runs_engine = self.would_run(engine);
        Self { engine: endpoints, engine_generation: generation, runs_engine, ..self.clone() }.write(home)
    }

    /// Whether an etcd is one that this node's server runs.
    pub(super) fn would_run(&self, engine: &Engine) -> bool {
        engine::address_of_own_engine(&self.address).is_some_and(|own| engine.endpoints == [own])
    }

    pub fn ledger(&self, home: &Home) -> Result<EtcdLedger, FleetError> {
        self.ledger_at(home, self.engine())
    }

    /// An etcd that may not be the fleet's yet. Before it is a node, this machine can use only those without TLS.
    pub(super) fn ledger_at(&self, home: &Home, engine: Engine) -> Result<EtcdLedger, FleetError> {
        let is_plain = engine.endpoints.iter().all(|address| address.starts_with("http://"));
        match NodeTls::read(&LocalCertificate::at(&home.fleet())) {
            Ok(files) => Ok(EtcdLedger::new(engine, engine::server_name(), files.client()?, LEDGER_WITHIN)),
            Err(_) if is_plain => Ok(EtcdLedger::plain(engine, LEDGER_WITHIN)),
            Err(error) => Err(error),
        }
    }

    pub(super) fn connector(&self, home: &Home) -> Result<TlsConnector, FleetError> {
        NodeTls::read(&LocalCertificate::at(&home.fleet()))?.connector()
    }

    /// A new certificate of this node. Each start makes one, so that none expires.
    pub(super) fn certificate(&self, home: &Home) -> Result<LocalCertificate, FleetError> {
        let names = vec![server_name(&self.name), machine_name(&self.fingerprint)];
        Ok(LocalCertificate::create_for_node(&home.fleet(), names)?)
    }

    /// TLS for connections from nodes, and for connections to them.
    pub(super) fn tls(&self, home: &Home) -> Result<(Tls, TlsConnector), FleetError> {
        let files = NodeTls::read(&self.certificate(home)?)?;
        Ok((Tls::for_nodes(files.server()?), files.connector()?))
    }
}

/// A node's certificate and key, and the authority that it trusts.
pub(super) struct NodeTls {
    pub(super) chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl NodeTls {
    pub(super) fn read(files: &LocalCertificate) -> Result<Self, FleetError> {
        let chain = CertificateDer::pem_file_iter(files.certificate());
        let chain = chain.and_then(|chain| chain.collect::<Result<_, _>>()).map_err(unusable)?;
        let key = PrivateKeyDer::from_pem_file(files.key()).map_err(unusable)?;
        let path = files.authority_certificate();
        let authority = fs::read(&path).map_err(|source| FleetError::File { path, source })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(Self { chain, key, roots: Arc::new(roots(&authority)?), provider })
    }

    /// Accepts clients without a certificate, too: they can join.
    fn server(&self) -> Result<ServerConfig, FleetError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), self.provider.clone());
        let verifier = verifier.allow_unauthenticated().build().map_err(unusable)?;
        ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(unusable)
    }

    pub(super) fn connector(&self) -> Result<TlsConnector, FleetError> {
        Ok(TlsConnector::from(Arc::new(self.client()?)))
    }

    pub(super) fn verifier(&self) -> Result<Arc<WebPkiServerVerifier>, FleetError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots.clone(), self.provider.clone());
        verifier.build().map_err(unusable)
    }

    fn client(&self) -> Result<ClientConfig, FleetError> {
        ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(unusable)
    }
}

/// Writes a file anew. A reader, even after a power failure, finds the old content or the new.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

pub(super) fn unusable(error: impl std::fmt::Display) -> FleetError {
    FleetError::Certificates(error.to_string())
}

/// The name in a node's certificate.
pub(super) fn server_name(node: &str) -> String {
    format!("{node}.fleet.sandling")
}

pub(super) fn roots(authority_pem: &[u8]) -> Result<RootCertStore, FleetError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority_pem) {
        roots.add(certificate.map_err(unusable)?).map_err(unusable)?;
    }
    Ok(roots)
}

pub(super) type Membership = sandling_fleet::Membership<EtcdLedger, BootClock>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_the_time_of_joining_get_it_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        fs::create_dir_all(home.fleet()).unwrap();
        let old = r#"{"name":"a","address":"10.0.0.1:7443","engine":[],"fingerprint":"f"}"#;
        fs::write(home.fleet().join("fleet.json"), old).unwrap();
        let before = Timestamp::now().as_millisecond();
        let joined_ms = || FleetSettings::load(&home).unwrap().unwrap().joined_ms;
        let first = joined_ms();
        assert!(first >= before);
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(joined_ms(), first);
    }

    const GOLDEN: [&str; 2] =
        [include_str!("../../tests/golden/v1/fleet.json"), include_str!("../../tests/golden/v1/fleet-rebuilt.json")];

    #[test]
    fn settings_of_before_and_after_a_rebuild_are_read() {
        let [before, after] = GOLDEN.map(|text| serde_json::from_str::<FleetSettings>(text).unwrap());
        assert_eq!(before.engine(), Engine::first(vec!["https://10.0.0.1:7444".to_owned()]));
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        fs::create_dir_all(home.fleet()).unwrap();
        before.store_engine(&home, &after.engine()).unwrap();
        let written = fs::read_to_string(home.fleet().join("fleet.json")).unwrap();
        assert_eq!(written.trim(), GOLDEN[1].trim(), "the format has changed");
        assert!(before.runs_engine && !after.runs_engine, "the other node runs etcd now");
    }
}
