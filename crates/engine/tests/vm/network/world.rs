//! An engine in a namespace, and the servers around it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sandling_engine::{CreateSpec, Engine, EngineConfig, NetworkChange, NetworkConfig, NetworkSpec, Sandbox};
use sandling_network::Placement;
use sandling_network::policy::Policy;
use tempfile::TempDir;

use crate::harness::{TestEngine, chain, config, shell, spec};
use crate::namespace::ip;
use crate::servers::{self, DNS, Log, Zone};

/// Where example.com and other.com both are: a shared address, as large hosts have.
pub const SHARED: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// A public address of the host's own.
const OWN: Ipv4Addr = Ipv4Addr::new(45, 33, 32, 99);

/// Where the tests' secrets may be placed.
pub fn placements() -> Vec<Placement> {
    vec![Placement::default(), Placement::Query("key".to_owned())]
}

pub struct World {
    pub engine: TestEngine,
    pub log: Log,
}

/// Starts servers on every address, and name servers that know some of them.
pub async fn servers() -> (Log, String) {
    let (log, zone) = (Log::default(), Zone::default());
    for (name, address) in [
        ("example.com", SHARED),
        ("*.example.com", SHARED),
        ("other.com", SHARED),
        ("evil.com", SHARED),
        ("rebind.example.com", Ipv4Addr::new(169, 254, 169, 254)),
        ("private.example.com", Ipv4Addr::new(10, 0, 0, 1)),
        ("loopback.example.com", Ipv4Addr::LOCALHOST),
        ("own.example.com", OWN),
    ] {
        zone.lock().unwrap().insert(name.to_owned(), vec![address]);
    }
    ip(&["address", "add", &format!("{OWN}/32"), "dev", "lo"]);
    let tls = servers::tls();
    servers::start(&log, &zone, tls.acceptor).await;
    (log, tls.authority_pem)
}

impl World {
    pub async fn new() -> World {
        let (log, authority) = servers().await;
        let home = TempDir::new().unwrap();
        let authorities = home.path().join("authorities.pem");
        std::fs::write(&authorities, authority).unwrap();
        // SAFETY: the process of this test has one thread still, and nothing else reads the environment meanwhile.
        unsafe { std::env::set_var("SSL_CERT_FILE", &authorities) };
        let engine = open(&home).await;
        World { engine: TestEngine { engine, home }, log }
    }

    /// Lets another engine take over, as after a restart of the server; answers the same sandbox, which sleeps.
    pub async fn restart(self, sandbox: Arc<Sandbox>) -> (World, Arc<Sandbox>) {
        let World { engine: TestEngine { engine, home }, log } = self;
        let id = sandbox.id().clone();
        engine.detach().await;
        drop((sandbox, engine));
        let engine = open(&home).await;
        engine.settled().await;
        let sandbox = engine.get(&id).expect("it is still there");
        (World { engine: TestEngine { engine, home }, log }, sandbox)
    }

    pub async fn sandbox(&self, entries: &[&str], secrets: &[&str]) -> Arc<Sandbox> {
        self.sandbox_of("base", entries, secrets).await
    }

    pub async fn sandbox_of(&self, template: &str, entries: &[&str], secrets: &[&str]) -> Arc<Sandbox> {
        let secrets = secrets.iter().map(|name| (*name).to_owned()).collect();
        let network = NetworkSpec { policy: Some(allow(entries)), secrets, ..NetworkSpec::default() };
        let made = self.engine.engine.create(CreateSpec { network, ..spec(template) }).await;
        made.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// Heads of the requests that servers got.
    pub fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().requests.clone()
    }

    /// Whether any server was told this.
    pub fn heard(&self, text: &str) -> bool {
        self.requests().iter().any(|head| head.contains(text))
    }
}

async fn open(home: &TempDir) -> Arc<Engine> {
    let network = NetworkConfig { name_servers: vec![DNS], ..NetworkConfig::default() };
    Engine::open(EngineConfig { network, takeover: true, ..config(home) }).await.unwrap()
}

pub fn allow(entries: &[&str]) -> Policy {
    Policy::allow(entries.iter().map(|entry| entry.parse().unwrap()))
}

/// The status of a request from inside, or `000` if there was no answer.
pub async fn fetch(sandbox: &Arc<Sandbox>, url: &str) -> String {
    shell(sandbox, &format!("curl -s -m 30 -o /dev/null -w '%{{http_code}}' '{url}'")).await.stdout
}

/// Leaves a process that holds a connection open, sends nothing more on it, and writes down when it is cut.
pub async fn hold_connection(sandbox: &Arc<Sandbox>) {
    let code = "import socket
stream = socket.create_connection(('example.com', 80))
stream.sendall(b'GET /held HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n')
stream.recv(4096)
print('held', flush=True)
try:
    end = stream.recv(1)
except OSError as error:
    end = error
open('/tmp/cut', 'w').write(repr(end))
";
    let line = format!(
        "rm -f /tmp/cut /tmp/out; (setsid python3 -c \"{code}\" >/tmp/out 2>&1 &); until grep -q held /tmp/out; do sleep 0.05; done"
    );
    let ran = shell(sandbox, &line).await;
    assert_eq!(ran.exit.code, 0, "{}", ran.stderr);
}

pub async fn is_cut(sandbox: &Arc<Sandbox>) -> bool {
    shell(sandbox, "for i in $(seq 200); do [ -s /tmp/cut ] && exit 0; sleep 0.05; done; exit 1").await.exit.code == 0
}

pub async fn set(sandbox: &Sandbox, policy: Policy) {
    sandbox.change_network(NetworkChange { policy: policy.into(), ..NetworkChange::default() }).await.unwrap();
}
