//! Pins: which addresses the gateway returned to this sandbox for which names.
//!
//! A pin outlives the TTL of its answer, because programs keep addresses for longer. A stale answer is resolved again.
//! The number of pins is bounded, whatever the guest queries.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::name::HostName;

/// Addresses of one name that are returned and pinned.
pub const MOST_ADDRESSES: usize = 8;
/// The most names that are kept for one address. Large hosts serve many names from a shared address. The latest ones
/// are kept.
const MOST_NAMES: usize = 64;
/// The most names, and the most addresses, that are kept.
const MOST: usize = 2048;
/// How long a pin is valid after its last answer.
const PINNED: Duration = Duration::from_secs(15 * 60);
/// The shortest and the longest time for which an answer is cached.
const FRESH: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// A pin, as one gateway hands it to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub name: HostName,
    pub address: Ipv4Addr,
    /// How much longer it is valid.
    pub seconds: u32,
}

/// All pins of one sandbox.
#[derive(Debug, Default)]
pub struct Pins(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_address: HashMap<Ipv4Addr, Vec<(HostName, Instant)>>,
    answers: HashMap<HostName, (Vec<Ipv4Addr>, Instant)>,
}

impl Pins {
    /// Takes over the pins of an earlier gateway of the same sandbox.
    pub fn restored(pins: &[Pin]) -> Pins {
        let own = Pins::default();
        let now = Instant::now();
        let mut table = own.lock();
        for pin in pins.iter().take(MOST) {
            let until = now + Duration::from_secs(pin.seconds.into()).min(PINNED);
            table.pin(pin.address, &pin.name, until);
        }
        drop(table);
        own
    }

    /// Pins `addresses` to `name`.
    pub fn pin(&self, name: &HostName, addresses: &[Ipv4Addr], ttl: Duration) {
        let now = Instant::now();
        let mut table = self.lock();
        table.sweep(now);
        for address in addresses {
            table.pin(*address, name, now + PINNED.max(ttl.min(FRESH.1)));
        }
        if table.answers.len() < MOST {
            table.answers.insert(name.clone(), (addresses.to_vec(), now + ttl.clamp(FRESH.0, FRESH.1)));
        }
    }

    /// The cached answer for `name`, and how long it stays fresh. Renews its pins.
    pub fn answer(&self, name: &HostName) -> Option<(Vec<Ipv4Addr>, Duration)> {
        let now = Instant::now();
        let mut table = self.lock();
        let (addresses, until) = table.answers.get(name).filter(|(_, until)| *until > now).cloned()?;
        for address in &addresses {
            table.pin(*address, name, now + PINNED);
        }
        Some((addresses, until - now))
    }

    /// The names for which `address` was returned.
    pub fn names(&self, address: Ipv4Addr) -> Vec<HostName> {
        let now = Instant::now();
        let table = self.lock();
        let pinned = table.by_address.get(&address).into_iter().flatten();
        pinned.filter(|(_, until)| *until > now).map(|(name, _)| name.clone()).collect()
    }

    /// The pins to hand over. If there are more than the next gateway accepts, those that are valid longest.
    pub fn all(&self) -> Vec<Pin> {
        let now = Instant::now();
        let table = self.lock();
        let pins = table.by_address.iter().flat_map(|(address, names)| names.iter().map(move |pin| (*address, pin)));
        let mut pins: Vec<_> = pins.filter(|(_, (_, until))| *until > now).collect();
        pins.sort_unstable_by_key(|(_, (_, until))| Reverse(*until));
        pins.truncate(MOST);
        let hand_over = |(address, (name, until)): (Ipv4Addr, &(HostName, Instant))| Pin {
            name: name.clone(),
            address,
            seconds: (*until - now).as_secs() as u32,
        };
        pins.into_iter().map(hand_over).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn pin(&mut self, address: Ipv4Addr, name: &HostName, until: Instant) {
        if self.by_address.len() >= MOST && !self.by_address.contains_key(&address) {
            self.forget_the_oldest();
        }
        let names = self.by_address.entry(address).or_default();
        if let Some((_, old)) = names.iter_mut().find(|(known, _)| known == name) {
            *old = until.max(*old);
            return;
        }
        if names.len() >= MOST_NAMES
            && let Some(oldest) = (0..names.len()).min_by_key(|at| names[*at].1)
        {
            names.swap_remove(oldest);
        }
        names.push((name.clone(), until));
    }

    fn forget_the_oldest(&mut self) {
        let age = |names: &Vec<(HostName, Instant)>| names.iter().map(|(_, until)| *until).max();
        if let Some(oldest) = self.by_address.iter().min_by_key(|(_, names)| age(names)).map(|(address, _)| *address) {
            self.by_address.remove(&oldest);
        }
    }

    fn sweep(&mut self, now: Instant) {
        if self.answers.len() < MOST / 2 && self.by_address.len() < MOST / 2 {
            return;
        }
        self.answers.retain(|_, (_, until)| *until > now);
        self.by_address.retain(|_, names| {
            names.retain(|(_, until)| *until > now);
            !names.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pin_outlives_the_answer_and_then_ends() {
        let (pins, own, address) = (Pins::default(), name("a.com"), Ipv4Addr::new(93, 184, 216, 34));
        pins.pin(&own, &[address], Duration::from_secs(30));
        assert_eq!(pins.answer(&own), Some((vec![address], Duration::from_secs(30))));
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(pins.answer(&own), None);
        assert_eq!(pins.names(address), std::slice::from_ref(&own));
        tokio::time::advance(PINNED).await;
        assert!(pins.names(address).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn pins_are_handed_over_with_the_time_they_have_left() {
        let (pins, address) = (Pins::default(), Ipv4Addr::new(93, 184, 216, 34));
        pins.pin(&name("a.com"), &[address], Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(300)).await;
        let next = Pins::restored(&pins.all());
        assert_eq!(next.names(address), [name("a.com")]);
        tokio::time::advance(PINNED - Duration::from_secs(299)).await;
        assert!(next.names(address).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_names_of_an_address_are_kept() {
        let (pins, address) = (Pins::default(), Ipv4Addr::new(93, 184, 216, 34));
        for number in 0..2 * MOST_NAMES {
            pins.pin(&name(&format!("x{number}.com")), &[address], Duration::from_secs(30));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let names = pins.names(address);
        assert_eq!(names.len(), MOST_NAMES);
        assert!(names.contains(&name(&format!("x{}.com", 2 * MOST_NAMES - 1))) && !names.contains(&name("x0.com")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_pins_are_handed_over_up_to_the_limit() {
        let pins = Pins::default();
        let addresses: Vec<_> = (0..MOST as u32).map(|number| Ipv4Addr::from(0x5000_0000 + number)).collect();
        for own in ["old.com", "new.com"] {
            pins.pin(&name(own), &addresses, Duration::from_secs(30));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let all = pins.all();
        assert_eq!(all.len(), MOST);
        assert!(all.iter().all(|pin| pin.name == name("new.com")));
    }

    #[tokio::test]
    async fn endless_queries_use_bounded_memory() {
        let pins = Pins::default();
        for number in 0..3 * MOST as u32 {
            let address = Ipv4Addr::from(0x5000_0000 + number);
            pins.pin(&name(&format!("x{number}.com")), &[address], Duration::from_secs(300));
        }
        assert!(pins.all().len() <= MOST);
        assert!(pins.lock().answers.len() <= MOST);
    }
}
