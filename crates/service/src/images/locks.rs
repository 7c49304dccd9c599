//! Locks by name, so that simultaneous requests for the same thing do it once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

#[derive(Default)]
pub(super) struct Locks(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Locks {
    /// Waits until nobody else holds the lock of this name.
    pub(super) async fn acquire(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let lock = locks.get(name).and_then(Weak::upgrade).unwrap_or_default();
            locks.insert(name.to_owned(), Arc::downgrade(&lock));
            lock
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_name_is_held_once_and_other_names_are_free() {
        let locks = Locks::default();
        let first = locks.acquire("a").await;
        let _other = locks.acquire("b").await;
        let mut second = std::pin::pin!(locks.acquire("a"));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        second.await;
        assert!(locks.0.lock().unwrap().len() <= 2);
    }
}
