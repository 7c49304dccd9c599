//! What may happen to a sandbox in which state: one pure function, and the only way to change a sandbox's state.
//!
//! Callers, clocks, machines and starting engines all send requests, and the sandbox's task asks [`decide`] about each.

use crate::model::{EndReason, Kept, Moment, State};

/// What a sandbox is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Run something in it, or touch its files.
    Use,
    /// Save it, as a snapshot or for a fork.
    Save(Kept),
    Pause,
    Resume,
    /// By a caller, after it was idle, or instead of its end.
    Hibernate(Kept),
    Wake,
    /// Wake it without its memory, if it has one: it boots from its disk.
    Boot,
    /// Hibernate at an earlier moment, to be woken there.
    Rewind(Box<Moment>),
    /// Its machine cannot write, because the host's disk is full.
    Stall,
    /// Its machine can write again.
    Unstall,
    /// Continue what a dead engine left, in the state that its row names.
    TakeOver(State),
    /// By a caller, because its time is over, or because its guest died.
    End(EndReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Go(State),
    NothingToDo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the server is still taking the sandbox over; try again in a moment")]
    NotReadyYet,
    #[error("the sandbox is paused; resume it first")]
    Paused,
    #[error("the sandbox hibernates; wake it first")]
    Hibernated,
    #[error("the sandbox does not hibernate; only a hibernated one can move")]
    NotHibernated,
    #[error("the host's disk is full; the sandbox stands still until there is room again")]
    DiskFull,
    #[error("the sandbox has ended")]
    Ended,
    #[error(
        "the sandbox stands still, because its node has lost touch with the fleet and another one may take it over; try \
         again in a moment"
    )]
    Fenced,
    #[error("the sandbox's row in the store cannot be read; `sandling doctor` says why")]
    Unreadable,
}

pub fn decide(state: State, request: &Request) -> Result<Verdict, Refused> {
    use Request::{Boot, End, Hibernate, Pause, Resume, Rewind, Save, Stall, TakeOver, Unstall, Use, Wake};
    use State::{Ended, Hibernated, Orphaned, Paused, Running, Stalled, Unreadable};
    use Verdict::{Go, NothingToDo};
    match (state, request) {
        (Ended, End(_)) => Ok(NothingToDo),
        (Ended, _) => Err(Refused::Ended),
        (Unreadable, _) => Err(Refused::Unreadable),
        // The guest that died is that of the machine before.
        (Hibernated, End(EndReason::GuestDied(_))) => Ok(NothingToDo),
        (_, End(_)) => Ok(Go(Ended)),
        (Orphaned, TakeOver(row @ (Running | Paused | Hibernated))) => Ok(Go(*row)),
        (Orphaned, _) => Err(Refused::NotReadyYet),
        // Only a guest that runs can write its caches out.
        (Stalled, Hibernate(Kept::Disk) | Save(Kept::Disk)) => Err(Refused::DiskFull),
        (Paused, Hibernate(Kept::Disk) | Save(Kept::Disk)) => Err(Refused::Paused),
        (Running | Stalled | Paused, Hibernate(_)) | (Running | Stalled | Paused | Hibernated, Rewind(_)) => {
            Ok(Go(Hibernated))
        }
        (Running | Stalled, Pause) => Ok(Go(Paused)),
        (Paused, Resume) | (Hibernated, Wake | Boot | Resume) | (Stalled, Unstall) => Ok(Go(Running)),
        (Running, Stall) => Ok(Go(Stalled)),
        (Stalled, Use) => Err(Refused::DiskFull),
        (Paused, Use | Wake | Boot) => Err(Refused::Paused),
        (Hibernated, Use | Save(_) | Pause) => Err(Refused::Hibernated),
        (Running, Use | Resume | Wake | Boot)
        | (Stalled, Resume | Wake | Boot)
        | (Running | Stalled | Paused, Save(_))
        | (Paused, Pause)
        | (Hibernated, Hibernate(_))
        | (_, Stall | Unstall | TakeOver(_)) => Ok(NothingToDo),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Standing, Timeline};

    #[test]
    fn a_sandbox_that_nobody_has_taken_over_can_only_be_taken_over_or_end() {
        assert_eq!(decide(State::Orphaned, &Request::Pause), Err(Refused::NotReadyYet));
        assert_eq!(decide(State::Orphaned, &Request::TakeOver(State::Ended)), Err(Refused::NotReadyYet));
        let paused = Request::TakeOver(State::Paused);
        assert_eq!(decide(State::Orphaned, &paused), Ok(Verdict::Go(State::Paused)));
        assert_eq!(decide(State::Orphaned, &Request::End(EndReason::Ttl)), Ok(Verdict::Go(State::Ended)));
    }

    #[test]
    fn a_sandbox_goes_back_from_wherever_it_is_unless_it_has_ended() {
        let rewind = Request::Rewind(Box::new(Moment { standing: Standing::default(), timeline: Timeline::default() }));
        for state in [State::Running, State::Stalled, State::Paused, State::Hibernated] {
            assert_eq!(decide(state, &rewind), Ok(Verdict::Go(State::Hibernated)));
        }
        assert_eq!(decide(State::Ended, &rewind), Err(Refused::Ended));
        assert_eq!(decide(State::Orphaned, &rewind), Err(Refused::NotReadyYet));
    }

    #[test]
    fn only_a_sandbox_that_runs_can_hibernate_without_its_memory() {
        let hibernate = |state, kept| decide(state, &Request::Hibernate(kept));
        assert_eq!(hibernate(State::Running, Kept::Disk), Ok(Verdict::Go(State::Hibernated)));
        assert_eq!(hibernate(State::Paused, Kept::Disk), Err(Refused::Paused));
        assert_eq!(hibernate(State::Stalled, Kept::Disk), Err(Refused::DiskFull));
        assert_eq!(hibernate(State::Paused, Kept::Everything), Ok(Verdict::Go(State::Hibernated)));
        let save = |state, kept| decide(state, &Request::Save(kept));
        assert_eq!(save(State::Running, Kept::Disk), Ok(Verdict::NothingToDo));
        assert_eq!(save(State::Paused, Kept::Disk), Err(Refused::Paused));
        assert_eq!(save(State::Paused, Kept::Everything), Ok(Verdict::NothingToDo));
        assert_eq!(decide(State::Hibernated, &Request::Boot), Ok(Verdict::Go(State::Running)));
    }

    #[test]
    fn a_request_that_is_made_twice_changes_nothing() {
        assert_eq!(decide(State::Paused, &Request::Pause), Ok(Verdict::NothingToDo));
        assert_eq!(decide(State::Ended, &Request::End(EndReason::Requested)), Ok(Verdict::NothingToDo));
    }
}
