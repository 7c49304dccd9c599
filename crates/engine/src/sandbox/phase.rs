//! A sandbox's state with what belongs to it.

use std::sync::Arc;

use super::error::UseError;
use crate::lifecycle::Refused;
use crate::machine::Live;
use crate::model::{EndReason, State};

#[derive(Clone)]
pub(crate) enum Phase {
    /// Its engine died, and this engine has not taken it over yet.
    Orphaned,
    Running(Arc<Live>),
    /// Its machine stands still because the host's disk is full.
    Stalled(Arc<Live>),
    Paused(Arc<Live>),
    Hibernated,
    Ended(EndReason),
}

impl Phase {
    pub(crate) fn state(&self) -> State {
        match self {
            Phase::Orphaned => State::Orphaned,
            Phase::Running(_) => State::Running,
            Phase::Stalled(_) => State::Stalled,
            Phase::Paused(_) => State::Paused,
            Phase::Hibernated => State::Hibernated,
            Phase::Ended(_) => State::Ended,
        }
    }

    /// Its machine, also while that stands still.
    pub(crate) fn live(&self) -> Result<&Arc<Live>, UseError> {
        match self {
            Phase::Running(live) | Phase::Stalled(live) | Phase::Paused(live) => Ok(live),
            Phase::Orphaned => Err(Refused::NotReadyYet.into()),
            Phase::Hibernated => Err(Refused::Hibernated.into()),
            Phase::Ended(reason) => Err(UseError::Ended(reason.clone())),
        }
    }
}
