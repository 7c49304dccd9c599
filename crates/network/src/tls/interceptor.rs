//! The TLS configuration for intercepted connections, towards servers and towards the guest.

use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};

use super::authority::Authority;
use super::roots::{RootsError, TrustRoots};
use crate::name::HostName;

/// Creates the TLS configurations for intercepted connections.
pub(crate) struct Interceptor {
    authority: Arc<Authority>,
    pub client: Arc<ClientConfig>,
}

impl Interceptor {
    pub fn new(authority: Arc<Authority>, roots: &TrustRoots) -> Result<Interceptor, RootsError> {
        Ok(Interceptor { authority, client: Arc::new(roots.client()?) })
    }

    pub fn server(&self, name: &HostName) -> Option<ServerConfig> {
        let certified = self
            .authority
            .certify(name)
            .inspect_err(|error| tracing::error!(%error, "cannot create a certificate for an intercepted connection"))
            .ok()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(FixedCertificate(certified)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Some(config)
    }
}

/// Always returns the same certificate. The name has been judged before.
#[derive(Debug)]
struct FixedCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}
