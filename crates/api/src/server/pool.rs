//! The open connections, and which of them must close to make room for others.
//!
//! A connection whose last request had a valid token is *trusted*. All others share a part of the places, so clients
//! without a token cannot keep out those that have one. When that part is full, the oldest idle connections of the
//! address that has most of them are closed.
//!
//! A new connection is untrusted until its first request. It does not close before the server has read what the client
//! has sent, which is usually the whole request. A flood could fill the pool with such connections, so only a part of
//! the places are for them, and the server accepts no more until it has read some.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandling_service::RequestPermit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::phase::{Phase, PhaseCell};
use crate::forwarded::TrustedProxies;

/// Limits of the pool.
#[derive(Debug, Clone)]
pub(super) struct PoolLimits {
    /// All connections.
    pub(super) total: usize,
    /// Connections without a valid token.
    pub(super) untrusted: usize,
    /// The same, from one address. Clients on this machine share an address, and so do those of a proxy, so it does not
    /// apply to them.
    pub(super) untrusted_per_address: usize,
    pub(super) proxies: TrustedProxies,
    pub(super) head: Duration,
    pub(super) idle: Duration,
    pub(super) untrusted_idle: Duration,
}

/// Closes a connection. Its task notices and ends.
pub(super) trait Close {
    fn close(&self);
}

/// The most connections that are accepted before the server has read what they sent.
const MOST_NEW: usize = 256;

pub(super) struct Pool<C> {
    limits: PoolLimits,
    /// Permits to be new.
    new: Arc<Semaphore>,
    open: Mutex<Open<C>>,
}

struct Open<C> {
    next: u64,
    connections: HashMap<u64, Entry<C>>,
    by_address: HashMap<IpAddr, usize>,
}

struct Entry<C> {
    address: IpAddr,
    trusted: Arc<AtomicBool>,
    phase: Arc<PhaseCell>,
    socket: C,
}

impl<C> Entry<C> {
    fn is_trusted(&self) -> bool {
        self.trusted.load(Ordering::Relaxed)
    }
}

/// A connection's place in the pool, until it is dropped.
pub(super) struct Place<C> {
    pool: Arc<Pool<C>>,
    id: u64,
    pub(super) trusted: Arc<AtomicBool>,
    pub(super) phase: Arc<PhaseCell>,
    kept: Mutex<Vec<RequestPermit>>,
}

impl<C> Place<C> {
    /// Keeps permits of a request whose connection became a socket.
    pub(super) fn keep(&self, permits: Vec<RequestPermit>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).extend(permits);
    }
}

impl<C> Drop for Place<C> {
    fn drop(&mut self) {
        self.pool.lock().remove(self.id);
    }
}

