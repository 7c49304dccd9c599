//! The machine's resource usage, as its kernel counts it.

use std::fs;

use sandling_protocol::Usage;

pub fn now() -> Usage {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let disk = rustix::fs::statvfs("/").ok();
    Usage {
        memory_total_bytes: kib_of(&memory, "MemTotal:") * 1024,
        memory_available_bytes: kib_of(&memory, "MemAvailable:") * 1024,
        disk_total_bytes: disk.as_ref().map_or(0, |disk| disk.f_blocks * disk.f_frsize),
        disk_available_bytes: disk.map_or(0, |disk| disk.f_bavail * disk.f_frsize),
        processes: processes(),
        cpu_ms: cpu_ms(&stat),
        uptime_ms: seconds_to_ms(uptime.split(' ').next().unwrap_or_default()),
    }
}

pub fn memory_available_bytes() -> u64 {
    kib_of(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemAvailable:") * 1024
}

fn kib_of(meminfo: &str, name: &str) -> u64 {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn processes() -> u32 {
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0;
    };
    let is_process = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    entries.flatten().filter(|entry| is_process(entry.file_name().as_encoded_bytes())).count() as u32
}

/// All processor time except idle time and waiting for disks.
fn cpu_ms(stat: &str) -> u64 {
    let ticks: Vec<u64> = stat.lines().next().unwrap_or_default().split(' ').filter_map(|t| t.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks.as_slice() else {
        return 0;
    };
    // The kernel reports ticks of 10 ms to user space, whatever its own are.
    (user + nice + system + irq + softirq) * 10
}

fn seconds_to_ms(seconds: &str) -> u64 {
    seconds.parse::<f64>().map_or(0, |seconds| (seconds * 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_does_not_count_as_processor_time() {
        assert_eq!(cpu_ms("cpu  1 2 3 1000 1000 4 5 0 0 0\ncpu0 1 2 3 4"), 150);
    }

    #[test]
    fn the_machine_has_memory_a_disk_and_processes() {
        let usage = now();
        assert!(usage.memory_total_bytes > usage.memory_available_bytes && usage.memory_available_bytes > 0);
        assert!(usage.disk_total_bytes > 0 && usage.processes > 0 && usage.uptime_ms > 0);
    }
}
