//! What all tasks of one gateway share.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::dns::{DnsServer, Pins};
use crate::event::Journal;
use crate::frame::Ends;
use crate::limits::Limits;
use crate::link::Link;
use crate::name::HostName;
use crate::peers::PeerNames;
use crate::policy::{Learned, Mode, Rules};
use crate::rate::Bucket;
use crate::secret::SecretSet;
use crate::tcp::Table;
use crate::tls::Interceptor;

/// What all tasks of one gateway share.
pub(crate) struct Shared {
    pub ends: Ends,
    pub limits: Limits,
    pub link: Link,
    pub journal: Journal,
    pub pins: Pins,
    pub dns: DnsServer,
    pub table: Table,
    pub rules: watch::Sender<Arc<Rules>>,
    pub secrets: watch::Sender<Arc<SecretSet>>,
    pub interceptor: Option<Interceptor>,
    pub peers: PeerNames,
    pub learned: Mutex<Learned>,
    pub meters: Meters,
}

/// What was used of the limits.
pub(crate) struct Meters {
    outward: Mutex<Bucket>,
    inward: Mutex<Bucket>,
    opening: Mutex<Bucket>,
    /// Bytes out of this gateway and those before it.
    bytes_out: AtomicU64,
}

impl Shared {
    /// The rules of this moment.
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.borrow().clone()
    }

    /// The address that stands for a peer of this name, if there is one.
    pub fn peer_address(&self, name: &HostName) -> Option<Ipv4Addr> {
        self.peers.address(name)
    }

    /// Writes down what was connected to, while learning.
    pub fn learn(&self, name: Option<&HostName>, address: Ipv4Addr, port: u16) {
        if self.rules.borrow().policy.mode != Mode::Learn {
            return;
        }
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        match name {
            Some(name) => learned.name(name.clone(), port),
            None => learned.address(address, port),
        }
    }
}

impl Meters {
    pub fn new(limits: &Limits, bytes_out: u64) -> Meters {
        // A tenth of a second at once, and never less than a full buffer.
        let bucket = |rate: u64| Mutex::new(Bucket::new(rate as f64, (rate as f64 / 10.0).max(65_536.0)));
        let opening = f64::from(limits.connections_per_second);
        Meters {
            outward: bucket(limits.bytes_out_per_second),
            inward: bucket(limits.bytes_in_per_second),
            opening: Mutex::new(Bucket::new(opening, opening * 10.0)),
            bytes_out: AtomicU64::new(bytes_out),
        }
    }

    /// Counts bytes from the guest; answers how long to wait, and how many there were in all.
    pub fn outward(&self, bytes: u64) -> (Duration, u64) {
        let total = self.bytes_out.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (owe(&self.outward, bytes), total)
    }

    /// Counts bytes to the guest; answers how long to wait.
    pub fn inward(&self, bytes: u64) -> Duration {
        owe(&self.inward, bytes)
    }

    /// Whether another connection may be opened now.
    pub fn opening(&self) -> bool {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).take(1.0)
    }

    /// Bytes from the guest in all.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }
}

fn owe(bucket: &Mutex<Bucket>, bytes: u64) -> Duration {
    bucket.lock().unwrap_or_else(PoisonError::into_inner).owe(bytes as f64)
}
