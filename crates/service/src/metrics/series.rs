//! The file of one series: a header and two rings of points. docs/formats.md describes it.
//!
//! The place of a point follows from its time, so a writer needs no state, and a file never grows beyond its rings. A
//! point that lies where its time does not belong is damaged or from an earlier round, and is skipped.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"sdlmetrc";
const VERSION: u32 = 1;
const HEADER: u64 = 512;
const POINT: usize = 64;

/// The largest file.
pub(super) const LARGEST: u64 = COARSE.start + COARSE.points * POINT as u64;

/// One point every 5 seconds, for an hour.
pub(super) const FINE: Ring = Ring { step: 5, points: 720, start: HEADER };
/// One point every minute, for a day.
pub(super) const COARSE: Ring = Ring { step: 60, points: 1440, start: HEADER + FINE.points * POINT as u64 };

#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    /// Seconds between points.
    pub(super) step: u64,
    pub(super) points: u64,
    start: u64,
}

impl Ring {
    /// How far back it reaches, in seconds.
    pub(super) const fn reach(&self) -> u64 {
        self.step * self.points
    }

    fn offset(&self, time: u64) -> u64 {
        self.start + time / self.step % self.points * POINT as u64
    }
}

/// What the points are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesInfo {
    /// Absent for the host.
    pub workspace: Option<String>,
    pub cpus: u32,
    pub memory_total_bytes: u64,
    pub disk_total_bytes: u64,
}

/// Use of resources in the seconds up to a time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MetricPoint {
    /// Seconds since 1970.
    pub time: u64,
    /// In percent of one CPU.
    pub cpu_percent: f64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    /// Bytes per second.
    pub received_rate: u64,
    pub sent_rate: u64,
}

impl MetricPoint {
    fn encode(&self) -> [u8; POINT] {
        let cpu = self.cpu_percent.to_bits();
        let mut bytes = [0; POINT];
        let fields = [self.time, cpu, self.memory_bytes, self.disk_bytes, self.received_rate, self.sent_rate];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.chunks_exact(8).filter_map(|field| field.try_into().ok().map(u64::from_le_bytes));
        let point = Self {
            time: fields.next()?,
            cpu_percent: f64::from_bits(fields.next()?),
            memory_bytes: fields.next()?,
            disk_bytes: fields.next()?,
            received_rate: fields.next()?,
            sent_rate: fields.next()?,
        };
        (point.time > 0 && point.cpu_percent.is_finite()).then_some(point)
    }

    /// The average of points, at the given time. None if there are none.
    pub(super) fn average(points: &[Self], time: u64) -> Option<Self> {
        let count = points.len() as u64;
        let mean = |field: fn(&Self) -> u64| points.iter().map(field).sum::<u64>().checked_div(count);
        Some(Self {
            time,
            memory_bytes: mean(|point| point.memory_bytes)?,
            disk_bytes: mean(|point| point.disk_bytes)?,
            received_rate: mean(|point| point.received_rate)?,
            sent_rate: mean(|point| point.sent_rate)?,
            cpu_percent: points.iter().map(|point| point.cpu_percent).sum::<f64>() / count as f64,
        })
    }
}

/// A series that is open for writing.
pub(super) struct Series(File);

impl Series {
    /// Opens a file. One that is new, damaged or of an unknown version begins anew.
    pub(super) fn open(path: &Path, info: &SeriesInfo) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if read_header(&file)?.as_ref() != Some(info) {
            let json = serde_json::to_vec(info)?;
            let length = u32::try_from(json.len()).map_err(io::Error::other)?;
            let (version, length) = (VERSION.to_le_bytes(), length.to_le_bytes());
            let header = [&MAGIC[..], &version[..], &length[..], json.as_slice()].concat();
            if header.len() as u64 > HEADER {
                return Err(io::Error::other("the header of a series is too long"));
            }
            if read_header(&file)?.is_none() {
                file.set_len(0)?;
            }
            file.write_all_at(&header, 0)?;
        }
        Ok(Self(file))
    }

    /// Adds a point to the fine ring, and the average of its minute so far to the coarse one.
    pub(super) fn add(&self, point: &MetricPoint) -> io::Result<()> {
        let time = point.time / FINE.step * FINE.step;
        self.0.write_all_at(&MetricPoint { time, ..*point }.encode(), FINE.offset(time))?;
        let minute = time / COARSE.step * COARSE.step;
        let mut so_far = Vec::new();
        for time in (minute..=time).step_by(FINE.step as usize) {
            let mut bytes = [0; POINT];
            if self.0.read_exact_at(&mut bytes, FINE.offset(time)).is_ok() {
                so_far.extend(MetricPoint::decode(&bytes).filter(|point| point.time == time));
            }
        }
        match MetricPoint::average(&so_far, minute) {
            Some(average) => self.0.write_all_at(&average.encode(), COARSE.offset(minute)),
            None => Ok(()),
        }
    }
}

fn read_header(file: &File) -> io::Result<Option<SeriesInfo>> {
    let mut bytes = [0; HEADER as usize];
    let read = file.read_at(&mut bytes, 0)?;
    Ok(parse_header(&bytes[..read]))
}

