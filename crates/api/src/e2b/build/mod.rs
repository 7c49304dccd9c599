//! Templates that are built from steps: run one after another in a machine on top of one of ours, which is then saved.
//! A template is that snapshot, under its name; what its steps said about users and variables is in its labels.

mod begin;
mod builds;
mod copy;
mod run;
mod steps;
mod uploads;

pub(super) use begin::begin;
pub(super) use builds::Builds;
pub(super) use steps::Plan;
pub(super) use uploads::{has, keep};
