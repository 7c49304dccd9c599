//! Building templates, for all dialects: from Debian's packages, or from steps.
//!
//! Steps run one after another in a machine on top of a template that is there already, which is then saved. What they
//! say about users, directories and variables ([`Start`]) is kept in the snapshot's labels. A dialect says what is to be
//! done ([`Order`]) and shows how it goes ([`Build`]).

mod base;
mod begin;
mod builds;
mod copy;
mod cut_off;
mod dockerfile;
mod packages;
mod run;
mod start;
mod steps;
mod uploads;

pub(crate) use base::{Source, find as find_base};
pub(crate) use begin::{Keeps, Order, begin};
pub(crate) use builds::{Build, Builds, Level, Line, Stage};
pub(crate) use cut_off::clear_up;
pub(crate) use dockerfile::parse as parse_dockerfile;
pub(crate) use packages::begin as begin_packages;
pub(crate) use start::Start;
pub(crate) use steps::{Action, Plan, Usual, check_hash};
pub(crate) use uploads::{forget, forget_old, has, keep, keep_files};
