//! The store with a server that fails, is slow and lies.

mod faulty;
mod fleets;
mod hostile;
mod packs;
mod sweeps;
mod world;
