//! The series of all sandboxes and of the host, one file each.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use sandling_engine::SandboxId;

use super::series::{COARSE, FINE, LARGEST, MetricPoint, Series, SeriesInfo, StoredSeries};
use crate::workspaces::WorkspaceName;

/// The name of the host's file. Ids of sandboxes are longer.
pub(super) const HOST: &str = "host";
/// The most disk space for all series. The oldest are removed when they take more.
const MOST_BYTES: u64 = 256 << 20;
/// A default step makes at most about this many points.
const USUAL_POINTS: u64 = 720;
/// A request for the last hour may begin a little before the oldest fine point.
const SLACK_SECONDS: u64 = 60;

/// A span of time, in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct HistoryQuery {
    pub from: u64,
    pub to: u64,
    /// The wanted seconds between points.
    pub step: Option<u64>,
}

/// The points of a series in a span of time.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    pub info: SeriesInfo,
    /// Seconds between points, at least as many as were asked for.
    pub step: u64,
    pub points: Vec<MetricPoint>,
}

/// What sandboxes and the host used in the last day. Sandboxes that have ended are included.
pub struct MetricHistory {
    directory: PathBuf,
}

impl MetricHistory {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The history of a sandbox of this workspace. None if nothing is stored about it.
    pub fn of_sandbox(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        query: &HistoryQuery,
    ) -> io::Result<Option<History>> {
        let stored = StoredSeries::read(&self.directory.join(id.as_str()))?;
        let own = stored.filter(|stored| stored.info.workspace.as_deref() == Some(workspace.as_str()));
        Ok(own.map(|stored| select(&stored, now(), query)))
    }

    /// The history of the host.
    pub fn of_host(&self, query: &HistoryQuery) -> io::Result<Option<History>> {
        let stored = StoredSeries::read(&self.directory.join(HOST))?;
        Ok(stored.map(|stored| select(&stored, now(), query)))
    }

    /// Adds a point to the series with this name.
    pub(super) fn add(&self, name: &str, info: &SeriesInfo, point: &MetricPoint) -> io::Result<()> {
        Series::open(&self.directory.join(name), info)?.add(point)
    }

    pub(super) fn prepare(&self) -> io::Result<()> {
        sandling_wire::private_directory(&self.directory)
    }

    /// Removes series whose newest point is out of reach, and the oldest ones while all take too much space.
    pub(super) fn sweep(&self) -> io::Result<()> {
        sweep(&self.directory, SystemTime::now(), MOST_BYTES)
    }
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn select(stored: &StoredSeries, now: u64, query: &HistoryQuery) -> History {
    let to = query.to.min(now + FINE.step);
    let from = query.from.max(now.saturating_sub(COARSE.reach()));
    let wanted = query.step.unwrap_or_else(|| to.saturating_sub(from) / USUAL_POINTS).min(COARSE.reach());
    let is_recent = from.saturating_add(FINE.reach() + SLACK_SECONDS) >= now;
    let ring = if is_recent && wanted < COARSE.step { FINE } else { COARSE };
    let step = wanted.max(1).next_multiple_of(ring.step);
    // A point counts for the step that it is in, so the first step may begin before `from`.
    let points = stored.points(&ring, from / step * step, to);
    let steps = points.chunk_by(|one, next| one.time / step == next.time / step);
    let points = steps.filter_map(|points| MetricPoint::average(points, points[0].time / step * step)).collect();
    History { info: stored.info.clone(), step, points }
}

fn sweep(directory: &Path, now: SystemTime, most_bytes: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        files.push((metadata.modified()?, metadata.blocks() * 512, entry.path()));
    }
    files.sort();
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (modified, bytes, path) in files {
        let age = now.duration_since(modified).unwrap_or_default();
        if age <= Duration::from_secs(COARSE.reach()) && total <= most_bytes.max(LARGEST) {
            break;
        }
        fs::remove_file(path)?;
        total -= bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn info(workspace: &str) -> SeriesInfo {
        let workspace = Some(workspace.to_owned());
        SeriesInfo { workspace, cpus: 1, memory_total_bytes: 1, disk_total_bytes: 1 }
    }

    fn history() -> (tempfile::TempDir, MetricHistory) {
        let dir = tempfile::tempdir().unwrap();
        let history = MetricHistory::new(dir.path().join("metrics"));
        history.prepare().unwrap();
        (dir, history)
    }

    fn id() -> SandboxId {
        SandboxId::parse("0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11").unwrap()
    }

    fn fill(history: &MetricHistory, seconds: u64) -> u64 {
        let until = now() / 60 * 60;
        let series = Series::open(&history.directory.join(id().as_str()), &info("default")).unwrap();
        for time in (until - seconds..until).step_by(5) {
            let point = MetricPoint { time, cpu_percent: (time % 60) as f64, ..MetricPoint::default() };
            series.add(&point).unwrap();
        }
        until
    }

    fn ask(history: &MetricHistory, workspace: &str, query: HistoryQuery) -> Option<History> {
        history.of_sandbox(&WorkspaceName::parse(workspace).unwrap(), &id(), &query).unwrap()
    }

    #[test]
    fn an_hour_is_fine_and_a_day_is_coarse() {
        let (_dir, history) = history();
        let until = fill(&history, DAY);
        let hour = ask(&history, "default", HistoryQuery { from: until - 3540, to: until, step: None }).unwrap();
        assert_eq!((hour.step, hour.points.len()), (5, 708));
        let day = ask(&history, "default", HistoryQuery { from: until - DAY + 120, to: until, step: Some(5) }).unwrap();
        assert_eq!((day.step, day.points.len()), (60, 1438));
        assert!(day.points.iter().all(|point| point.cpu_percent == 27.5), "{:?}", day.points);
        let wide = ask(&history, "default", HistoryQuery { from: until - 600, to: until, step: Some(100) }).unwrap();
        assert_eq!(wide.step, 120);
        assert!((5..=6).contains(&wide.points.len()), "{:?}", wide.points);
    }

    #[test]
    fn another_workspace_sees_nothing() {
        let (_dir, history) = history();
        let until = fill(&history, 60);
        let query = HistoryQuery { from: 0, to: until, step: None };
        assert!(ask(&history, "default", query).is_some());
        assert!(ask(&history, "other", query).is_none());
        assert!(history.of_host(&query).unwrap().is_none());
    }

    #[test]
    fn an_empty_or_reversed_span_has_no_points() {
        let (_dir, history) = history();
        let until = fill(&history, 60);
        for (from, to) in [(until, until - 60), (until + DAY, u64::MAX), (0, 1)] {
            let found = ask(&history, "default", HistoryQuery { from, to, step: Some(u64::MAX / 2) }).unwrap();
            assert_eq!(found.points, [], "{from} {to}");
        }
    }

    #[test]
    fn old_series_go_and_then_the_oldest() {
        let (_dir, history) = history();
        let at = SystemTime::now();
        for (name, age) in [("a", DAY + 60), ("b", 600), ("c", 300), ("d", 0)] {
            fs::write(history.directory.join(name), vec![1; 100_000]).unwrap();
            let file = fs::File::options().write(true).open(history.directory.join(name)).unwrap();
            file.set_modified(at - Duration::from_secs(age)).unwrap();
        }
        let left = |most: u64| {
            sweep(&history.directory, at, most).unwrap();
            let mut names: Vec<_> =
                fs::read_dir(&history.directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names.into_iter().map(|name| name.into_string().unwrap()).collect::<String>()
        };
        assert_eq!(left(1 << 30), "bcd");
        assert_eq!(left(220_000), "cd");
    }
}
