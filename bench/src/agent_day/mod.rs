//! A coding agent's day, in Sandling and in its peers.

mod commands;
mod day;
mod places;
mod plot;

pub use day::measure;
