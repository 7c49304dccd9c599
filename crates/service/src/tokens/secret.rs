//! The format of token secrets, and the hash that is stored instead of them.
//!
//! A secret is `sdl_` and 40 hexadecimal digits: 160 bits from the kernel's random generator. Because nobody can guess
//! that, one fast hash is enough; salts and stretching protect passwords, which people choose. The first twelve
//! characters, [`TokenSecret::prefix`], are not secret: lists and the audit log name the token by them.

use std::{fmt, io};

use crate::random;

const MARK: &str = "sdl_";
const RANDOM_BYTES: usize = 20;
const PREFIX_LENGTH: usize = 12;

/// The whole token. The server shows it once and does not store it.
#[derive(Clone)]
pub struct TokenSecret(String);

impl TokenSecret {
    pub(crate) fn fresh() -> io::Result<Self> {
        Ok(Self(format!("{MARK}{}", random::try_hex::<RANDOM_BYTES>()?)))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        has_digits(text, 2 * RANDOM_BYTES).then(|| Self(text.to_owned()))
    }

    pub(crate) fn is_prefix(text: &str) -> bool {
        has_digits(text, PREFIX_LENGTH - MARK.len())
    }

    /// The secret, to be sent to its holder only.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn prefix(&self) -> &str {
        &self.0[..PREFIX_LENGTH]
    }

    pub(crate) fn hash(&self) -> blake3::Hash {
        hash(&self.0)
    }
}

fn has_digits(text: &str, count: usize) -> bool {
    let digits = text.strip_prefix(MARK).unwrap_or_default();
    digits.len() == count && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The hash of a secret. `blake3::Hash` compares in constant time.
pub(crate) fn hash(secret: &str) -> blake3::Hash {
    blake3::hash(secret.as_bytes())
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.prefix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_secrets_are_well_formed_and_differ() {
        let (one, two) = (TokenSecret::fresh().unwrap(), TokenSecret::fresh().unwrap());
        assert_eq!(one.expose().len(), 44);
        assert_eq!(TokenSecret::parse(one.expose()).unwrap().hash(), one.hash());
        assert_ne!(one.hash(), two.hash());
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let secret = TokenSecret::fresh().unwrap();
        let shown = format!("{secret:?}");
        assert!(shown.starts_with(secret.prefix()));
        assert!(!shown.contains(&secret.expose()[PREFIX_LENGTH..]));
    }

    #[test]
    fn malformed_secrets_are_refused() {
        let good = TokenSecret::fresh().unwrap();
        let good = good.expose();
        let upper = good.to_uppercase();
        for bad in ["sdl_", "pds_00", &good[1..], &format!("{good}0"), &good[..43], &upper, &format!(" {good}")] {
            assert!(TokenSecret::parse(bad).is_none(), "{bad:?}");
        }
        assert!(TokenSecret::parse(&format!("sdl_{}", "ü".repeat(20))).is_none());
    }
}
