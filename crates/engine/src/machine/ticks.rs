//! How fast the host's time stamp counter ticks.
//!
//! Under emulation a guest reads that very counter, and learns its speed when it boots by holding it against a timer. A
//! host that is busy then makes it learn a wrong one, and its clock is wrong ever after; so it is told.

use std::time::{Duration, Instant};

const WATCHED: Duration = Duration::from_millis(50);
const TRIES: usize = 20;

/// Thousands of ticks a second; nothing where there is no such counter.
pub(crate) async fn khz() -> Option<u64> {
    let (ticks, at) = now()?;
    tokio::time::sleep(WATCHED).await;
    let (later_ticks, later) = now()?;
    let elapsed = later.duration_since(at).as_nanos();
    u64::try_from(u128::from(later_ticks.wrapping_sub(ticks)) * 1_000_000 / elapsed.max(1)).ok()
}

/// The counter and the clock at one moment: of some tries the one that was interrupted least.
#[cfg(target_arch = "x86_64")]
fn now() -> Option<(u64, Instant)> {
    let tries = (0..TRIES).map(|_| {
        // SAFETY: reads a register that every processor of this kind has.
        let before = unsafe { std::arch::x86_64::_rdtsc() };
        let at = Instant::now();
        // SAFETY: as above.
        let after = unsafe { std::arch::x86_64::_rdtsc() };
        (after.wrapping_sub(before), before, at)
    });
    tries.min_by_key(|(took, ..)| *took).map(|(_, ticks, at)| (ticks, at))
}

#[cfg(not(target_arch = "x86_64"))]
fn now() -> Option<(u64, Instant)> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    #[tokio::test]
    async fn two_looks_agree() {
        let (one, two) = (super::khz().await.unwrap(), super::khz().await.unwrap());
        assert!(one.abs_diff(two) * 100 < one, "{one} and {two}");
    }
}
