//! The certificate authorities that the gateway trusts for servers.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

/// The certificate authorities that are trusted for servers. Loaded once for all gateways of a daemon.
#[derive(Debug, Clone)]
pub struct TrustRoots(Arc<RootCertStore>);

/// Why the certificate authorities cannot be loaded.
#[derive(Debug, Error)]
pub enum RootsError {
    #[error("cannot read the certificates")]
    Pem(#[source] rustls::pki_types::pem::Error),
    #[error("a certificate does not belong to a certificate authority")]
    Certificate(#[source] rustls::Error),
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
}

impl TrustRoots {
    /// The authorities that the host trusts. Damaged certificates are skipped, as in other programs.
    pub fn of_the_host() -> TrustRoots {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "cannot read a certificate of the host; the gateway does not trust it");
        }
        let mut store = RootCertStore::empty();
        let (_, ignored) = store.add_parsable_certificates(found.certs);
        if ignored > 0 {
            tracing::debug!(ignored, "skipped damaged certificates of the host");
        }
        TrustRoots(Arc::new(store))
    }

    /// No authorities.
    pub fn none() -> TrustRoots {
        TrustRoots(Arc::new(RootCertStore::empty()))
    }

    /// These authorities, and those in `pem`, which the operator added.
    pub fn and(&self, pem: &str) -> Result<TrustRoots, RootsError> {
        let mut store = RootCertStore::clone(&self.0);
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            store.add(certificate.map_err(RootsError::Pem)?).map_err(RootsError::Certificate)?;
        }
        Ok(TrustRoots(Arc::new(store)))
    }

    /// The TLS client configuration. It offers HTTP/1.1 only, because that is what the gateway can rewrite.
    pub(super) fn client(&self) -> Result<ClientConfig, RootsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(RootsError::Tls)?.with_root_certificates(self.0.clone());
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}
