//! `sandling template`: build, list, inspect, remove.

mod command;
mod here;
mod list;
mod served;

pub use command::template;
