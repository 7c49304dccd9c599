//! Which certificates registries may show.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::error::RegistryError;

/// Trusts the system's certificates and these. A system without any can still use `extra_ca`.
pub(super) fn connector(extra_ca: &[u8]) -> Result<TlsConnector, RegistryError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in CertificateDer::pem_slice_iter(extra_ca) {
        let certificate = certificate.map_err(|error| RegistryError::Certificates(error.to_string()))?;
        roots.add(certificate).map_err(|error| RegistryError::Certificates(error.to_string()))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| RegistryError::Certificates(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
