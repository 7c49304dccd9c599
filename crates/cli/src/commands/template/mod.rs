//! `sandling template`: build, list, inspect, remove, export, import, pull.

mod archive;
mod command;
mod dockerfile;
mod list;
mod local;
mod remote;

pub use command::template;
