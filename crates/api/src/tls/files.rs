//! Reads a certificate and its key from PEM files, and notices when they change.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: pem::Error },
    #[error("{path} has no certificate")]
    NoCertificate { path: PathBuf },
    #[error("the certificate in {certificate} and the key in {key} cannot be used together")]
    Mismatch { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot create a certificate, or use the authority in {path}")]
    Authority { path: PathBuf, source: rcgen::Error },
}

/// A certificate, with the chain to its authority, and its key.
#[derive(Debug, Clone)]
pub(super) struct CertificateFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Changes whenever one of the files is written or replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fingerprint([Option<(u64, u64, i64, i64)>; 2]);

impl CertificateFiles {
    pub(super) fn load(&self) -> Result<CertifiedKey, TlsError> {
        let unreadable = |path: &Path, source| TlsError::Read { path: path.to_owned(), source };
        let chain: Vec<_> = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(|certificates| certificates.collect::<Result<_, _>>())
            .map_err(|source| unreadable(&self.certificate, source))?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate { path: self.certificate.clone() });
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|source| unreadable(&self.key, source))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|source| TlsError::Mismatch {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint([&self.certificate, &self.key].map(|path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        }))
    }
}
