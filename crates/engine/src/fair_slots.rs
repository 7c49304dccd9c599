//! Slots for expensive work that tenants share. A tenant that asks for much waits longer; the others do not.
//!
//! A free slot goes to the waiting tenant that holds the fewest, and among those to the one that was served longest ago.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

pub struct FairSlots {
    total: usize,
    per_tenant: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    tenants: HashMap<String, Tenant>,
    served: u64,
    came: u64,
}

#[derive(Default)]
struct Tenant {
    used: usize,
    /// How many slots had been handed out when it came or was last served, and then the order of coming. The lowest is
    /// next, so a tenant that comes is before one that was just served.
    turn: (u64, u64),
    waiting: VecDeque<oneshot::Sender<Slot>>,
}

/// The right to do one piece of work. Dropping it frees the slot.
#[must_use = "dropping the slot frees it at once"]
pub struct Slot {
    slots: Arc<FairSlots>,
    tenant: String,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.used -= 1;
        if let Some(tenant) = state.tenants.get_mut(&self.tenant) {
            tenant.used -= 1;
        }
        drop(state);
        self.slots.hand_out();
    }
}

impl FairSlots {
    /// Both numbers are at least 1.
    pub fn new(total: usize, per_tenant: usize) -> Arc<Self> {
        Arc::new(Self { total: total.max(1), per_tenant: per_tenant.max(1), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot. Dropping the future gives up the place in the queue.
    pub async fn acquire(self: &Arc<Self>, tenant: &str) -> Slot {
        let (sender, receiver) = oneshot::channel();
        self.state().enqueue(tenant, sender);
        self.hand_out();
        receiver.await.expect("the sender waits in `self`, which this future keeps alive")
    }

    fn hand_out(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            if state.used >= self.total {
                return;
            }
            let Some((tenant, sender)) = state.next(self.per_tenant) else { return };
            // Sending may drop the slot, which locks the state.
            drop(state);
            let _ = sender.send(Slot { slots: self.clone(), tenant });
        }
    }
}

impl State {
    fn enqueue(&mut self, tenant: &str, sender: oneshot::Sender<Slot>) {
        self.came += 1;
        let turn = (self.served, self.came);
        let tenant = self.tenants.entry(tenant.to_owned()).or_insert_with(|| Tenant { turn, ..Tenant::default() });
        tenant.waiting.push_back(sender);
    }

    /// Takes the next request from the queue and counts its slot as used.
    fn next(&mut self, per_tenant: usize) -> Option<(String, oneshot::Sender<Slot>)> {
        self.tenants.retain(|_, tenant| {
            tenant.waiting.retain(|sender| !sender.is_closed());
            tenant.used > 0 || !tenant.waiting.is_empty()
        });
        let waiting = self.tenants.iter_mut().filter(|(_, own)| own.used < per_tenant && !own.waiting.is_empty());
        let (name, tenant) = waiting.min_by_key(|(_, tenant)| (tenant.used, tenant.turn))?;
        let sender = tenant.waiting.pop_front()?;
        self.served += 1;
        (tenant.turn, tenant.used) = ((self.served, u64::MAX), tenant.used + 1);
        self.used += 1;
        Some((name.clone(), sender))
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Slot> + Send>>;

    /// Requests a slot and takes a place in the queue.
    async fn request(slots: &Arc<FairSlots>, tenant: &'static str) -> Waiting {
        let slots = slots.clone();
        let mut waiting: Waiting = Box::pin(async move { slots.acquire(tenant).await });
        match granted(&mut waiting).await {
            Some(slot) => Box::pin(async move { slot }),
            None => waiting,
        }
    }

    async fn granted(waiting: &mut Waiting) -> Option<Slot> {
        tokio::select! { biased; slot = waiting => Some(slot), () = std::future::ready(()) => None }
    }

    #[tokio::test]
    async fn a_tenant_that_asks_for_much_does_not_delay_another() {
        let slots = FairSlots::new(1, 1);
        let running = slots.acquire("busy").await;
        let mut many = Vec::new();
        for _ in 0..50 {
            many.push(request(&slots, "busy").await);
        }
        let mut quiet = request(&slots, "quiet").await;
        assert!(granted(&mut quiet).await.is_none());
        drop(running);
        let quiet = granted(&mut quiet).await.expect("the next slot is the quiet tenant's");
        drop(quiet);
        assert!(granted(&mut many[0]).await.is_some());
    }

    #[tokio::test]
    async fn one_tenant_does_not_hold_all_slots() {
        let slots = FairSlots::new(2, 1);
        let _first = slots.acquire("busy").await;
        let mut second = request(&slots, "busy").await;
        assert!(granted(&mut second).await.is_none());
        let mut other = request(&slots, "other").await;
        assert!(granted(&mut other).await.is_some());
    }

    #[tokio::test]
    async fn tenants_that_come_again_and_again_do_not_pass_one_that_waits() {
        let slots = FairSlots::new(1, 1);
        let mut running = slots.acquire("a").await;
        let mut waits = request(&slots, "c").await;
        for tenant in ["b", "a", "b", "a"] {
            let mut next = request(&slots, tenant).await;
            drop(running);
            if granted(&mut waits).await.is_some() {
                return;
            }
            running = granted(&mut next).await.expect("somebody has the slot");
        }
        panic!("it never had its turn");
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_takes_no_slot() {
        let slots = FairSlots::new(1, 1);
        let running = slots.acquire("a").await;
        let given_up = request(&slots, "b").await;
        let mut waits = request(&slots, "b").await;
        drop(given_up);
        drop(running);
        let slot = granted(&mut waits).await.expect("the first has gone");
        drop((slot, waits));
        let mut state = slots.state();
        assert!(state.next(1).is_none() && state.tenants.is_empty());
    }
}
