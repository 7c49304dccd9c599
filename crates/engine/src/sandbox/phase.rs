//! A sandbox's state with what belongs to it.

use std::sync::Arc;

use crate::machine::Live;
use crate::model::{EndReason, State};

#[derive(Clone)]
pub(crate) enum Phase {
    Running(Arc<Live>),
    Paused(Arc<Live>),
    Hibernated,
    Ended(EndReason),
}

impl Phase {
    pub(crate) fn state(&self) -> State {
        match self {
            Phase::Running(_) => State::Running,
            Phase::Paused(_) => State::Paused,
            Phase::Hibernated => State::Hibernated,
            Phase::Ended(_) => State::Ended,
        }
    }
}
