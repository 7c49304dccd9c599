//! Measures the gateway on the host: a frame generator at one end of the cable, servers on loopback at the other, and
//! direct connections for comparison. Needs no machine. Writes `gateway.json`.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on panics")]

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use futures_util::future::BoxFuture;
use sandling_network::policy::{Mode, Policy};
use sandling_network::{
    Cable, Ends, Gateway, GatewayConfig, GatewayHandle, HostName, ResolveError, Resolved, Resolver,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[path = "../../crates/network/tests/suite/cable.rs"]
mod cable;
#[path = "../../crates/network/tests/suite/guest.rs"]
#[allow(dead_code, reason = "the tests use the rest of it")]
mod guest;
#[path = "../../crates/network/tests/suite/names.rs"]
mod names;
#[allow(dead_code, reason = "the other benches use the rest of it")]
mod report;

use guest::Guest;
use report::Report;

/// Requests to the server. They do not look like HTTP, because the gateway would wait for the rest.
const TAKE: u8 = 1;
const GIVE: u8 = 2;
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const NAME: &str = "example.com";
/// The name of the gateway's threads.
const THREAD: &str = "gateway";
const GATEWAYS: usize = 200;
const CONNECTIONS: usize = 1000;

#[derive(Debug, Parser)]
struct Options {
    /// How long each throughput is measured
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Connections and names, one after another
    #[arg(long, default_value_t = 300)]
    rounds: usize,
    /// Where `gateway.json` goes
    #[arg(long, default_value = "bench/out")]
    out: PathBuf,
}

/// Resolves every name to the local test address.
struct Loopback;

impl Resolver for Loopback {
    fn resolve<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, Result<Resolved, ResolveError>> {
        Box::pin(async { Ok(Resolved { addresses: vec![HERE], ttl: Duration::from_secs(300) }) })
    }
}

fn config(directory: &Path, name: &str) -> GatewayConfig {
    let path = |end: &str| directory.join(format!("{name}.{end}"));
    let mut config =
        GatewayConfig::new(Cable::Named { gateway: path("gateway"), machine: path("machine") }, Arc::new(Loopback));
    config.policy = Policy::of(Mode::Open);
    config.opened = vec!["127.0.0.1/32".parse().unwrap()];
    config.limits.bytes_out_per_second = u64::MAX / 4;
    config.limits.bytes_in_per_second = u64::MAX / 4;
    config.limits.bytes_out = u64::MAX;
    config.limits.connections_per_second = 1_000_000;
    config.limits.dns_queries_per_second = 1_000_000;
    config
}

fn guest(directory: &Path, name: &str, mtu: usize) -> Guest {
    let path = |end: &str| directory.join(format!("{name}.{end}"));
    let mut guest = Guest::start(path("machine"), path("gateway"), Ends::default(), mtu);
    guest.look_away();
    guest
}

/// Reads everything after the byte TAKE, and writes without end after the byte GIVE.
async fn serve() -> u16 {
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                let asked = stream.read_u8().await;
                let mut room = vec![1; if matches!(asked, Ok(TAKE | GIVE)) { 256 * 1024 } else { 0 }];
                match asked {
                    Ok(TAKE) => while matches!(stream.read(&mut room).await, Ok(1..)) {},
                    Ok(GIVE) => while stream.write_all(&room).await.is_ok() {},
                    Ok(_) => {
                        while let Ok(byte) = {
                            let _ = stream.write_u8(b'x').await;
                            stream.read_u8().await
                        } {
                            let _ = byte;
                        }
                    }
                    Err(_) => {}
                }
            });
        }
    });
    port
}

/// Runs the guest's side on its own thread, like a machine.
fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> tokio::sync::oneshot::Receiver<T> {
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = done.send(runtime.block_on(work));
    });
    result
}

/// CPU time of the gateway's threads.
fn worked() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let own = tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == THREAD));
    let time = own.map(|task| std::fs::read_to_string(task.join("schedstat")).unwrap());
    Duration::from_nanos(time.map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap()).sum())
}

