//! PandaStack's rule for a time to live: it starts again whenever a sandbox is used, and does not end a sandbox while a
//! command runs.
//!
//! In our own API a time to live is the longest that a sandbox may live, however busy it is, and `idle_seconds` is the
//! limit that use resets. PandaStack's clients cannot set `idle_seconds`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::{LifetimeChange, Sandbox, SandboxId, State};

/// How often the sandboxes that are in use are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The sandboxes that PandaStack's clients use.
#[derive(Clone, Default)]
pub(super) struct Renewals(Arc<Mutex<HashMap<SandboxId, Weak<Sandbox>>>>);

impl Renewals {
    /// Renews the sandbox's time to live now, and again for as long as requests to it are in progress.
    pub(super) async fn used(self, sandbox: Arc<Sandbox>) {
        if sandbox.info().lifetime.ttl_seconds.is_none() {
            return;
        }
        renew(&sandbox, 0.1).await;
        let first = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(sandbox.id().clone(), Arc::downgrade(&sandbox)).is_none() && known.len() == 1
        };
        if first {
            tokio::spawn(self.renew_all());
        }
    }

    /// Ends when no sandbox is left.
    async fn renew_all(self) {
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
                renew(sandbox, 0.4).await;
            }
        }
    }
}

/// Starts a time to live again, if at least this share of it has passed.
async fn renew(sandbox: &Sandbox, share: f64) {
    let lifetime = sandbox.info().lifetime;
    let Some(ttl) = lifetime.ttl_seconds.filter(|_| !lifetime.persistent) else { return };
    let passed = Timestamp::now().duration_since(lifetime.from).as_secs_f64();
    if passed >= ttl as f64 * share {
        let change = LifetimeChange { ttl_seconds: Some(Some(ttl)), ..Default::default() };
        if let Err(error) = sandbox.set_lifetime(change).await {
            tracing::warn!(sandbox = %sandbox.id(), %error, "the sandbox's time to live could not be renewed");
        }
    }
}
