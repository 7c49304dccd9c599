//! The parsers of untrusted bytes, for fuzzing. No part of the crate's API.

use jiff::Timestamp;

use crate::previews::SigningKey;
use crate::tokens::TokenSecret;
use crate::{DerivedTokens, PreviewToken};

/// What a signed preview token allows, if it is one of this key's.
pub fn check_preview(key: [u8; 32], signed: &str) -> Option<PreviewToken> {
    SigningKey::new(key).check(signed, Timestamp::UNIX_EPOCH)
}

/// A preview token with its signature.
pub fn sign_preview(key: [u8; 32], token: &PreviewToken) -> String {
    SigningKey::new(key).sign(token)
}

/// Whether a text looks like a token: a whole one, its prefix, or one that is derived from it.
pub fn looks_like_token(text: &str) -> bool {
    TokenSecret::parse(text).is_some() || TokenSecret::is_prefix(text) || DerivedTokens::is_one(text)
}
