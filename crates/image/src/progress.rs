//! Progress reports of a build.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// One report. A build sends at least one every second or so, even without progress, so that a display stays alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub step: Step,
    pub done: u64,
    /// `None` if the amount of work is unknown.
    pub total: Option<u64>,
    /// What the build is working on: a package or a file.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Another build holds the store's lock.
    Waiting,
    PackageLists,
    /// Counted in packages.
    Download,
    /// Counted in packages, each once for unpacking and once for setting up.
    Install,
    /// Users, caches, compiled Python.
    Customise,
    FileSystem,
    /// Counted in bytes.
    Checksum,
    Kernel,
    Initrd,
    Publish,
    /// Counted in bytes.
    Pack,
    /// Counted in bytes.
    Unpack,
}

impl Step {
    /// The step for display, in the present tense.
    pub fn title(self) -> &'static str {
        match self {
            Step::Waiting => "another build is running",
            Step::PackageLists => "reading Debian's package lists",
            Step::Download => "downloading packages",
            Step::Install => "installing packages",
            Step::Customise => "setting up the system",
            Step::FileSystem => "writing the file system",
            Step::Checksum => "computing checksums",
            Step::Kernel => "fetching the kernel",
            Step::Initrd => "packing the initrd",
            Step::Publish => "storing the template",
            Step::Pack => "packing the template",
            Step::Unpack => "unpacking the template",
        }
    }
}

impl Progress {
    pub(crate) fn of(step: Step, detail: impl Into<String>) -> Self {
        Self { step, done: 0, total: None, detail: detail.into() }
    }
}

/// Runs work that cannot report its progress, and repeats `progress` every second until it is done.
pub(crate) fn while_waiting<T: Send>(progress: &Progress, report: Report<'_>, work: impl FnOnce() -> T + Send) -> T {
    report(progress);
    thread::scope(|scope| {
        let (finished, wait) = channel::<()>();
        let worker = scope.spawn(move || {
            let result = work();
            drop(finished);
            result
        });
        while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(Duration::from_secs(1)) {
            report(progress);
        }
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The receiver of reports.
pub type Report<'a> = &'a mut dyn FnMut(&Progress);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_silent_work_is_reported_more_than_once() {
        let mut reports = 0;
        let answer = while_waiting(&Progress::of(Step::Publish, ""), &mut |_| reports += 1, || {
            thread::sleep(Duration::from_millis(1200));
            42
        });
        assert!(answer == 42 && reports >= 2, "{answer} after {reports} reports");
    }
}
