//! Samples refused requests, so that a client that is refused again and again fills no log.
//!
//! Of each token and action, the first refusals of a minute are written in full. The rest are counted, and one entry
//! says how many there were.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::entry::NewAudit;
use crate::workspaces::WorkspaceName;

/// How many refusals of one token and action are written in full in each [`WINDOW`].
pub(super) const IN_FULL: u32 = 10;
pub(super) const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct RefusalSampler(Mutex<HashMap<Key, Window>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    workspace: WorkspaceName,
    token: String,
    action: String,
}

#[derive(Debug)]
struct Window {
    ends: Timestamp,
    in_full: u32,
    /// The last refusal that was only counted, and how many there were.
    counted: Option<(NewAudit, u32)>,
}

/// Refusals that one entry sums up. The entry has the code, request id and address of the last one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) entry: NewAudit,
    pub(super) count: u32,
}

impl RefusalSampler {
    /// Whether a refusal is to be written in full. If not, it is counted.
    pub(super) fn admit(&self, refusal: &NewAudit, now: Timestamp) -> bool {
        let key = Key {
            workspace: refusal.workspace.clone(),
            token: refusal.actor.prefix.clone(),
            action: refusal.action.clone(),
        };
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(key).or_insert_with(|| Window { ends: now + WINDOW, in_full: 0, counted: None });
        if window.in_full < IN_FULL {
            window.in_full += 1;
            return true;
        }
        let before = window.counted.as_ref().map_or(0, |(_, count)| *count);
        window.counted = Some((refusal.clone(), before.saturating_add(1)));
        false
    }

    /// Takes the summaries of windows that have ended, or of all windows.
    pub(super) fn take_due(&self, now: Timestamp, all: bool) -> Vec<Summary> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = windows.extract_if(|_, window| all || window.ends <= now);
        let summary = |(_, window): (Key, Window)| {
            let (mut entry, count) = window.counted?;
            // They were refused on different objects.
            entry.object = None;
            Some(Summary { entry, count })
        };
        ended.filter_map(summary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry::{Actor, AuditResult};
    use crate::fixture::workspace;

    fn refusal(token: &str, action: &str, request: u32) -> NewAudit {
        NewAudit {
            workspace: workspace("team"),
            actor: Actor { prefix: token.to_owned(), name: "ci".to_owned() },
            action: action.to_owned(),
            object: Some(format!("o-{request}")),
            result: AuditResult::Refused { code: "forbidden".to_owned() },
            request_id: format!("r-{request}"),
            remote: None,
            recording: None,
        }
    }

    #[test]
    fn the_first_refusals_of_a_minute_are_written_and_the_rest_are_one_summary() {
        let (sampler, now) = (RefusalSampler::default(), Timestamp::now());
        let written = (0..2000).filter(|n| sampler.admit(&refusal("a", "sandbox.create", *n), now)).count();
        assert_eq!(written, IN_FULL as usize);
        assert_eq!(sampler.take_due(now + WINDOW / 2, false), []);
        let summaries = sampler.take_due(now + WINDOW, false);
        let last = NewAudit { object: None, ..refusal("a", "sandbox.create", 1999) };
        assert_eq!(summaries, [Summary { entry: last, count: 2000 - IN_FULL }]);
        assert!(sampler.admit(&refusal("a", "sandbox.create", 0), now + WINDOW), "a new minute begins");
        assert_eq!(sampler.take_due(now + WINDOW * 2, false), []);
        assert!(sampler.0.lock().unwrap().is_empty(), "ended windows take no memory");
    }

    #[test]
    fn tokens_and_actions_are_sampled_separately() {
        let (sampler, now) = (RefusalSampler::default(), Timestamp::now());
        while sampler.admit(&refusal("a", "sandbox.create", 0), now) {}
        assert!(sampler.admit(&refusal("b", "sandbox.create", 0), now));
        assert!(sampler.admit(&refusal("a", "token.create", 0), now));
    }
}
