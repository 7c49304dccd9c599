//! Time as a node sees it. Wall-clock time decides nothing in a fleet.

use std::future::Future;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub trait Clock: Send + Sync {
    /// Never goes back, and goes on while the machine is suspended.
    fn now(&self) -> Duration;

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(time)
    }
}
