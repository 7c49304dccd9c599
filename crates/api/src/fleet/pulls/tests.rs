//! Pulls from a node that is cut off, or sends what it should not.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sandling_engine::{Engine, EngineConfig, TemplateOffer};
use sandling_fleet::{Member, NodeRecord};
use sandling_image::Existing;
use sandling_service::{Service, ServiceSettings, WorkspaceName};
use sandling_wire::Home;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::super::member::{Fleet, NodeChoices};
use super::super::settings::FleetSettings;
use super::pull::{Pull, Report};
use crate::app::App;
use crate::tls::LocalCertificate;

/// A template without bakes, which no machine can start.
const ARCHIVE: &[u8] = include_bytes!("../../../../image/tests/golden/v1/template.tar.zst");
const SUBDIRECTORIES: [&str; 6] = ["images", "names", "roots", "kernels", "initrds", "scratch"];

/// A node without templates, and the certificate of another one.
struct Node {
    app: Arc<App>,
    fleet: Arc<Fleet>,
    directory: TempDir,
}

async fn open_app(home: Home) -> Arc<App> {
    let engine = Engine::open(EngineConfig::new(home).unwrap()).await.unwrap();
    App::new(engine.clone(), Service::open(engine, ServiceSettings::default()).unwrap())
}

fn home(directory: &Path) -> Home {
    Home::new(directory.join("home")).with_templates(directory.join("templates"))
}

impl Node {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = home(directory.path());
        let app = open_app(home.clone()).await;
        fs::create_dir_all(home.fleet()).unwrap();
        let settings = |name: &str| FleetSettings {
            name: name.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            engine: vec!["http://127.0.0.1:1".to_owned()],
            engine_generation: 0,
            runs_engine: false,
            fingerprint: format!("machine-of-{name}"),
            store: None,
            joined_ms: 1,
        };
        settings("b").store(&home).unwrap();
        let fleet = Fleet::new(settings("b"), &home, &app.engine, NodeChoices::default()).unwrap();
        settings("a").certificate(&home).unwrap();
        Self { app, fleet, directory }
    }

    /// The other node, which answers one request with these bytes and closes the connection.
    async fn peer(&self, response: Vec<u8>) -> Member {
        let files = LocalCertificate::at(&home(self.directory.path()).fleet());
        let chain = CertificateDer::pem_file_iter(files.certificate()).unwrap().collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(files.key()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            let _ = stream.write_all(&response).await;
            let _ = stream.shutdown().await;
        });
        let record: NodeRecord = serde_json::from_value(json!({
            "fingerprint": "machine-of-a", "hardware": "tcg", "address": address, "version": "0", "draining": false,
        }))
        .unwrap();
        Member::new("a".into(), record)
    }

    /// Pulls the template from a peer that sends this.
    async fn pull(&self, content: &str, response: Vec<u8>) -> Result<u64, String> {
        let pull = Pull { from: self.peer(response).await, offer: offer(content) };
        self.fleet.pull(&self.app, &WorkspaceName::default(), pull, |_| ()).await
    }

    #[track_caller]
    fn has_nothing(&self) {
        for sub in SUBDIRECTORIES {
            let mut left = fs::read_dir(self.directory.path().join("templates").join(sub)).unwrap();
            assert!(left.next().is_none(), "{sub} is not empty");
        }
        assert!(self.fleet.pulls.copies.all().unwrap().is_empty());
    }
}

fn offer(content: &str) -> TemplateOffer {
    let offer: Value = json!({
        "name": "base", "content": content, "built_in": true, "created_at": null, "bytes": 1 << 20, "reach": {}, "snapshot": null,
    });
    serde_json::from_value(offer).unwrap()
}

fn response(announced: usize, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\ncontent-length: {announced}\r\n\r\n").as_bytes(), body].concat()
}

/// The content of the template in the archive.
async fn content() -> String {
    let directory = tempfile::tempdir().unwrap();
    let app = open_app(home(directory.path())).await;
    let imported = app.engine.import_template(None, Existing::Keep, ARCHIVE, |_| ()).await.unwrap();
    imported.template.image.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_and_half_a_template_leave_nothing_and_a_repeated_pull_gets_all_of_it() {
    let (content, node) = (content().await, Node::open().await);
    let whole = response(ARCHIVE.len(), ARCHIVE);
    let failed = |why: Result<u64, String>, expected: &str| {
        let why = why.unwrap_err();
        assert!(why.starts_with("template `base` was not copied from node a: ") && why.contains(expected), "{why}");
    };

    // Another template than the one that was offered.
    let other = "0".repeat(content.len());
    failed(node.pull(&other, whole.clone()).await, "another template than it had offered; nothing was stored");
    node.has_nothing();

    // Bytes that do not match their digest.
    for at in [ARCHIVE.len() / 3, ARCHIVE.len() / 2, ARCHIVE.len() - 3] {
        let mut changed = ARCHIVE.to_vec();
        changed[at] ^= 1;
        failed(node.pull(&content, response(changed.len(), &changed)).await, "nothing was stored");
        node.has_nothing();
    }

    // A connection that is cut, and an end that comes too early.
    let half = &ARCHIVE[..ARCHIVE.len() / 2];
    for announced in [ARCHIVE.len(), half.len()] {
        failed(node.pull(&content, response(announced, half)).await, "nothing was stored, so pull it again");
        node.has_nothing();
    }

    // A refusal.
    let refusal = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\nno lease.".to_vec();
    failed(node.pull(&content, refusal).await, "node a does not answer (no lease.)");
    failed(
        node.pull(&content, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec()).await,
        "no template `base`",
    );
    node.has_nothing();

    let (peer, report): (_, Report) = (node.peer(whole).await, Arc::new(|_| ()));
    node.fleet.transfer(&node.app, &WorkspaceName::default(), &peer, offer(&content), &report).await.unwrap();
    let here = node.app.engine.list_templates("default").unwrap();
    let base = here.iter().find(|template| template.name == "base").unwrap();
    assert_eq!(base.content(), Some(&*content));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_does_not_fit_on_the_disk_is_not_asked_for() {
    let node = Node::open().await;
    let mut offered = serde_json::to_value(offer("0123456789abcdef0123456789abcdef")).unwrap();
    offered["bytes"] = json!(u64::MAX >> 1);
    // Nobody listens there.
    let record: NodeRecord = serde_json::from_value(json!({
        "fingerprint": "machine-of-a", "hardware": "tcg", "address": "127.0.0.1:1", "version": "0", "draining": false,
    }))
    .unwrap();
    let pull = Pull { from: Member::new("a".into(), record), offer: serde_json::from_value(offered).unwrap() };
    let why = node.fleet.pull(&node.app, &WorkspaceName::default(), pull, |_| ()).await.unwrap_err();
    assert!(why.contains("disk"), "{why}");
    node.has_nothing();
}
