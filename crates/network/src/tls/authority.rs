//! The certificate authority of one sandbox. Only that sandbox trusts it, and its key never enters the sandbox.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::name::HostName;

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
    #[error("cannot sign with the key")]
    Key(#[from] rustls::Error),
}

impl Authority {
    /// A new authority, whose certificate names its purpose.
    pub fn generate(subject: &str) -> Result<Authority, AuthorityError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, subject);
        params.distinguished_name.push(DnType::OrganizationName, "Sandling sandbox");
        set_validity(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), certificate, made: Mutex::default() })
    }

    /// Loads an authority from its certificate and key.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Authority, AuthorityError> {
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
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
    use super::*;

    #[test]
    fn a_stored_authority_can_be_loaded() {
        let first = Authority::generate("sandbox a").unwrap();
        let second = Authority::from_pem(first.certificate_pem(), &first.key_pem()).unwrap();
        assert_eq!(first.certificate_pem(), second.certificate_pem());
        let name = "api.example.com".parse().unwrap();
        let certified = second.certify(&name).unwrap();
        assert!(Arc::ptr_eq(&certified, &second.certify(&name).unwrap()));
    }
}
