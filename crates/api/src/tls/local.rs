//! A certificate authority of this home, for servers without a public name.
//!
//! The authority stays the same, so clients trust it once. Each start makes a new certificate, because the domain or
//! the address may have changed.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};
use sandling_network::is_certificate_of;

use super::acceptor::Tls;
use super::files::TlsError;

/// The authority's name. A stored certificate is not parsed, so every authority must have this name.
const COMMON_NAME: &str = "Sandling local authority";
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Clocks of clients differ.
const BEFORE_DAYS: i32 = 2;
const AUTHORITY_DAYS: i32 = 3650;
/// Some systems accept no certificate that is valid for longer than 825 days.
const CERTIFICATE_DAYS: i32 = 800;

/// The files of the authority and of the server's certificate.
#[derive(Debug, Clone)]
pub struct LocalCertificate {
    directory: PathBuf,
}

impl LocalCertificate {
    /// Creates a certificate for `domain`, all names below it, `localhost` and `addresses`. The first call creates
    /// the authority.
    pub fn create(directory: &Path, domain: &str, addresses: &[IpAddr]) -> Result<Self, TlsError> {
        let local = Self::in_directory(directory)?;
        let issuer = local.authority()?;
        let names = vec![domain.to_owned(), format!("*.{domain}"), "localhost".to_owned()];
        local.certify(&issuer, names, addresses, &[ExtendedKeyUsagePurpose::ServerAuth])?;
        local.write(&local.trust(), &local.trusted_certificates()?)?;
        Ok(local)
    }

    /// Creates a certificate with which a node of a fleet both accepts and opens connections.
    pub(crate) fn create_for_node(directory: &Path, names: Vec<String>) -> Result<Self, TlsError> {
        let local = Self::in_directory(directory)?;
        let issuer = local.authority()?;
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        local.certify(&issuer, names, &[], &usages)?;
        Ok(local)
    }

    /// Creates a certificate like a node's in another directory. The authority's key stays where it is.
    pub(crate) fn create_elsewhere(&self, directory: &Path, name: &str) -> Result<Self, TlsError> {
        let local = Self::in_directory(directory)?;
        let path = self.authority_certificate();
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        local.certify(&self.authority()?, vec![name.to_owned()], &[], &usages)?;
        let authority = fs::read_to_string(&path).map_err(|source| TlsError::Write { path, source })?;
        local.write(&local.authority_certificate(), &authority)?;
        Ok(local)
    }

    /// Stores an authority that was created on another machine.
    pub(crate) fn store_authority(directory: &Path, certificate: &str, key: &str) -> Result<(), TlsError> {
        let local = Self::in_directory(directory)?;
        local.write(&local.authority_key(), key)?;
        local.write(&local.authority_certificate(), certificate)
    }

    /// The files in a directory, which exist already.
    pub(crate) fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    fn in_directory(directory: &Path) -> Result<Self, TlsError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|source| TlsError::Write { path: directory.to_owned(), source })?;
        Ok(Self::at(directory))
    }

    /// The authority's certificate.
    pub fn authority_certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// The authority's certificate and those that this system trusts, for clients that read a single file.
    pub fn trust(&self) -> PathBuf {
        self.directory.join("trust.pem")
    }

    /// The authority's key.
    pub(crate) fn authority_key(&self) -> PathBuf {
        self.directory.join("ca.key")
    }

    pub fn tls(&self) -> Result<Tls, TlsError> {
        Tls::from_files(&self.certificate(), &self.key())
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("server.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.directory.join("server.key")
    }

    fn authority(&self) -> Result<Issuer<'static, KeyPair>, TlsError> {
        let (path, key_path) = (self.authority_certificate(), self.authority_key());
        let failed = |source| TlsError::Authority { path: path.clone(), source };
        let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, COMMON_NAME);
        if let (Ok(certificate), Ok(key)) = (fs::read_to_string(&path), fs::read_to_string(&key_path)) {
            let key = KeyPair::from_pem(&key).map_err(failed)?;
            if !is_certificate_of(&certificate, &key, COMMON_NAME) {
                return Err(failed(rcgen::Error::CouldNotParseCertificate));
            }
            return Ok(Issuer::new(params, key));
        }
        set_validity(&mut params, AUTHORITY_DAYS);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        self.write(&key_path, &key.serialize_pem())?;
        self.write(&path, &certificate.pem())?;
        Ok(Issuer::new(params, key))
    }

    /// Creates a certificate for names, of which the first is its subject.
    fn certify(
        &self,
        issuer: &Issuer<'static, KeyPair>,
        names: Vec<String>,
        addresses: &[IpAddr],
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<(), TlsError> {
        let failed = |source| TlsError::Authority { path: self.authority_certificate(), source };
        let subject = names.first().cloned().unwrap_or_default();
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name.push(DnType::CommonName, subject);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        set_validity(&mut params, CERTIFICATE_DAYS);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, issuer).map_err(failed)?;
        self.write(&self.key(), &key.serialize_pem())?;
        self.write(&self.certificate(), &certificate.pem())
    }

    fn trusted_certificates(&self) -> Result<String, TlsError> {
        let path = self.authority_certificate();
        let own = fs::read_to_string(&path).map_err(|source| TlsError::Write { path, source })?;
        let system = rustls_native_certs::load_native_certs().certs;
        Ok(system.iter().map(|certificate| pem(certificate)).fold(own, |all, next| all + &next))
    }

    /// Replaces a file that only its owner may read.
    fn write(&self, path: &Path, text: &str) -> Result<(), TlsError> {
        let new = path.with_extension("new");
        let replace = || -> io::Result<()> {
            let _ = fs::remove_file(&new);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        replace().map_err(|source| TlsError::Write { path: path.to_owned(), source })
    }
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

fn set_validity(params: &mut CertificateParams, days: i32) {
    let day = |at: Timestamp| {
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8)
    };
    let now = Timestamp::now();
    params.not_before = day(now - DAY * BEFORE_DAYS);
    params.not_after = day(now + DAY * days);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn the_authority_stays_and_only_the_owner_reads_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("tls");
        let first = LocalCertificate::create(&directory, "a.localhost", &[]).unwrap();
        let authority = fs::read(first.authority_certificate()).unwrap();
        let certificate = fs::read(first.certificate()).unwrap();
        let second = LocalCertificate::create(&directory, "b.localhost", &[[127, 0, 0, 1].into()]).unwrap();
        assert_eq!(fs::read(second.authority_certificate()).unwrap(), authority);
        assert_ne!(fs::read(second.certificate()).unwrap(), certificate);
        assert!(fs::read(second.trust()).unwrap().starts_with(&authority));
        second.tls().unwrap();
        for file in fs::read_dir(&directory).unwrap() {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        }
    }
}
