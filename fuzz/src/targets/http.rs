//! The HTTP proxy of the gateway, between a hostile guest and a hostile server. The first byte selects plain HTTP or
//! intercepted TLS, the first section is what the guest sends, and the rest is what the server answers.

use std::sync::LazyLock;

use sandling_network::fuzzing::HttpProxy;
use sandling_network::{HostName, Placement, Secret, SecretSet};

use crate::input::Input;

const PLACEHOLDER: &str = "sandling-placeholder-1";
const VALUE: &str = "hunter2-the-real-one";

thread_local! {
    // Never dropped: at the end of a thread, its runtime could not be.
    static PROXY: &'static HttpProxy = Box::leak(Box::new(HttpProxy::new(secrets())));
}

static HOST: LazyLock<HostName> = LazyLock::new(|| "api.example.com".parse().expect("a name"));

fn secrets() -> SecretSet {
    let placements = ["header Authorization: Bearer", "header X-Key", "query key", "basic"];
    let placements: Vec<Placement> = placements.iter().map(|text| text.parse().expect("a placement")).collect();
    let hosts = vec![HOST.as_str().parse().expect("a host")];
    let secret = Secret::new("token", PLACEHOLDER, VALUE.to_owned(), hosts, placements);
    SecretSet::new(vec![secret.expect("a secret")])
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let opened = (input.byte() & 1 == 1).then(|| &*HOST);
    let (sent, answered) = (input.section(), input.0);
    let relayed = PROXY.with(|proxy| proxy.relay(opened, sent, answered));
    if contains(sent, VALUE) {
        // The guest knows the value, so it says nothing.
        return;
    }
    if opened.is_none() {
        assert!(!contains(&relayed.to_server, VALUE), "a secret went out without TLS");
        return;
    }
    assert!(!contains(&relayed.to_guest, VALUE), "the guest got the secret");
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
