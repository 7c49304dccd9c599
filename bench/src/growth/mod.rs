//! How cost grows: with the size of a guest, what it wrote, the depth of snapshots, the files in a diff, and the number of
//! sandboxes alive.

mod alive;
mod chart;
mod measure;
mod series;

pub use measure::measure;
