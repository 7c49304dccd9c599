//! The programs for machines that this build carries.

/// The static binary that becomes `/init` of every initrd. `SANDLING_GUEST_BINARY` at build time replaces it.
pub const GUEST: &[u8] = include_bytes!(env!("SANDLING_GUEST"));

/// The static binary that a build runs inside its machine.
pub const BUILDER: &[u8] = include_bytes!(env!("SANDLING_BUILDER"));
