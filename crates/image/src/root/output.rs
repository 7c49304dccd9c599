//! Turns the output of mmdebstrap, apt and dpkg into progress.

use crate::progress::{Progress, Step};

/// Follows one run of `mmdebstrap --verbose`, which installs the essential packages first and then the rest. The counts
/// include both rounds.
pub(super) struct Output {
    /// The total, from apt's plan.
    packages: u64,
    step: Step,
    downloaded: u64,
    unpacked: u64,
    set_up: u64,
    detail: String,
}

impl Output {
    pub(super) fn new(packages: u64) -> Self {
        Self { packages, step: Step::Download, downloaded: 0, unpacked: 0, set_up: 0, detail: String::new() }
    }

    /// Of a run that only runs scripts.
    pub(super) fn of_additions() -> Self {
        Self { step: Step::Customise, ..Self::new(0) }
    }

    pub(super) fn add_line(&mut self, line: &str) {
        if line.starts_with("Get:") {
            self.downloaded += 1;
            // Get:12 http://mirror suite/component arch NAME arch version [size]
            self.at(Step::Download, line.split_whitespace().nth(4));
        } else if line.starts_with("I: running --customize-hook") {
            self.at(Step::Customise, Some(hook_title(line)));
        } else if self.downloaded == 0 {
            // A placeholder that mmdebstrap installs first and removes again.
        } else if let Some(rest) = line.strip_prefix("Unpacking ") {
            self.unpacked += 1;
            self.at(Step::Install, rest.split_whitespace().next());
        } else if let Some(rest) = line.strip_prefix("Setting up ") {
            self.set_up += 1;
            self.at(Step::Install, rest.split_whitespace().next());
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let (done, total) = match self.step {
            Step::Download => (self.downloaded, self.packages),
            Step::Install => (self.unpacked + self.set_up, 2 * self.packages),
            _ => (0, 0),
        };
        // A package can be set up twice, but progress must not exceed 100 %.
        let (done, total) = (done.min(total), (total > 0).then_some(total));
        Progress { step: self.step, done, total, detail: self.detail.clone() }
    }

    fn at(&mut self, step: Step, detail: Option<&str>) {
        self.step = step;
        self.detail = detail.unwrap_or_default().to_owned();
    }
}

/// What a script does, by its name.
fn hook_title(line: &str) -> &'static str {
    const TITLES: [(&str, &str); 4] = [
        ("-desktop.sh", "the desktop"),
        ("-node.sh", "Node and npm"),
        ("-npm.sh", "packages from npm"),
        ("-pip.sh", "packages from PyPI"),
    ];
    let known = TITLES.iter().find(|(name, _)| line.contains(name));
    known.map_or("users, caches, compiled Python", |(_, title)| title)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "Get:1 http://mirror.example/debian bookworm/main amd64 gcc-12-base amd64 12.2.0-14 [37.6 kB]";

    #[test]
    fn downloads_and_installations_are_counted() {
        let mut output = Output::new(60);
        output.add_line("Unpacking usr-is-merged (1) ...");
        output.add_line(GET);
        let expected = Progress { step: Step::Download, done: 1, total: Some(60), detail: "gcc-12-base".into() };
        assert_eq!(output.progress(), expected);
        output.add_line("Unpacking gcc-12-base:amd64 (12.2.0-14) ...");
        output.add_line("Setting up gcc-12-base:amd64 (12.2.0-14) ...");
        let expected = Progress { step: Step::Install, done: 2, total: Some(120), detail: "gcc-12-base:amd64".into() };
        assert_eq!(output.progress(), expected);
        output.add_line("I: running --customize-hook directly: /x/customize-1-system.sh /x/tree");
        assert_eq!(output.progress().step, Step::Customise);
        output.add_line("I: running --customize-hook directly: /x/customize-4-pip.sh /x/tree");
        assert_eq!(output.progress().detail, "packages from PyPI");
    }

    #[test]
    fn progress_does_not_exceed_the_total() {
        let mut output = Output::new(1);
        output.add_line(GET);
        for _ in 0..9 {
            output.add_line("Setting up a (1) ...");
        }
        assert_eq!(output.progress().done, 2);
    }
}
