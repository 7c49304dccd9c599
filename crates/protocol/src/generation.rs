//! Generations of the protocol.
//!
//! A snapshot holds the guest agent of the release that made it, running in memory. So after an upgrade the host talks to
//! an older agent. The host's greeting names the newest generation that it speaks, and the guest answers with the
//! generation of the session. The host sends nothing that this generation does not know.
//!
//! | generation | what it added |
//! |---|---|
//! | 1 | The protocol as first released. The guest ignores the host's number, answers 1, and drops an unknown request without an answer. |
//! | 2 | The guest agrees to the host's generation, and answers an unknown request with [`FailureKind::Unsupported`](crate::FailureKind::Unsupported). |
//! | 3 | Large uploads reach the guest on a disk ([`Request::TakeDisk`](crate::Request::TakeDisk)). |
//!
//! Optional fields can be added within a generation, if a peer that ignores them does no harm. Everything else (a request,
//! an event, a field that must not be ignored) needs a new generation: raise [`CURRENT`], keep the earlier ones, extend
//! [`Request::since`](crate::Request::since), and add golden frames.

/// The generation that this code speaks by preference.
pub const CURRENT: u32 = 3;

/// The first generation whose guests take the bytes of an upload from a disk.
pub const TAKES_DISKS: u32 = 3;

/// The oldest generation that this code speaks.
pub const OLDEST: u32 = 1;

/// The guest's answer to the newest generation that a host speaks: that one if the guest speaks it, else the guest's
/// nearest.
pub fn agree(host: u32) -> u32 {
    host.clamp(OLDEST, CURRENT)
}

/// A greeting without a generation is of the first one.
pub(crate) fn first() -> u32 {
    1
}

/// The host and the guest have no generation in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GenerationError {
    #[error(
        "the guest agent speaks generation {guest} of the control protocol, this release only up to {CURRENT}; the \
         snapshot or template was made by a newer release: upgrade Sandling, or rebuild the template with this release"
    )]
    TooNew { guest: u32 },
    #[error(
        "the guest agent speaks generation {guest} of the control protocol, this release only from {OLDEST} on; restore \
         the snapshot with the release that made it, or create a new sandbox from the template"
    )]
    TooOld { guest: u32 },
}

/// The host's check of the guest's answer.
pub fn check(guest: u32) -> Result<u32, GenerationError> {
    match guest {
        OLDEST..=CURRENT => Ok(guest),
        ..OLDEST => Err(GenerationError::TooOld { guest }),
        _ => Err(GenerationError::TooNew { guest }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_agrees_to_the_hosts_generation_if_it_speaks_it() {
        assert_eq!((agree(1), agree(CURRENT)), (1, CURRENT));
        assert_eq!(agree(CURRENT + 5), CURRENT);
    }

    #[test]
    fn a_host_refuses_generations_that_it_does_not_speak_and_says_what_to_do() {
        assert_eq!((check(1), check(CURRENT)), (Ok(1), Ok(CURRENT)));
        assert!(check(CURRENT + 1).unwrap_err().to_string().contains("upgrade Sandling"));
        assert!(check(0).unwrap_err().to_string().contains("create a new sandbox"));
    }
}
