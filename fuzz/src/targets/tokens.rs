//! Tokens in every form in which clients send them, one per line.

use sandling_service::fuzzing::{check_preview, looks_like_token, sign_preview};
use sandling_service::{IdempotencyKey, Scope, WorkspaceName, check_hash, parse_mode};
use sandling_wire::{Dialect, native_prefix, native_token};

use crate::input::text;

const KEY: [u8; 32] = [7; 32];

pub fn run(data: &[u8]) {
    for line in text(data).unwrap_or_default().lines() {
        let native = native_token(line);
        assert!(native.is_none() || Dialect::of_token(line) != Dialect::Native, "{line:?}");
        native_prefix(line);
        looks_like_token(line);
        if let Some(token) = check_preview(KEY, line) {
            assert_eq!(check_preview(KEY, &sign_preview(KEY, &token)), Some(token));
        }
        if let Some(name) = WorkspaceName::parse(line) {
            assert!(!name.as_str().contains(['/', '.']), "{line:?}");
        }
        if check_hash(line).is_ok() {
            assert!(!line.contains(['/', '.']), "{line:?}");
        }
        drop(IdempotencyKey::parse(line));
        let _ = Scope::parse(line);
        drop(parse_mode(line));
    }
}