/// Gbit/s by wall clock, and by the gateway's CPU time, because other programs may be busy.
async fn throughput(directory: &Path, port: u16, mtu: usize, direction: u8, span: Duration) -> (f64, f64) {
    let name = format!("t{mtu}{direction}");
    let gateway = Gateway::start(config(directory, &name)).unwrap();
    let path = directory.to_owned();
    let start = Instant::now();
    let bytes = |gateway: &GatewayHandle| gateway.stats().bytes_in + gateway.stats().bytes_out;
    let client = apart(async move {
        let guest = guest(&path, &name, mtu);
        let mut stream = guest.dial_with(HERE, port, 512 * 1024);
        stream.established().await.unwrap();
        stream.write_u8(direction).await.unwrap();
        let mut room = vec![2; 256 * 1024];
        while start.elapsed() < span + Duration::from_secs(1) {
            if direction == TAKE {
                stream.write_all(&room).await.unwrap();
            } else {
                assert!(stream.read(&mut room).await.unwrap() > 0, "the server ended");
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (before, then, busy) = (bytes(&gateway), Instant::now(), worked());
    tokio::time::sleep(span).await;
    let gigabits = (bytes(&gateway) - before) as f64 * 8.0 / 1e9;
    let rates = (gigabits / then.elapsed().as_secs_f64(), gigabits / (worked() - busy).as_secs_f64());
    client.await.unwrap();
    rates
}

/// The time from a new connection to its first byte: through the gateway, and directly.
async fn connecting(directory: &Path, port: u16, rounds: usize) -> (Vec<Duration>, Vec<Duration>) {
    let _gateway = Gateway::start(config(directory, "connecting")).unwrap();
    let guest = guest(directory, "connecting", 1500);
    let (mut through, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        let mut stream = guest.connect(HERE, port).await.unwrap();
        stream.write_all(b"\0").await.unwrap();
        stream.read_u8().await.unwrap();
        through.push(start.elapsed());
        let start = Instant::now();
        let mut stream = TcpStream::connect((HERE, port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"\0").await.unwrap();
        stream.read_u8().await.unwrap();
        direct.push(start.elapsed());
    }
    (through, direct)
}

/// The same with an allow-list, and a TLS greeting with the resolved name.
async fn greeting(directory: &Path, port: u16, rounds: usize) -> (Vec<Duration>, Vec<Duration>) {
    let mut listed = config(directory, "greeting");
    listed.policy = Policy::allow([format!("{NAME}:{port}").parse().unwrap()]);
    let _gateway = Gateway::start(listed).unwrap();
    let guest = guest(directory, "greeting", 1500);
    assert_eq!(guest.resolve(NAME).await, [HERE]);
    let hello = names::client_hello(NAME, &[]);
    let (mut through, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        let mut stream = guest.connect(HERE, port).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        stream.read_u8().await.unwrap();
        through.push(start.elapsed());
        let start = Instant::now();
        let mut stream = TcpStream::connect((HERE, port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&hello).await.unwrap();
        stream.read_u8().await.unwrap();
        direct.push(start.elapsed());
    }
    (through, direct)
}

async fn asking(directory: &Path, rounds: usize) -> Vec<Duration> {
    let _gateway = Gateway::start(config(directory, "asking")).unwrap();
    let guest = guest(directory, "asking", 1500);
    guest.resolve("example.com").await;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        assert_eq!(guest.resolve("example.com").await, [HERE]);
        times.push(start.elapsed());
    }
    times
}

/// Private memory of this process, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    line("Private_Clean:") + line("Private_Dirty:")
}

/// Memory of an idle gateway, and of one with a thousand open connections.
async fn weighing(directory: &Path, port: u16) -> (u64, u64, f64) {
    let before = memory();
    let mut gateways = Vec::new();
    for number in 0..GATEWAYS {
        gateways.push(Gateway::start(config(directory, &format!("idle{number}"))).unwrap());
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let idle = memory().saturating_sub(before) / GATEWAYS as u64;
    drop(gateways);

    let gateway = Gateway::start(config(directory, "many")).unwrap();
    let guest = guest(directory, "many", 1500);
    let before = memory();
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = guest.dial_with(HERE, port, 512);
        stream.established().await.unwrap();
        stream.write_all(b"\0").await.unwrap();
        stream.read_u8().await.unwrap();
        streams.push(stream);
    }
    assert_eq!(gateway.stats().connections_open, CONNECTIONS as u64);
    let thousand = memory().saturating_sub(before);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (start, busy) = (Instant::now(), worked());
    tokio::time::sleep(Duration::from_secs(2)).await;
    (idle, thousand, (worked() - busy).as_secs_f64() / start.elapsed().as_secs_f64())
}

/// All figures, with their targets.
async fn measure(options: &Options, port: u16) -> Report {
    let mut report = Report::new();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (idle, thousand, load) = weighing(directory, port).await;
    report.count("bytes of an idle gateway (aim: 1048576 at most)", idle);
    report.count("bytes of 1,000 connections, the guest's stack included", thousand);
    report.count("millionths of a core for 1,000 idle connections", (load * 1e6) as u64);
    report.add("DNS of a pinned name (aim: 1 ms)", "gateway", &asking(directory, options.rounds).await);
    let (through, direct) = connecting(directory, port, options.rounds).await;
    report.add("connection to its first byte (aim: 2 ms more)", "gateway", &through);
    report.add("connection to its first byte", "directly", &direct);
    let (through, direct) = greeting(directory, port, options.rounds).await;
    report.add("the same, listed, with a TLS greeting (aim: 2 ms more)", "gateway", &through);
    report.add("the same, with a TLS greeting", "directly", &direct);
    for mtu in [1500, 16_000] {
        for (direction, text) in [(TAKE, "from"), (GIVE, "to")] {
            let span = Duration::from_secs(options.seconds);
            let (clock, own) = throughput(directory, port, mtu, direction, span).await;
            let name = format!("Mbit/s {text} the guest, MTU {mtu}");
            report.count(&format!("{name} (aim: 1000)"), (clock * 1e3) as u64);
            report.count(&format!("{name}, per core of the gateway"), (own * 1e3) as u64);
        }
    }
    report
}

fn print(report: &Report) {
    for figure in &report.figures {
        println!("{:<54} {:<9} {:>8.3} ms, p99 {:.3}", figure.name, figure.who, figure.p50_ms, figure.p99_ms);
    }
    for (name, count) in &report.counts {
        println!("{name:<64} {count:>8}");
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let servers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let port = servers.block_on(serve());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name(THREAD).enable_all().build()?;
    let report = runtime.block_on(measure(&options, port));
    std::fs::create_dir_all(&options.out)?;
    std::fs::write(options.out.join("gateway.json"), serde_json::to_vec_pretty(&report)?)?;
    print(&report);
    println!("\nwritten to {}", options.out.join("gateway.json").display());
    Ok(())
}