/// There is no place, and nothing can be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl<C: Close> Pool<C> {
    pub(super) fn new(limits: PoolLimits) -> Arc<Self> {
        let open = Open { next: 0, connections: HashMap::new(), by_address: HashMap::new() };
        let new = Arc::new(Semaphore::new((limits.untrusted / 2).clamp(1, MOST_NEW)));
        Arc::new(Self { limits, new, open: Mutex::new(open) })
    }

    /// Waits until there are not too many new connections.
    pub(super) async fn may_accept(&self) -> OwnedSemaphorePermit {
        self.new.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Gives a new connection a place. Closes others if necessary.
    pub(super) fn admit(
        self: &Arc<Self>,
        ip: IpAddr,
        socket: C,
        permit: OwnedSemaphorePermit,
        now: Instant,
    ) -> Result<Place<C>, (Full, C)> {
        let (address, is_shared) = (group(ip), self.is_shared(ip));
        let mut open = self.lock();
        let own = open.by_address.get(&address).copied().unwrap_or_default();
        let may_be_full = open.connections.len() >= self.limits.untrusted.min(self.limits.total)
            || (own >= self.limits.untrusted_per_address && !is_shared);
        if may_be_full && let Err(full) = self.make_room(&mut open, address, is_shared) {
            return Err((full, socket));
        }
        let (trusted, phase) = (Arc::<AtomicBool>::default(), Arc::new(PhaseCell::new(now, permit)));
        let id = open.next;
        open.next += 1;
        let entry = Entry { address, trusted: trusted.clone(), phase: phase.clone(), socket };
        open.connections.insert(id, entry);
        *open.by_address.entry(address).or_default() += 1;
        Ok(Place { pool: self.clone(), id, trusted, phase, kept: Mutex::default() })
    }

    fn is_shared(&self, ip: IpAddr) -> bool {
        ip.to_canonical().is_loopback() || self.limits.proxies.contains(ip)
    }

    fn make_room(&self, open: &mut Open<C>, address: IpAddr, is_shared: bool) -> Result<(), Full> {
        let own = open.untrusted().filter(|(_, entry)| entry.address == address).count();
        if !is_shared && own >= self.limits.untrusted_per_address {
            return open.close_idle(|entry| !entry.is_trusted() && entry.address == address, own / 16);
        }
        let untrusted = open.untrusted().count();
        if untrusted >= self.limits.untrusted {
            let largest = open.largest();
            let of_largest = |entry: &Entry<C>| !entry.is_trusted() && Some(entry.address) == largest;
            return open
                .close_idle(of_largest, untrusted / 16)
                .or_else(|_| open.close_idle(|entry| !entry.is_trusted(), 1))
                // All are busy without a token, for example with bodies that never end.
                .or_else(|_| open.close_oldest(of_largest));
        }
        if open.connections.len() >= self.limits.total {
            return open.close_idle(|entry| !entry.is_trusted(), 1).or_else(|_| open.close_idle(Entry::is_trusted, 1));
        }
        Ok(())
    }

    /// Closes connections that take too long to send a request.
    pub(super) fn close_expired(&self, now: Instant) {
        let mut open = self.lock();
        let expired = |entry: &Entry<C>| {
            let (since, limit) = match entry.phase.get() {
                Phase::New { since } | Phase::Head { since } => (since, self.limits.head),
                Phase::Idle { since } if entry.is_trusted() => (since, self.limits.idle),
                Phase::Idle { since } => (since, self.limits.untrusted_idle),
                Phase::Busy { .. } => return false,
            };
            now.saturating_duration_since(since) >= limit
        };
        let ids: Vec<_> = open.connections.iter().filter(|(_, entry)| expired(entry)).map(|(id, _)| *id).collect();
        open.close(&ids);
    }
}

impl<C> Pool<C> {
    fn lock(&self) -> MutexGuard<'_, Open<C>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Open<C> {
    fn remove(&mut self, id: u64) -> Option<Entry<C>> {
        let entry = self.connections.remove(&id)?;
        if let Some(count) = self.by_address.get_mut(&entry.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&entry.address);
            }
        }
        Some(entry)
    }

    fn untrusted(&self) -> impl Iterator<Item = (&u64, &Entry<C>)> {
        self.connections.iter().filter(|(_, entry)| !entry.is_trusted())
    }

    /// The address with the most untrusted connections.
    fn largest(&self) -> Option<IpAddr> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (_, entry) in self.untrusted() {
            *counts.entry(entry.address).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(address, _)| address)
    }
}

impl<C: Close> Open<C> {
    /// Closes the `count` connections that have been idle longest, at least one. Several at once, because the search
    /// is the expensive part.
    fn close_idle(&mut self, may_close: impl Fn(&Entry<C>) -> bool, count: usize) -> Result<(), Full> {
        let idle_since = |(id, entry): (&u64, &Entry<C>)| match entry.phase.get() {
            Phase::Head { since } | Phase::Idle { since } if may_close(entry) => Some((since, *id)),
            _ => None,
        };
        let mut idle: Vec<_> = self.connections.iter().filter_map(idle_since).collect();
        if idle.is_empty() {
            return Err(Full);
        }
        let count = count.clamp(1, idle.len());
        idle.select_nth_unstable(count - 1);
        let ids: Vec<_> = idle[..count].iter().map(|(_, id)| *id).collect();
        self.close(&ids);
        Ok(())
    }

