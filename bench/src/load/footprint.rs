//! What an idle server, or another process with an engine, uses of its host.

use std::fs;
use std::path::Path;

use crate::report::Report;

/// Growth below this is noise, such as a closing connection or the allocator.
const MORE_DESCRIPTORS: u64 = 8;
const MORE_FILES: u64 = 8;
const MORE_MEMORY_KIB: u64 = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Descendants of the server, including standbys.
    pub processes: u64,
    /// Directories of machines, including standbys.
    pub directories: u64,
    /// Files in its home, without the history of usage.
    files: u64,
    descriptors: u64,
    /// Private memory of the server.
    memory_kib: u64,
}

impl Footprint {
    pub fn of(pid: u32, home: &Path) -> Self {
        Self {
            processes: below(pid),
            directories: entries(&home.join("sandboxes")),
            // The history of each sandbox's usage outlives it for a day; the history itself bounds it.
            files: files(home) - files(&home.join("metrics")),
            descriptors: entries(Path::new(&format!("/proc/{pid}/fd"))),
            memory_kib: private_kib(pid),
        }
    }

    pub fn report(&self, when: &str, report: &mut Report) {
        report.count(&format!("{when}: processes below it"), self.processes);
        report.count(&format!("{when}: directories of machines"), self.directories);
        report.count(&format!("{when}: files in its home"), self.files);
        report.count(&format!("{when}: descriptors"), self.descriptors);
        report.count(&format!("{when}: KiB of its own memory"), self.memory_kib);
    }

    /// A description of what has grown.
    pub fn grown_from(&self, before: &Self) -> Vec<String> {
        let compared = [
            ("processes", self.processes, before.processes, 0),
            ("directories", self.directories, before.directories, 0),
            ("files", self.files, before.files, MORE_FILES),
            ("descriptors", self.descriptors, before.descriptors, MORE_DESCRIPTORS),
            ("KiB of memory", self.memory_kib, before.memory_kib, MORE_MEMORY_KIB + before.memory_kib / 4),
        ];
        let grown = compared.into_iter().filter(|(_, now, then, noise)| *now > then + noise);
        grown.map(|(what, now, then, _)| format!("{now} {what} after {then}")).collect()
    }
}

fn entries(path: &Path) -> u64 {
    fs::read_dir(path).map_or(0, |found| found.count() as u64)
}

/// All files in a directory and its subdirectories.
fn files(path: &Path) -> u64 {
    let found = fs::read_dir(path).into_iter().flatten().flatten();
    found.map(|entry| if entry.file_type().is_ok_and(|kind| kind.is_dir()) { files(&entry.path()) } else { 1 }).sum()
}

fn below(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    children.iter().map(|child| 1 + below(*child)).sum()
}

fn private_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok())
    };
    line("Private_Dirty:").unwrap_or(0)
}
