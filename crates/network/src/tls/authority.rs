//! The certificate authority of one sandbox. Only that sandbox trusts it, and its key never enters the sandbox.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use memchr::memmem;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, date_time_ymd,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::name::HostName;

/// The subject's common name. A stored certificate is not parsed, so every authority must have this name.
const COMMON_NAME: &str = "of one sandbox";
/// Certificates that are cached. A sandbox has few hosts with secrets.
const MOST: usize = 256;
/// How long before and after its creation a certificate is valid. Guests' clocks differ, and sandboxes live long.
const BEFORE: SignedDuration = SignedDuration::from_hours(48);
const AFTER: SignedDuration = SignedDuration::from_hours(24 * 365);

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    made: Mutex<HashMap<HostName, Arc<CertifiedKey>>>,
}

/// Why an authority cannot be created or used.
#[derive(Debug, Error)]
pub enum AuthorityError {
    #[error("cannot create or read a certificate or key")]
    Certificate(#[from] rcgen::Error),
    #[error("the stored certificate is damaged or does not belong to the stored key")]
    Mismatch,
    #[error("cannot sign with the key")]
    Key(#[from] rustls::Error),
}

impl Authority {
    /// A new authority.
    pub fn generate() -> Result<Authority, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = issuer_params()?;
        set_validity(&mut params);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), certificate, made: Mutex::default() })
    }

    /// Loads an authority from its certificate and key.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Authority, AuthorityError> {
        let key = KeyPair::from_pem(key)?;
        if !is_certificate_of(certificate, &key, COMMON_NAME) {
            return Err(AuthorityError::Mismatch);
        }
        let issuer = Issuer::new(issuer_params()?, key);
        Ok(Authority { issuer, certificate: certificate.to_owned(), made: Mutex::default() })
    }

    /// The certificate that the guest must trust.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// The key, which must be stored like a secret.
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// A certificate for `name`, with its key.
    pub(super) fn certify(&self, name: &HostName) -> Result<Arc<CertifiedKey>, AuthorityError> {
        if let Some(known) = self.made.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(known.clone());
        }
        let mut params = CertificateParams::new(vec![name.to_string()])?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        set_validity(&mut params);
        let key = KeyPair::generate()?;
        let certificate: CertificateDer<'static> = params.signed_by(&key, &self.issuer)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let certified = Arc::new(CertifiedKey::new(vec![certificate], any_supported_type(&key)?));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() >= MOST {
            made.clear();
        }
        made.insert(name.clone(), certified.clone());
        Ok(certified)
    }
}

/// Whether a certificate contains this key and this common name. If so, the issuer can be made again from the key and
/// the parameters that the certificate was made with, and nothing must parse the certificate.
pub fn is_certificate_of(pem: &str, key: &KeyPair, common_name: &str) -> bool {
    CertificateDer::from_pem_slice(pem.as_bytes()).is_ok_and(|der| {
        let contains = |wanted: &[u8]| memmem::find(&der, wanted).is_some();
        contains(&key.subject_public_key_info()) && contains(common_name.as_bytes())
    })
}

/// The parameters that all authorities share.
fn issuer_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, COMMON_NAME);
    params.distinguished_name.push(DnType::OrganizationName, "Sandling sandbox");
    Ok(params)
}

fn set_validity(params: &mut CertificateParams) {
    let day = |at: Timestamp| {
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8)
    };
    let now = Timestamp::now();
    params.not_before = day(now - BEFORE);
    params.not_after = day(now + AFTER);
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    /// Certificate and key of an authority that version 1 saved.
    const SAVED: &str = include_str!("../../tests/golden/v1/authority.pem");

    /// Checks that a program that trusts the authority accepts its certificate for `name`.
    fn assert_trusted(authority: &Authority, name: &str) {
        let root = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap();
        let leaf = authority.certify(&name.parse().unwrap()).unwrap().cert[0].clone();
        // OpenSSL compares the key identifiers, which webpki ignores.
        let identifier = {
            let at = memmem::find(&root, &[0x55, 0x1d, 0x0e, 0x04, 0x16, 0x04, 0x14]).unwrap() + 7;
            &root[at..at + 20]
        };
        assert!(memmem::find(&leaf, identifier).is_some(), "the leaf names another authority key");
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let server = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&leaf, &[], &server, &[], UnixTime::now()).unwrap();
    }

    #[test]
    fn a_stored_authority_can_be_loaded() {
        let first = Authority::generate().unwrap();
        let second = Authority::from_pem(first.certificate_pem(), &first.key_pem()).unwrap();
        assert_eq!(first.certificate_pem(), second.certificate_pem());
        assert_trusted(&second, "api.example.com");
        let name = "api.example.com".parse().unwrap();
        assert!(Arc::ptr_eq(&second.certify(&name).unwrap(), &second.certify(&name).unwrap()));
    }

    #[test]
    fn an_authority_of_version_1_still_signs() {
        let (certificate, key) = SAVED.split_at(SAVED.find("-----BEGIN PRIVATE KEY").unwrap());
        assert_trusted(&Authority::from_pem(certificate, key).unwrap(), "api.example.com");
    }

    #[test]
    fn a_certificate_of_another_key_is_refused() {
        let (one, other) = (Authority::generate().unwrap(), Authority::generate().unwrap());
        for certificate in [other.certificate_pem(), "", "-----BEGIN CERTIFICATE-----\nAAAA"] {
            let loaded = Authority::from_pem(certificate, &one.key_pem());
            assert!(matches!(loaded, Err(AuthorityError::Mismatch)), "{certificate}");
        }
    }
}
