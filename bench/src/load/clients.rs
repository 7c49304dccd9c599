//! The clients: each creates a sandbox, runs a command, reads a file, deletes the sandbox, and starts again.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::report::Report;
use crate::server::Server;

/// How many failures are shown.
const FIRST: usize = 10;

/// The results.
#[derive(Debug, Default)]
pub struct Tally {
    creates: Vec<Duration>,
    execs: Vec<Duration>,
    reads: Vec<Duration>,
    destroys: Vec<Duration>,
    /// Refusals with a time to retry.
    refusals: u64,
    pub failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.creates.extend(other.creates);
        self.execs.extend(other.execs);
        self.reads.extend(other.reads);
        self.destroys.extend(other.destroys);
        self.refusals += other.refusals;
        self.failures.extend(other.failures);
    }

    pub fn first_failures(&self) -> &[String] {
        &self.failures[..self.failures.len().min(FIRST)]
    }

    pub fn report(&self, report: &mut Report) {
        report.add("load: create", "sandling", &self.creates);
        report.add("load: exec", "sandling", &self.execs);
        report.add("load: read a file", "sandling", &self.reads);
        report.add("load: destroy", "sandling", &self.destroys);
        report.count("load: refused with Retry-After", self.refusals);
        report.count("load: failed", self.failures.len() as u64);
    }
}

/// Runs this many clients for this long. Each finishes its last round.
pub async fn work(server: &Server, clients: usize, seconds: Duration) -> anyhow::Result<Tally> {
    let until = Instant::now() + seconds;
    let mut working = tokio::task::JoinSet::new();
    for number in 0..clients {
        working.spawn(one(server.client(), number, until));
    }
    let mut all = Tally::default();
    for tally in working.join_all().await {
        all.add(tally);
    }
    ensure!(!all.destroys.is_empty(), "no round was finished: {:#?}", all.first_failures());
    Ok(all)
}

async fn one(mut client: Client, number: usize, until: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        if let Err(error) = a_round(&mut client, &format!("{number}-{round}"), &mut tally).await {
            tally.failures.push(format!("{error:#}"));
        }
    }
    tally
}

async fn a_round(client: &mut Client, mark: &str, tally: &mut Tally) -> anyhow::Result<()> {
    let started = Instant::now();
    let created = insist(client, "/v1/sandboxes", &json!({ "template": "base" }), 201, tally).await?;
    tally.creates.push(started.elapsed());
    let id = serde_json::from_slice::<Value>(&created.body)?["id"].as_str().context("a sandbox has an id")?.to_owned();
    let used = use_it(client, &id, mark, tally).await;
    let started = Instant::now();
    let destroyed = client.call(Method::DELETE, &format!("/v1/sandboxes/{id}"), None).await?;
    expect(&destroyed, 204, "destroy")?;
    tally.destroys.push(started.elapsed());
    used
}

async fn use_it(client: &mut Client, id: &str, mark: &str, tally: &mut Tally) -> anyhow::Result<()> {
    let started = Instant::now();
    let line = json!({ "cmd": format!("echo {mark} | tee /root/mark") });
    let ran = insist(client, &format!("/v1/sandboxes/{id}/exec"), &line, 200, tally).await?;
    tally.execs.push(started.elapsed());
    let said = serde_json::from_slice::<Value>(&ran.body)?;
    ensure!(said["exit_code"] == 0 && said["stdout"] == format!("{mark}\n"), "the command went wrong: {said}");
    let started = Instant::now();
    let read = client.call(Method::GET, &format!("/v1/sandboxes/{id}/fs?path=/root/mark"), None).await?;
    expect(&read, 200, "read")?;
    tally.reads.push(started.elapsed());
    ensure!(read.body == format!("{mark}\n"), "another file was read: {:?}", read.body);
    Ok(())
}

/// Retries until it succeeds. A refusal that says when to retry is not a failure.
async fn insist(
    client: &mut Client,
    path: &str,
    body: &Value,
    wanted: u16,
    tally: &mut Tally,
) -> anyhow::Result<Answer> {
    loop {
        let answer = client.call(Method::POST, path, Some(body)).await?;
        match (answer.status, answer.retry_after) {
            (429 | 503, Some(wait)) => {
                tally.refusals += 1;
                tokio::time::sleep(wait).await;
            }
            _ => {
                expect(&answer, wanted, path)?;
                return Ok(answer);
            }
        }
    }
}

fn expect(answer: &Answer, wanted: u16, what: &str) -> anyhow::Result<()> {
    if answer.status != wanted {
        bail!("{what}: wanted {wanted}, got {} {:?}", answer.status, String::from_utf8_lossy(&answer.body));
    }
    Ok(())
}
