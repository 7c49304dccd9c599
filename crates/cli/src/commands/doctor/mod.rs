//! `sandling doctor`: what this host can do, and with `--attack` whether its defenses hold.

mod attack;
mod checks;
mod fleet;

pub use attack::probe;
pub use checks::doctor;
