//! Builds of templates.

mod record;
mod rows;

pub use record::{BuildEnd, BuildRecord};
