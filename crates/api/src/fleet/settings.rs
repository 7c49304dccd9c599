//! What a node stores about its fleet, in the `fleet` directory of the home.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sandling_fleet::{BootClock, EtcdLedger};
use sandling_wire::Home;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsConnector;

use crate::tls::{LocalCertificate, Tls, TlsError};

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
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FleetSettings {
    /// The node's name.
    pub name: String,
    /// Where other nodes reach this one.
    pub address: String,
    /// Addresses of etcd, such as `http://10.0.0.1:2379`.
    pub engine: Vec<String>,
    /// Tells this machine from another one with the same name.
    pub fingerprint: String,
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
        serde_json::from_slice(&text).map(Some).map_err(|source| FleetError::Settings { path, source })
    }

    /// Stores the settings. The certificate authority is created unless it is there already.
    pub fn store(&self, home: &Home) -> Result<(), FleetError> {
        self.certificate(home)?;
        let path = home.fleet().join("fleet.json");
        let text = serde_json::to_string_pretty(self).expect("settings have only text");
        fs::write(&path, text).map_err(|source| FleetError::File { path, source })
    }

    pub fn ledger(&self) -> EtcdLedger {
        EtcdLedger::new(self.engine.clone(), LEDGER_WITHIN)
    }

    /// A new certificate of this node. Each start makes one, so that none expires.
    pub(super) fn certificate(&self, home: &Home) -> Result<LocalCertificate, FleetError> {
        Ok(LocalCertificate::create_for_node(&home.fleet(), server_name(&self.name))?)
    }

    /// TLS for connections from nodes, and for connections to them.
    pub(super) fn tls(&self, home: &Home) -> Result<(Tls, TlsConnector), FleetError> {
        let certificate = self.certificate(home)?;
        let unusable = |error: &dyn std::fmt::Display| FleetError::Certificates(error.to_string());
        let chain = || -> Result<Vec<_>, FleetError> {
            let chain = CertificateDer::pem_file_iter(certificate.certificate());
            chain.and_then(|chain| chain.collect::<Result<_, _>>()).map_err(|error| unusable(&error))
        };
        let key =
            || rustls::pki_types::PrivateKeyDer::from_pem_file(certificate.key()).map_err(|error| unusable(&error));
        let authority = fs::read(certificate.authority_certificate());
        let path = certificate.authority_certificate();
        let roots = Arc::new(roots(&authority.map_err(|source| FleetError::File { path, source })?)?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| unusable(&error))?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_client_cert_verifier(verifier))
            .map_err(|error| unusable(&error))?
            .with_single_cert(chain()?, key()?)
            .map_err(|error| unusable(&error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain()?, key()?)
            .map_err(|error| unusable(&error))?;
        Ok((Tls::for_nodes(server), TlsConnector::from(Arc::new(client))))
    }
}

/// The name in a node's certificate.
pub(super) fn server_name(node: &str) -> String {
    format!("{node}.fleet.sandling")
}

pub(super) fn roots(authority_pem: &[u8]) -> Result<RootCertStore, FleetError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority_pem) {
        let certificate = certificate.map_err(|error| FleetError::Certificates(error.to_string()))?;
        roots.add(certificate).map_err(|error| FleetError::Certificates(error.to_string()))?;
    }
    Ok(roots)
}

pub(super) type Membership = sandling_fleet::Membership<EtcdLedger, BootClock>;
