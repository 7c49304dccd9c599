//! Nodes of different versions of Sandling.

use sandling_fleet::{Engine, EtcdLedger, Ledger as _, Transaction, Write, node_tag};

use crate::etcd_server::EtcdServer;
use crate::fleet::{Node, PATIENCE, ask_as_node, start_fleet, wait_for};

/// The versions are so far apart that no such program exists yet, so this test says what one would say.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_version_is_too_far_away_is_refused_with_what_to_upgrade() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    let ask = |spoken: &str| {
        let request = format!("GET /fleet/find?workspace=default&kind=sandbox&name=x HTTP/1.1\r\n{spoken}");
        ask_as_node(&b.address, Some(a.home.path()), request.trim_end())
    };
    assert!(ask("").starts_with("HTTP/1.1 404"), "the version before said nothing");
    assert!(ask("sandling-node-protocol: 2-3").starts_with("HTTP/1.1 404"), "the next version speaks this one's, too");
    let newer = ask("sandling-node-protocol: 98-99");
    assert!(newer.starts_with("HTTP/1.1 503") && newer.contains("upgrade Sandling on this node"), "{newer}");
    let older = ask("sandling-node-protocol: 0-0");
    assert!(older.contains("upgrade Sandling on node a"), "{older}");

    let record = |protocol: &str| {
        format!(
            r#"{{"fingerprint":"f","hardware":"","address":"127.0.0.1:1","version":"9.0.0","draining":false,{protocol}}}"#
        )
    };
    let ledger = EtcdLedger::plain(Engine::first(vec![format!("http://{}", etcd.address())]), PATIENCE);
    let say = async |protocol: &str| {
        ledger.commit(Transaction::default().then(Write::put("node/z", record(protocol)))).await.unwrap();
    };
    say(r#""protocol":{"current":99,"oldest":98}"#).await;
    let of_z = format!("/v1/sandboxes/00000000-0000-4000-8000-0000{:08x}", node_tag("z"));
    wait_for("a refuses z", || a.ask("GET", &of_z, "host: x\r\n", "").body.contains("upgrade Sandling on this node"));
    let status = a.output(&["fleet", "status"]);
    let said = String::from_utf8_lossy(&status.stderr);
    assert!(said.contains("this node is too old for node z"), "{said}");

    // The next version is fine, with a word about it.
    say(r#""protocol":{"current":3,"oldest":2},"later":true"#).await;
    wait_for("a would ask z", || a.ask("GET", &of_z, "host: x\r\n", "").body.contains("node z does not answer"));
    let said = a.output(&["fleet", "status"]);
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.contains("fine while you upgrade"), "{text}");

    // What the version before does not know waits for its upgrade.
    say(r#""protocol":{"current":1,"oldest":1}"#).await;
    wait_for("a create with failover is refused because of z", || {
        let refused = a.post("/v1/sandboxes", r#"{"template":"base","failover":"snapshot"}"#);
        refused.head.starts_with("http/1.1 409") && refused.body.contains("node z must be upgraded first")
    });
}
