//! `sandling template`: build, list, inspect, remove.

mod command;
mod list;
mod local;
mod remote;

pub use command::template;
