//! `sandling template`: build, list, inspect, remove.

mod command;
mod dockerfile;
mod list;
mod local;
mod remote;

pub use command::template;
