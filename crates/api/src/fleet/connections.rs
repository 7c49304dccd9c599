//! Connections to other nodes that wait for their next request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use hyper::client::conn::http1::SendRequest;

/// Shorter than the idle timeout of the server at the other end.
const KEEP_FOR: Duration = Duration::from_secs(60);
const MOST_PER_NODE: usize = 32;

/// By the fingerprint of the other machine. Clones share the connections.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<HashMap<String, Vec<Idle>>>>);

struct Idle {
    connection: SendRequest<Body>,
    since: Instant,
}

impl Connections {
    /// The connection that was used last.
    pub(super) fn take(&self, machine: &str) -> Option<SendRequest<Body>> {
        let mut all = self.lock();
        let idle = all.get_mut(machine)?;
        idle.retain(Idle::is_usable);
        Some(idle.pop()?.connection)
    }

    /// Keeps a connection as soon as its response has ended.
    pub(super) fn keep(&self, machine: &str, mut connection: SendRequest<Body>) {
        let (connections, machine) = (self.clone(), machine.to_owned());
        tokio::spawn(async move {
            if connection.ready().await.is_ok() {
                let mut all = connections.lock();
                let idle = all.entry(machine).or_default();
                idle.retain(Idle::is_usable);
                if idle.len() < MOST_PER_NODE {
                    idle.push(Idle { connection, since: Instant::now() });
                }
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Idle>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    fn is_usable(&self) -> bool {
        !self.connection.is_closed() && self.since.elapsed() < KEEP_FOR
    }
}
