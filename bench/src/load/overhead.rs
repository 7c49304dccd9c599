//! What HTTP adds to a command: the same command through the engine and through the API, in turns, in one process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hyper::Method;
use sandling_api::{App, Listener, ServerLimits, serve};
use sandling_engine::{CreateSpec, DEFAULT_WORKSPACE, EndReason, Engine, EngineConfig, Home, RunSpec, Sandbox};
use sandling_protocol::Program;
use sandling_service::{Service, ServiceSettings};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::Options;
use crate::client::Client;
use crate::report::Report;

const TOKEN: &str = "the-token-of-the-overhead";
/// The first runs include the translation of emulated code, so they do not count.
const WARM_UP: usize = 10;

pub async fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let home = Home::new(dir.path().to_owned()).with_templates(std::path::absolute(&options.templates)?);
    let launcher = std::path::absolute(&options.sandling)?;
    let config = EngineConfig { launcher, ..EngineConfig::new(home.clone())? };
    let engine = Engine::open(config).await.context("the engine did not open")?;
    let settings = ServiceSettings { environment_token: Some(TOKEN.to_owned()), ..ServiceSettings::default() };
    let app = App::new(engine.clone(), Service::open(engine.clone(), settings)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut client = Client::new(listener.local_addr()?, TOKEN);
    let serving =
        tokio::spawn(serve(vec![Listener::plain(listener)], app, ServerLimits::default(), std::future::pending()));
    let spec =
        CreateSpec { template: "base".to_owned(), workspace: DEFAULT_WORKSPACE.to_owned(), ..CreateSpec::default() };
    let sandbox = engine.create(spec).await?;
    let [mut own, mut http] = [Vec::new(), Vec::new()];
    for round in 0..options.rounds + WARM_UP {
        let samples = (by_engine(&sandbox).await?, by_http(&mut client, &sandbox).await?);
        if round >= WARM_UP {
            own.push(samples.0);
            http.push(samples.1);
        }
    }
    sandbox.end(EndReason::Requested).await?;
    serving.abort();
    engine.close().await;
    report.add("exec /bin/true, by the engine's own call", "sandling", &own);
    report.add("exec /bin/true, over HTTP", "sandling", &http);
    let added: Vec<Duration> = own.iter().zip(&http).map(|(own, http)| http.saturating_sub(*own)).collect();
    report.add("what HTTP adds, pair by pair", "sandling", &added);
    Ok(())
}

async fn by_engine(sandbox: &Arc<Sandbox>) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let ran = sandbox.run(RunSpec::new(Program::Argv(vec!["/bin/true".to_owned()])))?.collect().await?;
    let took = started.elapsed();
    ensure!(ran.exit.code == 0, "{ran:?}");
    Ok(took)
}

async fn by_http(client: &mut Client, sandbox: &Sandbox) -> anyhow::Result<Duration> {
    let (path, body) = (format!("/v1/sandboxes/{}/exec", sandbox.id()), json!({ "args": ["/bin/true"] }));
    let started = Instant::now();
    let answer = client.call(Method::POST, &path, Some(&body)).await?;
    let took = started.elapsed();
    let ran: Value = serde_json::from_slice(&answer.body)?;
    ensure!(answer.status == 200 && ran["exit_code"] == 0, "{answer:?}");
    Ok(took)
}
