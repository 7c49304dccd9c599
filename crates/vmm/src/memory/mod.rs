//! Guest memory as a base file and layers of saved pages over it, all shared, none ever written.
//!
//! ```text
//!   base (a template's memory)          ░░░░░░░░░░░░░░░░░░░░░░░░
//!   layer 00 (what one machine wrote)      ▓▓▓     ▓▓▓▓▓
//!   layer 01 (what its fork wrote)           ▓▓▓         ▓▓
//!   map: which part of which file is where, all layers taken together
//! ```
//!
//! A machine maps base and layers privately; see `preload/preload.rs` for the half of this that runs inside QEMU.
//! Its own pages are told from theirs by the kernel (`/proc/PID/pagemap`), and read from a [`Frozen`] copy of its
//! process while the machine itself runs on.

mod frozen;
mod library;
mod map;
pub(crate) mod pages;
mod threads;

pub(crate) use frozen::connect as connect_copy;
pub use frozen::{FreezeTimes, Frozen, SavedPages};
pub use library::place_library;
pub(crate) use library::{LIBRARY, fingerprint, place};
pub use map::{Extent, MapError, MemoryMap};

use std::path::PathBuf;

use crate::jail::Layer;

/// How many layers a machine's memory can have; the preloaded library knows this number, too.
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

    /// What the program sees of it, besides the base.
    pub(crate) fn jail_layers(&self) -> Vec<Layer> {
        let map = self.map.iter().map(|path| Layer { name: "memory.map".to_owned(), path: path.clone() });
        let numbered = self.layers.iter().enumerate();
        let layers = numbered.map(|(number, path)| Layer { name: format!("memory.{number:02}"), path: path.clone() });
        map.chain(layers).collect()
    }
}
