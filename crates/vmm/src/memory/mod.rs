//! Guest memory: a base file and layers of saved pages over it. All of them are shared, and none is ever written.
//!
//! ```text
//!   base (a template's memory)          ░░░░░░░░░░░░░░░░░░░░░░░░
//!   layer 00 (what one machine wrote)      ▓▓▓     ▓▓▓▓▓
//!   layer 01 (what its fork wrote)           ▓▓▓         ▓▓
//!   map: which part of guest memory is in which file, for all layers together
//! ```
//!
//! A machine maps the base and the layers privately; `preload/guest_memory.rs` does that inside QEMU. The kernel
//! distinguishes the machine's own pages (`/proc/PID/pagemap`). They are read from a [`Frozen`] copy of its process
//! while the machine itself continues.

mod frozen;
mod library;
mod map;
pub(crate) mod pages;
mod threads;

pub(crate) use frozen::connect as connect_copy;
pub use frozen::{FreezeTimes, Frozen, NewLayer};
pub use library::place_library;
pub(crate) use library::{LIBRARY, fingerprint, place};
pub use map::{Extent, MapError, MemoryMap};

use std::path::PathBuf;

use crate::jail::Layer;

/// The maximum number of layers of a machine's memory. The preloaded library has the same limit.
pub const MOST_LAYERS: usize = 64;

/// Where a restored machine's memory comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub base: PathBuf,
    /// The lowest first; the map counts them from zero.
    pub layers: Vec<PathBuf>,
    /// An encoded [`MemoryMap`], if there are layers.
    pub map: Option<PathBuf>,
    /// The library, as [`place_library`] left it.
    pub library: PathBuf,
}

impl Memory {
    /// The base alone.
    pub fn base(base: PathBuf, library: PathBuf) -> Self {
        Self { base, layers: Vec::new(), map: None, library }
    }

    /// The layers of the jail for it, besides the base.
    pub(crate) fn jail_layers(&self) -> Vec<Layer> {
        let map = self.map.iter().map(|path| Layer { name: "memory.map".to_owned(), path: path.clone() });
        let numbered = self.layers.iter().enumerate();
        let layers = numbered.map(|(number, path)| Layer { name: format!("memory.{number:02}"), path: path.clone() });
        map.chain(layers).collect()
    }
}
