//! The guest agent: PID 1 of every sandbox, and the only program in it that talks to the host.
//!
//! One thread ([`agent`]) owns all state and waits on one epoll. Work that may block on a disk runs on worker threads
//! ([`worker`]). The agent never exits, because the end of PID 1 is a kernel panic.

mod agent;
mod boot;
mod cgroup;
mod clock;
mod console;
mod disk;
mod environment;
mod exec;
mod failure;
mod files;
mod identity;
mod interpreters;
mod lent_disk;
mod link;
mod outbox;
mod ports;
mod scsi;
mod streams;
mod sys;
mod timers;
mod tunnel;
mod usage;
mod users;
mod volumes;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::agent::{Agent, Setup};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        // The same protocol over a Unix socket, in an ordinary process, for tests without a machine.
        ["--test-socket", socket] => serve_for_tests(PathBuf::from(socket)),
        _ if std::process::id() == 1 => boot::boot_and_serve(),
        _ => {
            eprintln!("sandling-guest is the first process of a sandbox; it does nothing elsewhere");
            ExitCode::from(2)
        }
    }
}

fn serve_for_tests(socket: PathBuf) -> ExitCode {
    match Agent::new(Setup::test(socket)) {
        Ok(agent) => agent.serve(),
        Err(error) => {
            eprintln!("sandling-guest: {error}");
            ExitCode::FAILURE
        }
    }
}
