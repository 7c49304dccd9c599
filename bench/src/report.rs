//! Figures: p50, p90 and p99 of all samples, without trimming.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Report {
    /// Kernel, cores and accelerator.
    pub host: BTreeMap<String, String>,
    pub figures: Vec<Figure>,
    /// Counted values.
    pub counts: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub struct Figure {
    pub name: String,
    /// `sandling`, or the name of a peer.
    pub who: String,
    pub samples_ms: Vec<f64>,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
}

impl Report {
    pub fn new() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let host = [("kernel", read("/proc/sys/kernel/osrelease")), ("cores", cores.to_string())];
        let host = host.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { host, figures: Vec::new(), counts: BTreeMap::new() }
    }

    pub fn add(&mut self, name: &str, who: &str, samples: &[Duration]) {
        let samples_ms: Vec<f64> = samples.iter().map(|sample| sample.as_secs_f64() * 1e3).collect();
        let mut sorted = samples_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (part * sorted.len() as f64).ceil() as usize;
            sorted.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        let (p50_ms, p90_ms, p99_ms) = (at(0.50), at(0.90), at(0.99));
        self.figures.push(Figure { name: name.to_owned(), who: who.to_owned(), samples_ms, p50_ms, p90_ms, p99_ms });
    }

    pub fn count(&mut self, name: &str, count: u64) {
        self.counts.insert(name.to_owned(), count);
    }

    pub fn table(&self) -> String {
        let mut text =
            format!("{:<44} {:<10} {:>5} {:>9} {:>9} {:>9}\n", "what", "who", "n", "p50 ms", "p90 ms", "p99 ms");
        for figure in &self.figures {
            let (name, who, count) = (&figure.name, &figure.who, figure.samples_ms.len());
            let _ = writeln!(
                text,
                "{name:<44} {who:<10} {count:>5} {:>9.1} {:>9.1} {:>9.1}",
                figure.p50_ms, figure.p90_ms, figure.p99_ms
            );
        }
        for (name, count) in &self.counts {
            let _ = writeln!(text, "{name:<44} {count}");
        }
        text
    }
}
