//! The ways to write a secret that a server may use when it repeats it. No I/O.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use zeroize::Zeroizing;

use crate::secret::Secret;

/// A spelling of a secret.
pub type Spelling = Zeroizing<Vec<u8>>;

/// A shorter base64 text could match other data by chance.
const SHORTEST_IN_BASE64: usize = 8;

/// The spellings of a secret: literal, percent-encoded, escaped for JSON, with `+` for spaces, and inside base64 text.
pub fn spellings(secret: &Secret) -> Vec<Spelling> {
    let value = secret.value();
    let mut all = vec![Zeroizing::new(value.as_bytes().to_vec()), Zeroizing::new(percent_encode(value).into_bytes())];
    all.push(Zeroizing::new(value.replace('\\', "\\\\").replace('"', "\\\"").into_bytes()));
    all.push(Zeroizing::new(value.replace(' ', "+").into_bytes()));
    for alphabet in [STANDARD, URL_SAFE] {
        all.extend(
            (0..3).map(|before| inside(&alphabet, value, before)).filter(|core| core.len() >= SHORTEST_IN_BASE64),
        );
    }
    all.sort_unstable_by(|one, other| one.as_slice().cmp(other));
    all.dedup();
    all
}

/// The base64 digits that depend on the value alone, if `before` other bytes precede it in its group of three.
fn inside(alphabet: &impl Engine, value: &str, before: usize) -> Spelling {
    let bytes = Zeroizing::new([&[0; 2][..before], value.as_bytes()].concat());
    let digits = Zeroizing::new(alphabet.encode(&*bytes).into_bytes());
    let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    Zeroizing::new(digits[first.min(last)..last].to_vec())
}

pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::placeholders::contains;

    proptest! {
        #[test]
        fn a_secret_is_found_anywhere_in_base64_text(
            before in "[ -~]{0,9}", value in "[!-~]{9,40}", after in "[ -~]{0,9}", url in any::<bool>(),
        ) {
            let hosts = vec!["api.example.com".parse().unwrap()];
            let secret = Secret::new("token", "sandling-placeholder-1", value.clone(), hosts).unwrap();
            let text = format!("{before}{value}{after}");
            let encoded = if url { URL_SAFE.encode(text) } else { STANDARD.encode(text) };
            let found = spellings(&secret).iter().any(|spelling| contains(encoded.as_bytes(), spelling));
            prop_assert!(found, "{encoded}");
        }
    }
}
