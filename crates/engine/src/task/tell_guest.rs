//! Telling the guest about changes of its network: placeholders of new secrets, and the authority that it has to trust.
//!
//! The task tells one thing after the other, in the background. A guest may be slow or never answer, and nothing that
//! binds the guest waits for it.

use std::sync::Arc;
use std::time::Duration;

use sandling_network::Authority;
use tokio::task::JoinError;
use tokio::time::timeout;

use super::notices::{Answer, Notice, Told};
use super::start::SandboxTask;
use crate::model::State;
use crate::network::{Granted, GuestNotTold, NetworkChangeError, NetworkError};

/// A guest that takes longer does not get the secret.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

impl SandboxTask {
    /// Tells the guest to trust an authority if a default requires that its TLS is opened and it has none. Until the
    /// guest does, the gateway refuses such connections.
    pub(super) fn tell_authority(&mut self) {
        // One waiting notice is enough: when its turn comes, it finds out what is missing.
        if self.runs() && self.network.lacks_authority() && self.notices.queue.len() < 2 {
            self.tell(Notice::default());
        }
    }

    /// Tells the guest about granted secrets, and about its authority if it needs one, and then answers.
    pub(super) fn tell_granted(&mut self, granted: Granted, answer: Answer) {
        let notice = Notice { granted, answer: Some(answer) };
        if notice.granted.secrets.is_empty() && !self.network.lacks_authority() {
            self.conclude(notice, Ok(()));
        } else {
            self.tell(notice);
        }
    }

    fn tell(&mut self, notice: Notice) {
        self.notices.queue.push_back(notice);
        if self.notices.queue.len() == 1 {
            self.tell_first();
        }
    }

    fn tell_first(&mut self) {
        while let Some(Notice { granted, .. }) = self.notices.queue.front() {
            let lacks = !granted.secrets.is_empty() || self.network.lacks_authority();
            let needs_authority = lacks && !self.info.network.has_authority;
            if let Some(live) = self.live().filter(|_| lacks && self.runs()) {
                let (granted, link) = (granted.clone(), live.link.clone());
                self.notices.telling.spawn(async move {
                    let telling = granted.tell(&link, needs_authority);
                    timeout(TOLD_WITHIN, telling).await.unwrap_or(Err(NetworkError::NotRunning))
                });
                break;
            }
            // The guest is told about the authority when it runs again.
            let told = if granted.secrets.is_empty() { Ok(()) } else { Err(NetworkError::NotRunning) };
            if let Some(notice) = self.notices.queue.pop_front() {
                self.conclude(notice, told);
            }
        }
        self.telling_guest.send_replace(!self.notices.queue.is_empty());
    }

    /// Gives the sandbox what the guest was told about, and continues with the next notice.
    pub(super) fn told(&mut self, told: Result<Told, JoinError>) {
        let Some(notice) = self.notices.queue.pop_front() else { return };
        let told = told.unwrap_or(Err(NetworkError::NotRunning));
        let given = told.and_then(|authority| self.give(&notice.granted, authority));
        self.conclude(notice, given);
        self.tell_first();
    }

    fn give(&mut self, granted: &Granted, authority: Option<Arc<Authority>>) -> Result<(), NetworkError> {
        if let Some(authority) = &authority {
            self.parts.networks.save_authority(&self.info.id, authority)?;
        }
        let mut settings = self.info.network.given(&granted.secrets);
        settings.has_authority |= authority.is_some();
        self.adopt(settings, authority)
    }

    /// Gives up on all notices.
    pub(super) fn stop_telling(&mut self) {
        for notice in std::mem::take(&mut self.notices).queue {
            self.conclude(notice, Err(NetworkError::NotRunning));
        }
        self.telling_guest.send_replace(false);
    }

    /// Reports the result to the caller, or to the log if nobody asked.
    fn conclude(&self, notice: Notice, result: Result<(), NetworkError>) {
        let withheld: Vec<String> = notice.granted.secrets.into_iter().map(|secret| secret.name).collect();
        let tls_refused = self.network.lacks_authority();
        let told = match result {
            Err(source) if tls_refused || !withheld.is_empty() => Err(GuestNotTold { withheld, tls_refused, source }),
            Ok(()) | Err(_) => Ok(self.info.network.clone()),
        };
        if let Err(failed) = &told {
            self.record("network_failed", serde_json::json!({ "why": failed.source.to_string() }));
        }
        match (notice.answer, told) {
            // The caller may have gone; the change stands.
            (Some(answer), told) => drop(answer.send(told.map_err(NetworkChangeError::from))),
            (None, Err(GuestNotTold { source, .. })) => {
                tracing::warn!(sandbox = %self.info.id, error = &source as &dyn std::error::Error, "could not tell the guest to trust its authority; the gateway refuses its TLS");
            }
            (None, Ok(_)) => {}
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.phase.borrow().state() == State::Running
    }
}
