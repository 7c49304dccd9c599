//! The answers of a compromised QEMU: every command ends.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use sandling_vmm::qmp::Qmp;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::runtime::Builder;

/// More does not fit into a socket's buffer.
const MOST: usize = 64 * 1024;
const LIMIT: Duration = Duration::from_secs(1);

pub fn run(data: &[u8]) {
    let (mut qemu, own) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    qemu.write_all(&data[..data.len().min(MOST)]).expect("it fits");
    qemu.shutdown(Shutdown::Write).expect("a socket");
    own.set_nonblocking(true).expect("a socket");
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let Ok(qmp) = Qmp::negotiate(UnixStream::from_std(own).expect("a socket"), LIMIT).await else { return };
        let mut events = qmp.events();
        for command in ["query-status", "query-block"] {
            drop(qmp.execute(command, json!({}), LIMIT).await);
        }
        while events.try_recv().is_ok() {}
    });
}
