//! What the agent has to say to whoever reads the machine's console.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

static KERNEL_LOG: OnceLock<File> = OnceLock::new();

/// Sends later messages to the kernel's log, which the console shows.
pub fn use_kernel_log() {
    if let Ok(log) = File::options().write(true).open("/dev/kmsg") {
        let _ = KERNEL_LOG.set(log);
    }
}

/// Says something; never fails and never waits for long.
pub fn say(message: &str) {
    match KERNEL_LOG.get() {
        // One write is one record.
        Some(mut log) => drop(log.write_all(format!("<4>sandling: {message}\n").as_bytes())),
        None => eprintln!("sandling-guest: {message}"),
    }
}

/// A panic is said, and caught by whoever runs the code; PID 1 must not end.
pub fn say_panics() {
    std::panic::set_hook(Box::new(|panic| say(&panic.to_string().replace('\n', " "))));
}
