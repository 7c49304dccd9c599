//! The task that owns one sandbox: it changes the sandbox's state, watches its machine, and ends it when its time is over.
//!
//! A change that the store cannot record is rolled back, and the caller gets the error.

mod disk_full;
mod end;
mod fence;
mod hibernate;
mod hibernation;
mod idle;
mod network;
mod notices;
mod rewind;
mod run;
mod save;
mod start;
mod state;
mod take_over;
mod tell_guest;
mod wake;

pub(crate) use start::Host;

#[cfg(test)]
mod tests;
