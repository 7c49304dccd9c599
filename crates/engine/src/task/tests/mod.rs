//! The real task of a sandbox, with a machine that is a fake.

mod fake;
mod random_requests;
