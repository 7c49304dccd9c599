//! `sandling agent`.

mod command;
mod keys;
mod machine;
mod result;
mod view;

pub use command::agent;
