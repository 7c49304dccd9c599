//! A promise of PandaStack's that its clients rely on: a time to live begins anew whenever a sandbox is used, and does
//! not end in the middle of a command.
//!
//! Here a time to live is the longest a sandbox may live, however busy it is; those who want the other have
//! `idle_seconds`. PandaStack's clients cannot ask for that, so for them it is so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use jiff::Timestamp;
use sandling_engine::{LifetimeChange, Sandbox, SandboxId, State};

/// How often sandboxes are looked at that are in use.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Whether these are the headers of a client that was promised it. The TypeScript client says no more than what it runs
/// on; ours says its own name.
pub(crate) fn is_made_to(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    agent.starts_with("pandastack-py/") || agent == "node"
}

/// The sandboxes that such clients use.
#[derive(Clone, Default)]
pub(crate) struct Promises(Arc<Mutex<HashMap<SandboxId, Weak<Sandbox>>>>);

impl Promises {
    /// It is used, from now on until nothing is in flight.
    pub(crate) async fn used(&self, sandbox: &Arc<Sandbox>) {
        if sandbox.info().lifetime.ttl_seconds.is_none() {
            return;
        }
        refresh(sandbox, 0.1).await;
        let first = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(sandbox.id().clone(), Arc::downgrade(sandbox)).is_none() && known.len() == 1
        };
        if first {
            tokio::spawn(self.clone().keep());
        }
    }

    /// Keeps it until no sandbox is left.
    async fn keep(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let living: Vec<Arc<Sandbox>> = {
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                known
                    .retain(|_, sandbox| sandbox.upgrade().is_some_and(|sandbox| sandbox.info().state != State::Ended));
                if known.is_empty() {
                    return;
                }
                known.values().filter_map(Weak::upgrade).collect()
            };
            for sandbox in living.iter().filter(|sandbox| sandbox.idle_for() == Duration::ZERO) {
                refresh(sandbox, 0.4).await;
            }
        }
    }
}

/// Begins a time to live anew, if at least this share of it has passed.
async fn refresh(sandbox: &Sandbox, share: f64) {
    let lifetime = sandbox.info().lifetime;
    let Some(ttl) = lifetime.ttl_seconds.filter(|_| !lifetime.persistent) else { return };
    let passed = Timestamp::now().duration_since(lifetime.from).as_secs_f64();
    if passed >= ttl as f64 * share {
        let change = LifetimeChange { ttl_seconds: Some(Some(ttl)), ..Default::default() };
        if let Err(error) = sandbox.set_lifetime(change).await {
            tracing::warn!(sandbox = %sandbox.id(), %error, "its time to live did not begin anew");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promise_is_pandastacks() {
        let made_to = |agent: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, agent.parse().unwrap());
            is_made_to(&headers)
        };
        assert!(made_to("pandastack-py/0.10.0") && made_to("node"));
        assert!(!made_to("sandling-py/1") && !made_to("sandling-js/1") && !made_to("curl/8"));
        assert!(!is_made_to(&HeaderMap::new()));
    }
}
