//! What its guest is told of its network: placeholders of new secrets, and whom to trust.
//!
//! One thing after the other, and behind everything else: a guest may take its time, or never be done, and nothing that
//! binds it waits for that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sandling_network::Authority;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::Keeper;
use crate::lifecycle::State;
use crate::network::{Granted, NetworkChangeError, NetworkError, NetworkSettings, Untaught};

/// A guest that takes longer to learn of a secret gets none.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

type Taught = Result<Option<Arc<Authority>>, NetworkError>;
type Answer = oneshot::Sender<Result<NetworkSettings, NetworkChangeError>>;

#[derive(Default)]
pub(super) struct Lessons {
    /// The first is being taught.
    queue: VecDeque<Lesson>,
    teaching: JoinSet<Taught>,
}

#[derive(Default)]
struct Lesson {
    /// They are its own when it knows of them.
    granted: Granted,
    answer: Option<Answer>,
}

impl Lessons {
    /// Waits until the guest was told, or could not be. Nothing if it is being told nothing.
    pub(super) async fn next(&mut self) -> Option<Result<Taught, JoinError>> {
        self.teaching.join_next().await
    }

    /// None but these are to be given any more.
    pub(super) fn give_only(&mut self, names: &[String]) {
        for lesson in &mut self.queue {
            lesson.granted.secrets.retain(|secret| names.contains(&secret.name));
        }
    }
}

impl Keeper {
    /// Has the guest told whom to trust, if its TLS has to be opened because of what it follows or is bound by, and it
    /// had nobody. Until then, and if it does not work, such connections are refused.
    pub(super) fn catch_up(&mut self) {
        // Whichever is told next finds out for itself what is missing.
        if self.runs() && self.network.lacks_authority() && self.lessons.queue.len() < 2 {
            self.teach(Lesson::default());
        }
    }

    /// Has the guest told of what was granted, and whom to trust if it has to know, and then answers.
    pub(super) fn teach_granted(&mut self, granted: Granted, answer: Answer) {
        let lesson = Lesson { granted, answer: Some(answer) };
        if lesson.granted.secrets.is_empty() && !self.network.lacks_authority() {
            self.conclude(lesson, Ok(()));
        } else {
            self.teach(lesson);
        }
    }

    fn teach(&mut self, lesson: Lesson) {
        self.lessons.queue.push_back(lesson);
        if self.lessons.queue.len() == 1 {
            self.teach_first();
        }
    }

    fn teach_first(&mut self) {
        while let Some(Lesson { granted, .. }) = self.lessons.queue.front() {
            let lacks = !granted.secrets.is_empty() || self.network.lacks_authority();
            let needs_authority = lacks && !self.info.network.has_authority;
            let runs = self.runs();
            if let Some(live) = self.live.as_ref().filter(|_| lacks && runs) {
                let (granted, link) = (granted.clone(), live.link.clone());
                self.lessons.teaching.spawn(async move {
                    let taught = granted.teach(&link, needs_authority);
                    timeout(TOLD_WITHIN, taught).await.unwrap_or(Err(NetworkError::NotRunning))
                });
                break;
            }
            // Whom to trust it is told when it runs again.
            let taught = if granted.secrets.is_empty() { Ok(()) } else { Err(NetworkError::NotRunning) };
            if let Some(lesson) = self.lessons.queue.pop_front() {
                self.conclude(lesson, taught);
            }
        }
        self.learning.send_replace(!self.lessons.queue.is_empty());
    }

    /// Gives it what its guest knows of by now, and goes on with the next.
    pub(super) fn taught(&mut self, taught: Result<Taught, JoinError>) {
        let Some(lesson) = self.lessons.queue.pop_front() else { return };
        let taught = taught.unwrap_or(Err(NetworkError::NotRunning));
        let given = taught.and_then(|authority| self.give(&lesson.granted, authority));
        self.conclude(lesson, given);
        self.teach_first();
    }

    fn give(&mut self, granted: &Granted, authority: Option<Arc<Authority>>) -> Result<(), NetworkError> {
        let engine = self.engine.upgrade().ok_or(NetworkError::Ended)?;
        if let Some(authority) = &authority {
            engine.keep_authority(&self.info.id, authority)?;
        }
        let mut settings = self.info.network.given(&granted.secrets);
        settings.has_authority |= authority.is_some();
        self.adopt(&engine, settings, authority)
    }

    /// There is nobody to be told any more.
    pub(super) fn stop_teaching(&mut self) {
        for lesson in std::mem::take(&mut self.lessons).queue {
            self.conclude(lesson, Err(NetworkError::NotRunning));
        }
        self.learning.send_replace(false);
    }

    /// Says what became of it: to whoever waits, else in the log.
    fn conclude(&self, lesson: Lesson, taught: Result<(), NetworkError>) {
        let withheld: Vec<String> = lesson.granted.secrets.into_iter().map(|secret| secret.name).collect();
        let tls_refused = self.network.lacks_authority();
        let told = match taught {
            Err(source) if tls_refused || !withheld.is_empty() => Err(Untaught { withheld, tls_refused, source }),
            Ok(()) | Err(_) => Ok(self.info.network.clone()),
        };
        if let Err(untaught) = &told {
            self.record("network_failed", serde_json::json!({ "why": untaught.source.to_string() }));
        }
        match (lesson.answer, told) {
            // Nobody may be waiting any more; the change stands.
            (Some(answer), told) => drop(answer.send(told.map_err(NetworkChangeError::from))),
            (None, Err(Untaught { source, .. })) => {
                tracing::warn!(sandbox = %self.info.id, error = &source as &dyn std::error::Error, "its TLS cannot be opened and is refused");
            }
            (None, Ok(_)) => {}
        }
    }

    fn runs(&self) -> bool {
        self.phase.borrow().state() == State::Running
    }
}
