//! How a secret may be written in what a server repeats of it. Pure.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use zeroize::Zeroizing;

use crate::secret::Secret;

/// A spelling of a secret.
pub type Spelling = Zeroizing<Vec<u8>>;

/// What is shorter than this in base64 may be anything.
const SHORTEST_IN_BASE64: usize = 8;

/// As it is, as in a query, as in JSON, and inside anything that is written in base64.
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

/// The digits that a value alone decides where so many other bytes, of three, come before it.
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
    use crate::http::place::contains;

    proptest! {
        #[test]
        fn it_is_found_in_base64_wherever_it_stands(
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
