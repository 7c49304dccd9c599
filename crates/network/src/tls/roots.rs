//! Whom the gateway trusts when it opens TLS to a server.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

/// The certificate authorities of servers. Made once for all gateways of a daemon.
#[derive(Debug, Clone)]
pub struct TrustRoots(Arc<RootCertStore>);

/// Why authorities cannot be trusted.
#[derive(Debug, Error)]
pub enum RootsError {
    #[error("cannot read the certificates")]
    Pem(#[source] rustls::pki_types::pem::Error),
    #[error("a certificate is not one of an authority")]
    Certificate(#[source] rustls::Error),
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

impl TrustRoots {
    /// The authorities that the host trusts. Damaged ones are left out, as every other program does.
    pub fn of_the_host() -> TrustRoots {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a certificate of the host cannot be read");
        }
        let mut store = RootCertStore::empty();
        let (_, ignored) = store.add_parsable_certificates(found.certs);
        if ignored > 0 {
            tracing::debug!(ignored, "certificates of the host were left out");
        }
        TrustRoots(Arc::new(store))
    }

    /// Nobody.
    pub fn none() -> TrustRoots {
        TrustRoots(Arc::new(RootCertStore::empty()))
    }

    /// The same and the authorities in `pem`, which the operator added.
    pub fn and(&self, pem: &str) -> Result<TrustRoots, RootsError> {
        let mut store = RootCertStore::clone(&self.0);
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            store.add(certificate.map_err(RootsError::Pem)?).map_err(RootsError::Certificate)?;
        }
        Ok(TrustRoots(Arc::new(store)))
    }

    /// TLS to servers under these authorities, for HTTP/1.1 only: that is what can be rewritten here.
    pub(super) fn client(&self) -> Result<ClientConfig, RootsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(RootsError::Tls)?.with_root_certificates(self.0.clone());
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}
