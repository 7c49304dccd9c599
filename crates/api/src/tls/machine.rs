//! Which machine a node's certificate belongs to.
//!
//! A node's name can pass to another machine. So its certificate also names the machine, by the fingerprint that the
//! ledger has.

use rustls::pki_types::CertificateDer;

const DOMAIN: &str = ".machine.sandling";

/// The name in the certificate of the machine with this fingerprint.
pub(crate) fn machine_name(fingerprint: &str) -> String {
    format!("{fingerprint}{DOMAIN}")
}

/// The fingerprint in a certificate, which the caller has verified.
pub(crate) fn machine_of(chain: Option<&[CertificateDer<'_>]>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(chain?.first()?).ok()?;
    let name = certificate.valid_dns_names().find_map(|name| name.strip_suffix(DOMAIN))?;
    Some(name.to_owned())
}
