//! A coding agent's day: forty commands in sandboxes that stay up, in turns with the host and the peers.
//!
//! Every command runs twice in a fresh sandbox, and again twice after the whole list has run there. After each command
//! the next place runs it, so that a busy moment of the host affects all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::ensure;
use sandling_engine::Engine;
use serde::Serialize;

use super::commands::{SETUP, commands};
use super::places::Place;
use super::plot;
use crate::report::Report;
use crate::{Options, engine};

const PROJECT: &str = "day";

/// When a command ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    FreshFirst,
    FreshSecond,
    UsedFirst,
    UsedSecond,
}

impl Phase {
    const FRESH: [Self; 2] = [Self::FreshFirst, Self::FreshSecond];
    const USED: [Self; 2] = [Self::UsedFirst, Self::UsedSecond];
    const ALL: [Self; 4] = [Self::FreshFirst, Self::FreshSecond, Self::UsedFirst, Self::UsedSecond];

    fn name(self) -> &'static str {
        match self {
            Self::FreshFirst => "fresh sandbox, first time",
            Self::FreshSecond => "fresh sandbox, second time",
            Self::UsedFirst => "used sandbox, first time",
            Self::UsedSecond => "used sandbox, second time",
        }
    }
}

/// One measurement.
#[derive(Debug, Serialize)]
struct Sample {
    command: usize,
    place: &'static str,
    phase: Phase,
    ms: f64,
    succeeded: bool,
}

/// The whole day of a place, compared with the host's.
#[derive(Debug, Serialize)]
struct Ratio {
    place: &'static str,
    phase: Phase,
    /// Commands that succeeded here and on the host. The others are left out.
    commands: usize,
    total_ms: f64,
    /// The sum of the times, divided by the host's.
    of_totals: f64,
    /// The median of the commands' ratios.
    median: f64,
}

#[derive(Debug, Serialize)]
pub struct Day {
    pub host: BTreeMap<String, String>,
    template: String,
    rounds: usize,
    /// The load average of the last minute, before each round and at the end: others may use this host.
    load_averages: Vec<f64>,
    /// Places that could not be measured, and why.
    missing: BTreeMap<&'static str, String>,
    pub(super) commands: Vec<&'static str>,
    samples: Vec<Sample>,
    ratios: Vec<Ratio>,
}

pub async fn measure(options: &Options) -> anyhow::Result<Day> {
    let (engine, _home) = engine(options, 0).await?;
    let mut host = Report::new().host;
    host.insert("accelerator".to_owned(), engine.probe().accelerator.to_string());
    let mut day = Day {
        host,
        template: options.template.clone(),
        rounds: options.rounds,
        load_averages: Vec::new(),
        missing: BTreeMap::new(),
        commands: commands(),
        samples: Vec::new(),
        ratios: Vec::new(),
    };
    for round in 0..options.rounds {
        day.load_averages.push(load_average());
        eprintln!("round {} of {}", round + 1, options.rounds);
        day.round(&engine).await?;
    }
    day.load_averages.push(load_average());
    engine.close().await;
    day.compare();
    Ok(day)
}

impl Day {
    async fn round(&mut self, engine: &Arc<Engine>) -> anyhow::Result<()> {
        let work = tempfile::tempdir()?;
        let sub = |name: &str| {
            let path = work.path().join(name);
            std::fs::create_dir(&path).map(|()| path)
        };
        let mut places = vec![("host", Place::host(&sub("host")?)?)];
        let peers = [
            ("bwrap", Place::bubblewrap(&sub("bwrap")?)),
            ("runsc", Place::gvisor(&sub("runsc")?)),
            ("podman", Place::podman(&sub("podman")?)),
        ];
        for (name, place) in peers {
            match place {
                Ok(place) => places.push((name, place)),
                Err(error) => drop(self.missing.insert(name, error.to_string())),
            }
        }
        places.push(("sandling", Place::sandling(engine, &self.template).await?));
        for (name, place) in &mut places {
            ensure!(place.run(".", SETUP).await?.succeeded, "{name}: the project could not be made");
        }
        for phases in [Phase::FRESH, Phase::USED] {
            for (command, line) in self.commands.clone().into_iter().enumerate() {
                for phase in phases {
                    for (name, place) in &mut places {
                        let ran = place.run(PROJECT, line).await?;
                        let ms = ran.took.as_secs_f64() * 1e3;
                        self.samples.push(Sample { command, place: name, phase, ms, succeeded: ran.succeeded });
                    }
                }
            }
        }
        for (_, place) in places {
            place.end().await?;
        }
        Ok(())
    }

    /// The median time of a command; `None` if it failed there once.
    pub fn time(&self, command: usize, place: &str, phase: Phase) -> Option<f64> {
        let samples = self.samples.iter();
        let of = samples.filter(|one| one.command == command && one.place == place && one.phase == phase);
        let times: Option<Vec<f64>> = of.map(|one| one.succeeded.then_some(one.ms)).collect();
        times.and_then(median)
    }

    fn compare(&mut self) {
        let places: BTreeSet<_> = self.samples.iter().map(|sample| sample.place).collect();
        for place in places {
            for phase in Phase::ALL {
                let pairs = (0..self.commands.len()).filter_map(|command| {
                    Some((self.time(command, place, phase)?, self.time(command, "host", phase)?))
                });
                let pairs: Vec<(f64, f64)> = pairs.collect();
                let [total_ms, host_ms]: [f64; 2] =
                    [pairs.iter().map(|pair| pair.0).sum(), pairs.iter().map(|pair| pair.1).sum()];
                let median = median(pairs.iter().map(|(own, host)| own / host).collect()).unwrap_or(f64::NAN);
                let of_totals = total_ms / host_ms;
                self.ratios.push(Ratio { place, phase, commands: pairs.len(), total_ms, of_totals, median });
            }
        }
    }

    pub fn svg(&self) -> String {
        plot::svg(self)
    }

    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<10} {:<28} {:>8} {:>10} {:>12} {:>8}\n",
            "where", "when", "commands", "total ms", "× the host", "median"
        );
        for Ratio { place, phase, commands, total_ms, of_totals, median } in &self.ratios {
            text += &format!(
                "{place:<10} {:<28} {commands:>8} {total_ms:>10.0} {of_totals:>12.2} {median:>8.2}\n",
                phase.name()
            );
        }
        for (place, why) in &self.missing {
            text += &format!("{place} was not measured: {why}\n");
        }
        text + &format!("load average: {:?}\n", self.load_averages)
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}
