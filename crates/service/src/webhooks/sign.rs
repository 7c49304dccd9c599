//! Signatures of deliveries, as the Standard Webhooks specification describes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A key begins with it, so that secret scanners recognize it.
const PREFIX: &str = "whsec_";

/// The headers that prove where a delivery comes from and when it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub id: String,
    /// Seconds since 1970.
    pub timestamp: i64,
    pub value: String,
}

impl Signature {
    /// Signs the id, the time and the body.
    pub(super) fn new(key: &[u8], id: String, timestamp: i64, body: &str) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is accepted");
        for part in [id.as_str(), ".", &timestamp.to_string(), ".", body] {
            mac.update(part.as_bytes());
        }
        Self { value: format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())), id, timestamp }
    }
}

/// A key as its owner sees it.
pub(super) fn show_key(key: &[u8]) -> String {
    format!("{PREFIX}{}", STANDARD.encode(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            Signature::new(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(), 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature.value, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(show_key(&key), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    }
}
