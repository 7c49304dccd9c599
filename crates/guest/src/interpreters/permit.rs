//! The permit to signal Node's driver.
//!
//! A signal stops code that blocks Node's event loop. It must not come when the code has just ended, because Node then has
//! no handler and dies, or stops the next cell. The driver therefore puts the permit down when it can be signalled, and
//! takes it back afterwards. The agent signals it only after it has taken the permit. If the driver finds its permit gone,
//! it waits for the signal.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{ReadWriteFlags, preadv2};

/// An eventfd: a read takes its value and leaves zero, and fails if it is zero.
pub struct Permit(OwnedFd);

impl Permit {
    /// A permit that is not down yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// The driver's descriptor.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Takes the permit, if it is down.
    pub fn take(&self) -> bool {
        /// The offset for files that have none.
        const CURRENT: u64 = u64::MAX;
        let mut value = [0; 8];
        // `NOWAIT`, because user code could make the descriptor, which it shares, a blocking one.
        let read = preadv2(self.0.as_fd(), &mut [IoSliceMut::new(&mut value)], CURRENT, ReadWriteFlags::NOWAIT);
        read.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_side_gets_the_permit() {
        let permit = Permit::new().unwrap();
        let driver = permit.descriptor().unwrap();
        assert!(!permit.take());
        rustix::io::write(&driver, &1_u64.to_ne_bytes()).unwrap();
        assert!(permit.take());
        assert!(!permit.take());
        assert_eq!(rustix::io::read(&driver, &mut [0_u8; 8]).unwrap_err(), rustix::io::Errno::AGAIN);
    }

    #[test]
    fn the_agent_never_waits_for_the_permit() {
        let permit = Permit::new().unwrap();
        rustix::io::ioctl_fionbio(permit.descriptor().unwrap(), false).unwrap();
        assert!(!permit.take());
    }
}
