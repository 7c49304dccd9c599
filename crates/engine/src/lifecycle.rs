//! What may happen to a sandbox when: one pure function, and the only way to change a sandbox's state.

use crate::model::State;

/// What a caller wants of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Run something in it, or touch its files.
    Use,
    /// Save it, as a snapshot or for a fork.
    Save,
    Pause,
    Resume,
    Hibernate,
    Wake,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Go(State),
    NothingToDo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the sandbox is still being created")]
    NotReadyYet,
    #[error("the sandbox is paused; resume it first")]
    Paused,
    #[error("the sandbox hibernates; wake it first")]
    Hibernated,
    #[error("the host's disk is full; the sandbox stands still until there is room again")]
    DiskFull,
    #[error("the sandbox has ended")]
    Ended,
    #[error("the sandbox's row in the store cannot be read; `sandling doctor` says why")]
    Unreadable,
}

pub fn decide(state: State, request: Request) -> Result<Verdict, Refused> {
    use Request::{End, Hibernate, Pause, Resume, Save, Use, Wake};
    use State::{Creating, Ended, Hibernated, Paused, Running, Unreadable};
    use Verdict::{Go, NothingToDo};
    match (state, request) {
        (Creating | Running | Paused | Hibernated, End) => Ok(Go(Ended)),
        (Ended, End) => Ok(NothingToDo),
        (Ended, _) => Err(Refused::Ended),
        (Unreadable, _) => Err(Refused::Unreadable),
        (Creating, _) => Err(Refused::NotReadyYet),
        (Running, Use | Resume | Wake) | (Running | Paused, Save) => Ok(NothingToDo),
        (Running | Paused, Hibernate) => Ok(Go(Hibernated)),
        (Paused, Wake) => Err(Refused::Paused),
        (Hibernated, Wake | Resume) => Ok(Go(Running)),
        (Hibernated, Hibernate) => Ok(NothingToDo),
        (Hibernated, Use | Save | Pause) => Err(Refused::Hibernated),
        (Running, Pause) => Ok(Go(Paused)),
        (Paused, Use) => Err(Refused::Paused),
        (Paused, Pause) => Ok(NothingToDo),
        (Paused, Resume) => Ok(Go(Running)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_request() -> impl Strategy<Value = Request> {
        prop_oneof![
            Just(Request::Use),
            Just(Request::Save),
            Just(Request::Hibernate),
            Just(Request::Wake),
            Just(Request::Pause),
            Just(Request::Resume),
            Just(Request::End)
        ]
    }

    #[test]
    fn pause_while_creating_is_refused() {
        assert_eq!(decide(State::Creating, Request::Pause), Err(Refused::NotReadyYet));
    }

    #[test]
    fn asking_twice_changes_nothing() {
        assert_eq!(decide(State::Paused, Request::Pause), Ok(Verdict::NothingToDo));
        assert_eq!(decide(State::Ended, Request::End), Ok(Verdict::NothingToDo));
    }

    proptest! {
        #[test]
        fn an_ended_sandbox_stays_ended(requests in proptest::collection::vec(any_request(), 0..50)) {
            let mut state = State::Creating;
            let mut ended = false;
            for request in requests {
                if let Ok(Verdict::Go(next)) = decide(state, request) {
                    prop_assert!(!ended, "left the end by {request:?}");
                    prop_assert_ne!(state, next, "a move that goes nowhere");
                    state = next;
                    ended |= state == State::Ended;
                }
            }
        }
    }
}
