//! `sandling agent`.

mod command;
mod machine;
mod result;
mod view;

pub use command::agent;
