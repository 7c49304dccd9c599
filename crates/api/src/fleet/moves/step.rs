//! What a draining node does about one sandbox now: one pure function.

use std::time::Duration;

use sandling_engine::{State, Tied};

/// A sandbox that nobody used for so long is idle.
pub(super) const IDLE_FOR: Duration = Duration::from_secs(2);

/// What a drain knows about a sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) state: State,
    pub(super) tied: Option<Tied>,
    pub(super) idle_for: Duration,
    /// For how long the node has been draining.
    pub(super) drained_for: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// If nobody begins to use it meanwhile.
    Move,
    /// Although it is in use.
    MoveInUse,
    /// It moves later, or ends.
    Wait(&'static str),
    /// It does not move by itself.
    Stay(Tied),
}

pub(super) fn step(seen: Seen, wait: Duration) -> Step {
    match (seen.tied, seen.state) {
        (Some(Tied::Build), _) => Step::Wait("a build runs in it"),
        (Some(Tied::VolumeFiles), _) => Step::Wait("it serves the files of a volume"),
        (Some(tied), _) => Step::Stay(tied),
        (None, State::Unreadable) => Step::Stay(Tied::Unreadable),
        (None, State::Orphaned) => Step::Wait("the server is still taking it over"),
        (None, State::Ended) => Step::Wait("it ends"),
        (None, State::Hibernated | State::Paused) => Step::Move,
        (None, State::Running | State::Stalled) if seen.idle_for >= IDLE_FOR => Step::Move,
        (None, State::Running | State::Stalled) if seen.drained_for >= wait => Step::MoveInUse,
        (None, State::Running | State::Stalled) => Step::Wait("it is in use"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(300);

    fn seen(state: State, idle: u64, drained: u64) -> Seen {
        let [idle_for, drained_for] = [idle, drained].map(Duration::from_secs);
        Seen { state, tied: None, idle_for, drained_for }
    }

    #[test]
    fn idle_and_sleeping_sandboxes_move_at_once_and_busy_ones_when_their_time_is_over() {
        assert_eq!(step(seen(State::Hibernated, 0, 0), WAIT), Step::Move);
        assert_eq!(step(seen(State::Paused, 0, 0), WAIT), Step::Move);
        assert_eq!(step(seen(State::Running, 2, 0), WAIT), Step::Move);
        assert_eq!(step(seen(State::Running, 0, 299), WAIT), Step::Wait("it is in use"));
        assert_eq!(step(seen(State::Running, 0, 300), WAIT), Step::MoveInUse);
        assert_eq!(step(seen(State::Running, 2, 300), WAIT), Step::Move);
        assert!(matches!(step(seen(State::Orphaned, 9, 999), WAIT), Step::Wait(_)));
    }

    #[test]
    fn what_is_tied_to_its_node_stays_and_what_ends_by_itself_is_waited_for() {
        let tied = |tied| step(Seen { tied: Some(tied), ..seen(State::Running, 9, 999) }, WAIT);
        assert_eq!(tied(Tied::Volume), Step::Stay(Tied::Volume));
        assert_eq!(tied(Tied::Group), Step::Stay(Tied::Group));
        assert!(matches!(tied(Tied::Build), Step::Wait(_)));
        assert!(matches!(tied(Tied::VolumeFiles), Step::Wait(_)));
    }
}