fn parse_header(bytes: &[u8]) -> Option<SeriesInfo> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let json = rest.get(..u32::from_le_bytes(*length) as usize)?;
    (u32::from_le_bytes(*version) == VERSION).then(|| serde_json::from_slice(json).ok()).flatten()
}

/// A whole file in memory.
pub(super) struct StoredSeries {
    pub(super) info: SeriesInfo,
    bytes: Vec<u8>,
}

impl StoredSeries {
    /// None if there is no such file, or if another version wrote it.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(parse_header(&bytes).map(|info| Self { info, bytes }))
    }

    /// The points of a ring from one time up to before another, the oldest first.
    pub(super) fn points(&self, ring: &Ring, from: u64, until: u64) -> Vec<MetricPoint> {
        let start = ring.start as usize;
        let end = start + ring.points as usize * POINT;
        let stored = self.bytes.get(start..end.min(self.bytes.len())).unwrap_or_default();
        let mut points: Vec<_> = stored
            .chunks_exact(POINT)
            .enumerate()
            .filter_map(|(index, bytes)| Some((index, MetricPoint::decode(bytes)?)))
            .filter(|(index, point)| (point.time / ring.step % ring.points) as usize == *index)
            .map(|(_, point)| point)
            .filter(|point| (from..until).contains(&point.time))
            .collect();
        points.sort_by_key(|point| point.time);
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> SeriesInfo {
        let workspace = Some("default".to_owned());
        SeriesInfo { workspace, cpus: 2, memory_total_bytes: 1 << 30, disk_total_bytes: 4 << 30 }
    }

    fn point(time: u64, cpu_percent: f64) -> MetricPoint {
        MetricPoint { time, cpu_percent, memory_bytes: time, disk_bytes: 7, received_rate: 8, sent_rate: 9 }
    }

    #[test]
    fn a_minute_is_the_average_of_its_points() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for (time, cpu) in [(60_000_003, 10.0), (60_000_007, 20.0), (60_000_057, 60.0), (60_000_061, 1.0)] {
            Series::open(&path, &info()).unwrap().add(&point(time, cpu)).unwrap();
        }
        let stored = StoredSeries::read(&path).unwrap().unwrap();
        assert_eq!(stored.info, info());
        let cpus = |ring| stored.points(ring, 0, u64::MAX).iter().map(|p| (p.time, p.cpu_percent)).collect::<Vec<_>>();
        assert_eq!(cpus(&FINE), [(60_000_000, 10.0), (60_000_005, 20.0), (60_000_055, 60.0), (60_000_060, 1.0)]);
        assert_eq!(cpus(&COARSE), [(60_000_000, 30.0), (60_000_060, 1.0)]);
        assert_eq!(stored.points(&FINE, 60_000_005, 60_000_055).len(), 1);
    }

    #[test]
    fn a_file_does_not_grow_beyond_its_rings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let series = Series::open(&path, &info()).unwrap();
        for time in (0..2 * COARSE.reach()).step_by(30) {
            series.add(&point(1_000_000 + time, 1.0)).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), LARGEST);
        let stored = StoredSeries::read(&path).unwrap().unwrap();
        let coarse = stored.points(&COARSE, 0, u64::MAX);
        assert_eq!(coarse.len() as u64, COARSE.points);
        assert!(coarse.windows(2).all(|two| two[1].time == two[0].time + 60));
    }

    #[test]
    fn a_damaged_or_newer_file_is_not_read_and_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        Series::open(&path, &info()).unwrap().add(&point(600, 1.0)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = 99;
        std::fs::write(&path, &bytes).unwrap();
        assert!(StoredSeries::read(&path).unwrap().is_none());
        Series::open(&path, &info()).unwrap().add(&point(1200, 1.0)).unwrap();
        assert_eq!(StoredSeries::read(&path).unwrap().unwrap().points(&FINE, 0, u64::MAX).len(), 1);
        // A point in a place that is not its own is skipped.
        let mut bytes = std::fs::read(&path).unwrap();
        let place = FINE.offset(1200) as usize;
        bytes[place..place + 8].copy_from_slice(&1205_u64.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert!(StoredSeries::read(&path).unwrap().unwrap().points(&FINE, 0, u64::MAX).is_empty());
    }

    /// The file that the first version wrote.
    #[test]
    fn a_file_of_version_1_is_read_and_written_the_same() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1/metrics.hex");
        let text = std::fs::read_to_string(golden).unwrap();
        let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        let golden: Vec<u8> = digits.chunks(2).map(byte).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        Series::open(&path, &info()).unwrap().add(&point(1_800_000_000, 12.5)).unwrap();
        let written = std::fs::read(&path).unwrap();
        let (fine, coarse) = (FINE.offset(1_800_000_000) as usize, COARSE.offset(1_800_000_000) as usize);
        let parts = [&written[..HEADER as usize], &written[fine..fine + POINT], &written[coarse..coarse + POINT]];
        assert_eq!(parts.concat(), golden);
    }
}
