//! Waking a sandbox for a request that uses it.

use std::sync::Arc;

use axum::http::HeaderMap;
use sandling_engine::{Call, LifetimeChange, Sandbox, SandboxId, SandboxInfo, State};

use super::gone::{asleep, ended};
use super::settings::Settings;
use crate::app::App;
use crate::error::ApiError;

/// A sandbox of E2B's clients that traffic wakes lives for at least so long, as with E2B.
const LEAST_SECONDS: u64 = 300;

/// Returns the running sandbox. It wakes a hibernated one, also one that is just being saved, if its settings allow that. A
/// hibernation waits a moment for the returned call.
pub(super) async fn awake(app: &App, headers: &HeaderMap, id: &SandboxId) -> Result<(Arc<Sandbox>, Call), ApiError> {
    app.engine.settled().await;
    let sandbox = app.engine.get(id).ok_or_else(|| ended(app, headers, id))?;
    loop {
        let call = sandbox.steady().await;
        let info = sandbox.info();
        match info.state {
            State::Running | State::Stalled => return Ok((sandbox, call)),
            // As with E2B, only a request to resume boots a sandbox that sleeps without its memory.
            State::Hibernated | State::Paused if Settings::of(&info).auto_resume && !info.sleeps_without_memory() => {
                // A pause that comes before that need not wait for this call.
                drop(call);
                if let Some(change) = longer_life(&info) {
                    sandbox.set_lifetime(change).await?;
                }
                sandbox.resume().await?;
            }
            State::Hibernated | State::Paused => return Err(asleep(id)),
            State::Orphaned | State::Ended | State::Unreadable => return Err(ended(app, headers, id)),
        }
    }
}

/// The change that lets a sandbox which traffic wakes live long enough. Sandboxes of other clients keep their lifetime.
fn longer_life(info: &SandboxInfo) -> Option<LifetimeChange> {
    let is_theirs = info.settings.auto_resume.is_some() && !info.lifetime.persistent;
    let is_short = info.lifetime.ttl_seconds.is_some_and(|seconds| seconds < LEAST_SECONDS);
    let change = LifetimeChange { ttl_seconds: Some(Some(LEAST_SECONDS)), ..LifetimeChange::default() };
    (is_theirs && is_short).then_some(change)
}
