//! Errors for unreachable sandboxes. They begin with the phrase that the clients look for, then give the cause.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use sandling_engine::{EndReason, Sandbox, SandboxId, SandboxInfo};

use super::place::opens;
use super::settings::Settings;
use crate::app::App;
use crate::e2b::refusal::CONTROL;
use crate::error::ApiError;

const PHRASE: &str = "The sandbox was not found";
const GONE: &str = "sandbox_gone";
/// How long to wait for the cause after a sandbox was lost.
const SOON: Duration = Duration::from_secs(5);

/// For a sandbox that does not exist, or must not be revealed.
pub(super) fn gone(id: &str) -> ApiError {
    out_of_reach(id, PHRASE)
}

fn gone_because(id: &SandboxId, why: &str) -> ApiError {
    out_of_reach(&id.compact(), &format!("{PHRASE}: {why}"))
}

/// For a stream of a sandbox that ends meanwhile. Without [`PHRASE`], Python's client asks whether the sandbox runs, and
/// tells a sandbox that ended during the call from one that had ended before. JavaScript's client asks only after its
/// connection broke off, so the message has the words that it would use then.
fn broken_off(id: &SandboxId, why: &str) -> ApiError {
    out_of_reach(&id.compact(), &format!("The sandbox was killed or reached its end of life: {why}"))
}

fn out_of_reach(id: &str, message: &str) -> ApiError {
    let mut error = ApiError::new(StatusCode::BAD_GATEWAY, GONE, message);
    error.shape = Some(CONTROL);
    error.with("sandboxId", id)
}

/// Whether the error says that the sandbox has ended or hibernates.
pub(super) fn is_gone(error: &ApiError) -> bool {
    error.code == GONE
}

/// For a hibernated sandbox that only a connect request wakes.
pub(super) fn asleep(id: &SandboxId) -> ApiError {
    gone_because(id, "it is paused, connect to it to resume")
}

/// For a sandbox whose time is over, and that is about to end or to be paused.
pub(super) fn over(info: &SandboxInfo) -> ApiError {
    match info.lifetime.sleep.at_the_end {
        true => asleep(&info.id),
        false => gone_because(&info.id, &EndReason::Ttl.to_string()),
    }
}

/// For a sandbox that has ended, with the cause while it is remembered. If its ports are not public, only a request
/// with one of its tokens gets the cause.
pub(super) fn ended(app: &App, headers: &HeaderMap, id: &SandboxId) -> ApiError {
    match app.engine.ended(id) {
        Ok(Some((info, why))) if opens(app, headers, id).unwrap_or(Settings::of(&info).public_ports) => {
            gone_because(id, &cause(why))
        }
        Ok(_) => gone(&id.compact()),
        Err(error) => error.into(),
    }
}

/// For a sandbox that was lost during a request. The cause is known a moment later.
pub(super) async fn lost(sandbox: &Sandbox, error: ApiError) -> ApiError {
    if !matches!(error.code, "guest_died" | "sandbox_ended") {
        return error;
    }
    if sandbox.hibernates() {
        return asleep(sandbox.id());
    }
    match tokio::time::timeout(SOON, sandbox.ended()).await {
        Ok(reason) => broken_off(sandbox.id(), &cause(reason.to_string())),
        Err(_) => error,
    }
}

/// Why a sandbox ended. It uses the clients' term if there is one.
pub(super) fn cause(why: String) -> String {
    if why == EndReason::Requested.to_string() { "it was killed".to_owned() } else { why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_sandbox_is_gone_comes_behind_the_phrase() {
        let id = SandboxId::parse("0b5e6a526d8f4b0e9c550a3f6f1f3a11").unwrap();
        let told = |reason: EndReason| gone_because(&id, &cause(reason.to_string())).message;
        assert_eq!(told(EndReason::Ttl), "The sandbox was not found: its time to live was over");
        assert_eq!(told(EndReason::Requested), "The sandbox was not found: it was killed");
        assert_eq!(told(EndReason::GuestDied("x".to_owned())), "The sandbox was not found: its guest died: x");
    }

    #[test]
    fn a_stream_that_breaks_off_has_the_words_of_javascripts_client_and_not_the_phrase() {
        let id = SandboxId::parse("0b5e6a526d8f4b0e9c550a3f6f1f3a11").unwrap();
        let told = broken_off(&id, &cause(EndReason::Requested.to_string())).message;
        assert_eq!(told, "The sandbox was killed or reached its end of life: it was killed");
        assert!(!told.contains("was not found"));
    }
}
