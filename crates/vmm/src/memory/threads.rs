//! The threads of a process, as long as each of them can be made again.

use std::fs;
use std::io;

/// Signals whose loss does no harm: the end of an earlier copy, and the library's own, sent to park a thread.
const HARMLESS: u64 = bit(17) | bit(33);

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// The ids of a process's threads, in its own namespace, the main thread first. `None` if a signal is pending or a
/// timer is set, neither of which a copy of the process has.
pub(super) fn recordable_threads(pid: i32) -> io::Result<Option<Vec<u32>>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(status) = fs::read_to_string(entry?.path().join("status")) else { continue };
        let (id, pending) = parse(&status).ok_or(io::ErrorKind::InvalidData)?;
        if pending & !HARMLESS != 0 {
            return Ok(None);
        }
        threads.push(id);
    }
    threads.sort_unstable();
    // A kernel without this file cannot save timers either, and QEMU makes none.
    let timers = fs::read(format!("/proc/{pid}/timers")).unwrap_or_default();
    Ok(timers.is_empty().then_some(threads))
}

/// A thread's innermost id, and the signals that are pending for it or its process.
fn parse(status: &str) -> Option<(u32, u64)> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let signals = |name| field(name).and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let id = field("NSpid:")?.split_whitespace().last()?.parse().ok()?;
    Some((id, signals("SigPnd:")? | signals("ShdPnd:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_its_innermost_id_and_its_pending_signals() {
        let status = "Name:\tqemu\nNSpid:\t4711\t12\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000010200\n";
        assert_eq!(parse(status), Some((12, bit(10) | bit(17))));
        assert_eq!(parse("Name:\tqemu\n"), None);
    }

    #[test]
    fn the_threads_of_a_process_without_signals_and_timers_are_listed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let threads = recordable_threads(child.id() as i32).unwrap();
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(threads.map(|threads| threads.len()), Some(1));
    }
}
