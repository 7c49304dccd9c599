//! Sandboxes and snapshots move to other nodes when their node drains.
//!
//! ```text
//! source                                   target                        ledger
//!   gate closed: requests wait
//!   hibernate, depart (file in moves/)
//!   offer ──────────────────────────────▶ takes it? lacks what?
//!   stream ─────────────────────────────▶ store, arrive (file in moves/)
//!                                          take ───────────────────────▶ moved/ID: target
//!                                          admit; requests work here
//!   take back, or see the target ──────────────────────────────────────▶ moved/ID
//!   stay, or leave behind; gate open
//! ```
//!
//! Both sides write the record only if it is as it was when the move began. The second one is refused, and learns that the
//! other one has the sandbox. After a crash, both ask the ledger again. A sandbox with a file in `moves/` has no task, so
//! nothing wakes it.

mod drain;
mod gate;
mod recover;
mod settle;
mod source;
mod step;
mod target;

pub(super) use gate::{Entered, Gate, Insiders};
pub(super) use recover::{CutOff, cut_off};
pub(super) use target::{Arrivals, OFFER, TAKE, answer_offer, answer_take};
