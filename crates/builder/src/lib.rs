//! What a build asks the program of this crate to do. The program itself is `main.rs`.

mod job;
pub mod pattern;

pub use job::{CACHES, DIRECTORY, Job, Mount, Place, Run, SECRETS, STAGED};
