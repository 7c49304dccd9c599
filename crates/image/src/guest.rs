//! The guest agent that this build carries.

/// The static binary that becomes `/init` of every initrd. Bring another with `SANDLING_GUEST_BINARY` at build time.
pub const GUEST: &[u8] = include_bytes!(env!("SANDLING_GUEST"));
