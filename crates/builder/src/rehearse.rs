//! Runs a command, and kills the processes that it leaves.

use std::fs;
use std::process::ExitCode;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use sandling_builder::Run;

use crate::{Failure, run};

pub fn rehearse(command: &Run) -> Result<ExitCode, Failure> {
    // A process that loses its parent becomes a child of this one, even if it has left the session.
    set_child_subreaper(Some(getpid())).map_err(|error| format!("cannot adopt processes: {error}"))?;
    let ended = run::run(command);
    loop {
        let left = children();
        if left.is_empty() {
            return ended;
        }
        for child in left {
            let _ = kill_process(child, Signal::KILL);
        }
        // The children of one that has ended are children of this process now.
        let _ = wait(WaitOptions::empty());
    }
}

fn children() -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| parent(*id) == Some(getpid())).filter_map(Pid::from_raw).collect()
}

fn parent(id: i32) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before the last parenthesis may contain anything.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    Pid::from_raw(parent.parse().ok()?)
}