    fn close_oldest(&mut self, may_close: impl Fn(&Entry<C>) -> bool) -> Result<(), Full> {
        let oldest = self.connections.iter().filter(|(_, entry)| may_close(entry)).map(|(id, _)| *id).min();
        self.close(&[oldest.ok_or(Full)?]);
        Ok(())
    }

    fn close(&mut self, ids: &[u64]) {
        for id in ids {
            if let Some(entry) = self.remove(*id) {
                entry.socket.close();
            }
        }
    }
}

/// The addresses that count as one client. A host usually has a whole /64 of IPv6.
fn group(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Socket(Arc<AtomicBool>);

    impl Close for Socket {
        fn close(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    struct Client {
        place: Place<Socket>,
        socket: Socket,
    }

    impl Client {
        fn is_closed(&self) -> bool {
            self.socket.0.load(Ordering::Relaxed)
        }

        fn trust(self) -> Self {
            self.place.trusted.store(true, Ordering::Relaxed);
            self
        }
    }

    fn limits() -> PoolLimits {
        PoolLimits {
            total: 20,
            untrusted: 10,
            untrusted_per_address: 4,
            proxies: TrustedProxies::new(vec!["192.0.2.100/32".parse().unwrap()]),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            untrusted_idle: Duration::from_secs(60),
        }
    }

    fn connect_unread(pool: &Arc<Pool<Socket>>, ip: &str, now: Instant) -> Option<Client> {
        let socket = Socket::default();
        let permit = pool.may_accept().now_or_never().expect("not too many are new");
        let place = pool.admit(ip.parse().unwrap(), socket.clone(), permit, now).ok()?;
        Some(Client { place, socket })
    }

    fn connect(pool: &Arc<Pool<Socket>>, ip: &str, now: Instant) -> Option<Client> {
        let client = connect_unread(pool, ip, now)?;
        client.place.phase.wait();
        Some(client)
    }

    fn several(pool: &Arc<Pool<Socket>>, count: u64, ip: &str, start: Instant) -> Vec<Client> {
        (0..count).map(|at| connect(pool, ip, start + Duration::from_millis(at)).unwrap()).collect()
    }

    #[test]
    fn an_address_loses_its_oldest_idle_connection_and_no_other_does() {
        let (pool, now) = (Pool::new(limits()), Instant::now());
        let other = connect(&pool, "192.0.2.1", now).unwrap();
        let attacker = several(&pool, 9, "192.0.2.9", now);
        assert_eq!(attacker.iter().filter(|client| !client.is_closed()).count(), 4);
        assert!(attacker[0].is_closed() && !attacker[8].is_closed() && !other.is_closed());
    }

    #[test]
    fn the_addresses_of_one_network_are_one_client() {
        let (pool, now) = (Pool::new(limits()), Instant::now());
        let clients: Vec<_> = (0..9).map(|at| connect(&pool, &format!("2001:db8::{at}:1"), now).unwrap()).collect();
        assert_eq!(clients.iter().filter(|client| !client.is_closed()).count(), 4);
        assert_eq!(group("::ffff:192.0.2.1".parse().unwrap()), "192.0.2.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn clients_of_this_machine_or_of_a_proxy_share_the_places_of_all_that_have_no_token() {
        for address in ["127.0.0.1", "192.0.2.100"] {
            let (pool, now) = (Pool::new(limits()), Instant::now());
            let clients = several(&pool, 30, address, now);
            assert_eq!(clients.iter().filter(|client| !client.is_closed()).count(), 10, "{address}");
        }
    }

    #[test]
    fn idle_connections_without_a_token_never_close_one_that_has_a_token() {
        let (pool, now) = (Pool::new(limits()), Instant::now());
        let trusted: Vec<_> = several(&pool, 9, "127.0.0.1", now).into_iter().map(Client::trust).collect();
        let _flood = several(&pool, 100, "127.0.0.1", now);
        assert!(trusted.iter().all(|client| !client.is_closed()));
        let fresh = connect(&pool, "127.0.0.1", now + Duration::from_secs(1)).unwrap().trust();
        let _more = several(&pool, 100, "127.0.0.1", now + Duration::from_secs(2));
        assert!(!fresh.is_closed());
    }

    #[test]
    fn a_flood_closes_no_connection_that_the_server_has_not_read() {
        let (pool, now) = (Pool::new(limits()), Instant::now());
        let unread = connect_unread(&pool, "127.0.0.1", now).unwrap();
        let _flood = several(&pool, 100, "127.0.0.1", now);
        assert!(!unread.is_closed());
        unread.place.phase.wait();
        let _more = several(&pool, 10, "127.0.0.1", now);
        assert!(unread.is_closed());
    }

    #[test]
    fn the_server_stops_accepting_until_it_has_read_what_was_sent() {
        let (pool, now) = (Pool::new(limits()), Instant::now());
        let new: Vec<_> = (0..5).map(|_| connect_unread(&pool, "127.0.0.1", now).unwrap()).collect();
        assert!(pool.may_accept().now_or_never().is_none());
        new[0].place.phase.begin(false);
        assert!(pool.may_accept().now_or_never().is_some());
    }

    #[test]
    fn a_busy_connection_without_a_token_closes_only_if_none_is_idle() {
        let (pool, now) = (Pool::new(limits()), Instant::now());
        let busy = several(&pool, 10, "127.0.0.1", now);
        busy.iter().for_each(|client| client.place.phase.begin(false));
        let next = connect(&pool, "127.0.0.1", now).unwrap();
        assert!(busy[0].is_closed() && busy[1..].iter().all(|client| !client.is_closed()));
        let _last = connect(&pool, "127.0.0.1", now).unwrap();
        assert!(next.is_closed() && !busy[1].is_closed());
    }

    #[test]
    fn a_full_server_of_trusted_clients_closes_an_idle_one_or_refuses() {
        let limits = PoolLimits { total: 3, untrusted: 3, ..limits() };
        let (pool, now) = (Pool::new(limits), Instant::now());
        let clients: Vec<_> = several(&pool, 3, "127.0.0.1", now).into_iter().map(Client::trust).collect();
        let fourth = connect(&pool, "127.0.0.1", now).unwrap().trust();
        assert!(clients[0].is_closed() && !fourth.is_closed());
        for client in clients[1..].iter().chain([&fourth]) {
            client.place.phase.begin(false);
        }
        assert!(connect(&pool, "127.0.0.1", now).is_none());
        drop(fourth);
        assert!(connect(&pool, "127.0.0.1", now).is_some());
    }

    #[test]
    fn a_head_has_a_shorter_deadline_than_an_idle_connection() {
        let (pool, now) = (Pool::new(limits()), Instant::now());
        let [head, idle, trusted, busy] = std::array::from_fn(|_| connect(&pool, "127.0.0.1", now).unwrap());
        for client in [&idle, &trusted, &busy] {
            client.place.phase.begin(false);
        }
        for client in [&idle, &trusted] {
            client.place.phase.end(now);
        }
        let trusted = trusted.trust();
        let closed = |after: u64| {
            pool.close_expired(now + Duration::from_secs(after));
            [&head, &idle, &trusted, &busy].map(Client::is_closed)
        };
        assert_eq!(closed(9), [false, false, false, false]);
        assert_eq!(closed(10), [true, false, false, false]);
        assert_eq!(closed(60), [true, true, false, false]);
        assert_eq!(closed(300), [true, true, true, false]);
    }
}
