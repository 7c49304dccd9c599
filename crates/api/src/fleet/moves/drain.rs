//! A draining node moves everything away that can move, a few at a time, and shows what is left.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sandling_engine::{Sandbox, SnapshotInfo, tied};
use sandling_fleet::{DrainLeft, DrainProgress, DrainRecord};

use super::super::member::Fleet;
use super::gate::Insiders;
use super::source::Why;
use super::step::{Seen, Step, step};
use crate::app::App;

const LOOK_EVERY: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 4;
/// The pause after a move that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// The progress disappears with a lease, and is shown again after this time at most.
const SHOW_EVERY: Duration = Duration::from_secs(5);
/// Of sandboxes, and of snapshots. Other reasons are counted together, so that the record stays small.
const MOST_REASONS: usize = 4;
const LONGEST_REASON: usize = 160;

/// A drain from its beginning on.
struct Drain {
    since: Instant,
    progress: DrainProgress,
    shown: Option<(Instant, DrainProgress)>,
    /// What failed, and when.
    failed: HashMap<String, (Instant, Why)>,
}

impl Fleet {
    /// Moves sandboxes and snapshots away whenever an operator wants that. Runs until the future is dropped.
    pub(in crate::fleet) async fn drain(&self, app: &App) {
        let mut drain: Option<Drain> = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let wanted = self.membership.drain();
            app.engine.hold_standbys(wanted.is_some());
            if let Some(wanted) = wanted.filter(|wanted| !wanted.keeps_sandboxes) {
                drain.get_or_insert_with(Drain::new).round(self, app, &wanted).await;
            } else if drain.is_some() && self.membership.show_drain(None).await.is_ok() {
                drain = None;
            }
        }
    }
}

impl Drain {
    fn new() -> Self {
        let (progress, failed) = (DrainProgress::default(), HashMap::new());
        Self { since: Instant::now(), progress, shown: None, failed }
    }

    async fn round(&mut self, fleet: &Fleet, app: &App, wanted: &DrainRecord) {
        let mut left = Left::default();
        let due = self.due(app, wanted, &mut left);
        let moves = due.into_iter().map(|(sandbox, insiders)| async move {
            (sandbox.id().to_string(), fleet.move_sandbox(app, &sandbox, insiders).await)
        });
        let mut moved = join_all(moves).await;
        if moved.is_empty() {
            let due = self.due_snapshots(app, &mut left);
            let moves = due
                .iter()
                .map(|snapshot| async move { (snapshot.id.to_string(), fleet.move_snapshot(app, snapshot).await) });
            moved = join_all(moves).await;
        }
        for (what, outcome) in moved {
            match outcome {
                Ok(()) => self.progress.moved += 1,
                Err(why) => drop(self.failed.insert(what, (Instant::now(), why))),
            }
        }
        self.progress.left = left.summary();
        self.show(fleet).await;
    }

    /// The sandboxes that move now.
    fn due(&self, app: &App, wanted: &DrainRecord, left: &mut Left) -> Vec<(Arc<Sandbox>, Insiders)> {
        let mut due = Vec::new();
        for info in app.engine.list() {
            let Some(sandbox) = app.engine.get(&info.id) else { continue };
            let seen = Seen {
                state: info.state,
                tied: tied(&info),
                idle_for: sandbox.idle_for(),
                drained_for: self.since.elapsed(),
            };
            let insiders = match step(seen, Duration::from_secs(wanted.wait_seconds)) {
                Step::Move => Insiders::KeepItOpen,
                Step::MoveInUse => Insiders::AreIgnored,
                Step::Wait(why) => {
                    left.count("sandbox", why.to_owned(), true);
                    continue;
                }
                Step::Stay(tied) => {
                    left.count("sandbox", tied.to_string(), false);
                    continue;
                }
            };
            let why = self.why_not_now(info.id.as_str(), due.len());
            if why.is_none() {
                due.push((sandbox, insiders));
            }
            left.count("sandbox", why.unwrap_or_else(|| "it is moving".to_owned()), true);
        }
        due
    }

    /// The snapshots that move now.
    fn due_snapshots(&self, app: &App, left: &mut Left) -> Vec<SnapshotInfo> {
        let mut due = Vec::new();
        for snapshot in app.engine.snapshots().all_listed().unwrap_or_default() {
            let why = self.why_not_now(snapshot.id.as_str(), due.len());
            if why.is_none() {
                due.push(snapshot);
            }
            left.count("snapshot", why.unwrap_or_else(|| "it is moving".to_owned()), true);
        }
        due
    }

    fn why_not_now(&self, what: &str, due: usize) -> Option<Why> {
        match self.failed.get(what) {
            Some((at, why)) if at.elapsed() < AGAIN_AFTER => Some(why.clone()),
            _ => (due >= AT_ONCE).then(|| "others move first".to_owned()),
        }
    }

    async fn show(&mut self, fleet: &Fleet) {
        let is_known =
            self.shown.as_ref().is_some_and(|(at, shown)| at.elapsed() < SHOW_EVERY && *shown == self.progress);
        if !is_known && fleet.membership.show_drain(Some(&self.progress)).await.is_ok() {
            self.shown = Some((Instant::now(), self.progress.clone()));
        }
    }
}

/// What is on the node, why, and whether it moves later: how many of each.
#[derive(Default)]
struct Left(BTreeMap<(&'static str, Why, bool), u32>);

impl Left {
    fn count(&mut self, what: &'static str, why: Why, moves_later: bool) {
        *self.0.entry((what, why, moves_later)).or_default() += 1;
    }

    fn summary(self) -> Vec<DrainLeft> {
        let one = |((what, why, moves_later), count): ((&str, Why, bool), u32)| {
            let why = why.chars().take(LONGEST_REASON).collect();
            DrainLeft { what: what.to_owned(), why, count, moves_later }
        };
        let mut all: Vec<DrainLeft> = self.0.into_iter().map(one).collect();
        for what in ["sandbox", "snapshot"] {
            while all.iter().filter(|left| left.what == what).count() > MOST_REASONS {
                let at = all.iter().rposition(|left| left.what == what).expect("there are some");
                let last = all.remove(at);
                let into = all.iter_mut().rev().find(|left| left.what == what).expect("there are more");
                into.count += last.count;
                into.moves_later |= last.moves_later;
                into.why = "several reasons".to_owned();
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_reasons_become_a_few() {
        let mut left = Left::default();
        for number in 1..10 {
            (0..number).for_each(|_| left.count("sandbox", format!("reason {number}"), number == 9));
        }
        left.count("snapshot", "it is moving".to_owned(), true);
        let all = left.summary();
        assert_eq!(all.iter().filter(|left| left.what == "sandbox").map(|left| left.count).sum::<u32>(), 45);
        assert_eq!(all.len(), MOST_REASONS + 1);
        assert!(all.iter().any(|left| left.why == "several reasons" && left.moves_later && left.count > 9));
    }
}
