//! The wall clock.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec};

pub fn unix_ms() -> u64 {
    unix_nanos() / 1_000_000
}

pub fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

pub fn set_unix_nanos(nanos: u64) -> io::Result<()> {
    let time = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
    Ok(rustix::time::clock_settime(ClockId::Realtime, time)?)
}
