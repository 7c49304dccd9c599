//! Making a restored guest itself: its clock, its randomness, its names; and believing it only with a proof.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sandling_protocol::{Identity, Limits, Proof, Request, Response};

use crate::link::{Link, LinkError};
use crate::model::SandboxId;

/// A guest that is not itself within this time is not handed out.
const WITHIN: Duration = Duration::from_secs(20);
/// How wrong a sandbox's clock may be when it is handed out.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum IdentifyError {
    #[error("the host has no randomness to give")]
    Entropy(#[source] std::io::Error),
    #[error("the guest did not become itself")]
    Guest(#[from] LinkError),
    #[error("the host is too busy to prove that the guest's clock is right")]
    Clock,
    #[error("the guest's proof is not whole: {0}")]
    Proof(&'static str),
}

/// What a guest has confirmed. Only one with a whole proof has any of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirmed {
    /// By how much its clock was seen to differ, the way of the message included.
    pub(crate) clock_error: Duration,
    /// Its kernel, and all interpreters that listen.
    pub(crate) reseeded: bool,
}

/// Tells the guest who it is. The clock travels with the message, so on a host so busy that the answer is late, it
/// cannot be proved right; then it is all told again. `boots` is how often it has booted from its own disk.
pub(crate) async fn identify(
    link: &Link,
    id: &SandboxId,
    boots: u32,
    env: Option<&BTreeMap<String, String>>,
    pids: u32,
) -> Result<Confirmed, IdentifyError> {
    let begun = Instant::now();
    let hostname = format!("sandbox-{}", &id.as_str()[..8]);
    // The same again when it is woken: programs know a machine by this.
    let machine_id = blake3::hash(id.as_str().as_bytes()).to_hex()[..32].to_owned();
    // This one too, unless it has booted since: to be woken is not to be started anew.
    let boot_id = boot_id(id, boots).to_string();
    loop {
        let identity = Identity {
            entropy: entropy()?,
            hostname: hostname.clone(),
            machine_id: machine_id.clone(),
            boot_id: boot_id.clone(),
            env: env.cloned(),
            limits: Limits { pids: Some(pids) },
            unix_nanos: unix_nanos(),
        };
        let answer = link.call_within(WITHIN, Request::Identify(identity)).await?;
        let now = unix_nanos();
        let Response::Identified(proof) = answer else { return Err(LinkError::Unexpected.into()) };
        check(&proof, &hostname)?;
        let clock_error = Duration::from_nanos(now.abs_diff(proof.unix_nanos));
        if clock_error <= CLOCK_TOLERANCE {
            return Ok(Confirmed { clock_error, reseeded: reseeded(&proof) });
        }
        if begun.elapsed() > WITHIN {
            return Err(IdentifyError::Clock);
        }
    }
}

fn boot_id(id: &SandboxId, boots: u32) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new_derive_key("sandling: boot id");
    hasher.update(id.as_str().as_bytes());
    // A sandbox that never booted keeps the id that it got from older versions.
    if boots > 0 {
        hasher.update(&boots.to_le_bytes());
    }
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

fn check(proof: &Proof, hostname: &str) -> Result<(), IdentifyError> {
    if !proof.kernel_reseeded {
        return Err(IdentifyError::Proof("the kernel's random generator was not reseeded"));
    }
    if !reseeded(proof) {
        return Err(IdentifyError::Proof("an interpreter was not reseeded"));
    }
    if proof.hostname != hostname {
        return Err(IdentifyError::Proof("the host name is not its own"));
    }
    Ok(())
}

fn reseeded(proof: &Proof) -> bool {
    proof.kernel_reseeded && proof.interpreters_reseeded == proof.interpreters
}

fn entropy() -> Result<String, IdentifyError> {
    let mut bytes = [0u8; 64];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| IdentifyError::Entropy(error.into()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn unix_nanos() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_has_not_confirmed_is_not_believed() {
        let whole = Proof {
            unix_nanos: 0,
            kernel_reseeded: true,
            interpreters: 3,
            interpreters_reseeded: 3,
            hostname: "sandbox-1".to_owned(),
        };
        assert!(check(&whole, "sandbox-1").is_ok());
        for lacking in [
            Proof { kernel_reseeded: false, ..whole.clone() },
            Proof { interpreters_reseeded: 2, ..whole.clone() },
            Proof { interpreters_reseeded: 4, ..whole.clone() },
            Proof { hostname: "sandbox-2".to_owned(), ..whole.clone() },
        ] {
            assert!(matches!(check(&lacking, "sandbox-1"), Err(IdentifyError::Proof(_))), "{lacking:?}");
        }
    }
}
