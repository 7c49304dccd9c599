//! A sandbox's desktop as tools: what a model does with the screen, the mouse, the keyboard and the windows.
//!
//! An [`Action`] is independent of how a model asks for it: by one of our tools or by the computer tool of its API. The
//! commands are those of the SDKs' `desktop`.

mod action;
mod calls;
mod keys;
mod run;

pub use action::{Action, Button, Position, Wheel};
pub use run::ScreenSize;
