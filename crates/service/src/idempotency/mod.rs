//! Idempotency keys: a request that a client sends twice runs once and gets the same answer twice.

mod keys;
pub(crate) mod rows;

pub use keys::{Begin, BodyHash, Idempotency, IdempotencyKey, KeyRefused, Pending, StoredAnswer};
