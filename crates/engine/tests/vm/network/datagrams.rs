//! UDP of a real guest.

use std::sync::Arc;

use sandling_engine::{ForkSpec, NetworkChange, Sandbox};
use sandling_network::policy::{Mode, Policy, Refusal};
use sandling_network::{EventKind, Verdict};

use super::world::{World, allow};
use crate::harness::{eventually, shell};
use crate::isolated;

/// What becomes of a datagram with these bytes of Python: `answered`, `refused` or `silence`.
async fn ask(sandbox: &Arc<Sandbox>, host: &str, port: u16, data: &str) -> String {
    let code = format!(
        "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.connect(('{host}', {port}))
data = {data}
s.send(data)
try:
    print('answered' if s.recv(65536) == data else 'wrong')
except TimeoutError:
    print('silence')
except OSError:
    print('refused')
"
    );
    let ran = shell(sandbox, &format!("python3 -c \"{code}\"")).await;
    assert_eq!(ran.exit.code, 0, "{}", ran.stderr);
    ran.stdout.trim().to_owned()
}

isolated! {
    async fn udp_is_carried_where_it_is_allowed() {
        let world = World::new().await;
        let sandbox = world.sandbox(&["example.com", "example.com:9999", "45.33.32.156:123"], &[]).await;
        let (hello, quic) = ("b'hello'", "bytes((0xc3, 0, 0, 0, 1)) + bytes(1195)");
        for (host, port, data, expected) in [
            ("example.com", 9999, hello, "answered"),
            ("example.com", 9999, "bytes(1400)", "answered"),
            ("45.33.32.156", 123, hello, "answered"),
            ("example.com", 9999, quic, "refused"),
            ("example.com", 443, quic, "refused"),
            ("example.com", 443, hello, "refused"),
            ("example.com", 123, hello, "refused"),
            ("45.33.32.156", 9999, hello, "refused"),
            ("8.8.8.8", 53, hello, "refused"),
            ("169.254.169.254", 123, hello, "refused"),
            ("10.83.76.1", 9999, hello, "refused"),
        ] {
            assert_eq!(ask(&sandbox, host, port, data).await, expected, "{host}:{port} {data}");
        }
        let visits = || world.log.lock().unwrap().visits.iter().map(|visit| visit.port()).collect::<Vec<_>>();
        assert_eq!(visits(), [9999, 9999, 123]);
        let told = |why: Refusal| {
            let events = sandbox.network_events(0, 1000);
            events.iter().any(|told| (told.event.kind, told.event.verdict) == (EventKind::Connect, Verdict::Refused(why)))
        };
        for why in [Refusal::Quic, Refusal::PortNotListed, Refusal::NotListed, Refusal::OtherDnsServer, Refusal::Udp] {
            eventually("an event that says so", || told(why)).await;
        }

        // One that is open ends with the policy, and is told.
        let code = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.2)
s.connect(('example.com', 9999))
while True:
    try:
        s.send(b'x')
        s.recv(9)
        print('open', flush=True)
    except TimeoutError:
        pass  # any may be lost
    except OSError as error:
        open('/tmp/cut', 'w').write(type(error).__name__)
        break
";
        let line = format!("(setsid python3 -c \"{code}\" >/tmp/out 2>&1 &); until grep -q open /tmp/out; do sleep 0.05; done");
        assert_eq!(shell(&sandbox, &line).await.exit.code, 0);
        let forks = world.engine.engine.fork(&sandbox, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap();
        let child = forks[0].sandbox.clone();
        assert_eq!(ask(&child, "example.com", 9999, hello).await, "answered", "a child has the policy");
        let goes_on = "n=$(wc -l </tmp/out); for i in $(seq 200); do [ $(wc -l </tmp/out) -gt $n ] && exit 0; sleep 0.05; done; exit 1";
        assert_eq!(shell(&child, goes_on).await.exit.code, 0, "what its parent had open goes on in a child");
        child.end(sandling_engine::EndReason::Requested).await.unwrap();
        assert_eq!(shell(&sandbox, goes_on).await.exit.code, 0, "and in the parent");
        let deny = NetworkChange { policy: Policy::of(Mode::Deny).into(), ..NetworkChange::default() };
        sandbox.change_network(deny).await.unwrap();
        let cut = shell(&sandbox, "for i in $(seq 200); do [ -s /tmp/cut ] && exec cat /tmp/cut; sleep 0.05; done; exit 1").await;
        assert_eq!(cut.exit.code, 0, "it was not told");
        let after = visits().len();
        assert_eq!(ask(&sandbox, "45.33.32.156", 123, hello).await, "refused");
        assert_eq!(visits().len(), after, "reached after the policy's end");

        // What is used while learning is a policy for it.
        let learn = NetworkChange { policy: Policy::of(Mode::Learn).into(), ..NetworkChange::default() };
        sandbox.change_network(learn).await.unwrap();
        assert_eq!(ask(&sandbox, "45.33.32.156", 9999, hello).await, "answered");
        assert_eq!(sandbox.learned_policy(), allow(&["45.33.32.156:9999"]));
        drop((sandbox, child, forks));
        world.engine.close().await;
    }
}
