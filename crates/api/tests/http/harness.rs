//! A server of the test's own, and a client that says exactly what it is told to.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandling_api::{App, Listener, ServerLimits, serve};
use sandling_engine::{Engine, EngineConfig, Home};
use sandling_service::{AuditPolicy, AuditSettings, Service, ServiceSettings};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Accepted as an operator's.
pub const TOKEN: &str = "the-token-of-the-tests";
/// Longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub address: SocketAddr,
    pub app: Arc<App>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    directory: TempDir,
}

impl Server {
    pub async fn start() -> Self {
        Self::with(ServerLimits::default()).await
    }

    pub async fn start_with_audit(policy: AuditPolicy) -> Self {
        let audit = AuditSettings { policy, ..AuditSettings::default() };
        let settings = ServiceSettings { audit, ..ServiceSettings::default() };
        Self::open(ServerLimits::default(), settings, |listener, _| listener).await
    }

    /// A server whose webhooks may send to this machine.
    pub async fn start_with_private_webhooks() -> Self {
        let settings = ServiceSettings { webhooks_allow_private: true, ..ServiceSettings::default() };
        Self::open(ServerLimits::default(), settings, |listener, _| listener).await
    }

    pub async fn with(limits: ServerLimits) -> Self {
        Self::listening(limits, |listener, _| listener).await
    }

    /// A server whose listener `configure` completes; it also gets a directory for its files.
    pub async fn listening(limits: ServerLimits, configure: impl FnOnce(Listener, &Path) -> Listener) -> Self {
        Self::open(limits, ServiceSettings::default(), configure).await
    }

    async fn open(
        limits: ServerLimits,
        settings: ServiceSettings,
        configure: impl FnOnce(Listener, &Path) -> Listener,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path().join("home"));
        let engine = Engine::open(EngineConfig::new(home.clone()).unwrap()).await.unwrap();
        let settings = ServiceSettings { environment_token: Some(TOKEN.to_owned()), ..settings };
        let app: Arc<App> = App::new(engine.clone(), Service::open(engine, settings).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = configure(Listener::plain(listener), directory.path());
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(serve(vec![listener], app.clone(), limits, shutdown));
        Self { address, app, stop: Some(stop), serving, directory }
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.serving).await.expect("the server drains").unwrap();
    }

    /// The directory that the listener's files are in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where the server keeps everything.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// Another connection to the server's database.
    pub fn store(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.home().join("sandling.db")).unwrap()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one request, head and body as they are, and reads all there is.
    pub async fn say(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        Answer::read(stream).await
    }

    pub async fn call(&self, token: Option<&str>, method: &str, path: &str, body: Option<Value>) -> Answer {
        let authorization = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{authorization}{kind}content-length: {length}\r\n\r\n"
        );
        self.say(format!("{head}{body}").as_bytes()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Some(TOKEN), "GET", path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Some(TOKEN), "POST", path, Some(body)).await
    }
}

pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub async fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an answer in time").unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes.split_off(end + 4) }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The status and code of a refusal, whose body must be as every refusal's.
    #[track_caller]
    pub fn refusal(&self) -> (u16, String) {
        let body = self.json();
        assert!(body["error"].as_str().is_some_and(|error| !error.is_empty()), "{body}");
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"), "{body}");
        (self.status, body["code"].as_str().unwrap().to_owned())
    }
}
