//! Packages from the real registries, under the presets. Not in a namespace: this one goes out.

use std::time::Duration;

use sandling_engine::{CreateSpec, Engine, EngineConfig, NetworkConfig, NetworkSpec, RunSpec};
use sandling_protocol::WriteMode;
use tempfile::TempDir;

use super::world::allow;
use crate::harness::{TestEngine, config, run, spec};

/// Where test machines put a mirror: addresses that are nobody's.
const DOCUMENTATION: [&str; 3] = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"];
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

#[tokio::test]
async fn pip_and_npm_install_through_the_gateway_under_their_presets() {
    let home = TempDir::new().unwrap();
    let opened = DOCUMENTATION.iter().map(|net| net.parse().unwrap()).collect();
    let network = NetworkConfig { opened, ..NetworkConfig::default() };
    let engine = Engine::open(EngineConfig { network, ..config(&home) }).await.unwrap();
    let engine = TestEngine { engine, home };
    let network = NetworkSpec { policy: Some(allow(&["pypi", "npm"])), ..NetworkSpec::default() };
    let sandbox = engine.engine.create(CreateSpec { network, ..spec("code-interpreter") }).await.unwrap();
    // Whom the host trusts, its guests may trust.
    let bundle = std::fs::read(std::env::var("SSL_CERT_FILE").unwrap_or_else(|_| BUNDLE.to_owned())).unwrap();
    let mut upload = sandbox.write_file("/tmp/authorities.pem", WriteMode::Replace, None, None).unwrap();
    upload.send(&bundle).await.unwrap();
    upload.finish().await.unwrap();
    for line in [
        "PIP_CERT=/tmp/authorities.pem pip install -q --no-input --disable-pip-version-check six==1.16.0 --target /tmp/six \
         --ignore-installed && PYTHONPATH=/tmp/six python3 -c 'import six; print(six.__file__, six.__version__)'",
        "mkdir -p /tmp/n && cd /tmp/n && NODE_EXTRA_CA_CERTS=/tmp/authorities.pem npm install --no-audit --no-fund \
         --no-update-notifier is-number@7.0.0 && node -p 'require(\"is-number\")(7) + \" /tmp/n 7.0.0\"'",
    ] {
        let spec = RunSpec { timeout: Some(Duration::from_secs(1200)), ..RunSpec::shell(line) };
        let ran = run(&sandbox, spec).await;
        let events: Vec<_> = sandbox.network_events(0, 20);
        assert_eq!(ran.exit.code, 0, "{}\n{}\n{events:#?}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("/tmp/"), "{}", ran.stdout);
    }
    let spec = RunSpec::shell("curl -s -m 30 -o /dev/null https://example.com/; echo $?");
    assert_eq!(run(&sandbox, spec).await.stdout, "6\n", "nothing else resolves");
    engine.close().await;
}
