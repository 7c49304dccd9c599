//! Messages on the machine's console.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

static KERNEL_LOG: OnceLock<File> = OnceLock::new();

/// Sends later messages to the kernel's log, which appears on the console.
pub fn use_kernel_log() {
    if let Ok(log) = File::options().write(true).open("/dev/kmsg") {
        let _ = KERNEL_LOG.set(log);
    }
}

/// Prints a message. Never fails and never blocks for long.
pub fn log(message: &str) {
    match KERNEL_LOG.get() {
        // The kernel takes one write as one record.
        Some(mut log) => drop(log.write_all(format!("<4>sandling: {message}\n").as_bytes())),
        None => eprintln!("sandling-guest: {message}"),
    }
}

/// Prints panics. The caller of the code that panicked catches them, because PID 1 must not end.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| log(&panic.to_string().replace('\n', " "))));
}
